//! The protocol over HTTP: the definitions that both sides share.
//!
//! Requests become resources. Answers are the same messages as on a byte stream
//! ([`crate::FromAgent`] as JSON). Anything sent in pieces is also offered as frames, under the
//! media type [`FRAMES`], so that one reader serves both transports. `curl` users get JSON,
//! server-sent events and byte ranges.
//!
//! | method, path | body | answer |
//! |---|---|---|
//! | `GET /v1/health` | | [`crate::Hello`] |
//! | `GET /v1/openapi.json` | | this table for machines |
//! | `POST /v1/facts` | [`FactsRequest`] | `facts` |
//! | `POST /v1/blobs/missing` | [`MissingRequest`] | [`MissingBlobs`] |
//! | `HEAD /v1/blobs/{sha256}` | | 200, or 404 with [`UPLOAD_OFFSET`] |
//! | `PUT /v1/blobs/{sha256}` | the bytes, or a range of them | `stored`; 202 while bytes lack |
//! | `POST /v1/jobs` | [`SubmitRequest`] | `following`, or 409 `missing`; or [`FRAMES`] |
//! | `GET /v1/jobs` | | `jobs` |
//! | `GET /v1/jobs/{id}` | | [`crate::message::JobLine`] |
//! | `GET /v1/jobs/{id}/plan` | | `plan` |
//! | `GET /v1/jobs/{id}/events` | | [`Events`], `text/event-stream`, or [`FRAMES`] |
//! | `POST /v1/jobs/{id}/stdin` | bytes | `done` |
//! | `POST /v1/jobs/{id}/{renew,detach,cancel}` | | `done` |
//! | `DELETE /v1/jobs/{id}` | | `done` |
//! | `GET /v1/jobs/{id}/artifacts/{path}` | | the bytes, or a range of them; or [`FRAMES`] |
//!
//! A failed request is answered with `refused`, and with a status that fits its code.

pub mod openapi;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message::ReceivedOutput;
use crate::{Digest, Event, Plan, Probe, Stream};

/// The media type of frames ([`crate::frame`]), without the magic line.
pub const FRAMES: &str = "application/vnd.rgpu.frames";

/// Maximum time that the server holds a request, in seconds. Some platforms end requests at 150.
pub const MAX_WAIT_S: u64 = 100;

/// The interval at which an idle stream sends a sign of life: a `pong`, or a comment in server-sent events.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// Header of `POST /v1/jobs`: the plan's job. Submitting it again attaches to that job.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Header of `PUT /v1/blobs/{sha256}` with `Content-Encoding: zstd`: the size of the plain bytes.
pub const PLAIN_SIZE: &str = "rgpu-plain-size";

/// Header of an incomplete blob: the number of bytes stored so far.
pub const UPLOAD_OFFSET: &str = "upload-offset";

/// Header of an artifact: its sha256, as in its event.
pub const SHA256: &str = "rgpu-sha256";

/// The user's settings for the host, as in [`crate::ToAgent::Setup`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostSettings {
    /// Folders searched before PATH.
    pub path: Vec<String>,
    /// Environment of probes and steps.
    pub env: BTreeMap<String, String>,
}

/// Body of `POST /v1/facts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FactsRequest {
    /// The probes to run.
    #[serde(default)]
    pub probes: Vec<Probe>,
    /// The user's settings for the host.
    #[serde(default)]
    pub settings: HostSettings,
}

/// Body of `POST /v1/jobs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubmitRequest {
    /// The plan of the job.
    pub plan: Box<Plan>,
    /// Values of the plan's secrets.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// The user's settings for the host.
    #[serde(default)]
    pub settings: HostSettings,
}

/// Body of `POST /v1/blobs/missing`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingRequest {
    /// The blobs to look for.
    pub blobs: Vec<BlobLine>,
}

/// A blob, by digest and size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlobLine {
    /// sha256 of its plain bytes.
    pub digest: Digest,
    /// Number of plain bytes.
    pub size: u64,
}

/// Answer of `POST /v1/blobs/missing`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingBlobs {
    /// Digests of the blobs that the host does not have.
    pub digests: Vec<Digest>,
}

/// Events, with the output that they name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Events {
    /// The events, in order.
    pub events: Vec<Event>,
    /// The bytes of the `output` events among them.
    pub output: Vec<OutputPiece>,
    /// Value of `after` for the next request.
    pub next: u64,
    /// Whether the terminal event is among these events or came before them.
    pub ended: bool,
}

/// Output of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputPiece {
    /// The id of the step that printed.
    pub step: String,
    /// The output stream.
    pub stream: Stream,
    /// Offset in that stream.
    pub offset: u64,
    /// The bytes, in base64.
    pub data: String,
}

/// Formats a `had=` parameter of `GET /v1/jobs/{id}/events`: `STEP.STREAM:BYTES`.
pub fn format_received(had: &ReceivedOutput) -> String {
    format!("{}.{}:{}", had.step, had.stream.as_str(), had.bytes)
}

/// Parses the output of [`format_received`]; `None` if it is malformed.
pub fn parse_received(word: &str) -> Option<ReceivedOutput> {
    let (source, bytes) = word.rsplit_once(':')?;
    let (step, stream) = source.rsplit_once('.')?;
    let stream = match stream {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        _ => return None,
    };
    Some(ReceivedOutput { step: step.to_owned(), stream, bytes: bytes.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn received_output_is_one_word_for_any_step_id() {
        let had = ReceivedOutput { step: "a.b-2".into(), stream: Stream::Stderr, bytes: 7 };
        assert_eq!(format_received(&had), "a.b-2.stderr:7");
        assert_eq!(parse_received("a.b-2.stderr:7"), Some(had));
        for bad in ["", "a:1", "a.stdin:1", "a.stdout:-1", "a.stdout"] {
            assert_eq!(parse_received(bad), None, "{bad}");
        }
    }
}
