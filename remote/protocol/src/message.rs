//! Messages: bodies of [`crate::frame::Kind::Message`] frames.
//!
//! A warm job is one round trip: `Submit` starts at once when every blob is there. Otherwise the
//! agent answers `Missing` and the client sends those blobs, over as many connections as it likes.
//! Where both sides can, the plan waits on the host and begins with its last blob; else the client
//! submits again. A second `Submit` of a job that is already there attaches to it, so a client may
//! always ask again after a cut link.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::probe::AgentFacts;
use crate::{Digest, Event, Plan, Probe, Stream};

/// The first frame each way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// [`crate::PROTOCOL`].
    pub rgpu: u32,
    /// What this side can do.
    #[serde(default)]
    pub features: Vec<String>,
    /// What the other side must be able to do.
    #[serde(default)]
    pub required: Vec<String>,
    /// This side's version.
    #[serde(default)]
    pub version: String,
}

/// From the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum ToAgent {
    /// The user's settings for this host, sent once after the first frame: they hold for the
    /// facts, plans and jobs of this connection. Not answered.
    Setup {
        /// Folders searched before PATH, by probes and by steps.
        #[serde(default)]
        path: Vec<String>,
        /// Environment of probes and steps, over the agent's allow-list and under the plan's own.
        #[serde(default)]
        env: BTreeMap<String, String>,
    },
    /// Answer these probes.
    Facts {
        /// The questions.
        probes: Vec<Probe>,
    },
    /// Carry out a plan, and follow it as [`ToAgent::Attach`] does.
    Submit {
        /// The plan.
        plan: Box<Plan>,
        /// Values of the plan's secrets: never logged, never written to disk.
        #[serde(default)]
        secrets: BTreeMap<String, String>,
        /// Artifacts up to this size are sent unasked, before the job's terminal event.
        #[serde(default)]
        inline_bytes: u64,
        /// Of larger ones, so many bytes in all are sent unasked, as [`FromAgent::Ahead`] announces.
        #[serde(default)]
        ahead_bytes: u64,
        /// Where blobs are missing, the plan may wait for them there and begin by itself, for as
        /// long as this connection lives and nothing else is submitted on it.
        #[serde(default)]
        await_blobs: bool,
    },
    /// A blob follows in blob frames: `stored` bytes in all, zstd when `zstd`, `size` bytes plain.
    Blob {
        /// sha256 of the plain bytes.
        digest: Digest,
        /// Plain bytes.
        size: u64,
        /// Bytes on the wire.
        stored: u64,
        /// Whether the wire bytes are one zstd frame.
        zstd: bool,
    },
    /// Follow a job from event `from_seq` and from these offsets of its output.
    Attach {
        /// The job.
        job: String,
        /// The first event wanted; 1: all.
        from_seq: u64,
        /// Output already had; absent streams are sent from 0.
        #[serde(default)]
        had: Vec<ReceivedOutput>,
        /// As in [`ToAgent::Submit`].
        #[serde(default)]
        inline_bytes: u64,
    },
    /// Bytes for the running step's standard input follow in one output frame of `len` bytes.
    Stdin {
        /// The job.
        job: String,
        /// Bytes in the frame that follows; 0: no frame follows.
        len: u64,
        /// Nothing more will come.
        eof: bool,
        /// Where in the whole input they stand: what the job has had already is passed over, so
        /// that all of it may be sent once more over a new link. Absent: behind all that came.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
    },
    /// Renew the lease.
    Renew {
        /// The job.
        job: String,
    },
    /// Let the lease be the job's own limits: the client goes away on purpose.
    Detach {
        /// The job.
        job: String,
    },
    /// Stop the job and everything it started; its terminal event confirms.
    Cancel {
        /// The job.
        job: String,
    },
    /// Send bytes of an artifact.
    Fetch {
        /// The job.
        job: String,
        /// Path as in its `artifact` event.
        path: String,
        /// First byte.
        offset: u64,
        /// Bytes, at most [`crate::BLOB_BYTES`].
        len: u64,
    },
    /// List the jobs of this user on this host.
    Jobs {},
    /// Send a job's plan, for a client that did not make it.
    Plan {
        /// The job.
        job: String,
    },
    /// Remove an ended job's folder.
    Forget {
        /// The job.
        job: String,
    },
    /// Answer [`FromAgent::Pong`].
    Ping {},
    /// A message of a newer client.
    #[serde(other)]
    Unknown,
}

/// How much of an output stream a client already has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedOutput {
    /// The step.
    pub step: String,
    /// Which stream.
    pub stream: Stream,
    /// Bytes had.
    pub bytes: u64,
}

/// From the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "most messages are events: a box each would cost more"
)]
pub enum FromAgent {
    /// Answers to [`ToAgent::Facts`].
    Facts {
        /// The facts.
        facts: Box<AgentFacts>,
    },
    /// Blobs to send before the plan can start.
    Missing {
        /// The job.
        job: String,
        /// Their digests.
        digests: Vec<Digest>,
        /// The plan waits for them, and need not be submitted again: [`FromAgent::Following`] or
        /// [`FromAgent::Refused`] comes once they are all there, on whatever connection they came.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        awaited: bool,
    },
    /// A blob arrived whole.
    Stored {
        /// Its digest.
        digest: Digest,
    },
    /// The job is there and is being followed.
    Following {
        /// The job.
        job: String,
    },
    /// An event of a followed job.
    Event {
        /// The job.
        job: String,
        /// The event.
        event: Event,
    },
    /// Output of a step follows in one output frame of `len` bytes. It comes before the `output`
    /// event that names those bytes.
    Output {
        /// The job.
        job: String,
        /// The step.
        step: String,
        /// Which stream.
        stream: Stream,
        /// Offset in the stream.
        offset: u64,
        /// Bytes in the frame that follows.
        len: u64,
    },
    /// The first `len` bytes of an artifact come unasked and in order, before all that is fetched
    /// after the job's terminal event.
    Ahead {
        /// The job.
        job: String,
        /// The artifact's path.
        path: String,
        /// Bytes.
        len: u64,
    },
    /// Bytes of an artifact follow in blob frames: `stored` in all.
    Data {
        /// The job.
        job: String,
        /// The artifact's path.
        path: String,
        /// First byte.
        offset: u64,
        /// Plain bytes.
        len: u64,
        /// Bytes on the wire.
        stored: u64,
        /// Whether the wire bytes are one zstd frame.
        zstd: bool,
    },
    /// Answer to [`ToAgent::Jobs`].
    Jobs {
        /// The jobs, newest first.
        jobs: Vec<JobLine>,
        /// Unix time in milliseconds by the host's clock, which dates the jobs.
        #[serde(default)]
        now_ms: u64,
        /// Bytes that this user's jobs and blobs take there.
        #[serde(default)]
        used_bytes: u64,
        /// Bytes they may take.
        #[serde(default)]
        quota_bytes: u64,
    },
    /// Answer to [`ToAgent::Plan`].
    Plan {
        /// The plan; it holds no secret's value.
        plan: Box<Plan>,
    },
    /// A request that could not be met. The conversation goes on.
    Refused {
        /// What was asked: `submit`, `blob`, `fetch` …
        request: String,
        /// Code: `facts_changed`, `no_such_job`, `job_exists`, `bad_path`, `disk_full`, `quota`,
        /// `damaged_blob`, `folder_unsafe` …
        code: String,
        /// In words.
        text: String,
    },
    /// Answer to [`ToAgent::Forget`], [`ToAgent::Renew`] and [`ToAgent::Detach`].
    Done {
        /// What was asked.
        request: String,
    },
    /// Answer to [`ToAgent::Ping`].
    Pong {},
    /// A message of a newer agent.
    #[serde(other)]
    Unknown,
}

/// A job in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobLine {
    /// The job.
    pub job: String,
    /// Its plan's title.
    pub title: String,
    /// Unix time in milliseconds when it started.
    pub started_ms: u64,
    /// The terminal event, once there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<crate::Outcome>,
    /// When that was, Unix time in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// Place in the queue for a GPU, while it waits there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<u32>,
    /// The step it is at.
    #[serde(default)]
    pub step: String,
    /// Bytes of its folder.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_newer_peer_are_read_as_unknown() {
        assert_eq!(
            serde_json::from_str::<ToAgent>(r#"{"do":"dance","x":1}"#).unwrap(),
            ToAgent::Unknown
        );
        assert_eq!(
            serde_json::from_str::<FromAgent>(r#"{"is":"news"}"#).unwrap(),
            FromAgent::Unknown
        );
    }
}
