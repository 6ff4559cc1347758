//! Why a command of `rgpu queue` failed, and the [`Failure`] that each reason becomes.

use std::io;
use std::path::{Path, PathBuf};

use rgpu_model::error::{Exit, Failure, chain};
use rgpu_run::store::RepositoryError;
use rgpu_run::store::state::StateError;

/// Why a command of `rgpu queue` failed.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// An error of the state database.
    #[error(transparent)]
    State(#[from] StateError),
    /// An error of the file system.
    #[error("cannot {doing} `{}`", path.display())]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The project has no queue yet.
    #[error("there is no queue in `{}`", .0.display())]
    NoQueue(PathBuf),
    /// No entry has this number.
    #[error("there is no entry {0}")]
    NoEntry(i64),
    /// The entry is in a state that the command does not change.
    #[error("entry {entry} {state}")]
    WrongState {
        /// The number of the entry.
        entry: i64,
        /// Its state as a phrase: `runs`.
        state: &'static str,
        /// What to do instead.
        hint: &'static str,
    },
    /// A snapshot cannot be made.
    #[error("no snapshot of `{}`: {why}", folder.display())]
    Snapshot {
        /// The folder at which it failed: the command's, the top of its repository, or the copy.
        folder: PathBuf,
        /// The reason, in rgpu's words or those of git.
        why: String,
    },
    /// The repository is not one that rgpu reads.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// A detached runner ended at once.
    #[error("the runner ended at once")]
    NoRunner(String),
    /// The runner cannot start the process that watches an attempt.
    #[error("the process that watches entry {entry} cannot start")]
    Spawn {
        /// The number of the entry.
        entry: i64,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}

impl From<QueueError> for Failure {
    fn from(error: QueueError) -> Self {
        let failure = |exit, code: &str| Failure::new(exit, code, error.to_string());
        match error {
            QueueError::State(error @ StateError::Held { .. }) => Self::from(error)
                .hint("it also runs your entries; when stopped, it first waits for running ones"),
            QueueError::State(error) => error.into(),
            QueueError::Repository(error) => {
                Self::from(error).hint("`--snapshot none` uses no repository")
            }
            QueueError::Io { ref source, .. } => failure(Exit::Disk, "disk").cause(source),
            QueueError::NoQueue(_) => {
                failure(Exit::Usage, "no_queue").hint("`rgpu queue add -- COMMAND` makes one")
            }
            QueueError::NoEntry(_) => {
                failure(Exit::Usage, "no_entry").hint("`rgpu queue list --all` lists the entries")
            }
            QueueError::WrongState { hint, .. } => failure(Exit::Usage, "wrong_state").hint(hint),
            QueueError::Snapshot { .. } => failure(Exit::Config, "no_snapshot")
                .hint("`--snapshot copy` needs no git, `--snapshot none` no copy"),
            QueueError::NoRunner(ref words) => failure(Exit::Disk, "no_runner").cause(words),
            QueueError::Spawn { ref source, .. } => failure(Exit::Disk, "spawn").cause(source),
        }
    }
}

impl QueueError {
    /// Whether the disk has no room for a change of the database.
    pub(super) fn is_full_disk(&self) -> bool {
        let Self::State(StateError::Sql { source, .. }) = self else { return false };
        source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull)
    }

    /// The error with its causes on one line.
    pub fn with_causes(&self) -> String {
        chain(self)
    }
}

/// Wraps an error of the file system.
pub(super) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> QueueError {
    move |source| QueueError::Io { doing, path: path.to_owned(), source }
}
