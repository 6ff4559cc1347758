//! Messages over one stream to an agent: the hellos, requests and answers, and the bytes that
//! follow the messages that announce them. Keeps no state about jobs.

use std::sync::Arc;
use std::time::Duration;

use rgpu_protocol::frame::FrameKind;
use rgpu_protocol::{FromAgent, Hello, PROTOCOL, Stream, ToAgent};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::JobMessage;
use crate::announced_bytes::announced_bytes;
use crate::deploy::{AgentStart, EarlyFrames};
use crate::pending_messages::PendingMessages;
use crate::stream::{AgentStream, FrameReader, FrameWriter, StreamEnd};
use crate::{RemoteError, UserPrompt, limits};

/// A complete message from an agent, with its bytes.
#[derive(Debug)]
pub(crate) enum IncomingMessage {
    Job {
        job: String,
        message: JobMessage,
    },
    Piece {
        job: String,
        path: String,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// The agent will send this much of an artifact without a request.
    Ahead {
        job: String,
        path: String,
        len: u64,
    },
    Answer(FromAgent),
}

/// An announcement whose bytes have not all arrived.
enum ExpectedBytes {
    Output { job: String, step: String, stream: Stream, offset: u64, len: u64 },
    Piece(Piece),
}

/// A piece of an artifact; `bytes` is the part that has arrived.
struct Piece {
    job: String,
    path: String,
    offset: u64,
    len: u64,
    stored: u64,
    zstd: bool,
    bytes: Vec<u8>,
}

/// Sends and receives messages over one stream. Keeps no state about jobs.
pub(crate) struct Conversation {
    reader: FrameReader,
    pub(crate) writer: FrameWriter,
    writing: JoinHandle<()>,
    ending: StreamEnd,
    expect: Option<ExpectedBytes>,
    /// `Some` until the agent's hello has arrived.
    starting: Option<StartingAgent>,
    /// Whether our hello was sent.
    hello_sent: bool,
    /// Whether an agent reads the frames sent before its hello.
    pub(crate) early_frames: EarlyFrames,
    /// Whether the agent had to be uploaded first.
    pub(crate) cold: bool,
}

/// An agent that is still starting.
pub(crate) struct StartingAgent {
    pub(crate) start: Arc<AgentStart>,
    pub(crate) user_prompt: Arc<dyn UserPrompt>,
}

impl Conversation {
    /// Wraps `wire` and sends nothing. With no `starting`, the agent's magic line was already read.
    pub(super) fn new(wire: AgentStream, starting: Option<StartingAgent>) -> Self {
        let (writer, writing) = FrameWriter::spawn(wire.writer);
        let (reader, ending) = (wire.reader, wire.ending);
        let (expect, hello_sent, early_frames) = (None, false, EarlyFrames::All);
        Self {
            reader,
            writer,
            writing,
            ending,
            expect,
            starting,
            hello_sent,
            early_frames,
            cold: false,
        }
    }

    /// Exchanges hellos with the agent over `wire`, whose magic line was already read.
    pub(crate) async fn greet(wire: AgentStream) -> Result<(Self, Hello), RemoteError> {
        let mut conversation = Self::new(wire, None);
        conversation.send_hello(None)?;
        let hello = conversation.wait_for_hello(None).await?;
        Ok((conversation, hello))
    }

    /// Sends our hello and `setup`, unless that was done before.
    pub(super) fn send_hello(&mut self, setup: Option<&ToAgent>) -> Result<(), RemoteError> {
        if std::mem::replace(&mut self.hello_sent, true) {
            return Ok(());
        }
        if self.starting.is_some() {
            self.writer.keep();
        }
        self.writer.message(&Hello {
            rgpu: PROTOCOL,
            features: Vec::new(),
            required: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })?;
        setup.map_or(Ok(()), |setup| self.writer.message(setup))
    }

    /// Waits for the agent's hello, and sends ours first if that was not done.
    pub(super) async fn wait_for_hello(
        &mut self,
        setup: Option<&ToAgent>,
    ) -> Result<Hello, RemoteError> {
        if let Some(StartingAgent { start, user_prompt }) = self.starting.take() {
            let Self { reader, writer, ending, early_frames, .. } = self;
            start
                .run_after_first_frames(reader, writer, ending, &*user_prompt, early_frames)
                .await?;
            match self.early_frames {
                EarlyFrames::All => self.writer.forget(),
                EarlyFrames::Nothing => {
                    self.cold = true;
                    self.writer.repeat()?;
                }
            }
            self.early_frames = EarlyFrames::All;
        }
        self.send_hello(setup)?;
        let doing = "greeting the agent";
        let frame = timeout(limits::ANSWER_TIMEOUT, self.reader.frame())
            .await
            .map_err(|_| RemoteError::Silent { doing, limit: limits::ANSWER_TIMEOUT })??
            .ok_or_else(|| self.link_cut(doing))?;
        let hello: Hello =
            serde_json::from_slice(&frame.body).map_err(|e| unexpected_body(&frame.body, &e))?;
        if hello.rgpu != PROTOCOL {
            return Err(RemoteError::Mismatch(format!(
                "the agent speaks protocol version {}, this rgpu version {PROTOCOL}",
                hello.rgpu
            )));
        }
        if let Some(feature) = hello.required.first() {
            return Err(RemoteError::Mismatch(format!(
                "the agent needs `{feature}`, which this rgpu does not have"
            )));
        }
        Ok(hello)
    }

    /// Flushes what was sent and closes the stream.
    pub(super) async fn close(self) {
        let Self { reader: _reader, writer, writing, .. } = self;
        drop(writer);
        // A stream that does not close within the limit is dropped.
        let _ = timeout(limits::CLOSE_TIMEOUT, writing).await;
    }

    fn link_cut(&self, doing: &'static str) -> RemoteError {
        let mut why = self.ending.description();
        let stderr = self.ending.stderr_tail(200);
        if !stderr.is_empty() {
            why = format!("{why}; its last words: {stderr}");
        }
        RemoteError::LinkCut { doing, why }
    }

    /// The next complete message. Cancel-safe.
    pub(crate) async fn incoming(
        &mut self,
        doing: &'static str,
    ) -> Result<IncomingMessage, RemoteError> {
        loop {
            // Yields to the scheduler, so that a host that sends without pause cannot hide a
            // cancel.
            tokio::task::coop::consume_budget().await;
            // The bytes of a piece are read straight into it; the frame's kind shows other frames.
            if let Some(ExpectedBytes::Piece(piece)) = &mut self.expect {
                let Some(kind) = self.reader.next_into(&mut piece.bytes).await? else {
                    return Err(self.link_cut(doing));
                };
                if let Some(incoming) = self.completed_piece(kind)? {
                    return Ok(incoming);
                }
                continue;
            }
            let Some(frame) = self.reader.frame().await? else { return Err(self.link_cut(doing)) };
            let incoming = match frame.kind {
                FrameKind::Message => self.message(&frame.body)?,
                FrameKind::Output | FrameKind::Blob => self.bytes(frame.kind, frame.body)?,
            };
            if let Some(incoming) = incoming {
                return Ok(incoming);
            }
        }
    }

    /// Waits for the answer to a request, and keeps job messages meanwhile.
    pub(super) async fn answer(
        &mut self,
        request: &Request,
        backlog: &mut PendingMessages,
    ) -> Result<FromAgent, RemoteError> {
        let (doing, limit) = (request.doing, request.limit);
        timeout(limit, async {
            loop {
                match self.incoming(doing).await? {
                    // No one waits for the answer to a renewal, a cancel or a piece of input: the
                    // job's events show the effect.
                    IncomingMessage::Answer(FromAgent::Done { request: of })
                        if of != request.name => {}
                    IncomingMessage::Answer(FromAgent::Refused { request: of, .. })
                        if of != request.name && UNAWAITED.contains(&of.as_str()) => {}
                    IncomingMessage::Answer(FromAgent::Pong {}) => {}
                    IncomingMessage::Answer(FromAgent::Refused { request, code, text }) => {
                        return Err(RemoteError::Refused { request, code, text });
                    }
                    IncomingMessage::Answer(answer) => return Ok(answer),
                    other => backlog.put(other)?,
                }
            }
        })
        .await
        .map_err(|_| RemoteError::Silent { doing, limit })?
    }

    fn message(&mut self, body: &[u8]) -> Result<Option<IncomingMessage>, RemoteError> {
        if self.expect.is_some() {
            return Err(RemoteError::ProtocolViolation {
                what: "a message among announced bytes".into(),
            });
        }
        let message = serde_json::from_slice(body).map_err(|e| unexpected_body(body, &e))?;
        announced_bytes(&message)?;
        match message {
            FromAgent::Event { job, event } => {
                Ok(Some(IncomingMessage::Job { job, message: JobMessage::Event(event) }))
            }
            FromAgent::Output { job, step, stream, offset, len } => {
                self.expect =
                    (len > 0).then_some(ExpectedBytes::Output { job, step, stream, offset, len });
                Ok(None)
            }
            FromAgent::Data { job, path, offset, len, stored, zstd } => {
                let bytes = Vec::with_capacity(stored as usize);
                let piece = Piece { job, path, offset, len, stored, zstd, bytes };
                if stored == 0 {
                    return piece.finish().map(Some);
                }
                self.expect = Some(ExpectedBytes::Piece(piece));
                Ok(None)
            }
            FromAgent::Ahead { job, path, len } => {
                Ok(Some(IncomingMessage::Ahead { job, path, len }))
            }
            FromAgent::Unknown => Ok(None),
            answer => Ok(Some(IncomingMessage::Answer(answer))),
        }
    }

    /// Checks the piece after a frame was appended to it, and returns it once complete.
    fn completed_piece(&mut self, kind: FrameKind) -> Result<Option<IncomingMessage>, RemoteError> {
        match self.expect.take() {
            Some(ExpectedBytes::Piece(piece))
                if kind == FrameKind::Blob && piece.bytes.len() as u64 <= piece.stored =>
            {
                if piece.bytes.len() as u64 == piece.stored {
                    return piece.finish().map(Some);
                }
                self.expect = Some(ExpectedBytes::Piece(piece));
                Ok(None)
            }
            _ if kind == FrameKind::Message => Err(RemoteError::ProtocolViolation {
                what: "a message among announced bytes".into(),
            }),
            _ => {
                Err(RemoteError::ProtocolViolation { what: "bytes that were not announced".into() })
            }
        }
    }

    fn bytes(
        &mut self,
        kind: FrameKind,
        body: Vec<u8>,
    ) -> Result<Option<IncomingMessage>, RemoteError> {
        match (kind, self.expect.take()) {
            (FrameKind::Output, Some(ExpectedBytes::Output { job, step, stream, offset, len }))
                if body.len() as u64 <= len =>
            {
                let left = len - body.len() as u64;
                if left > 0 {
                    let (job, step) = (job.clone(), step.clone());
                    let offset = offset + body.len() as u64;
                    self.expect =
                        Some(ExpectedBytes::Output { job, step, stream, offset, len: left });
                }
                let message = JobMessage::Output { step, stream, offset, bytes: body };
                Ok(Some(IncomingMessage::Job { job, message }))
            }
            _ => {
                Err(RemoteError::ProtocolViolation { what: "bytes that were not announced".into() })
            }
        }
    }
}

/// The name under which the agent reports that it has given up following a job.
pub(crate) const FOLLOW: &str = "follow";

/// Requests whose answers nobody waits for.
const UNAWAITED: [&str; 4] = ["renew", "cancel", "stdin", "forget"];

/// A request whose answer is awaited.
pub(crate) struct Request {
    /// The name that the agent's `Done` carries.
    pub(crate) name: &'static str,
    /// The activity that errors name.
    pub(crate) doing: &'static str,
    pub(crate) limit: Duration,
}

impl Piece {
    /// Unpacks the piece once all of it has arrived.
    fn finish(self) -> Result<IncomingMessage, RemoteError> {
        let Self { job, path, offset, len, zstd, bytes, .. } = self;
        let bytes = if zstd { unpack(&bytes, len, &path)? } else { bytes };
        if bytes.len() as u64 != len {
            return Err(RemoteError::ProtocolViolation {
                what: format!("{} bytes of `{path}` instead of {len}", bytes.len()),
            });
        }
        Ok(IncomingMessage::Piece { job, path, offset, bytes })
    }
}

/// The error for a message that cannot be read.
fn unexpected_body(body: &[u8], error: &serde_json::Error) -> RemoteError {
    // A whole document that is none of ours comes from an agent of another build.
    if error.is_data() {
        let why = crate::foreign_text::excerpt(&error.to_string());
        return RemoteError::Mismatch(format!("the agent is of another build ({why})"));
    }
    let head = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
    RemoteError::ProtocolViolation { what: format!("`{head}`") }
}

/// Decompresses one zstd frame to `len` bytes, and never allocates more.
fn unpack(bytes: &[u8], len: u64, path: &str) -> Result<Vec<u8>, RemoteError> {
    zstd::bulk::decompress(bytes, len as usize).map_err(|error| RemoteError::ProtocolViolation {
        what: format!("a compressed piece of `{path}`: {error}"),
    })
}

/// The error for an answer that fits no request.
pub(crate) fn unexpected_answer(answer: &FromAgent) -> RemoteError {
    let mut what = format!("{answer:?}");
    what.truncate(what.char_indices().nth(200).map_or(what.len(), |(at, _)| at));
    RemoteError::ProtocolViolation { what: format!("an answer without a request: {what}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_another_build_is_told_from_a_damaged_one() {
        let error = |body: &[u8]| {
            let read = serde_json::from_slice::<FromAgent>(body);
            unexpected_body(body, &read.unwrap_err()).failure("h200", "ssh")
        };
        let failure = error(b"{\"an_older_message\": 1}");
        assert_eq!(failure.code, "version_mismatch");
        assert!(failure.what.contains("of another build (missing field"), "{failure}");
        assert!(failure.hints[0].contains("of one build"), "{failure}");
        assert_eq!(error(b"{\"say\": \"ev").code, "bad_stream");
        let text = "missing field `seed`".to_owned();
        let refused =
            RemoteError::Refused { request: "message".into(), code: "bad_message".into(), text };
        let failure = refused.failure("h200", "ssh");
        assert_eq!(
            (failure.code.as_str(), failure.cause.as_deref()),
            ("another_build", Some("missing field `seed`"))
        );
    }
}
