//! The jobs of a connection: starts and follows them, and keeps connections to their supervisors.
//! The thread that reads requests and the one that waits for blobs share it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rgpu_protocol::{Digest, FromAgent, Plan};

use super::fetch::Fetcher;
use super::follow::{self, Position, Prefetch};
use super::{ClientWriter, refused};
use crate::control::{self, Control};
use crate::job::{FolderDraft, JobFolder, SOCKET};
use crate::service::{Service, SubmitResult};
use crate::setup::ConnectionSettings;
use crate::wire::write_message;

/// A plan as it was submitted.
pub(super) struct SubmittedPlan {
    pub(super) plan: Box<Plan>,
    pub(super) secrets: BTreeMap<String, String>,
    pub(super) inline_bytes: u64,
    pub(super) ahead_bytes: u64,
    pub(super) setup: ConnectionSettings,
}

pub(super) struct Jobs {
    pub(super) service: Arc<Service>,
    pub(super) fetcher: Fetcher,
    out: ClientWriter,
    /// Connections to the supervisors of this client's jobs.
    links: Mutex<HashMap<String, UnixStream>>,
    /// Flags that stop the followers of jobs.
    followers: Mutex<HashMap<String, Arc<AtomicBool>>>,
}

impl Jobs {
    pub(super) fn new(service: Arc<Service>, out: ClientWriter) -> Self {
        let fetcher = Fetcher::start(out.clone());
        Self { service, fetcher, out, links: Mutex::default(), followers: Mutex::default() }
    }

    /// Returns the job's folder, or sends a refusal.
    pub(super) fn find(&self, request: &'static str, job: &str) -> io::Result<Option<JobFolder>> {
        match self.service.find(request, job) {
            Ok(folder) => Ok(Some(folder)),
            Err(refusal) => {
                self.out.send(&FromAgent::from(refusal))?;
                Ok(None)
            }
        }
    }

    /// Starts a plan (in `draft`, if there is one) and follows it, or sends a refusal. Returns the
    /// digests of missing blobs, if any.
    pub(super) fn submit(
        &self,
        order: &SubmittedPlan,
        draft: Option<FolderDraft>,
    ) -> io::Result<Vec<Digest>> {
        let SubmittedPlan { plan, secrets, inline_bytes, ahead_bytes, setup } = order;
        let position = Position { from_seq: 1, received: Vec::new(), inline_bytes: *inline_bytes };
        match self.service.submit_draft(plan, secrets, setup, draft) {
            Ok(SubmitResult::Started { folder, link }) => {
                lock(&self.links).insert(plan.job.clone(), link);
                self.follow(folder, position, *ahead_bytes)?;
            }
            Ok(SubmitResult::AlreadyHere(folder)) => self.follow(folder, position, *ahead_bytes)?,
            Ok(SubmitResult::Missing(digests)) => return Ok(digests),
            Err(refusal) => self.out.send(&FromAgent::from(refusal))?,
        }
        Ok(Vec::new())
    }

    /// Follows a job in a new thread, which replaces an earlier one on this connection.
    pub(super) fn follow(
        &self,
        folder: JobFolder,
        position: Position,
        ahead_bytes: u64,
    ) -> io::Result<()> {
        let job = folder.id().to_owned();
        self.out.send(&FromAgent::Following { job: job.clone() })?;
        // The follower notices if the supervisor has exited.
        self.send_to_supervisor(&job, |link| write_message(link, &Control::Renew));
        let stop = Arc::new(AtomicBool::new(false));
        if let Some(earlier) = lock(&self.followers).insert(job, stop.clone()) {
            earlier.store(true, Ordering::Relaxed);
        }
        let (out, fetcher) = (self.out.clone(), self.fetcher.clone());
        let ahead = Prefetch { bytes: ahead_bytes, fetcher };
        let follower = move || follow::follow_ahead(folder, position, ahead, &out, &stop);
        // Without a thread, the client must not wait for events that nobody sends.
        std::thread::Builder::new().name("follower".into()).spawn(follower).map(drop).or_else(|e| {
            let text = format!("no thread can be started to follow the job: {e}");
            self.out.send(&refused("follow", "follow_failed", text))
        })
    }

    /// Sends a message to a job's supervisor. Does nothing if the job has ended.
    pub(super) fn send_to_supervisor(
        &self,
        job: &str,
        send: impl FnOnce(&mut UnixStream) -> io::Result<()>,
    ) {
        let mut links = lock(&self.links);
        if !links.contains_key(job) {
            let folder = self.service.find("link", job).ok();
            let link = folder.and_then(|folder| control::connect(folder.path(), SOCKET).ok());
            links.extend(link.map(|link| (job.to_owned(), link)));
        }
        if let Some(link) = links.get_mut(job)
            && send(link).is_err()
        {
            links.remove(job);
        }
    }

    /// Renews the leases of this client's jobs.
    pub(super) fn renew(&self) {
        lock(&self.links).retain(|_, link| write_message(link, &Control::Renew).is_ok());
    }
}

/// A thread that panics while it holds one of these maps leaves it valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
