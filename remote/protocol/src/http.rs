//! The same conversation over HTTP: what both sides must spell alike.
//!
//! Requests become resources, answers stay the messages that they are on a byte stream
//! ([`crate::FromAgent`] as JSON), and whatever comes in pieces is offered as the very frames of a
//! byte stream, under the media type [`FRAMES`]. So nothing that reads them is written twice, and
//! anybody with `curl` still gets JSON, server-sent events and byte ranges.
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
//! A request that is not met is answered `refused`, with a status that fits its code.

pub mod openapi;

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message::ReceivedOutput;
use crate::{Digest, Event, Plan, Probe, Stream};

/// The media type of frames ([`crate::frame`]), without the magic line.
pub const FRAMES: &str = "application/vnd.rgpu.frames";

/// The longest that a request is held, in seconds: some platforms end them at 150.
pub const LONGEST_WAIT_S: u64 = 100;

/// A stream that has nothing to say says so this often: as `pong`, or as a comment of server-sent
/// events.
pub const BEAT: Duration = Duration::from_secs(10);

/// On `POST /v1/jobs`: the plan's job. Submitting it again attaches to it.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// On `PUT /v1/blobs/{sha256}` with `Content-Encoding: zstd`: the plain bytes.
pub const PLAIN_SIZE: &str = "rgpu-plain-size";

/// On a blob that has not come whole: the bytes that are there.
pub const UPLOAD_OFFSET: &str = "upload-offset";

/// On an artifact: its sha256, as its event names it.
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
    /// The questions.
    #[serde(default)]
    pub probes: Vec<Probe>,
    /// The user's settings.
    #[serde(default)]
    pub settings: HostSettings,
}

/// Body of `POST /v1/jobs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SubmitRequest {
    /// The plan.
    pub plan: Box<Plan>,
    /// Values of its secrets.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// The user's settings.
    #[serde(default)]
    pub settings: HostSettings,
}

/// Body of `POST /v1/blobs/missing`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingRequest {
    /// The blobs asked about.
    pub blobs: Vec<BlobLine>,
}

/// A blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlobLine {
    /// sha256 of its plain bytes.
    pub digest: Digest,
    /// How many they are.
    pub size: u64,
}

/// Answer of `POST /v1/blobs/missing`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingBlobs {
    /// Those that are not here.
    pub digests: Vec<Digest>,
}

/// Events with the output that they name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Events {
    /// The events, in order.
    pub events: Vec<Event>,
    /// The bytes that `output` events among them name.
    pub output: Vec<OutputPiece>,
    /// `after` of the next request.
    pub next: u64,
    /// Whether the terminal event is among them, or came before.
    pub ended: bool,
}

/// Bytes that a program printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputPiece {
    /// The step.
    pub step: String,
    /// Which stream.
    pub stream: Stream,
    /// Offset in that stream.
    pub offset: u64,
    /// The bytes, in base64.
    pub data: String,
}

/// `had=` of `GET /v1/jobs/{id}/events`: `STEP.STREAM:BYTES`.
pub fn had_word(had: &ReceivedOutput) -> String {
    format!("{}.{}:{}", had.step, had.stream.as_str(), had.bytes)
}

/// Reads what [`had_word`] writes.
pub fn parse_had(word: &str) -> Option<ReceivedOutput> {
    let (place, bytes) = word.rsplit_once(':')?;
    let (step, stream) = place.rsplit_once('.')?;
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
    fn what_was_had_is_one_word_whatever_the_step_is_called() {
        let had = ReceivedOutput { step: "a.b-2".into(), stream: Stream::Stderr, bytes: 7 };
        assert_eq!(had_word(&had), "a.b-2.stderr:7");
        assert_eq!(parse_had("a.b-2.stderr:7"), Some(had));
        for bad in ["", "a:1", "a.stdin:1", "a.stdout:-1", "a.stdout"] {
            assert_eq!(parse_had(bad), None, "{bad}");
        }
    }
}
