//! How many connections there may be. Who has shown the token on one keeps it; all others share a
//! few, of which the oldest gives way to the next: however many are opened and left unused, who
//! comes now is heard.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

use crate::state::lock;

/// Connections on which the token was shown.
const MAX_CLIENTS: usize = 1024;

/// Connections on which it was not, be it that no request has come whole yet.
const MAX_STRANGERS: usize = 256;

/// All connections.
pub(crate) struct Connections {
    strangers: Mutex<Strangers>,
    clients: Arc<Semaphore>,
}

/// Connections without the token, by the order in which they came, with what ends each.
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

    /// Starts the task of a new connection by `spawn`, and ends the oldest stranger if there are too
    /// many.
    pub(crate) fn open(self: &Arc<Self>, spawn: impl FnOnce(Connection) -> AbortHandle) {
        // Held until the task is known: it may have shown the token before that.
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

/// One connection.
pub(crate) struct Connection {
    number: u64,
    all: Arc<Connections>,
    client: OnceLock<OwnedSemaphorePermit>,
}

impl Connection {
    /// Keeps the connection, on which the token was shown. False when there are too many.
    pub(crate) fn admit(&self) -> bool {
        if self.client.get().is_some() {
            return true;
        }
        let Ok(place) = self.all.clients.clone().try_acquire_owned() else { return false };
        lock(&self.all.strangers).open.remove(&self.number);
        // Requests of one connection come one after the other.
        self.client.set(place).is_ok()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.all.strangers).open.remove(&self.number);
    }
}
