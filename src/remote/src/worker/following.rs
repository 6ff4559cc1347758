//! Follows a job over requests of limited length. Each answer is a part of the agent's frame
//! stream, and the next request continues where it ended.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reqwest::Response;
use reqwest::header::{CONTENT_TYPE, HeaderName};
use rgpu_protocol::frame::{self, Frame, FrameKind, MAX_BODY};
use rgpu_protocol::http::{
    FRAMES, HEARTBEAT_INTERVAL, IDEMPOTENCY_KEY, MAX_WAIT_S, format_received,
};
use rgpu_protocol::message::ReceivedOutput;
use rgpu_protocol::{BLOB_BYTES, EventBody, FromAgent, Stream};

use super::bridge::{RequestContext, in_path, job_path};
use super::requests::{WorkerAnswer, WorkerRequest};
use super::transfer_rate::TransferRate;
use crate::announced_bytes::announced_bytes;
use crate::client::FOLLOW;
use crate::http::{self, HttpError};

/// After this silence, without even a heartbeat, a stream is dead.
const MAX_SILENCE: Duration = HEARTBEAT_INTERVAL.saturating_mul(4);

/// The largest message with its announced bytes and frame headers; a piece of an artifact is the
/// longest.
const MAX_GROUP_BYTES: usize = BLOB_BYTES as usize + MAX_BODY + (128 << 10);

/// The least time between two requests for the same position.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_millis(200);

/// The request that starts to follow a job.
pub(super) enum FollowStart {
    /// Submits a plan; `body` is the request's body.
    Submit { job: String, body: Vec<u8>, inline_bytes: u64 },
    /// Attaches to a job.
    Attach { job: String, from_seq: u64, had: Vec<ReceivedOutput>, inline_bytes: u64 },
}

/// The position up to which a job was followed.
struct FollowPosition {
    job: String,
    seq: u64,
    had: BTreeMap<(String, Stream), u64>,
    inline_bytes: u64,
    /// Whether the session has received `Following`.
    announced_to_session: bool,
}

/// The end of one answer.
enum StreamOutcome {
    /// The terminal event came, or the session is gone.
    Over,
    /// The stream paused; the job continues.
    Pause,
}

pub(super) async fn run(link: RequestContext, begin: FollowStart) {
    let (request, mut ask, mut position) = begin.first();
    loop {
        let begun = Instant::now();
        let response = match link.requests.send(ask).await {
            Ok(WorkerAnswer::Response(response)) => response,
            Ok(WorkerAnswer::AgentMessage(body)) if !position.announced_to_session => {
                let _ = link.send_json(&answer_to(request, body)).await;
                return;
            }
            // No request of the session waits for this answer; its next attachment gets the error.
            Ok(WorkerAnswer::AgentMessage(body)) => {
                let why = String::from_utf8_lossy(&body).into_owned();
                return link.cut_off(&HttpError::Cut { doing: FOLLOWING, why });
            }
            Err(error) if position.announced_to_session => return link.cut_off(&error),
            Err(error) => return link.failed(request, &error).await,
        };
        match position.pass(response, &link).await {
            Ok(StreamOutcome::Over) => return,
            Ok(StreamOutcome::Pause) => {}
            Err(error) => return link.cut_off(&error),
        }
        tokio::time::sleep(MIN_REQUEST_INTERVAL.saturating_sub(begun.elapsed())).await;
        ask = position.ask();
    }
}

const FOLLOWING: &str = "following the job";

/// Turns a worker's refusal into the answer to the session's own request, which may have another
/// name.
fn answer_to(request: &str, body: Vec<u8>) -> Vec<u8> {
    match serde_json::from_slice(&body) {
        Ok(FromAgent::Refused { code, text, .. }) => {
            let refused = FromAgent::Refused { request: request.to_owned(), code, text };
            serde_json::to_vec(&refused).unwrap_or(body)
        }
        _ => body,
    }
}

impl FollowStart {
    fn first(self) -> (&'static str, WorkerRequest, FollowPosition) {
        match self {
            Self::Submit { job, body, inline_bytes } => {
                let path = format!("/v1/jobs?wait={MAX_WAIT_S}&inline={inline_bytes}");
                let ask = WorkerRequest::post(path, body, "submitting the plan")
                    .accept(FRAMES)
                    .header(HeaderName::from_static(IDEMPOTENCY_KEY), &job);
                let had = BTreeMap::new();
                (
                    "submit",
                    ask,
                    FollowPosition { job, seq: 0, had, inline_bytes, announced_to_session: false },
                )
            }
            Self::Attach { job, from_seq, had, inline_bytes } => {
                let had = had.into_iter().map(|h| ((h.step, h.stream), h.bytes)).collect();
                let seq = from_seq.saturating_sub(1);
                let position =
                    FollowPosition { job, seq, had, inline_bytes, announced_to_session: false };
                ("attach", position.ask(), position)
            }
        }
    }
}

impl FollowPosition {
    /// The request for what follows this position.
    fn ask(&self) -> WorkerRequest {
        let Self { job, seq, had, inline_bytes, .. } = self;
        let mut path = format!(
            "{}/events?after={seq}&wait={MAX_WAIT_S}&inline={inline_bytes}&had=",
            job_path(job)
        );
        for ((step, stream), bytes) in had {
            let had = ReceivedOutput { step: step.clone(), stream: *stream, bytes: *bytes };
            path += &format!("&had={}", in_path(&format_received(&had)));
        }
        WorkerRequest::get(path, FOLLOWING).accept(FRAMES)
    }

    /// Passes an answer on, group by group: a message with the bytes that it announces.
    async fn pass(
        &mut self,
        mut response: Response,
        link: &RequestContext,
    ) -> Result<StreamOutcome, HttpError> {
        if response.headers().get(CONTENT_TYPE).is_none_or(|kind| kind != FRAMES) {
            return Err(cut_error("it is not a stream of frames"));
        }
        let mut buffer: Vec<u8> = Vec::new();
        let mut group = MessageGroup::default();
        let mut transfer_rate = TransferRate::new(Instant::now());
        loop {
            let mut used = 0;
            while let Some((frame, len)) =
                frame::parse(&buffer[used..]).map_err(|e| cut_error(&e.to_string()))?
            {
                let is_complete = group.add(frame, &buffer[used..used + len])?;
                used += len;
                if !is_complete {
                    continue;
                }
                let MessageGroup { frames, message, .. } = std::mem::take(&mut group);
                let ended = match self.note(message)? {
                    GroupAction::Drop => continue,
                    GroupAction::Pass => false,
                    GroupAction::Last => true,
                };
                if link.pass(frames).await.is_err() || ended {
                    return Ok(StreamOutcome::Over);
                }
            }
            if used > 0 {
                buffer.drain(..used);
            }
            // A job may be silent for any time, but a message must not stall.
            if buffer.is_empty() && group.frames.is_empty() {
                transfer_rate = TransferRate::new(Instant::now());
            }
            match http::next_chunk(&mut response, MAX_SILENCE, FOLLOWING).await? {
                Some(bytes) => {
                    buffer.extend_from_slice(&bytes);
                    transfer_rate
                        .add_bytes(bytes.len(), Instant::now())
                        .map_err(|why| cut_error(&why))?;
                }
                None if buffer.is_empty() && group.frames.is_empty() => {
                    return Ok(StreamOutcome::Pause);
                }
                None => return Err(cut_error("it ended within a frame")),
            }
        }
    }

    /// Records the position. Messages of other jobs are dropped.
    fn note(&mut self, message: Option<FromAgent>) -> Result<GroupAction, HttpError> {
        match message {
            Some(
                FromAgent::Event { job, .. }
                | FromAgent::Output { job, .. }
                | FromAgent::Data { job, .. }
                | FromAgent::Ahead { job, .. },
            ) if job != self.job => return Ok(GroupAction::Drop),
            Some(FromAgent::Event { event, .. }) => {
                self.seq = self.seq.max(event.seq);
                if matches!(event.body, EventBody::Ended { .. }) {
                    return Ok(GroupAction::Last);
                }
            }
            Some(FromAgent::Output { step, stream, offset, len, .. }) => {
                self.had.insert((step, stream), offset + len);
            }
            Some(FromAgent::Following { .. }) if self.announced_to_session => {
                return Ok(GroupAction::Drop);
            }
            Some(FromAgent::Following { .. }) => self.announced_to_session = true,
            Some(FromAgent::Pong {}) => return Ok(GroupAction::Drop),
            Some(FromAgent::Refused { request, text, .. }) if request == FOLLOW => {
                return Err(cut_error(&text));
            }
            _ => {}
        }
        Ok(GroupAction::Pass)
    }
}

/// The treatment of a group.
enum GroupAction {
    Pass,
    Drop,
    Last,
}

/// A message and the bytes that it announces, as received.
#[derive(Default)]
struct MessageGroup {
    frames: Vec<u8>,
    message: Option<FromAgent>,
    bytes_due: u64,
}

impl MessageGroup {
    /// Adds a frame; true once the group is complete.
    fn add(&mut self, frame: Frame<'_>, raw: &[u8]) -> Result<bool, HttpError> {
        match (frame.kind, self.bytes_due) {
            (FrameKind::Message, 0) => {
                let message =
                    serde_json::from_slice(frame.body).map_err(|e| cut_error(&e.to_string()))?;
                self.bytes_due =
                    announced_bytes(&message).map_err(|e| cut_error(&e.to_string()))?;
                self.message = Some(message);
            }
            (FrameKind::Output | FrameKind::Blob, bytes_due)
                if frame.body.len() as u64 <= bytes_due =>
            {
                self.bytes_due -= frame.body.len() as u64;
            }
            _ => return Err(cut_error("its frames are out of order")),
        }
        // Many frames of one byte, or of none, would exceed the piece.
        if self.frames.len() + raw.len() > MAX_GROUP_BYTES {
            return Err(cut_error("its frames are longer than what they hold"));
        }
        self.frames.extend_from_slice(raw);
        Ok(self.bytes_due == 0)
    }
}

fn cut_error(why: &str) -> HttpError {
    HttpError::Cut { doing: FOLLOWING, why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(group: &mut MessageGroup, kind: FrameKind, body: &[u8]) -> Result<bool, HttpError> {
        let mut raw = frame::header(kind, body.len()).to_vec();
        raw.extend_from_slice(body);
        group.add(Frame { kind, body }, &raw)
    }

    fn message(message: &FromAgent) -> Vec<u8> {
        serde_json::to_vec(message).unwrap()
    }

    fn output(job: &str, len: u64) -> FromAgent {
        let (job, step) = (job.to_owned(), "run".to_owned());
        FromAgent::Output { job, step, stream: Stream::Stdout, offset: 0, len }
    }

    #[test]
    fn a_group_of_frames_is_bounded() {
        let mut group = MessageGroup::default();
        assert!(add(&mut group, FrameKind::Message, &message(&output("run.1", u64::MAX))).is_err());
        // Any number of frames, of no bytes or of one.
        for body in [&b""[..], b"x"] {
            let mut group = MessageGroup::default();
            let stored = BLOB_BYTES;
            let data = FromAgent::Data {
                job: "run.1".to_owned(),
                path: "raw/x".to_owned(),
                offset: 0,
                len: BLOB_BYTES,
                stored,
                zstd: false,
            };
            assert!(!add(&mut group, FrameKind::Message, &message(&data)).unwrap());
            while add(&mut group, FrameKind::Blob, body).is_ok() {}
            assert!(group.frames.len() <= MAX_GROUP_BYTES, "{}", group.frames.len());
        }
    }

    #[test]
    fn what_another_job_says_is_dropped_and_not_remembered() {
        let (job, had) = ("run.1".to_owned(), BTreeMap::new());
        let mut position =
            FollowPosition { job, seq: 0, had, inline_bytes: 0, announced_to_session: true };
        assert!(matches!(position.note(Some(output("other.1", 5))), Ok(GroupAction::Drop)));
        assert!(position.had.is_empty());
        assert!(matches!(position.note(Some(output("run.1", 5))), Ok(GroupAction::Pass)));
        assert_eq!(position.had.len(), 1);
    }
}
