//! Limits the number of connections. One on which the token was given stays open. All others share
//! a small number, and a new one closes the oldest, so that idle connections cannot lock out new
//! clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::state::lock;

/// Maximum number of connections on which the token was given.
const MAX_CLIENTS: usize = 1024;

/// Maximum number of connections without the token, including those without a complete request yet.
const MAX_UNAUTHENTICATED: usize = 256;

pub(crate) struct Connections {
    unauthenticated: Mutex<UnauthenticatedConnections>,
    clients: Arc<Semaphore>,
}

/// Connections without the token, in order of arrival, with the handle that aborts each.
#[derive(Default)]
struct UnauthenticatedConnections {
    next: u64,
    open: BTreeMap<u64, AbortHandle>,
}

impl Connections {
    pub(crate) fn new() -> Arc<Self> {
        let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
        Arc::new(Self { unauthenticated: Mutex::default(), clients })
    }

    /// Starts the task of a new connection with `spawn`, and aborts the oldest one without the
    /// token if there are too many.
    pub(crate) fn open(self: &Arc<Self>, spawn: impl FnOnce(Connection) -> AbortHandle) {
        // Held until the task is registered: its client may give the token before that.
        let mut unauthenticated = lock(&self.unauthenticated);
        let number = unauthenticated.next;
        unauthenticated.next += 1;
        let connection = Connection { number, all: self.clone(), client: OnceLock::new() };
        unauthenticated.open.insert(number, spawn(connection));
        if unauthenticated.open.len() > MAX_UNAUTHENTICATED
            && let Some((_, oldest)) = unauthenticated.open.pop_first()
        {
            oldest.abort();
        }
    }
}

pub(crate) struct Connection {
    number: u64,
    all: Arc<Connections>,
    client: OnceLock<OwnedSemaphorePermit>,
}

impl Connection {
    /// Marks the connection as one on which the token was given. Returns false if there are too
    /// many.
    pub(crate) fn admit(&self) -> bool {
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
