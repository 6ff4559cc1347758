//! Limits the number of connections. One on which the token was shown stays open. All others share
//! a small number, and a new one closes the oldest, so that idle connections cannot lock out new
//! clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::state::lock;

/// Most connections on which the token was shown.
const MAX_CLIENTS: usize = 1024;

/// Most connections without the token, including those without a complete request yet.
const MAX_STRANGERS: usize = 256;

pub(crate) struct Connections {
    strangers: Mutex<Strangers>,
    clients: Arc<Semaphore>,
}

/// Connections without the token, in order of arrival, with the handle that aborts each.
#[derive(Default)]
struct Strangers {
    next: u64,
    open: BTreeMap<u64, AbortHandle>,
}

impl Connections {
    pub(crate) fn new() -> Arc<Self> {
        let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
        Arc::new(Self { strangers: Mutex::default(), clients })
    }

    /// Starts the task of a new connection with `spawn`, and aborts the oldest one without the
    /// token if there are too many.
    pub(crate) fn open(self: &Arc<Self>, spawn: impl FnOnce(Connection) -> AbortHandle) {
        // Held until the task is registered: its client may show the token before that.
        let mut strangers = lock(&self.strangers);
        let number = strangers.next;
        strangers.next += 1;
        let connection = Connection { number, all: self.clone(), client: OnceLock::new() };
        strangers.open.insert(number, spawn(connection));
        if strangers.open.len() > MAX_STRANGERS
            && let Some((_, oldest)) = strangers.open.pop_first()
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
    /// Marks the connection as one on which the token was shown. Returns false if there are too
    /// many.
    pub(crate) fn admit(&self) -> bool {
        if self.client.get().is_some() {
            return true;
        }
        let Ok(permit) = self.all.clients.clone().try_acquire_owned() else { return false };
        lock(&self.all.strangers).open.remove(&self.number);
        // Requests on one connection are sequential, so this is set once.
        self.client.set(permit).is_ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.all.strangers).open.remove(&self.number);
    }
}
