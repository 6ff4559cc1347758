//! Limits the number of connections. One on which the token was given stays open. All others share
//! a small number, and a new one closes the oldest, so that idle connections cannot lock out new
//! clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// Maximum number of connections on which the token was given.
const MAX_CLIENTS: usize = 1024;

/// Maximum number of connections without the token, including those without a complete request yet.
const MAX_UNAUTHENTICATED: usize = 256;

/// The open connections of a server.
pub struct Connections {
    unauthenticated: Mutex<UnauthenticatedConnections>,
    clients: Arc<Semaphore>,
}

/// Connections without the token, in order of arrival, with the handle that aborts each.
#[derive(Default)]
struct UnauthenticatedConnections {
    next: u64,
    open: BTreeMap<u64, AbortHandle>,
}

impl UnauthenticatedConnections {
    fn abort_oldest(&mut self) {
        if let Some((_, oldest)) = self.open.pop_first() {
            oldest.abort();
        }
    }
}

impl Connections {
    /// None yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
        Arc::new(Self { unauthenticated: Mutex::default(), clients })
    }

    /// Starts the task of a new connection with `spawn`, and aborts the oldest one without the
    /// token if there are too many.
    pub fn open(self: &Arc<Self>, spawn: impl FnOnce(Connection) -> AbortHandle) {
        // Held until the task is registered: its client may give the token before that.
        let mut unauthenticated = lock(&self.unauthenticated);
        let number = unauthenticated.next;
        unauthenticated.next += 1;
        let connection = Connection { number, all: self.clone(), client: OnceLock::new() };
        unauthenticated.open.insert(number, spawn(connection));
        if unauthenticated.open.len() > MAX_UNAUTHENTICATED {
            unauthenticated.abort_oldest();
        }
    }

    /// Aborts the older half of the connections without the token, at least one if there is any.
    pub(super) fn close_older_half(&self) {
        let mut unauthenticated = lock(&self.unauthenticated);
        for _ in 0..unauthenticated.open.len().div_ceil(2) {
            unauthenticated.abort_oldest();
        }
    }
}

/// One connection. Its task owns it.
pub struct Connection {
    number: u64,
    all: Arc<Connections>,
    client: OnceLock<OwnedSemaphorePermit>,
}

impl Connection {
    /// Marks the connection as one on which the token was given. Returns false if there are too
    /// many.
    pub fn admit(&self) -> bool {
        if self.client.get().is_some() {
            return true;
        }
        let Ok(permit) = self.all.clients.clone().try_acquire_owned() else { return false };
        lock(&self.all.unauthenticated).open.remove(&self.number);
        // Requests on one connection are sequential, so this is set once.
        self.client.set(permit).is_ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.all.unauthenticated).open.remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
