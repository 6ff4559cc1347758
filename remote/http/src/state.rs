//! State shared by all requests.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rgpu_agent::service::{JobInput, Refusal, Service};
use rgpu_agent::verbs;
use tokio::sync::Semaphore;

use crate::request_guard::RequestGuard;

/// Most jobs followed at the same time. Each has a thread.
const MAX_FOLLOWED_JOBS: usize = 256;

/// The folders are chosen again after this time: a full disk may have space again.
const ROOTS_MAX_AGE: Duration = Duration::from_secs(60);

pub(crate) struct State {
    pub(crate) request_guard: RequestGuard,
    service: Mutex<(Arc<Service>, Instant)>,
    relay_socket: Option<PathBuf>,
    inputs: Mutex<HashMap<String, Arc<Mutex<JobInput>>>>,
    pub(crate) followed: Arc<Semaphore>,
    followers: Mutex<Vec<Weak<AtomicBool>>>,
}

impl State {
    /// Creates the state. If `relay_socket` is given, the agent behind it carries out the jobs.
    pub(crate) fn new(request_guard: RequestGuard, relay_socket: Option<PathBuf>) -> Self {
        let service = Arc::new(Service::open(&verbs::folders()).with_relay(relay_socket.clone()));
        // Before any request asks for their state.
        service.restart_relays();
        Self {
            request_guard,
            relay_socket,
            service: Mutex::new((service, Instant::now())),
            inputs: Mutex::default(),
            followed: Arc::new(Semaphore::new(MAX_FOLLOWED_JOBS)),
            followers: Mutex::default(),
        }
    }

    /// Runs blocking work with this host's folders.
    pub(crate) async fn run_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Service) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let state = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&state.service())).await;
        done.unwrap_or_else(|_| Err(Refusal::new("request", "defect", "a defect of the agent")))
    }

    fn service(&self) -> Arc<Service> {
        let mut current = lock(&self.service);
        if current.1.elapsed() > ROOTS_MAX_AGE || current.0.blobs().is_err() {
            let service = Service::open(&verbs::folders()).with_relay(self.relay_socket.clone());
            *current = (Arc::new(service), Instant::now());
        }
        current.0.clone()
    }

    /// Sends the bytes at `offset` to a job's standard input, in the order of the requests. Blocks.
    pub(crate) fn send_input(
        &self,
        job: &str,
        bytes: &[u8],
        last: bool,
        offset: Option<u64>,
    ) -> Result<(), Refusal> {
        let cached = lock(&self.inputs).get(job).cloned();
        let input = match cached {
            Some(input) => input,
            // A job that has ended accepts no more input.
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

    /// Returns a flag that stops a follower. Its holder or the end of the server sets it.
    pub(crate) fn new_stop(&self) -> Arc<AtomicBool> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut followers = lock(&self.followers);
        followers.retain(|follower| follower.strong_count() > 0);
        followers.push(Arc::downgrade(&stop));
        stop
    }

    /// Stops all followers. Their clients reconnect to the next server.
    pub(crate) fn stop_followers(&self) {
        for follower in lock(&self.followers).iter().filter_map(Weak::upgrade) {
            follower.store(true, Ordering::Relaxed);
        }
    }
}

/// A thread that panics while it holds one of these locks leaves the data valid.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
