//! Why a command of `rgpu loop` failed, and the [`Failure`] that each reason becomes.

use std::io;
use std::path::{Path, PathBuf};

use rgpu_model::error::{Exit, Failure, no_such_file};
use rgpu_run::store::RepositoryError;
use rgpu_run::store::state::StateError;

/// The beginning of [`LoopError::Config`]'s reason for a file that is no TOML.
pub(super) const NOT_TOML: &str = "not TOML";

/// Why a command of `rgpu loop` failed.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
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
    /// A setting of loop.toml or the command line is wrong.
    #[error("`{}`: {why}", file.display())]
    Config {
        /// The loop.toml, even if the wrong setting is of the command line.
        file: PathBuf,
        /// The line of the key; absent on the command line, and for the whole file.
        line: Option<usize>,
        /// What is wrong, with the key's name.
        why: String,
    },
    /// There is no loop.toml of this name.
    #[error("there is no file `{}`", .0.display())]
    NoFile(PathBuf),
    /// The project has no such loop.
    #[error("there is no loop{} in this project", .0.as_ref().map(|id| format!(" `{id}`")).unwrap_or_default())]
    NoLoop(Option<String>),
    /// Several loops have an id that begins so.
    #[error("`{beginning}` is the beginning of several loops: {}", .ids.join(", "))]
    Ambiguous {
        /// The text that the user typed.
        beginning: String,
        /// Their ids, newest first.
        ids: Vec<String>,
    },
    /// A mistake in the settings or a host that can never measure: the loop ended at once.
    #[error("{}", .0.what)]
    Permanent(Box<Failure>),
    /// The loop is in a state that the command does not change.
    #[error("loop `{id}` {state}")]
    WrongState {
        /// The loop's id.
        id: String,
        /// The end of a sentence about the loop, such as `has stopped`.
        state: String,
        /// What to do instead.
        hint: String,
    },
    /// A file that is measured is not the one that was recorded.
    #[error("`{}` is not what loop `{id}` recorded: {recorded} then, {found} now", file.display())]
    Damaged {
        /// The loop's id.
        id: String,
        /// The file; the folder of all files, if only the digest of all was recorded.
        file: PathBuf,
        /// Its kind and sha256 as recorded.
        recorded: String,
        /// Those that were found.
        found: String,
    },
    /// An agent asked for a loop that starts a program on this machine.
    #[error("the loop starts `{command}` on this machine, which an agent may not do")]
    NeedsUser {
        /// The worker's or reviewer's command.
        command: String,
        /// The command that the user can type, without `rgpu loop`.
        typed: String,
    },
    /// The project's repository is not one that rgpu writes to.
    #[error(transparent)]
    Repository(#[from] RepositoryError),
    /// The user interrupted the loop, which can be resumed.
    #[error("interrupted; `rgpu loop resume` continues the loop")]
    Interrupted,
}

impl From<LoopError> for Failure {
    fn from(error: LoopError) -> Self {
        let failure = |exit, code: &str| Failure::new(exit, code, error.to_string());
        match error {
            LoopError::State(held @ StateError::Held { .. }) => {
                let mut failure = Self::from(held);
                failure.hints = vec!["`rgpu loop cancel` stops it".to_owned()];
                failure
            }
            LoopError::State(error) => error.into(),
            LoopError::Repository(error) => error.into(),
            LoopError::Io { ref source, .. } => failure(Exit::Disk, "disk").cause(source),
            LoopError::Config { ref file, line, ref why } => {
                let failure = failure(Exit::Config, "loop_config");
                // The keys say nothing of a mistake in TOML.
                let failure = if why.starts_with(NOT_TOML) {
                    failure
                } else {
                    failure.hint("`rgpu help loop` lists the keys; on the command line: KEY=VALUE")
                };
                match line {
                    Some(line) => failure.file(format!("{}:{line}", file.display())),
                    None => failure,
                }
            }
            LoopError::NoFile(ref file) => no_such_file(file.display())
                .hint("`rgpu help loop` shows a loop.toml, and lists its keys"),
            LoopError::Ambiguous { .. } => {
                failure(Exit::Usage, "ambiguous_loop").hint("type more of the id")
            }
            LoopError::Permanent(failure) => *failure,
            LoopError::NoLoop(_) => {
                failure(Exit::Usage, "no_loop").hint("`rgpu loop start loop.toml` starts one")
            }
            LoopError::WrongState { ref hint, .. } => {
                failure(Exit::Usage, "wrong_state").hint(hint)
            }
            LoopError::Damaged { .. } => failure(Exit::Artifact, "loop_damaged")
                .hint("the worker, or another program, changed it: nothing that was measured since counts")
                .hint("`rgpu loop start --fresh` begins with the project as it is"),
            LoopError::NeedsUser { ref typed, .. } => failure(Exit::Usage, "needs_user")
                .hint(format!("your user can read the command and type `rgpu loop {typed}`"))
                .hint("with `mode=manual` the loop starts no program: you write the worker's result"),
            LoopError::Interrupted => failure(Exit::Cancelled, "cancelled"),
        }
    }
}

/// Wraps an error of the file system.
pub(super) fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LoopError {
    move |source| LoopError::Io { doing, path: path.to_owned(), source }
}
