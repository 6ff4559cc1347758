//! Messages: the bodies of [`crate::frame::FrameKind::Message`] frames.
//!
//! A warm job is one round trip: `Submit` starts the job at once if the host has every blob.
//! Otherwise the agent answers `Missing`, and the client sends those blobs over any number of
//! connections. If both sides support it, the plan waits on the host and starts with its last blob;
//! otherwise the client submits it again. A second `Submit` of an existing job attaches to it, so a
//! client may always repeat the request after a lost link.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::probe::AgentFacts;
use crate::{Digest, Event, Plan, Probe, Stream};

/// The first frame in each direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// Version of the protocol that the sender speaks: [`crate::PROTOCOL`].
    pub rgpu: u32,
    /// Features that the sender supports.
    #[serde(default)]
    pub features: Vec<String>,
    /// Features that the receiver must support.
    #[serde(default)]
    pub required: Vec<String>,
    /// The version of rgpu that the sender belongs to.
    #[serde(default)]
    pub version: String,
}

/// Messages from the client to the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum ToAgent {
    /// The user's settings for this host, sent once after the first frame. They apply to the facts,
    /// plans and jobs of this connection. Not answered.
    Setup {
        /// Folders searched before PATH, by probes and by steps.
        #[serde(default)]
        path: Vec<String>,
        /// Environment of probes and steps, on top of the variables that the agent passes on and
        /// under the plan's own.
        #[serde(default)]
        env: BTreeMap<String, String>,
    },
    /// Asks for facts about the host, which the agent collects with probes.
    Facts {
        /// The probes to run.
        probes: Vec<Probe>,
    },
    /// Carries out a plan and follows the job as [`ToAgent::Attach`] does.
    Submit {
        /// The plan of the job.
        plan: Box<Plan>,
        /// Values of the plan's secrets: never logged, never written to disk.
        #[serde(default)]
        secrets: BTreeMap<String, String>,
        /// Artifacts up to this size are sent without a request, before the job's terminal event.
        #[serde(default)]
        inline_bytes: u64,
        /// Total bytes of larger artifacts to send without a request, announced by
        /// [`FromAgent::Ahead`].
        #[serde(default)]
        ahead_bytes: u64,
        /// If blobs are missing, the plan may wait on the host and start by itself once they are
        /// there, as long as this connection lives and nothing else is submitted on it.
        #[serde(default)]
        await_blobs: bool,
    },
    /// Announces a blob in the blob frames that follow: `stored` bytes in all.
    Blob {
        /// sha256 of the plain bytes.
        digest: Digest,
        /// Size of the plain bytes.
        size: u64,
        /// Size on the wire.
        stored: u64,
        /// Whether the wire bytes are one zstd frame.
        zstd: bool,
    },
    /// Follows a job from event `from_seq` and from the given offsets of its output.
    Attach {
        /// The name of the job.
        job: String,
        /// Number of the first event to send; 1 for all.
        from_seq: u64,
        /// Output that the client already has. Streams not listed are sent from 0.
        #[serde(default)]
        had: Vec<ReceivedOutput>,
        /// As in [`ToAgent::Submit`].
        #[serde(default)]
        inline_bytes: u64,
    },
    /// Announces bytes for the running step's standard input, in one output frame of `len` bytes.
    Stdin {
        /// The name of the job.
        job: String,
        /// Bytes in the frame that follows; 0: no frame follows.
        len: u64,
        /// Whether the input ends here.
        eof: bool,
        /// Offset of these bytes in the whole input. Bytes that the job already has are skipped, so
        /// a client may send everything again over a new link. `None`: the bytes follow those
        /// received so far.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
    },
    /// Says that a client is there: the job's lease starts again.
    Renew {
        /// The name of the job.
        job: String,
    },
    /// Ends the lease, leaving only the job's own limits: the client disconnects on purpose.
    Detach {
        /// The name of the job.
        job: String,
    },
    /// Stops the job and every process it started. Its terminal event confirms this.
    Cancel {
        /// The name of the job.
        job: String,
    },
    /// Requests bytes of an artifact.
    Fetch {
        /// The name of the job.
        job: String,
        /// Path as in its `artifact` event.
        path: String,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes, at most [`crate::BLOB_BYTES`].
        len: u64,
    },
    /// Lists this user's jobs on this host.
    Jobs {},
    /// Requests a job's plan, for a client that did not make it.
    Plan {
        /// The name of the job.
        job: String,
    },
    /// Removes an ended job's folder.
    Forget {
        /// The name of the job.
        job: String,
    },
    /// Asks for a [`FromAgent::Pong`], to check the connection.
    Ping {},
    /// A message type of a newer client.
    #[serde(other)]
    Unknown,
}

/// How much of an output stream a client already has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedOutput {
    /// The id of the step that printed.
    pub step: String,
    /// The output stream.
    pub stream: Stream,
    /// Bytes that the client has.
    pub bytes: u64,
}

/// Messages from the agent to the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "is", rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "most messages are events: a box each would cost more"
)]
pub enum FromAgent {
    /// Answers [`ToAgent::Facts`].
    Facts {
        /// The facts about the host.
        facts: Box<AgentFacts>,
    },
    /// Blobs that the client must send before the plan can start.
    Missing {
        /// The name of the job.
        job: String,
        /// The sha256 of each blob.
        digests: Vec<Digest>,
        /// Whether the plan waits for them. If so, the client need not submit it again:
        /// [`FromAgent::Following`] or [`FromAgent::Refused`] comes once all have arrived, on any
        /// connection.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        awaited: bool,
    },
    /// A complete blob has been stored.
    Stored {
        /// The sha256 of the blob.
        digest: Digest,
    },
    /// The job exists, and this connection now follows it.
    Following {
        /// The name of the job.
        job: String,
    },
    /// An event of a followed job.
    Event {
        /// The name of the job.
        job: String,
        /// The event itself.
        event: Event,
    },
    /// Announces output of a step, in one output frame of `len` bytes. It comes before the `output`
    /// event that names those bytes.
    Output {
        /// The name of the job.
        job: String,
        /// The id of the step that printed.
        step: String,
        /// The output stream.
        stream: Stream,
        /// Offset in the stream.
        offset: u64,
        /// Bytes in the frame that follows.
        len: u64,
    },
    /// The agent will send the first `len` bytes of this artifact without a request, in order,
    /// before anything fetched after the job's terminal event.
    Ahead {
        /// The name of the job.
        job: String,
        /// The path of the artifact in the job's folder.
        path: String,
        /// Number of bytes that will be sent.
        len: u64,
    },
    /// Announces bytes of an artifact in the blob frames that follow: `stored` bytes in all.
    Data {
        /// The name of the job.
        job: String,
        /// The path of the artifact in the job's folder.
        path: String,
        /// Offset of the first byte.
        offset: u64,
        /// Number of plain bytes.
        len: u64,
        /// Size on the wire.
        stored: u64,
        /// Whether the wire bytes are one zstd frame.
        zstd: bool,
    },
    /// Answers [`ToAgent::Jobs`].
    Jobs {
        /// The jobs, newest first.
        jobs: Vec<JobLine>,
        /// The host's clock, Unix time in milliseconds; compare the jobs' times with it.
        #[serde(default)]
        now_ms: u64,
        /// Bytes that this user's jobs and blobs take on the host.
        #[serde(default)]
        used_bytes: u64,
        /// Upper limit of `used_bytes`.
        #[serde(default)]
        quota_bytes: u64,
    },
    /// Answers [`ToAgent::Plan`].
    Plan {
        /// The plan, without the values of secrets.
        plan: Box<Plan>,
    },
    /// A request failed. The connection stays usable.
    Refused {
        /// The request's type: `submit`, `blob`, `fetch` …
        request: String,
        /// Code: `facts_changed`, `no_such_job`, `job_exists`, `bad_path`, `disk_full`, `quota`,
        /// `damaged_blob`, `folder_unsafe` …
        code: String,
        /// Explanation for the user.
        text: String,
    },
    /// Answer to [`ToAgent::Forget`], [`ToAgent::Renew`] and [`ToAgent::Detach`].
    Done {
        /// The type of the refused request.
        request: String,
    },
    /// Answers [`ToAgent::Ping`].
    Pong {},
    /// A message type of a newer agent.
    #[serde(other)]
    Unknown,
}

/// A job in a list of jobs.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobLine {
    /// The name of the job.
    pub job: String,
    /// The title of its plan.
    pub title: String,
    /// Unix time in milliseconds when it started.
    pub started_ms: u64,
    /// How the job ended; `None` while it runs.
    pub ended: Option<crate::Outcome>,
    /// When the job ended, Unix time in milliseconds.
    pub ended_ms: Option<u64>,
    /// Position in the GPU queue; `None` if the job is not queued.
    pub queued: Option<u32>,
    /// The step that is running.
    #[serde(default)]
    pub step: String,
    /// Size of the job's folder in bytes.
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
