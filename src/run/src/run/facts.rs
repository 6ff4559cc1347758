//! Caches the facts of a host, so that later jobs need not ask for them.
//!
//! The cache is keyed by the remote's definition. A plan names the host and boot of its facts; if
//! the host has changed it answers `facts_changed` and is asked again.

#![expect(clippy::disallowed_methods, reason = "rgpu's own cache")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_protocol::HostFacts;
use serde::{Deserialize, Serialize};

use super::cancel::CancelSignal;
use super::event::{Reporter, RunEvent};
use super::failed_rungs::FailedRungs;
use super::programs::Programs;
use crate::saved_json;
use crate::store::atomic;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::tool;
use rgpu_remote::{HostLink, OnRemote, RemoteSpec};

/// Cached facts expire after this many seconds: tools get installed without a reboot.
const MAX_FACTS_AGE_S: i64 = 24 * 3600;

#[derive(Serialize, Deserialize)]
struct CachedFacts {
    /// Version of rgpu: facts of another version may lack fields.
    rgpu: String,
    asked_s: i64,
    facts: HostFacts,
}

/// A try to reach a remote that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTry {
    /// When, in seconds since 1970.
    pub at_s: i64,
    /// Why, in a sentence.
    pub text: String,
}

/// The cached facts of one remote.
pub struct FactsCache {
    path: PathBuf,
    /// Facts older than this many seconds are not used.
    keep_s: i64,
}

impl FactsCache {
    /// The cache for this remote. Compilers that set-up installed are part of its key, since they
    /// change the facts.
    pub fn new(cache: &Path, spec: &RemoteSpec, compilers: &BTreeMap<String, String>) -> Self {
        let definition = serde_json::to_vec(&(spec, compilers)).unwrap_or_default();
        let digest = rgpu_protocol::Digest::sha256(&definition);
        let path = cache.join("facts").join(format!("{}.json", &digest.as_str()[..24]));
        // Asking is quick, and the tools found on this machine depend on the shell. Each job of
        // Slurm gets another node, or other GPUs of the same one.
        let changes = spec.name == "local" || spec.scheme() == "slurm";
        Self { path, keep_s: if changes { 0 } else { MAX_FACTS_AGE_S } }
    }

    /// The cached facts, if they have not expired.
    pub fn load(&self, now_s: i64) -> Option<HostFacts> {
        let cached = self.read_cached()?;
        (0..self.keep_s).contains(&(now_s - cached.asked_s)).then_some(cached.facts)
    }

    /// The cached facts of any age, for showing a plan.
    pub fn last(&self) -> Option<HostFacts> {
        self.read_cached().map(|cached| cached.facts)
    }

    /// The cached facts of any age, with the time at which the host was asked, in seconds since
    /// 1970.
    pub fn last_with_time(&self) -> Option<(i64, HostFacts)> {
        self.read_cached().map(|cached| (cached.asked_s, cached.facts))
    }

    /// The last try to reach the remote that failed. It may be older than the facts.
    pub fn last_failed_try(&self) -> Option<FailedTry> {
        saved_json::read_cached(&self.failed_try_path())
    }

    /// Records that the remote could not be reached.
    pub fn record_failed_try(&self, failed: &FailedTry) {
        if let Ok(bytes) = serde_json::to_vec(failed) {
            // A record that cannot be written is only missing in lists of hosts.
            let _ = atomic::write_private(&self.failed_try_path(), &bytes);
        }
    }

    fn failed_try_path(&self) -> PathBuf {
        self.path.with_extension("unreached.json")
    }

    fn read_cached(&self) -> Option<CachedFacts> {
        let cached: CachedFacts = saved_json::read_cached(&self.path)?;
        (cached.rgpu == env!("CARGO_PKG_VERSION")).then_some(cached)
    }

    /// The stored failures of rungs on this remote.
    pub fn failed_rungs(&self, remote: &str) -> FailedRungs {
        FailedRungs::new(self.path.with_extension("failed.json"), remote)
    }

    /// Removes the cached facts.
    pub fn forget(&self) {
        // The file may not exist.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Asks the host for its facts and caches them.
    pub async fn ask(
        &self,
        link: &mut HostLink,
        spec: &RemoteSpec,
        programs: &Programs,
        now_s: i64,
        reporter: &mut dyn Reporter,
        cancel: &CancelSignal,
    ) -> Result<HostFacts> {
        reporter.report(&RunEvent::Asking {});
        let none = BTreeMap::new();
        // Tools that set-up installed here are not on other hosts.
        let overrides = if super::is_local(link) { &programs.compilers } else { &none };
        let probes = tool::probes(overrides);
        let mut cancel = cancel.clone();
        // The agent ends the probes still running when the connection closes.
        let answers = tokio::select! {
            answers = link.facts(&probes) => Some(answers),
            () = cancel.wait_for_more_than(0) => None,
        };
        let Some(answers) = answers else {
            let what = "cancelled while asking the host for its GPUs and tools";
            return Err(Failure::new(Exit::Cancelled, "cancelled", what));
        };
        let answers = answers.on(link.remote())?;
        let facts = tool::facts(&spec.name, link.remote().transport(), answers);
        let cached =
            CachedFacts { rgpu: env!("CARGO_PKG_VERSION").to_owned(), asked_s: now_s, facts };
        if let Ok(bytes) = serde_json::to_vec(&cached) {
            // A cache that cannot be written only costs time.
            let _ = atomic::write_private(&self.path, &bytes);
        }
        Ok(cached.facts)
    }
}
