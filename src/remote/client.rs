//! A session with one agent: sends requests, and receives answers and the followed job's messages.
//!
//! A session follows one job at a time; requests may be sent meanwhile. Messages of that job that
//! arrive before an awaited answer go into a bounded queue. [`Session::next`] is cancel-safe; a
//! session whose request future was dropped before its answer cannot be used any more
//! ([`Session::has_pending_answer`]).

use std::sync::Arc;
use std::time::Duration;

use rgpu_protocol::frame::FrameKind;
use rgpu_protocol::message::{JobLine, ReceivedOutput};
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{Event, EventBody, FromAgent, Hello, PROTOCOL, Plan, Probe, Stream, ToAgent};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::announced_bytes::announced_bytes;
use super::deploy::{AgentStart, EarlyFrames};
use super::pending_messages::PendingMessages;
use super::stream::{AgentStream, FrameReader, FrameWriter, StreamEnd};
use super::upload::INLINE_BYTES;
use super::{RemoteError, RemoteSpec, SentRecord, UserPrompt, limits};

/// Opens further streams to agents on the host of a session.
#[async_trait::async_trait]
pub trait StreamOpener: Send + Sync {
    /// Connects to one more agent.
    ///
    /// # Errors
    /// The host refuses, or the link is gone.
    async fn open(&self) -> Result<AgentStream, RemoteError>;

    /// Starts an agent with another command from the same host. Only connections over ssh can.
    ///
    /// # Errors
    /// As for [`Self::open`].
    async fn open_with(&self, _: &AgentStart) -> Result<AgentStream, RemoteError> {
        let what = "this connection starts no other command".to_owned();
        Err(RemoteError::ProtocolViolation { what })
    }

    /// The round-trip time to the host.
    fn round_trip(&self) -> Duration {
        Duration::ZERO
    }
}

/// A message of a followed job.
// One exists at a time and is destructured at once, so boxing events would only cost.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum JobMessage {
    /// An event of the job.
    Event(Event),
    /// Bytes that a program printed. They come before the `output` event that names them.
    Output {
        /// The id of the step that printed.
        step: String,
        /// Standard output or standard error.
        stream: Stream,
        /// Offset in that stream.
        offset: u64,
        /// The bytes that the step printed.
        bytes: Vec<u8>,
    },
}

/// The user's jobs on a host, and the disk space they use there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostJobs {
    /// The jobs, newest first.
    pub jobs: Vec<JobLine>,
    /// The host's clock, Unix time in milliseconds. The jobs' times are relative to it.
    pub now_ms: u64,
    /// Bytes that jobs and their inputs use on the host.
    pub used_bytes: u64,
    /// The limit on these bytes.
    pub quota_bytes: u64,
}

/// A complete message from an agent, with its bytes.
#[derive(Debug)]
pub(super) enum IncomingMessage {
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
pub(super) struct Conversation {
    reader: FrameReader,
    pub(super) writer: FrameWriter,
    writing: JoinHandle<()>,
    ending: StreamEnd,
    expect: Option<ExpectedBytes>,
    /// `Some` until the agent's hello has arrived.
    starting: Option<StartingAgent>,
    /// Whether our hello was sent.
    hello_sent: bool,
    /// Whether an agent reads the frames sent before its hello.
    pub(super) early_frames: EarlyFrames,
    /// Whether the agent had to be uploaded first.
    pub(super) cold: bool,
}

/// An agent that is still starting.
pub(super) struct StartingAgent {
    pub(super) start: Arc<AgentStart>,
    pub(super) user_prompt: Arc<dyn UserPrompt>,
}

impl Conversation {
    /// Wraps `wire` and sends nothing. With no `starting`, the agent's magic line was already read.
    fn new(wire: AgentStream, starting: Option<StartingAgent>) -> Self {
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
    pub(super) async fn greet(wire: AgentStream) -> Result<(Self, Hello), RemoteError> {
        let mut conversation = Self::new(wire, None);
        conversation.send_hello(None)?;
        let hello = conversation.wait_for_hello(None).await?;
        Ok((conversation, hello))
    }

    /// Sends our hello and `setup`, unless that was done before.
    fn send_hello(&mut self, setup: Option<&ToAgent>) -> Result<(), RemoteError> {
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
    async fn wait_for_hello(&mut self, setup: Option<&ToAgent>) -> Result<Hello, RemoteError> {
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
            serde_json::from_slice(&frame.body).map_err(|_| self.unexpected_body(&frame.body))?;
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

    fn link_cut(&self, doing: &'static str) -> RemoteError {
        let mut why = self.ending.description();
        let stderr = self.ending.stderr_tail(200);
        if !stderr.is_empty() {
            why = format!("{why}; its last words: {stderr}");
        }
        RemoteError::LinkCut { doing, why }
    }

    fn unexpected_body(&self, body: &[u8]) -> RemoteError {
        let head = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        RemoteError::ProtocolViolation { what: format!("`{head}`") }
    }

    /// The next complete message. Cancel-safe.
    pub(super) async fn incoming(
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
    async fn answer(
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
        let message = serde_json::from_slice(body).map_err(|_| self.unexpected_body(body))?;
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
pub(super) const FOLLOW: &str = "follow";

/// Requests whose answers nobody waits for.
const UNAWAITED: [&str; 4] = ["renew", "cancel", "stdin", "forget"];

/// A request whose answer is awaited.
pub(super) struct Request {
    /// The name that the agent's `Done` carries.
    pub(super) name: &'static str,
    /// The activity that errors name.
    pub(super) doing: &'static str,
    pub(super) limit: Duration,
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

/// Decompresses one zstd frame to `len` bytes, and never allocates more.
fn unpack(bytes: &[u8], len: u64, path: &str) -> Result<Vec<u8>, RemoteError> {
    zstd::bulk::decompress(bytes, len as usize).map_err(|error| RemoteError::ProtocolViolation {
        what: format!("a compressed piece of `{path}`: {error}"),
    })
}

/// A connection to one agent, which follows at most one job.
pub struct Session {
    pub(super) conversation: Conversation,
    pub(super) streams: Arc<dyn StreamOpener>,
    /// The record of blobs sent to this host before, if one is kept.
    pub(super) sent_record: Option<Arc<SentRecord>>,
    /// The agent's hello, once it has arrived.
    agent: Option<Hello>,
    /// The user's settings, sent with our hello.
    setup: Option<ToAgent>,
    pub(super) backlog: PendingMessages,
    lease: Option<Lease>,
    pub(super) is_answer_pending: bool,
}

/// Renews a followed job's lease until it is dropped.
struct Lease(JoinHandle<()>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Session {
    /// Exchanges hellos with the agent over `wire` and sends it the user's settings.
    ///
    /// # Errors
    /// The agent does not answer, or speaks another protocol generation.
    pub async fn start(
        wire: AgentStream,
        streams: Arc<dyn StreamOpener>,
        spec: &RemoteSpec,
    ) -> Result<Self, RemoteError> {
        let mut session = Self::new(Conversation::new(wire, None), streams, spec);
        session.send_hello()?;
        session.wait_for_hello().await?;
        Ok(session)
    }

    /// A session over a stream on which an agent is still starting. The first request goes out
    /// before the agent's hello, which saves a round trip; it also reports a failed start.
    pub(super) fn begin(
        wire: AgentStream,
        starting: StartingAgent,
        streams: Arc<dyn StreamOpener>,
        spec: &RemoteSpec,
    ) -> Self {
        Self::new(Conversation::new(wire, Some(starting)), streams, spec)
    }

    fn new(conversation: Conversation, streams: Arc<dyn StreamOpener>, spec: &RemoteSpec) -> Self {
        let (path, env) = (spec.path.clone(), spec.env.clone());
        let setup = (!path.is_empty() || !env.is_empty()).then_some(ToAgent::Setup { path, env });
        Self {
            conversation,
            streams,
            sent_record: None,
            agent: None,
            setup,
            backlog: PendingMessages::default(),
            lease: None,
            is_answer_pending: false,
        }
    }

    /// The agent's hello; `None`: it has not arrived yet.
    pub fn agent(&self) -> Option<&Hello> {
        self.agent.as_ref()
    }

    /// Waits for the agent's hello. Requests sent before it wait too.
    ///
    /// # Errors
    /// The agent does not start, does not answer, or speaks another protocol generation.
    pub async fn wait_for_hello(&mut self) -> Result<(), RemoteError> {
        if self.agent.is_none() {
            self.is_answer_pending = true;
            self.agent = Some(self.conversation.wait_for_hello(self.setup.as_ref()).await?);
            self.is_answer_pending = false;
        }
        Ok(())
    }

    fn send_hello(&mut self) -> Result<(), RemoteError> {
        self.conversation.send_hello(self.setup.as_ref())
    }

    /// Whether a request was dropped before its whole answer arrived. The next answer would belong
    /// to it, so the session cannot be used any more.
    pub fn has_pending_answer(&self) -> bool {
        self.is_answer_pending
    }

    pub(super) async fn ask(
        &mut self,
        message: &ToAgent,
        request: Request,
    ) -> Result<FromAgent, RemoteError> {
        let early = self.agent.is_none();
        self.is_answer_pending = true;
        self.send_hello()?;
        self.conversation.writer.message(message)?;
        self.wait_for_hello().await?;
        if early {
            if let Ok(answer) =
                timeout(limits::EARLY_ANSWER_TIMEOUT, self.wait_for_answer(&request)).await
            {
                return answer;
            }
            // A slow agent answers the ping as well. If the host's start-up files swallowed our
            // hello, the agent takes the ping for it and hangs up, and we ask again on another
            // link.
            self.conversation.writer.message(&ToAgent::Ping {})?;
        }
        self.wait_for_answer(&request).await
    }

    /// Waits for the answer to a request that was already sent.
    pub(super) async fn wait_for_answer(
        &mut self,
        request: &Request,
    ) -> Result<FromAgent, RemoteError> {
        self.is_answer_pending = true;
        let answer = self.conversation.answer(request, &mut self.backlog).await;
        self.is_answer_pending = !matches!(answer, Ok(_) | Err(RemoteError::Refused { .. }));
        answer
    }

    /// The agent's facts about its host, with the answers to `probes`.
    ///
    /// # Errors
    /// The link fails, or the agent refuses.
    pub async fn facts(&mut self, probes: Vec<Probe>) -> Result<AgentFacts, RemoteError> {
        let doing = "asking for the host's facts";
        let request = Request { name: "facts", doing, limit: limits::FACTS_TIMEOUT };
        match self.ask(&ToAgent::Facts { probes }, request).await? {
            FromAgent::Facts { facts } => Ok(*facts),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// The user's jobs on this host, newest first.
    ///
    /// # Errors
    /// The link fails, or the agent refuses.
    pub async fn jobs(&mut self) -> Result<HostJobs, RemoteError> {
        let request =
            Request { name: "jobs", doing: "listing jobs", limit: limits::ANSWER_TIMEOUT };
        match self.ask(&ToAgent::Jobs {}, request).await? {
            FromAgent::Jobs { jobs, now_ms, used_bytes, quota_bytes } => {
                Ok(HostJobs { jobs, now_ms, used_bytes, quota_bytes })
            }
            other => Err(unexpected_answer(&other)),
        }
    }

    /// The plan of a job on this host.
    ///
    /// # Errors
    /// The link fails, or `no_such_job`.
    pub async fn plan(&mut self, job: &str) -> Result<Plan, RemoteError> {
        let request =
            Request { name: "plan", doing: "asking for a plan", limit: limits::ANSWER_TIMEOUT };
        match self.ask(&ToAgent::Plan { job: job.to_owned() }, request).await? {
            FromAgent::Plan { plan } => Ok(*plan),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// Removes an ended job's folder from the host.
    ///
    /// # Errors
    /// The link fails, or the agent refuses because the job runs.
    pub async fn remove_job(&mut self, job: &str) -> Result<(), RemoteError> {
        let request =
            Request { name: "forget", doing: "removing a job", limit: limits::ANSWER_TIMEOUT };
        match self.ask(&ToAgent::Forget { job: job.to_owned() }, request).await? {
            FromAgent::Done { .. } => Ok(()),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// Requests that the host removes an ended job whose files have all been fetched. Does not wait
    /// for the answer: the host sweeps leftover folders later.
    ///
    /// # Errors
    /// The link fails.
    pub fn request_job_removal(&mut self, job: &str) -> Result<(), RemoteError> {
        self.send_hello()?;
        self.conversation.writer.message(&ToAgent::Forget { job: job.to_owned() })
    }

    /// Follows a job from event `from_seq` on; `had` says how much of its output is already here.
    ///
    /// # Errors
    /// The link fails, or `no_such_job`.
    pub async fn attach(
        &mut self,
        job: &str,
        from_seq: u64,
        had: Vec<ReceivedOutput>,
    ) -> Result<(), RemoteError> {
        let message =
            ToAgent::Attach { job: job.to_owned(), from_seq, had, inline_bytes: INLINE_BYTES };
        let doing = "attaching to the job";
        let request = Request { name: "attach", doing, limit: limits::ANSWER_TIMEOUT };
        match self.ask(&message, request).await? {
            FromAgent::Following { job: followed } => self.start_following(followed, job),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// Makes `job` the followed job and starts to renew its lease.
    ///
    /// # Errors
    /// [`RemoteError::ProtocolViolation`]: it is not the `requested` job.
    pub(super) fn start_following(
        &mut self,
        job: String,
        requested: &str,
    ) -> Result<(), RemoteError> {
        if job != requested {
            return Err(unexpected_answer(&FromAgent::Following { job }));
        }
        let writer = self.conversation.writer.clone();
        let renew = ToAgent::Renew { job: job.clone() };
        self.backlog.follow(job);
        self.lease = Some(Lease(tokio::spawn(async move {
            loop {
                tokio::time::sleep(limits::LEASE_RENEWAL_INTERVAL).await;
                if writer.message(&renew).is_err() {
                    return;
                }
            }
        })));
        Ok(())
    }

    /// The next message of the followed job. Cancel-safe. Has no time limit: a job may stay silent
    /// as long as its own limits allow, and the transport notices a dead link.
    ///
    /// # Errors
    /// [`RemoteError::LinkCut`] when the stream ends; [`RemoteError::Refused`] when the agent
    /// rejected input that [`JobStdin`] sent.
    pub async fn next(&mut self) -> Result<JobMessage, RemoteError> {
        loop {
            let incoming = match self.backlog.pop() {
                Some(incoming) => incoming,
                None => self.conversation.incoming("following the job").await?,
            };
            if !self.backlog.belongs_to_job(&incoming) {
                continue;
            }
            match incoming {
                IncomingMessage::Job { message, .. } => {
                    if let JobMessage::Event(Event { body: EventBody::Ended { .. }, .. }) = &message
                    {
                        self.lease = None;
                    }
                    return Ok(message);
                }
                IncomingMessage::Piece { path, offset: 0, bytes, .. } => {
                    self.backlog.keep_inline(path, bytes);
                }
                IncomingMessage::Ahead { path, len, .. } => self.backlog.announce(path, len)?,
                // The job's events already cover a renewal or a cancel that came too late.
                IncomingMessage::Answer(FromAgent::Refused { request, code, text })
                    if request == "stdin" || request == FOLLOW =>
                {
                    return Err(RemoteError::Refused { request, code, text });
                }
                IncomingMessage::Piece { .. } | IncomingMessage::Answer(_) => {}
            }
        }
    }

    /// Asks the agent to stop the job and all its processes. The job's terminal event confirms it.
    ///
    /// # Errors
    /// The link fails.
    pub fn cancel(&mut self) -> Result<(), RemoteError> {
        match self.backlog.job() {
            Some(job) => self.conversation.writer.message(&ToAgent::Cancel { job: job.to_owned() }),
            None => Ok(()),
        }
    }

    /// The sender for the followed job's standard input; `None`: no job is followed.
    pub fn stdin(&self) -> Option<JobStdin> {
        let job = self.backlog.job()?.to_owned();
        let has_offset_feature = |agent: &Hello| agent.features.iter().any(|f| f == "stdin_offset");
        let takes_offset = self.agent.as_ref().is_some_and(has_offset_feature);
        Some(JobStdin { job, writer: self.conversation.writer.clone(), takes_offset })
    }

    /// Stops following the job, which continues under its own limits.
    ///
    /// # Errors
    /// The link fails, or `no_such_job`.
    pub async fn detach(&mut self) -> Result<(), RemoteError> {
        let Some(job) = self.backlog.stop_following() else { return Ok(()) };
        self.lease = None;
        let request =
            Request { name: "detach", doing: "leaving the job", limit: limits::ANSWER_TIMEOUT };
        self.ask(&ToAgent::Detach { job }, request).await?;
        Ok(())
    }

    /// Flushes what was sent and closes the connection.
    pub async fn close(self) {
        let Self { conversation, lease, .. } = self;
        drop(lease);
        let Conversation { reader: _reader, writer, writing, .. } = conversation;
        drop(writer);
        // A stream that does not close within the limit is dropped.
        let _ = timeout(limits::CLOSE_TIMEOUT, writing).await;
    }
}

/// Sends a job's standard input. Does not borrow the session, which must be read while input waits:
/// a program may print as much as it reads.
#[derive(Clone)]
pub struct JobStdin {
    job: String,
    writer: FrameWriter,
    /// Whether the agent takes the offset of each chunk and skips input that the job already has.
    takes_offset: bool,
}

impl JobStdin {
    /// Whether all input may be sent again over a new link, because the agent skips the part that
    /// the job already has.
    pub fn may_repeat(&self) -> bool {
        self.takes_offset
    }

    /// Sends the start of `bytes`, which begin at `offset` of the whole input, and returns how many
    /// were sent. Cancel-safe: a dropped call has sent nothing.
    ///
    /// # Errors
    /// The link fails.
    pub async fn send(&self, offset: u64, bytes: &[u8]) -> Result<usize, RemoteError> {
        let bytes = &bytes[..bytes.len().min(rgpu_protocol::frame::MAX_BODY)];
        self.send_chunk(offset, bytes, false).await.map(|()| bytes.len())
    }

    /// Ends the input, whose length is `offset` bytes. Cancel-safe.
    ///
    /// # Errors
    /// The link fails.
    pub async fn end(&self, offset: u64) -> Result<(), RemoteError> {
        self.send_chunk(offset, &[], true).await
    }

    async fn send_chunk(&self, offset: u64, bytes: &[u8], eof: bool) -> Result<(), RemoteError> {
        let offset = self.takes_offset.then_some(offset);
        let message =
            ToAgent::Stdin { job: self.job.clone(), len: bytes.len() as u64, eof, offset };
        self.writer.send_with_bytes(&message, FrameKind::Output, bytes).await
    }
}

/// The error for an answer that fits no request.
pub(super) fn unexpected_answer(answer: &FromAgent) -> RemoteError {
    let mut what = format!("{answer:?}");
    what.truncate(what.char_indices().nth(200).map_or(what.len(), |(at, _)| at));
    RemoteError::ProtocolViolation { what: format!("an answer without a request: {what}") }
}
