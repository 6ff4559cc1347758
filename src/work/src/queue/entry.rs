//! The types of an entry: what is added, what lists show, and the events in between.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Resource;

/// The state of an entry.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum EntryState {
    /// It waits for its turn.
    Waiting,
    /// Its command runs.
    Running,
    /// The command ended with status 0.
    Ok,
    /// The command ended with another status or by a signal, or could not start.
    Failed,
    /// The command was ended by its time limit.
    Timeout,
    /// The user cancelled it.
    Cancelled,
    /// An entry that it comes after did not end well.
    Skipped,
    /// The process that watched the command was killed, or the machine stopped: how the command
    /// ended is unknown.
    Lost,
    /// It was removed from the queue.
    Pruned,
}

impl EntryState {
    pub(super) const ALL: [Self; 9] = [
        Self::Waiting,
        Self::Running,
        Self::Ok,
        Self::Failed,
        Self::Timeout,
        Self::Cancelled,
        Self::Skipped,
        Self::Lost,
        Self::Pruned,
    ];

    /// The state as a verb phrase: `entry 17 failed`.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Waiting => "waits",
            Self::Running => "runs",
            Self::Ok => "ended ok",
            Self::Failed => "failed",
            Self::Timeout => "hit its time limit",
            Self::Cancelled => "was cancelled",
            Self::Skipped => "was skipped",
            Self::Lost => "was lost",
            Self::Pruned => "was removed",
        }
    }

    /// The word in the database, in lists and in `queue.log`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
            Self::Lost => "lost",
            Self::Pruned => "pruned",
        }
    }

    /// The state of a word; `None` for other words.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether the entry has ended and is still in the queue.
    pub fn is_end(self) -> bool {
        !self.is_active() && self != Self::Pruned
    }

    /// Whether the entry waits or runs.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Waiting | Self::Running)
    }
}

/// An entry that another one comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dependency {
    /// The number of the entry.
    pub entry: i64,
    /// Whether its end suffices, however it ended; otherwise it must end ok.
    #[serde(default)]
    pub any: bool,
}

/// Whether the files of the project are kept as they are when the entry is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotMode {
    /// The command runs in the folder as it is when its turn comes.
    #[default]
    None,
    /// The commit and the changes since are kept; each attempt gets a folder of its own.
    Patch,
    /// The files are copied, without those that git ignores; each attempt gets a folder of its own.
    Copy,
}

/// What an entry runs.
#[derive(Clone, Debug)]
pub enum NewCommand {
    /// A program with its arguments.
    Argv(Vec<OsString>),
    /// The bytes of a script, and the interpreter with its arguments.
    Script {
        /// The script, byte for byte.
        bytes: Vec<u8>,
        /// The interpreter, which gets the script's path as its last argument.
        interpreter: Vec<OsString>,
    },
}

/// An entry to add.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// Its name in lists.
    pub name: String,
    /// The command line or the script that it runs.
    pub command: NewCommand,
    /// The folder in which it runs.
    pub cwd: PathBuf,
    /// The project folder: what a snapshot keeps outside of git.
    pub project: PathBuf,
    /// The environment variables that are recorded.
    pub env: BTreeMap<OsString, OsString>,
    /// The variables whose values come from the runner's environment, so that they are never
    /// stored.
    pub env_from_runner: Vec<String>,
    /// Entries with a higher one run first.
    pub priority: i64,
    /// The entries that have to end first.
    pub after: Vec<Dependency>,
    /// The remote or GPU that it needs exclusively.
    pub resource: Resource,
    /// Time limit of each attempt.
    pub timeout: Option<Duration>,
    /// How many more attempts it gets after one that did not end ok.
    pub retries: u32,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Whether the files are kept.
    pub snapshot: SnapshotMode,
}

/// The parts of an entry that are stored as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct EntrySettings {
    #[serde(default)]
    pub(super) after: Vec<Dependency>,
    #[serde(default)]
    pub(super) tags: Vec<String>,
    #[serde(default)]
    pub(super) env_from_runner: Vec<String>,
    #[serde(default)]
    pub(super) snapshot: SnapshotMode,
    /// Of a snapshot: the repository and the commit.
    #[serde(default)]
    pub(super) base: Option<(PathBuf, String)>,
    /// The folder of the command inside the snapshot.
    #[serde(default)]
    pub(super) inner: PathBuf,
}

/// The JSON of an entry's event.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct EntryEventDetail {
    /// How many more attempts the entry gets.
    #[serde(default)]
    pub(super) retries_left: u32,
    pub(super) rc: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) seconds: Option<f64>,
    /// When the attempt started.
    pub(super) started_ms: Option<i64>,
    pub(super) reason: Option<String>,
    /// The entry because of which this one was skipped.
    pub(super) because_of: Option<i64>,
}

/// The script of an entry.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ScriptRecord {
    /// The sha256 of its bytes.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// An entry as lists show it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Entry {
    /// Its number, by which commands name it.
    pub id: i64,
    /// The name in lists.
    pub name: String,
    /// The state.
    pub state: EntryState,
    /// Why it is in this state: of a failed one what failed, of a waiting one why it waits again.
    pub reason: Option<String>,
    /// The current or last attempt, from 1; 0 if there was none.
    pub attempt: u32,
    /// How many more attempts it gets after one that does not end ok.
    pub retries_left: u32,
    /// The exit status; 128+n if signal n ended the command.
    pub rc: Option<i32>,
    /// The signal that ended the command.
    pub signal: Option<i32>,
    /// Seconds of the last attempt, by a clock that does not step; of a running one since its
    /// start.
    pub seconds: Option<f64>,
    /// Of a running one: seconds since its last output.
    pub silent_s: Option<f64>,
    /// When it was added (RFC 3339).
    pub added: String,
    /// When the last attempt started (RFC 3339).
    pub started: Option<String>,
    /// When it ended (RFC 3339).
    pub ended: Option<String>,
    /// The command; a script's is the interpreter with its arguments.
    pub command: Vec<String>,
    /// The script, if it has one.
    pub script: Option<ScriptRecord>,
    /// The folder in which it runs.
    pub cwd: String,
    /// Entries with a higher one run first.
    pub priority: i64,
    /// The entries that have to end first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Dependency>,
    /// The remote that it needs for itself.
    pub remote: Option<String>,
    /// The GPU that it needs for itself.
    pub gpu: Option<String>,
    /// Time limit of each attempt in seconds.
    pub timeout_s: Option<f64>,
    /// The words of `--tag`, by which lists find it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Whether the files are kept.
    pub snapshot: SnapshotMode,
    /// The log of the last attempt, below the project.
    pub log: Option<String>,
    /// The process that watches the running command.
    pub pid: Option<i32>,
}

impl Entry {
    /// Seconds since the last output of a running entry; `None` while they are too few to be shown.
    pub fn shown_silence_s(&self) -> Option<f64> {
        self.silent_s.filter(|s| self.state == EntryState::Running && *s >= MIN_SHOWN_SILENCE_S)
    }
}

/// A shorter silence is not shown, in seconds.
pub const MIN_SHOWN_SILENCE_S: f64 = 60.0;

/// A change of an entry's state.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct EntryEvent {
    /// The number of the event in the database.
    pub event: i64,
    /// The attempt, from 1; 0 if there was none.
    pub attempt: u32,
    /// The state before; absent when the entry was added.
    pub from: Option<String>,
    /// The state from then on.
    pub to: String,
    /// When it happened (RFC 3339).
    pub at: String,
    /// The process that made the change.
    pub pid: i32,
    /// Why the state changed; absent if there is nothing to add.
    pub reason: Option<String>,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(super) struct AttemptEnd {
    pub(super) state: EntryState,
    pub(super) rc: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) seconds: Option<f64>,
    pub(super) reason: Option<String>,
}

impl AttemptEnd {
    /// An end without a command's status.
    pub(super) fn without_status(state: EntryState, reason: impl Into<String>) -> Self {
        Self { state, rc: None, signal: None, seconds: None, reason: Some(reason.into()) }
    }
}
