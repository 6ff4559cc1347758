//! `run.json`: the record of a run, its jobs and its state. It is written before the first job is
//! submitted, so that `runs attach` works even if the first command is killed.

use std::collections::BTreeMap;
use std::time::Duration;

use rgpu_protocol::Outcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cost::Cost;

/// The schema name that every `run.json` carries.
pub(super) const SCHEMA: &str = "rgpu.run/1";

/// The content of `run.json` (`rgpu.run/1`).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecord {
    /// Name and version of this schema: `rgpu.run/1`.
    pub schema: String,
    /// The run's id, which is also its folder's name.
    pub id: String,
    /// When the run started (RFC 3339, UTC).
    pub started: String,
    /// The title in lists: "profile vecadd (ncu)".
    pub title: String,
    /// The command, such as `profile` or `exec`.
    pub command: String,
    /// The command line as typed, without secrets.
    pub argv: Vec<String>,
    /// The mode, such as `ncu` or `nsys`; empty for commands without modes.
    #[serde(default)]
    pub mode: String,
    /// The name of the kernel or program.
    #[serde(default)]
    pub kernel: String,
    /// The name of the remote.
    pub remote: String,
    /// The remote's address at that time (`ssh://user@host:port`), since the name may be redefined
    /// later.
    #[serde(default)]
    pub address: String,
    /// Labels of `--label KEY=VALUE`, by key.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The text of `--note`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The suite, queue entry or loop that started the run. Absent if a user did.
    pub parent: Option<RunParent>,
    /// The jobs on the host, one for each plan.
    #[serde(default)]
    pub jobs: Vec<JobRecord>,
    /// The state of the run.
    pub state: RunState,
    /// Exit status of the command. Absent until it ended.
    pub exit: Option<u8>,
    /// Exit status of the user's program. Only for `exec`.
    pub program_exit: Option<i32>,
    /// Wall-clock time of the run in seconds.
    #[serde(default)]
    pub seconds: f64,
    /// The cost of the run.
    #[serde(flatten)]
    pub cost: Cost,
}

impl RunRecord {
    /// The record of a new run without jobs or a remote.
    pub fn new(id: String, command: &str, started: jiff::Timestamp) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            id,
            started: started.to_string(),
            title: String::new(),
            command: command.to_owned(),
            argv: Vec::new(),
            mode: String::new(),
            kernel: String::new(),
            remote: String::new(),
            address: String::new(),
            labels: BTreeMap::new(),
            note: String::new(),
            parent: None,
            jobs: Vec::new(),
            state: RunState::Running,
            exit: None,
            program_exit: None,
            seconds: 0.0,
            cost: Cost::default(),
        }
    }

    /// Whether the run is a fan-out: it groups runs on several remotes, which have their own
    /// records.
    pub fn is_fan_out(&self) -> bool {
        self.remote.contains(',')
    }

    /// The id of a fan-out's run on one of its remotes.
    pub fn id_on(&self, remote: &str) -> String {
        format!("{}-{}", self.id, remote_suffix(remote))
    }

    /// Adds seconds to the run's duration.
    pub fn add_duration(&mut self, seconds: f64) {
        self.set_seconds(self.seconds + seconds);
    }

    /// Raises the run's duration to the time that its jobs took on their hosts, which also counts
    /// while nobody waits for them.
    pub fn raise_duration_to(&mut self, job_time: Duration) {
        self.set_seconds(self.seconds.max(job_time.as_secs_f64()));
    }

    fn set_seconds(&mut self, seconds: f64) {
        self.seconds = seconds;
        self.cost.compute_cost(self.seconds);
    }
}

/// What a remote's name adds to the id of a fan-out.
pub fn remote_suffix(remote: &str) -> String {
    let word = remote.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    word.trim_matches('-').to_owned()
}

/// The queue entry, loop or suite that started a run. Several fields are set if, for example, a
/// queue entry ran a suite.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunParent {
    /// The id of the suite's run.
    pub suite: Option<String>,
    /// The number of the entry of `rgpu queue`.
    pub queue: Option<i64>,
    /// The id of the loop.
    #[serde(default, rename = "loop", skip_serializing_if = "Option::is_none")]
    pub loop_id: Option<String>,
}

/// A job of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobRecord {
    /// The job's name on the host.
    pub job: String,
    /// The remote of the job. A build may run on a different one than the run.
    pub remote: String,
    /// The number of the last event received.
    #[serde(default)]
    pub last_seq: u64,
    /// How the job ended. Absent until it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Files fetched without waiting for fsync. The host keeps its copies until they are synced,
    /// since a power cut could lose the local ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsynced: Vec<UnsyncedFile>,
}

/// A fetched file that has not been synced to disk yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnsyncedFile {
    /// Path in the run folder.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It is running, or its command died.
    Running,
    /// It was detached on purpose; the job continues.
    Detached,
    /// Ended, and all results are fetched.
    Done,
    /// It ended with a failure. The results up to then are fetched.
    Failed,
    /// Ended because it was cancelled.
    Cancelled,
    /// Its command died before it submitted a job.
    NeverSubmitted,
}

impl RunState {
    /// Whether the run may continue: it has no end on record.
    pub fn is_active(self) -> bool {
        matches!(self, Self::Running | Self::Detached)
    }

    /// As shown in lists.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Detached => "detached",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::NeverSubmitted => "never submitted",
        }
    }
}
