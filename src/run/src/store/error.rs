//! The errors of run folders.

use std::io;
use std::path::{Path, PathBuf};

use rgpu_model::error::{Exit, Failure};

/// An error of a run folder.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
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
    /// A run with the requested id exists already.
    #[error("there is already a run `{0}`")]
    Taken(String),
    /// Another process follows the run and writes into its folder.
    #[error("{} is already attached to `{run}`", follower_text(*pid))]
    Followed {
        /// The run's name on a command line.
        run: String,
        /// The process id, if known.
        pid: Option<u32>,
    },
    /// The folder given with `--out` is not empty.
    #[error("`{}` is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// The id is not usable as a folder's name.
    #[error(
        "`{0}` cannot be a run id: use 1 to 120 letters, digits, `.`, `_` and `-`, and begin with a letter, a digit or `_`"
    )]
    BadId(String),
    /// The id is a word that commands read as the newest run.
    #[error("`{0}` cannot be a run id: commands read `latest` as the newest run")]
    ReservedId(String),
    /// No run has this name.
    #[error("there is no run `{0}`")]
    Unknown(String),
    /// The folder exists but is no run folder.
    #[error("`{}` is a folder, but not a run folder: it has no `run.json`", path.display())]
    NoRun {
        /// The folder without a `run.json`.
        path: PathBuf,
        /// A run folder directly below it.
        inner: Option<PathBuf>,
    },
    /// A prefix that matches several runs.
    #[error("`{name}` matches {} runs: {}", fits.len(), list_newest(fits))]
    Ambiguous {
        /// The name that the user wrote: a prefix of several ids.
        name: String,
        /// The ids of the runs that it matches.
        fits: Vec<String>,
    },
    /// The content of `run.json` is not a valid record.
    #[error("`{}` is not a run's record", path.display())]
    BadRecord {
        /// The record that cannot be parsed.
        path: PathBuf,
        /// What is wrong in the JSON, and where.
        #[source]
        source: serde_json::Error,
    },
    /// The record has another schema than this rgpu reads.
    #[error("`{}` has the schema `{}`, which this rgpu does not read", path.display(), schema.escape_debug())]
    OtherSchema {
        /// The path of `run.json`.
        path: PathBuf,
        /// The name of its schema.
        schema: String,
    },
    /// A run folder is a link, or contains one.
    #[error("`{}` is a symbolic link, which is not followed in a run folder", .0.display())]
    LinkedFolder(PathBuf),
    /// A run that is to be removed may still continue.
    #[error("the run `{0}` has not ended")]
    NotEnded(String),
    /// A path from the host that would leave the folder.
    #[error("the host sent a file named `{}`, which is refused", .0.escape_debug())]
    HostileName(String),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let failure = |exit, code: &str| Failure::new(exit, code, error.to_string());
        match &error {
            StoreError::Io { doing: "create", source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                failure(Exit::Disk, "disk").cause(source).hint(
                    "runs are kept below the current folder: change to a folder of your own, or \
                     set RGPU_RUNS_DIR",
                )
            }
            StoreError::Io { source, .. } => failure(Exit::Disk, "disk").cause(source),
            StoreError::Taken(_) => failure(Exit::Usage, "run_id_taken")
                .hint("choose another `--run-id`, or leave it out"),
            StoreError::Followed { run, .. } => failure(Exit::Usage, "followed")
                .hint("wait for it: it fetches output and results, and nothing is lost")
                .hint(format!("or stop the run on its host: `rgpu runs cancel {run}`")),
            StoreError::NotEmpty(_) => failure(Exit::Usage, "out_not_empty")
                .hint("`--out` is the folder of one run: name a new or empty one"),
            StoreError::BadId(_) => failure(Exit::Usage, "bad_run_id"),
            StoreError::ReservedId(_) => failure(Exit::Usage, "bad_run_id")
                .hint("choose another `--run-id`, or leave it out"),
            StoreError::Unknown(_) => {
                failure(Exit::Usage, "unknown_run").hint("`rgpu runs list` shows the runs here")
            }
            StoreError::NoRun { inner, .. } => {
                let failure = failure(Exit::Usage, "no_run_folder")
                    .hint("`rgpu profile` writes run folders: artifacts/runs/<id>")
                    .hint("`rgpu runs list` shows the runs here");
                match inner {
                    Some(inner) => {
                        failure.hint(format!("it contains runs, such as {}", inner.display()))
                    }
                    None => failure,
                }
            }
            StoreError::Ambiguous { .. } => failure(Exit::Usage, "ambiguous_run"),
            StoreError::BadRecord { source, .. } => {
                failure(Exit::Artifact, "bad_record").cause(source)
            }
            StoreError::OtherSchema { .. } => failure(Exit::Artifact, "other_schema")
                .hint("a later rgpu made the run: update this one"),
            StoreError::LinkedFolder(_) => failure(Exit::Artifact, "linked_folder")
                .hint("rgpu makes no links in a run folder: remove it if you did not make it")
                .hint("to keep runs on another disk: `export RGPU_RUNS_DIR=FOLDER`"),
            StoreError::NotEnded(run) => failure(Exit::Usage, "not_ended")
                .hint(format!("`rgpu runs show {run}` shows where it is"))
                .hint(format!("to stop it: `rgpu runs cancel {run}`")),
            StoreError::HostileName(_) => failure(Exit::Host, "hostile_name"),
        }
    }
}

/// A follower as text for messages.
pub(super) fn follower_text(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

/// How many runs a message names.
const MAX_NAMED_RUNS: usize = 5;

/// The last of these ids, which are the newest, and how many there are besides.
fn list_newest(ids: &[String]) -> String {
    let left_out = ids.len().saturating_sub(MAX_NAMED_RUNS);
    let named = ids[left_out..].join(", ");
    match left_out {
        0 => named,
        older => format!("{named} and {older} older ones"),
    }
}

pub(super) fn io_error(
    doing: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> StoreError + use<> {
    let path = path.to_owned();
    move |source| StoreError::Io { doing, path, source }
}
