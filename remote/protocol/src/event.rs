//! Events of a job: one numbered, versioned stream, append-only on the host.
//!
//! Progress bars, `--events`, logs and the recorded run read this stream and nothing else. A stream
//! that ends without [`EventBody::Ended`] is a failure, never a success.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Digest;

/// One event of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Sequence number: 1, 2, 3 … without gaps.
    pub seq: u64,
    /// The host's clock, Unix time in milliseconds.
    pub at_ms: u64,
    /// The event's type and data.
    #[serde(flatten)]
    pub body: EventBody,
}

/// The type and data of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventBody {
    /// The job's folder is ready and its supervisor runs.
    Started {
        /// The job's folder on the host.
        folder: String,
    },
    /// The job waits for a GPU.
    Queued {
        /// Position in the queue; 1 is next.
        position: u32,
        /// Description of the GPU's current holder.
        holder: String,
    },
    /// The job has locked a GPU.
    GpuLocked {
        /// UUID of the GPU: `GPU-…` or `MIG-…`.
        uuid: String,
        /// The GPU's index in `nvidia-smi`; 0 if the plan does not list this GPU.
        index: u32,
        /// Product name, e.g. `NVIDIA H200`; empty if the plan does not list this GPU.
        name: String,
    },
    /// The job has released the GPU lock.
    GpuReleased {},
    /// A step has started.
    StepStarted {
        /// The id of the step.
        step: String,
        /// The title of the step, for users.
        title: String,
    },
    /// A step was skipped because a step it needs failed.
    StepSkipped {
        /// The id of the step.
        step: String,
        /// The step that failed.
        needs: String,
    },
    /// A rung was started.
    RungStarted {
        /// The id of the step.
        step: String,
        /// The id of the rung.
        rung: String,
        /// The command as it was run.
        argv: Vec<String>,
    },
    /// A program printed output. The bytes are in the step's log, from `offset` on.
    Output {
        /// The id of the step.
        step: String,
        /// The output stream.
        stream: Stream,
        /// Offset in that stream's log.
        offset: u64,
        /// Number of bytes printed.
        len: u64,
    },
    /// A stream's log is full. Further output is counted, not kept.
    OutputDropped {
        /// The id of the step.
        step: String,
        /// The output stream.
        stream: Stream,
        /// Bytes dropped so far.
        bytes: u64,
    },
    /// A rung has ended.
    RungEnded(RungRecord),
    /// A step has ended.
    StepEnded {
        /// The id of the step.
        step: String,
        /// The rung that succeeded; `None` if the step failed.
        rung: Option<String>,
        /// Reason code of the last failure; empty if the step succeeded.
        #[serde(default)]
        code: String,
    },
    /// A file can be fetched.
    Artifact {
        /// The step that made it.
        step: String,
        /// Path in the job's folder.
        path: String,
        /// The artifact's kind, as in [`ArtifactSpec::kind`](crate::plan::ArtifactSpec::kind).
        kind: String,
        /// Size in bytes.
        size: u64,
        /// sha256 of the file.
        digest: Digest,
        /// [`Digest::composite`] of its pieces of [`PIECE_BYTES`](crate::PIECE_BYTES) each, the
        /// last one shorter. Unlike one sha256 it can be computed on several cores. `None` for a
        /// file of one piece, and from an older agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        composite: Option<Digest>,
    },
    /// A warning for the user. The job continues.
    Warning {
        /// Code, e.g. `foreign_processes`.
        code: String,
        /// Explanation for the user.
        text: String,
    },
    /// The job ended. This is the last event.
    Ended {
        /// How the job ended.
        outcome: Outcome,
    },
    /// An event type of a newer peer.
    #[serde(other)]
    Unknown,
}

/// An output stream of a step.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Returns `stdout` or `stderr`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Why a program did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StartError {
    /// Nothing has its path, or its name is not on PATH.
    NotFound,
    /// The system does not execute it.
    NotExecutable,
}

/// The result of one rung. A rung is one way to get a step's result: a tool, its command and what
/// the result contains. The step's ladder lists its rungs, best first; if one fails, the next is
/// tried.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RungRecord {
    /// The id of the step.
    pub step: String,
    /// The id of the rung.
    pub rung: String,
    /// The exact command; empty if the rung was skipped.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Whether the rung met its rule for success.
    pub ok: bool,
    /// Reason code of a failure, or a note: `missing`, `exit`, `signal`, `timeout`, `no_file`,
    /// `no_words` (an expected text is missing from the output), `start_failed`, or the code of a
    /// diagnosis row.
    #[serde(default)]
    pub code: String,
    /// The tool's own message, one line.
    #[serde(default)]
    pub message: String,
    /// Exit status; `None` if there is none.
    pub exit: Option<i32>,
    /// Signal that ended the program.
    pub signal: Option<i32>,
    /// Why the program did not start. `None` for other failures, and from an older agent.
    pub start_error: Option<StartError>,
    /// Wall-clock time in seconds.
    #[serde(default)]
    pub seconds: f64,
    /// Last 3,000 bytes of standard output, without control sequences and secrets.
    #[serde(default)]
    pub stdout_tail: String,
    /// Last 3,000 bytes of standard error, likewise.
    #[serde(default)]
    pub stderr_tail: String,
    /// The data that a better rung provides and this one does not.
    #[serde(default)]
    pub loses: String,
    /// Messages recognised in the output that are not failures: code and text.
    #[serde(default)]
    pub notes: Vec<(String, String)>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Outcome {
    /// All required steps succeeded.
    Done,
    /// The job ended because a step failed.
    Failed {
        /// The id of the step that failed.
        step: String,
        /// Reason code of the step's last rung, as in [`RungRecord::code`].
        code: String,
    },
    /// The client cancelled the job.
    Cancelled,
    /// The lease ran out: no client renewed it.
    LeaseExpired,
    /// No GPU became free in time.
    QueueTimeout,
    /// The requested GPU does not exist, or other users' processes are on it.
    NoGpu {
        /// Explanation for the user.
        text: String,
    },
    /// The agent or its host failed.
    HostError {
        /// Code, e.g. `disk_full`.
        code: String,
        /// Explanation for the user.
        text: String,
    },
    /// An outcome of a newer agent.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_newer_agent_are_read_as_unknown() {
        let event: Event =
            serde_json::from_str(r#"{"seq":7,"at_ms":1,"event":"teleported","to":"moon"}"#)
                .unwrap();
        assert_eq!(event.body, EventBody::Unknown);
        let outcome: Outcome = serde_json::from_str(r#"{"how":"vanished"}"#).unwrap();
        assert_eq!(outcome, Outcome::Unknown);
    }

    #[test]
    fn an_event_is_one_flat_line_of_json() {
        let event = Event { seq: 1, at_ms: 2, body: EventBody::Ended { outcome: Outcome::Done } };
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(text, r#"{"seq":1,"at_ms":2,"event":"ended","outcome":{"how":"done"}}"#);
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    }
}
