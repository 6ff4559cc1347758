//! What is known of a host, asked once and kept: a warm job asks nothing.
//!
//! Facts are cached by the remote's definition; the plan names the host and boot they were taken
//! from, so a host that has changed answers `facts_changed` and is asked again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_protocol::HostFacts;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::cancel::CancelSignal;
use super::event::{Reporter, RunEvent};
use super::failed_rungs::FailedRungs;
use super::programs::Programs;
use crate::error::{Exit, Failure, Result};
use crate::remote::{HostLink, OnRemote, RemoteSpec};
use crate::store::atomic;
use crate::tool;

/// How long facts are believed without asking, in seconds: tools get installed without a reboot.
const MAX_FACTS_AGE_S: i64 = 24 * 3600;

#[derive(Serialize, Deserialize)]
struct CachedFacts {
    /// Facts of another version may lack what this one needs.
    rgpu: String,
    asked_s: i64,
    facts: HostFacts,
}

/// The facts of one remote on this laptop.
pub struct FactsCache {
    path: PathBuf,
    /// How long its facts are believed, in seconds.
    keep_s: i64,
}

impl FactsCache {
    /// The cache for this remote. Compilers that set-up brought are part of what is asked, so other
    /// compilers are other facts.
    pub fn new(cache: &Path, spec: &RemoteSpec, compilers: &BTreeMap<String, String>) -> Self {
        let definition = serde_json::to_vec(&(spec, compilers)).unwrap_or_default();
        let digest = rgpu_protocol::Digest::from_bytes(&Sha256::digest(&definition).into());
        let path = cache.join("facts").join(format!("{}.json", &digest.as_str()[..24]));
        // What this machine has is what the asking shell finds, and asking it is quick.
        Self { path, keep_s: if spec.name == "local" { 0 } else { MAX_FACTS_AGE_S } }
    }

    /// The kept facts, if they may still be believed.
    pub fn load(&self, now_s: i64) -> Option<HostFacts> {
        let kept = self.kept()?;
        (0..self.keep_s).contains(&(now_s - kept.asked_s)).then_some(kept.facts)
    }

    /// The facts as the host told them last, however long ago: enough to show a plan by.
    pub fn last(&self) -> Option<HostFacts> {
        self.kept().map(|kept| kept.facts)
    }

    fn kept(&self) -> Option<CachedFacts> {
        let kept: CachedFacts = serde_json::from_slice(&std::fs::read(&self.path).ok()?).ok()?;
        (kept.rgpu == env!("CARGO_PKG_VERSION")).then_some(kept)
    }

    /// The rungs that failed on this remote, kept beside its facts.
    pub fn failed_rungs(&self, remote: &str) -> FailedRungs {
        FailedRungs::new(self.path.with_extension("failed.json"), remote)
    }

    /// Forgets them.
    pub fn forget(&self) {
        // Facts that were never there are forgotten as well.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Asks the host and keeps the answer.
    ///
    /// # Errors
    /// The link, or the user stopped waiting.
    pub async fn ask(
        &self,
        link: &mut HostLink,
        spec: &RemoteSpec,
        programs: &Programs,
        now_s: i64,
        reporter: &mut dyn Reporter,
        cancel: &CancelSignal,
    ) -> Result<HostFacts> {
        reporter.say(&RunEvent::Asking {});
        let none = BTreeMap::new();
        // What set-up installed here is here alone.
        let overrides = if super::is_local(link) { &programs.compilers } else { &none };
        let probes = tool::probes(overrides);
        let mut cancel = cancel.clone();
        // What still answers there is ended by the agent, when this conversation ends.
        let answers = tokio::select! {
            answers = link.facts(&probes) => Some(answers),
            () = cancel.beyond(0) => None,
        };
        let Some(answers) = answers else {
            let what = "cancelled while the host was asked what it has";
            return Err(Failure::new(Exit::Cancelled, "cancelled", what));
        };
        let answers = answers.on(link.remote())?;
        let facts = tool::facts(&spec.name, link.remote().transport(), answers);
        let kept =
            CachedFacts { rgpu: env!("CARGO_PKG_VERSION").to_owned(), asked_s: now_s, facts };
        if let Ok(bytes) = serde_json::to_vec(&kept) {
            // A cache that cannot be written costs time, nothing else.
            let _ = atomic::write(&self.path, &bytes);
        }
        Ok(kept.facts)
    }
}
