//! What a client may ask of this host, whichever way the question came: a conversation over a byte
//! stream ([`crate::front`]) and the HTTP face both ask here.
//!
//! Nothing is remembered between two questions: the truth lies in files, so any number of clients,
//! and a server that was started anew, find the same.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rgpu_protocol::frame::{Kind, MAX_BODY};
use rgpu_protocol::message::JobLine;
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{Digest, FromAgent, Plan, Probe};

use crate::blob::{Blobs, Packed};
use crate::connection::{fetch, launch, listing};
use crate::control::{self, Control};
use crate::inside::open_regular;
use crate::job::{FolderDraft, JobFolder, RemovedFolder, SOCKET};
use crate::root::{RootCandidate, RootError, Roots};
use crate::setup::Setup;
use crate::supervisor::facts as relayed_facts;
use crate::wire::{write_frame, write_message};
use crate::{host, plan_check, quota};

/// This host's folders, and what may be asked of them.
#[derive(Debug)]
pub struct Service {
    roots: Roots,
    blobs: Option<Blobs>,
    /// The socket of another agent that carries jobs out.
    way: Option<PathBuf>,
}

/// A request that is not met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    /// What was asked: `submit`, `blob`, `fetch` …
    pub request: &'static str,
    /// A short word for machines.
    pub code: &'static str,
    /// In words.
    pub text: String,
}

impl Refusal {
    /// A request that is not met.
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

/// What became of a plan.
#[derive(Debug)]
pub enum SubmitResult {
    /// Its supervisor was started.
    Begun {
        /// The job.
        folder: JobFolder,
        /// The way to its supervisor.
        link: UnixStream,
    },
    /// The same plan is here already.
    There(JobFolder),
    /// These blobs must come first.
    Missing(Vec<Digest>),
}

/// What a client may tell a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobCommand {
    /// A client is there: the lease begins anew.
    Renew,
    /// The client goes away on purpose: the job has its own limits.
    Detach,
    /// Stop; the terminal event confirms.
    Cancel,
}

impl JobCommand {
    /// As requests and answers name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Renew => "renew",
            Self::Detach => "detach",
            Self::Cancel => "cancel",
        }
    }
}

/// The way to a job's standard input. Bytes keep their order on one way only, so keep it.
#[derive(Debug)]
pub struct JobInput(UnixStream);

impl JobInput {
    /// Sends the bytes that stand at `offset` of the whole input (`None`: behind all that came), and
    /// says whether they are the last. The supervisor keeps them in a file until
    /// a program takes them, so this does not wait for the program.
    ///
    /// # Errors
    /// The supervisor is gone.
    pub fn send(&mut self, bytes: &[u8], last: bool, mut offset: Option<u64>) -> io::Result<()> {
        let mut pieces = bytes.chunks(MAX_BODY).peekable();
        while let Some(piece) = pieces.next() {
            let eof = last && pieces.peek().is_none();
            let len = piece.len() as u64;
            write_message(&mut self.0, &Control::Stdin { len, eof, offset })?;
            write_frame(&mut self.0, Kind::Output, piece)?;
            offset = offset.map(|at| at.saturating_add(len));
        }
        if bytes.is_empty() {
            write_message(&mut self.0, &Control::Stdin { len: 0, eof: last, offset })?;
        }
        Ok(())
    }
}

impl Service {
    /// Chooses the folder to work in. That there is none is said by the requests that need one.
    pub fn open(candidates: &[RootCandidate]) -> Self {
        let roots = Roots::choose(candidates);
        if let Err(RootError::Full { path, .. }) = roots.main() {
            // Our own leftovers may be what fills it; the next client profits.
            quota::sweep_now_and_then(path);
        }
        Self { blobs: roots.main().ok().map(Blobs::new), roots, way: None }
    }

    /// The same with jobs that another agent carries out, behind the socket `way`, if there is one.
    pub fn through(self, way: Option<PathBuf>) -> Self {
        Self { way, ..self }
    }

    /// Goes on with jobs that another agent carries out, and whose relay ended with its host.
    pub fn take_up(&self) {
        if let (Ok(root), Some(way)) = (self.roots.main(), &self.way) {
            launch::take_up(root, way);
        }
    }

    /// Where blobs and new jobs go.
    fn store(&self, request: &'static str) -> Result<(&Path, &Blobs), Refusal> {
        match (self.roots.main(), &self.blobs) {
            (Ok(root), Some(blobs)) => Ok((root, blobs)),
            (Err(e), _) => Err(Refusal::new(request, e.code(), e.to_string())),
            (Ok(_), None) => Err(Refusal::new(request, "no_folder", "no blob store")),
        }
    }

    /// The blob store.
    ///
    /// # Errors
    /// No folder of this host can hold one.
    pub fn blobs(&self) -> Result<&Blobs, Refusal> {
        self.store("blob").map(|(_, blobs)| blobs)
    }

    /// What is known of the host, with the answers to `probes`, short enough for one message. Nobody
    /// waits for it any more once `stop` is set: what the probes run is ended.
    ///
    /// # Errors
    /// The other agent, if that is who knows, cannot be asked.
    pub fn facts(
        &self,
        probes: &[Probe],
        setup: &Setup,
        stop: &AtomicBool,
    ) -> Result<AgentFacts, Refusal> {
        if let Some(way) = &self.way {
            return relayed_facts(way, probes, setup, stop)
                .map_err(|text| Refusal::new("facts", "no_container", text));
        }
        let folder = self.roots.main().map(|r| r.display().to_string()).unwrap_or_default();
        let mut facts = host::facts(probes, &folder, setup, stop);
        host::shorten(&mut facts, MAX_BODY / 2);
        Ok(facts)
    }

    /// Starts a plan whose blobs are all here. One that is here already is left to go on, and gets
    /// the secrets: the connection that began it may have died before it sent them.
    ///
    /// # Errors
    /// A plan that cannot be carried out here, with the reason.
    pub fn submit(
        &self,
        plan: &Plan,
        secrets: &BTreeMap<String, String>,
        setup: &Setup,
    ) -> Result<SubmitResult, Refusal> {
        self.submit_draft(plan, secrets, setup, None)
    }

    /// A folder for a plan that waits for its blobs, which [`Self::submit_draft`] makes a job of.
    pub(crate) fn draft(&self) -> Option<FolderDraft> {
        let (root, _) = self.store("submit").ok()?;
        // Whatever is wrong is told when the job is made.
        FolderDraft::new(root).ok()
    }

    /// The same as [`Self::submit`] with a folder in which its inputs were filled already.
    pub(crate) fn submit_draft(
        &self,
        plan: &Plan,
        secrets: &BTreeMap<String, String>,
        setup: &Setup,
        draft: Option<FolderDraft>,
    ) -> Result<SubmitResult, Refusal> {
        let refuse = |code, text: String| Err(Refusal::new("submit", code, text));
        if let Err(e) = plan_check::check(plan) {
            return refuse(e.code(), e.to_string());
        }
        if let Some(there) = JobFolder::find(self.roots.all(), &plan.job)
            && !there.discard_unbegun().unwrap_or(false)
        {
            return join(there, plan, secrets);
        }
        if self.way.is_some() && !plan.secrets.is_empty() {
            let text =
                "a job's secrets would lie on the platform's volume: give them to the app instead";
            return refuse("no_secrets", text.into());
        }
        let stays = |facts: &String| self.way.is_some() || *facts == host::key();
        if !plan.facts.as_ref().is_none_or(stays) {
            let text = "the host is not the one that the plan was made for, or has rebooted";
            return refuse("facts_changed", text.into());
        }
        if let Some(name) = plan.secrets.iter().find(|name| !secrets.contains_key(*name)) {
            return refuse(
                "no_secrets",
                format!("the plan's secret `{name}` came without a value"),
            );
        }
        let (root, blobs) = self.store("submit")?;
        match launch::launch(root, plan, blobs, setup, self.way.as_deref(), draft) {
            Ok(launch::LaunchResult::Started { folder, mut link }) => {
                pass_secrets(&mut link, secrets);
                Ok(SubmitResult::Begun { folder, link })
            }
            Ok(launch::LaunchResult::Missing(digests)) => Ok(SubmitResult::Missing(digests)),
            Ok(launch::LaunchResult::Exists) => {
                match JobFolder::find(self.roots.all(), &plan.job) {
                    Some(there) => join(there, plan, secrets),
                    None => refuse("io", "the job vanished while it was being made".into()),
                }
            }
            Err((code, text)) => refuse(code, text),
        }
    }

    /// A job's folder.
    ///
    /// # Errors
    /// There is no such job.
    pub fn find(&self, request: &'static str, job: &str) -> Result<JobFolder, Refusal> {
        JobFolder::find(self.roots.all(), job).ok_or_else(|| {
            let text = format!("no job `{}` on this host", job.escape_debug());
            Refusal::new(request, "no_such_job", text)
        })
    }

    /// The jobs of this user on this host, newest first.
    pub fn jobs(&self) -> Vec<JobLine> {
        listing::list(&self.roots)
    }

    /// The jobs with the room that they take, by the host's clock.
    pub fn listing(&self) -> FromAgent {
        listing::answer(&self.roots)
    }

    /// A job's plan.
    ///
    /// # Errors
    /// There is no such job, or its files cannot be read.
    pub fn plan(&self, job: &str) -> Result<Plan, Refusal> {
        let plan = self.find("attach", job)?.plan();
        plan.map_err(|e| Refusal::new("attach", e.code(), e.to_string()))
    }

    /// One job's line.
    ///
    /// # Errors
    /// There is no such job, or its files cannot be read.
    pub fn job(&self, job: &str) -> Result<JobLine, Refusal> {
        let folder = self.find("job", job)?;
        listing::line(&folder)
            .ok_or_else(|| Refusal::new("job", "io", format!("the files of `{job}` are damaged")))
    }

    /// Passes a word to a job's supervisor. A job that has ended needs none.
    ///
    /// # Errors
    /// There is no such job.
    pub fn tell(&self, word: JobCommand, job: &str) -> Result<(), Refusal> {
        let folder = self.find(word.name(), job)?;
        let control = match word {
            JobCommand::Renew => Control::Renew,
            JobCommand::Detach => Control::Detach,
            JobCommand::Cancel => Control::Cancel,
        };
        if let Ok(mut link) = control::connect(folder.path(), SOCKET) {
            // One that ends at this moment is as good as ended.
            let _ = write_message(&mut link, &control);
        }
        Ok(())
    }

    /// The way to a job's standard input; `None`: the job has ended.
    ///
    /// # Errors
    /// There is no such job.
    pub fn input(&self, job: &str) -> Result<Option<JobInput>, Refusal> {
        let folder = self.find("stdin", job)?;
        Ok(control::connect(folder.path(), SOCKET).ok().map(JobInput))
    }

    /// Opens a file of a job's folder for reading. Links, also on the way, are refused.
    ///
    /// # Errors
    /// There is no such job or file, or the path leaves the folder.
    pub fn artifact(&self, job: &str, path: &str) -> Result<File, Refusal> {
        let folder = self.find("fetch", job)?;
        open_regular(&folder.work(), path).map_err(|e| fetch::refusal(path, &e))
    }

    /// Removes an ended job.
    ///
    /// # Errors
    /// It has not ended, or cannot be removed.
    pub fn forget(&self, job: &str) -> Result<(), Refusal> {
        let aside = self.set_aside(job)?;
        aside.remove().map_err(|e| Refusal::new("forget", e.code(), e.to_string()))
    }

    /// Takes an ended job out of sight; what is left of it is removed by whoever has the time.
    ///
    /// # Errors
    /// It has not ended, or stays.
    pub fn set_aside(&self, job: &str) -> Result<RemovedFolder, Refusal> {
        listing::set_aside(&self.find("forget", job)?)
    }

    /// Stores a blob that came over the wire.
    ///
    /// # Errors
    /// It is not what was announced, or the disk.
    pub fn put_blob(
        &self,
        digest: &Digest,
        size: u64,
        wire: &[u8],
        packed: Packed,
    ) -> Result<(), Refusal> {
        let put = self.blobs()?.put(digest, size, wire, packed);
        put.map_err(|e| Refusal::new("blob", e.code(), e.to_string()))
    }
}

/// A plan whose job is here already: the same plan may go on.
fn join(
    there: JobFolder,
    plan: &Plan,
    secrets: &BTreeMap<String, String>,
) -> Result<SubmitResult, Refusal> {
    match there.plan() {
        Ok(same) if same == *plan => {
            if !secrets.is_empty()
                && let Ok(mut link) = control::connect(there.path(), SOCKET)
            {
                pass_secrets(&mut link, secrets);
            }
            Ok(SubmitResult::There(there))
        }
        Ok(_) => {
            let text = format!("another plan of the name `{}` is on this host", plan.job);
            Err(Refusal::new("submit", "job_exists", text))
        }
        Err(e) => Err(Refusal::new("submit", e.code(), e.to_string())),
    }
}

fn pass_secrets(link: &mut UnixStream, secrets: &BTreeMap<String, String>) {
    if !secrets.is_empty() {
        // A supervisor that is gone is noticed by whoever follows.
        let _ = write_message(link, &Control::Secrets(secrets.clone()));
    }
}
