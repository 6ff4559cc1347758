//! What all requests share.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rgpu_agent::service::{JobInput, Refusal, Service};
use rgpu_agent::verbs;
use tokio::sync::Semaphore;

use crate::request_guard::RequestGuard;

/// Jobs followed at the same time: each has a thread.
const MAX_FOLLOWED_JOBS: usize = 256;

/// The folders are chosen anew this often: a full disk may have room again.
const ROOTS_MAX_AGE: Duration = Duration::from_secs(60);

/// What all requests share.
pub(crate) struct State {
    pub(crate) doors: RequestGuard,
    service: Mutex<(Arc<Service>, Instant)>,
    way: Option<PathBuf>,
    inputs: Mutex<HashMap<String, Arc<Mutex<JobInput>>>>,
    pub(crate) followed: Arc<Semaphore>,
    followers: Mutex<Vec<Weak<AtomicBool>>>,
}

impl State {
    /// With jobs carried out here, or by another agent behind the socket `way`.
    pub(crate) fn new(doors: RequestGuard, way: Option<PathBuf>) -> Self {
        let service = Arc::new(Service::open(&verbs::folders()).through(way.clone()));
        // Before anybody asks how they stand.
        service.take_up();
        Self {
            doors,
            way,
            service: Mutex::new((service, Instant::now())),
            inputs: Mutex::default(),
            followed: Arc::new(Semaphore::new(MAX_FOLLOWED_JOBS)),
            followers: Mutex::default(),
        }
    }

    /// Does what may block, with this host's folders.
    pub(crate) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Service) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let state = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&state.service())).await;
        done.unwrap_or_else(|_| Err(Refusal::new("request", "defect", "a defect of the agent")))
    }

    fn service(&self) -> Arc<Service> {
        let mut held = lock(&self.service);
        if held.1.elapsed() > ROOTS_MAX_AGE || held.0.blobs().is_err() {
            let service = Service::open(&verbs::folders()).through(self.way.clone());
            *held = (Arc::new(service), Instant::now());
        }
        held.0.clone()
    }

    /// Sends the bytes at `offset` to a job's standard input, in the order of the requests. Blocks.
    pub(crate) fn send_input(
        &self,
        job: &str,
        bytes: &[u8],
        last: bool,
        offset: Option<u64>,
    ) -> Result<(), Refusal> {
        let known = lock(&self.inputs).get(job).cloned();
        let input = match known {
            Some(input) => input,
            // A job that has ended takes nothing more.
            None => match self.service().input(job)? {
                None => return Ok(()),
                Some(input) => {
                    let mut inputs = lock(&self.inputs);
                    inputs.entry(job.to_owned()).or_insert(Arc::new(Mutex::new(input))).clone()
                }
            },
        };
        let sent = lock(&input).send(bytes, last, offset);
        if last || sent.is_err() {
            lock(&self.inputs).remove(job);
        }
        Ok(())
    }

    /// A flag that stops a follower when its last holder sets it, or the server ends.
    pub(crate) fn new_stop(&self) -> Arc<AtomicBool> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut followers = lock(&self.followers);
        followers.retain(|follower| follower.strong_count() > 0);
        followers.push(Arc::downgrade(&stop));
        stop
    }

    /// Ends all that is being followed: clients come back to the next server.
    pub(crate) fn stop_followers(&self) {
        for follower in lock(&self.followers).iter().filter_map(Weak::upgrade) {
            follower.store(true, Ordering::Relaxed);
        }
    }
}

/// What a thread that panicked left behind is still whole here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
