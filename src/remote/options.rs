//! What a front end says to, and hears from, a connection that is being made.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::RemoteError;

/// How to connect.
#[derive(Clone)]
pub struct ConnectOptions {
    /// The agent's program on this machine, for the host's architecture.
    pub agent: PathBuf,
    /// What to do about a host that was never seen before.
    pub first_use: FirstUse,
    /// The front end.
    pub talk: Arc<dyn UserPrompt>,
}

/// What to do when no known_hosts file names the host. A key that differs from a known one is
/// always refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstUse {
    /// Show the fingerprint and ask ([`UserPrompt::ask_host_key`]).
    Ask,
    /// Take the key and remember it (`--accept-new`).
    AcceptNew,
    /// Fail, and say what to type: there is nobody to ask.
    Refuse,
}

/// A host key that no known_hosts file names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKeyQuestion {
    /// The host as the user wrote it, with what it resolved to.
    pub host: String,
    /// `ssh-ed25519` …
    pub algorithm: String,
    /// `SHA256:…`, as ssh shows it.
    pub fingerprint: String,
    /// The file it would be remembered in.
    pub file: PathBuf,
}

/// The front end of a connection: the only way in which it speaks to a user.
pub trait UserPrompt: Send + Sync {
    /// Asks the user whether a new host's key is right. Called off the event loop: it may block.
    fn ask_host_key(&self, question: &HostKeyQuestion) -> bool;

    /// Something for `-v`: what was resolved, which keys were tried, what a start-up file of the
    /// host printed. Foreign text comes as it is; escape it before a terminal shows it.
    fn verbose(&self, line: &str);

    /// Whether a user is there who could answer questions at a terminal.
    fn is_attended(&self) -> bool {
        false
    }

    /// The user's own `ssh` logs in now, because of `why`, and may ask for a passphrase, a password
    /// or a touch on the terminal: it has it for as long as the returned value lives.
    fn own_ssh(&self, why: &str) -> Box<dyn Send> {
        self.verbose(&format!("your own ssh logs in: {why}"));
        Box::new(())
    }

    /// The host is being started, which takes a while.
    fn starting(&self, what: &str) {
        self.verbose(what);
    }

    /// The link is gone; it is tried again after `wait`.
    fn link_lost(&self, why: &RemoteError, wait: Duration) {
        self.verbose(&format!("link lost ({why}); again in {} s", wait.as_secs()));
    }

    /// The link is there again.
    fn link_back(&self) {
        self.verbose("link back");
    }
}

/// A front end without a user: questions are answered no, words are dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPrompt;

impl UserPrompt for NoPrompt {
    fn ask_host_key(&self, _: &HostKeyQuestion) -> bool {
        false
    }

    fn verbose(&self, _: &str) {}
}
