//! The options of a new connection, and the interface to the user that a front end provides.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::RemoteError;

/// Options for a connection.
#[derive(Clone)]
pub struct ConnectOptions {
    /// The agent's program on this machine, for the host's architecture.
    pub agent: PathBuf,
    /// How to treat a host that was never seen before.
    pub unknown_host_policy: UnknownHostPolicy,
    /// The front end that the connection talks to.
    pub user_prompt: Arc<dyn UserPrompt>,
    /// The id of the command's run; empty if there is none.
    pub run: String,
    /// The command's request for a host that has to be granted first.
    pub host_request: HostRequest,
}

/// A command's request for a host that has to be granted first, as by a batch system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRequest {
    /// Which of the hosts that the run uses at once, from 0.
    pub host_number: u32,
    /// Whether a host may be requested.
    pub host_use: HostUse,
    /// How many nodes of a cluster the run uses together; 0 is 1.
    pub nodes: u32,
    /// How many GPUs it needs on each node of a cluster. `None`: as many as the remote says.
    pub gpus: Option<u32>,
    /// The longest wait for the host; `None`: no limit.
    pub queue_timeout: Option<Duration>,
}

impl HostRequest {
    /// Waits for a host at most this long.
    pub fn with_queue_timeout(queue_timeout: Option<Duration>) -> Self {
        Self { queue_timeout, ..Self::default() }
    }

    /// The same with this many GPUs on each node; `None` leaves it to the remote.
    pub fn with_gpus(self, gpus: Option<u32>) -> Self {
        Self { gpus, ..self }
    }

    /// Requests no host, and reads only what ran or runs on one.
    pub fn existing() -> Self {
        Self { host_use: HostUse::Existing, ..Self::default() }
    }
}

/// Whether a command may request a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostUse {
    /// It runs something there.
    #[default]
    Start,
    /// It only looks at what ran or runs there.
    Existing,
}

/// How to treat a host that no known_hosts file names. A key that differs from a known one is
/// always refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownHostPolicy {
    /// Show the fingerprint and ask ([`UserPrompt::ask_host_key`]).
    Ask,
    /// Accept the key and store it (`--accept-new`).
    AcceptNew,
    /// Fail with a hint, because no user can be asked.
    Refuse,
}

/// A host key that no known_hosts file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeyQuestion {
    /// The host as the user wrote it, with its resolved address.
    pub host: String,
    /// The key's algorithm, such as `ssh-ed25519`.
    pub algorithm: String,
    /// `SHA256:…`, in ssh's format.
    pub fingerprint: String,
    /// The file that would store the key.
    pub file: PathBuf,
}

/// The front end of a connection; the connection talks to the user only through it.
pub trait UserPrompt: Send + Sync {
    /// Asks the user whether a new host's key is right. Runs off the event loop, so it may block.
    fn ask_host_key(&self, question: &HostKeyQuestion) -> bool;

    /// Logs a line for `-v`: resolved names, keys tried, text printed by the host's start-up files.
    /// Foreign text is passed unchanged; escape it before a terminal shows it.
    fn verbose(&self, line: &str);

    /// Whether a user can answer questions at a terminal.
    fn is_attended(&self) -> bool {
        false
    }

    /// Reports that the user's own `ssh` logs in now because of `why`. It may ask for a passphrase,
    /// a password or a touch, and owns the terminal until the returned value is dropped.
    fn own_ssh(&self, why: &str) -> Box<dyn Send> {
        self.verbose(&format!("your own ssh logs in: {why}"));
        Box::new(())
    }

    /// Reports that the host is starting, which takes a while.
    fn starting(&self, what: &str) {
        self.verbose(what);
    }

    /// Reports that the link is cut and that the next try follows after `wait`.
    fn link_lost(&self, why: &RemoteError, wait: Duration) {
        self.verbose(&format!("link lost ({why}); again in {} s", wait.as_secs()));
    }

    /// Reports that the link is back.
    fn link_back(&self) {
        self.verbose("link back");
    }
}

/// A front end without a user: answers no to questions and drops messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPrompt;

impl UserPrompt for NoPrompt {
    fn ask_host_key(&self, _: &HostKeyQuestion) -> bool {
        false
    }

    fn verbose(&self, _: &str) {}
}
