//! Everything a job can say: one sequenced stream, versioned, append-only on the host.
//!
//! Progress bars, `--events`, logs and the recorded run are consumers of this stream and of
//! nothing else. A stream that ends without [`EventBody::Ended`] is a failure, never success.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Digest;

/// One event of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// 1, 2, 3 … without gaps.
    pub seq: u64,
    /// Unix time in milliseconds, by the host's clock.
    pub at_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventBody {
    /// The job's folder is laid out and its supervisor runs.
    Started {
        /// The job's folder on the host.
        folder: String,
    },
    /// Waiting for a GPU.
    Queued {
        /// Place in the queue, 1 is next.
        place: u32,
        /// Who holds the GPU, in words.
        holder: String,
    },
    /// The GPU lock is held.
    GpuLocked {
        /// The GPU's UUID.
        uuid: String,
        /// The driver's index.
        index: u32,
        /// Its name.
        name: String,
    },
    /// The GPU lock was given back.
    GpuReleased {},
    /// A step began.
    StepStarted {
        /// The step.
        step: String,
        /// Its title.
        title: String,
    },
    /// A step was not run: a step it needs failed.
    StepSkipped {
        /// The step.
        step: String,
        /// The step it needs.
        needs: String,
    },
    /// A rung was started.
    RungStarted {
        /// The step.
        step: String,
        /// The rung.
        rung: String,
        /// The exact command.
        argv: Vec<String>,
    },
    /// A program printed; the bytes lie in the step's log from `offset` on.
    Output {
        /// The step.
        step: String,
        /// Which stream.
        stream: Stream,
        /// Offset in that stream's log.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A stream's log is full; what follows is counted, not kept.
    OutputDropped {
        /// The step.
        step: String,
        /// Which stream.
        stream: Stream,
        /// Bytes dropped so far.
        bytes: u64,
    },
    /// A rung ended.
    RungEnded(RungRecord),
    /// A step ended.
    StepEnded {
        /// The step.
        step: String,
        /// The rung it ended well on; `None`: it failed.
        rung: Option<String>,
        /// Reason code of the last failure; empty when it ended well.
        #[serde(default)]
        code: String,
    },
    /// A file is there to be fetched.
    Artifact {
        /// The step that made it.
        step: String,
        /// Path in the job's folder.
        path: String,
        /// What it is.
        kind: String,
        /// Bytes.
        size: u64,
        /// sha256.
        digest: Digest,
        /// [`Digest::composite`] of its pieces of [`PIECE_BYTES`](crate::PIECE_BYTES), the last one
        /// shorter: one sha256 is the work of one core, this one of as many as there are. Absent for
        /// a file of one piece, and from an older agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        composite: Option<Digest>,
    },
    /// Something the user should know, that stops nothing.
    Warning {
        /// Code, e.g. `foreign_processes`.
        code: String,
        /// In words.
        text: String,
    },
    /// The job ended. Nothing follows.
    Ended {
        /// How.
        outcome: Outcome,
    },
    /// An event of a newer peer.
    #[serde(other)]
    Unknown,
}

/// Which output stream.
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
    /// `stdout` or `stderr`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The record of one rung: enough to understand it without its logs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RungRecord {
    /// The step.
    pub step: String,
    /// The rung.
    pub rung: String,
    /// The exact command; empty when it was passed over.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Whether it succeeded.
    pub ok: bool,
    /// Reason code when it did not, or a note: `missing`, `exit`, `signal`, `timeout`, `no_file`,
    /// `no_words`, `start_failed`, or a diagnosis row's code.
    #[serde(default)]
    pub code: String,
    /// The tool's own words, one line.
    #[serde(default)]
    pub words: String,
    /// Exit status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// Signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Wall-clock seconds.
    #[serde(default)]
    pub seconds: f64,
    /// Last 3,000 bytes of standard output, control sequences and secrets removed.
    #[serde(default)]
    pub stdout_tail: String,
    /// Last 3,000 bytes of standard error, likewise.
    #[serde(default)]
    pub stderr_tail: String,
    /// What this rung loses against the one above.
    #[serde(default)]
    pub loses: String,
    /// Codes and words of rows that were only notes.
    #[serde(default)]
    pub notes: Vec<(String, String)>,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Outcome {
    /// Every step that had to end well did.
    Done,
    /// A step failed.
    Failed {
        /// The step.
        step: String,
        /// Reason code.
        code: String,
    },
    /// The client cancelled.
    Cancelled,
    /// The lease ran out: no client renewed it.
    LeaseExpired,
    /// The GPU did not come free in time.
    QueueTimeout,
    /// The GPU asked for is not there, or somebody else's processes are on it.
    NoGpu {
        /// In words.
        text: String,
    },
    /// The agent or its host failed.
    HostError {
        /// Code, e.g. `disk_full`.
        code: String,
        /// In words.
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
