//! The requests that clients can make of this host. Each connection ([`crate::connection`]) has
//! one.
//!
//! It keeps no state between requests. Everything is read from files, so any number of clients and
//! a restarted server see the same.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rgpu_protocol::frame::MAX_BODY;
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{Digest, FromAgent, Plan, Probe};

use crate::blob::{BlobEncoding, Blobs};
use crate::connection::{launch, listing};
use crate::control::{self, Control};
use crate::job::{FolderDraft, JobFolder, SOCKET};
use crate::root::{RootCandidate, RootError, Roots};
use crate::setup::ConnectionSettings;
use crate::supervisor::facts as relayed_facts;
use crate::wire::write_message;
use crate::{host, job_state, plan_check, quota};

/// This host's folders and the requests they serve.
#[derive(Debug)]
pub struct Service {
    roots: Roots,
    blobs: Option<Blobs>,
    /// Socket of another agent that carries out the jobs; `None` if this one does.
    relay_socket: Option<PathBuf>,
}

/// A refused request, with a code for programs and a text for users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// The request's type: `submit`, `blob`, `fetch` …
    pub request: &'static str,
    /// The reason as a code, for programs.
    pub code: &'static str,
    /// Explanation for the user.
    pub text: String,
}

impl Refusal {
    /// The refusal of `request`, with a code for programs and a text for users.
    pub fn new(request: &'static str, code: &'static str, text: impl Into<String>) -> Self {
        Self { request, code, text: text.into() }
    }
}

impl From<Refusal> for FromAgent {
    fn from(refusal: Refusal) -> Self {
        let Refusal { request, code, text } = refusal;
        Self::Refused { request: request.into(), code: code.into(), text }
    }
}

/// The result of submitting a plan.
#[derive(Debug)]
pub enum SubmitResult {
    /// The job's supervisor has been started.
    Started {
        /// The folder of the job that runs.
        folder: JobFolder,
        /// Connection to the job's supervisor.
        link: UnixStream,
    },
    /// The same plan is already on this host.
    AlreadyHere(JobFolder),
    /// The client must send these blobs first.
    Missing(Vec<Digest>),
}

impl Service {
    /// Chooses the folder to work in. If none is usable, the requests that need one are refused.
    pub fn open(candidates: &[RootCandidate]) -> Self {
        let roots = Roots::choose(candidates);
        if let Err(RootError::Full { path, .. }) = roots.main() {
            // Our own old jobs may fill the disk. Clients after this one benefit.
            quota::sweep_if_due(path);
        }
        Self { blobs: roots.main().ok().map(Blobs::new), roots, relay_socket: None }
    }

    /// Sets the socket of another agent that carries out the jobs; `None` for this agent.
    pub fn with_relay(self, relay_socket: Option<PathBuf>) -> Self {
        Self { relay_socket, ..self }
    }

    /// Restarts relays of jobs that another agent carries out and whose relay has ended with its
    /// host.
    pub fn restart_relays(&self) {
        if let (Ok(root), Some(relay_socket)) = (self.roots.main(), &self.relay_socket) {
            launch::restart_relays(root, relay_socket);
        }
    }

    /// Returns the folder for new jobs, and the blob store.
    fn store(&self, request: &'static str) -> Result<(&Path, &Blobs), Refusal> {
        match (self.roots.main(), &self.blobs) {
            (Ok(root), Some(blobs)) => Ok((root, blobs)),
            (Err(e), _) => Err(Refusal::new(request, e.code(), e.to_string())),
            (Ok(_), None) => Err(Refusal::new(request, "no_folder", "no blob store")),
        }
    }

    /// Returns the blob store.
    pub fn blobs(&self) -> Result<&Blobs, Refusal> {
        self.store("blob").map(|(_, blobs)| blobs)
    }

    /// Returns facts about the host and the answers to `probes`, short enough for one message.
    /// Setting `stop` ends the programs that probes run.
    pub fn facts(
        &self,
        probes: &[Probe],
        setup: &ConnectionSettings,
        stop: &AtomicBool,
    ) -> Result<AgentFacts, Refusal> {
        if let Some(relay_socket) = &self.relay_socket {
            return relayed_facts(relay_socket, probes, setup, stop)
                .map_err(|text| Refusal::new("facts", "no_container", text));
        }
        let root_path = self.roots.main().map(|r| r.display().to_string()).unwrap_or_default();
        let mut facts = host::facts(probes, &root_path, setup, stop);
        host::shorten(&mut facts, MAX_BODY / 2);
        Ok(facts)
    }

    /// Creates a folder for a plan that waits for its blobs; see [`Self::submit_draft`].
    pub(crate) fn draft(&self) -> Option<FolderDraft> {
        let (root, _) = self.store("submit").ok()?;
        // Errors are reported when the job is created.
        FolderDraft::new(root).ok()
    }

    /// Starts a plan whose blobs are all here, in `draft`, into which inputs may have been copied
    /// already. If its job exists, it continues and receives the secrets again: the connection that
    /// started it may have died before it sent them.
    pub(crate) fn submit_draft(
        &self,
        plan: &Plan,
        secrets: &BTreeMap<String, String>,
        setup: &ConnectionSettings,
        draft: Option<FolderDraft>,
    ) -> Result<SubmitResult, Refusal> {
        let refuse = |code, text: String| Err(Refusal::new("submit", code, text));
        if job_state::has_results_only() {
            let text = "this host only hands out the results of jobs: no job may run here";
            return refuse("results_only", text.into());
        }
        if let Err(e) = plan_check::check(plan) {
            return refuse(e.code(), e.to_string());
        }
        if let Some(existing) = JobFolder::find(self.roots.all(), &plan.job)
            && !existing.discard_unbegun().unwrap_or(false)
        {
            return join(existing, plan, secrets);
        }
        if self.relay_socket.is_some() && !plan.secrets.is_empty() {
            let text = "a job's secrets would be stored on the platform's volume: give them to the app \
                 instead";
            return refuse("no_secrets", text.into());
        }
        let facts_match = |facts: &String| self.relay_socket.is_some() || *facts == host::key();
        if !plan.facts.as_ref().is_none_or(facts_match) {
            let text = "the plan was made for another host, or the host has rebooted";
            return refuse("facts_changed", text.into());
        }
        if let Some(name) = plan.secrets.iter().find(|name| !secrets.contains_key(*name)) {
            return refuse("no_secrets", format!("the plan's secret `{name}` has no value"));
        }
        let (root, blobs) = self.store("submit")?;
        match launch::launch(root, plan, blobs, setup, self.relay_socket.as_deref(), draft) {
            Ok(launch::LaunchResult::Started { folder, mut link }) => {
                pass_secrets(&mut link, secrets);
                Ok(SubmitResult::Started { folder, link })
            }
            Ok(launch::LaunchResult::Missing(digests)) => Ok(SubmitResult::Missing(digests)),
            Ok(launch::LaunchResult::Exists) => {
                match JobFolder::find(self.roots.all(), &plan.job) {
                    Some(there) => join(there, plan, secrets),
                    None => refuse("io", "the job was removed while it was being created".into()),
                }
            }
            Err((code, text)) => refuse(code, text),
        }
    }

    /// Returns a job's folder.
    pub fn find(&self, request: &'static str, job: &str) -> Result<JobFolder, Refusal> {
        JobFolder::find(self.roots.all(), job).ok_or_else(|| {
            let text = format!("no job `{}` on this host", job.escape_debug());
            Refusal::new(request, "no_such_job", text)
        })
    }

    /// Returns the jobs and their disk use as a message.
    pub fn listing(&self) -> FromAgent {
        listing::answer(&self.roots)
    }

    /// Returns a job's plan.
    pub fn plan(&self, job: &str) -> Result<Plan, Refusal> {
        let plan = self.find("attach", job)?.plan();
        plan.map_err(|e| Refusal::new("attach", e.code(), e.to_string()))
    }

    /// Removes an ended job.
    pub fn forget(&self, job: &str) -> Result<(), Refusal> {
        let removed = listing::set_aside(&self.find("forget", job)?)?;
        removed.remove().map_err(|e| Refusal::new("forget", e.code(), e.to_string()))
    }

    /// Stores a blob as it arrived on the wire.
    pub fn put_blob(
        &self,
        digest: &Digest,
        size: u64,
        wire: &[u8],
        packed: BlobEncoding,
    ) -> Result<(), Refusal> {
        let put = self.blobs()?.put(digest, size, wire, packed);
        put.map_err(|e| Refusal::new("blob", e.code(), e.to_string()))
    }
}

/// Attaches to an existing job if `plan` is the same.
fn join(
    existing: JobFolder,
    plan: &Plan,
    secrets: &BTreeMap<String, String>,
) -> Result<SubmitResult, Refusal> {
    match existing.plan() {
        Ok(same) if same == *plan => {
            if !secrets.is_empty()
                && let Ok(mut link) = control::connect(existing.path(), SOCKET)
            {
                pass_secrets(&mut link, secrets);
            }
            Ok(SubmitResult::AlreadyHere(existing))
        }
        Ok(_) => {
            let text = format!(
                "another plan of the name `{}` is on this host: a run of another project or folder has \
                 had its id",
                plan.job
            );
            Err(Refusal::new("submit", "job_exists", text))
        }
        Err(e) => Err(Refusal::new("submit", e.code(), e.to_string())),
    }
}

fn pass_secrets(link: &mut UnixStream, secrets: &BTreeMap<String, String>) {
    if !secrets.is_empty() {
        // Followers notice if the supervisor has exited.
        let _ = write_message(link, &Control::Secrets(secrets.clone()));
    }
}
