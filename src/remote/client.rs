//! One conversation with an agent: requests up, answers and the followed job's messages down.
//!
//! A session follows one job at a time; requests may go out meanwhile. What that job sends while an
//! answer is awaited waits in a bounded queue. [`Session::next`] is cancel-safe; a request that was dropped
//! before its answer came leaves the session [`Session::unsettled`].

use std::sync::Arc;
use std::time::Duration;

use rgpu_protocol::frame::Kind;
use rgpu_protocol::message::{JobLine, ReceivedOutput};
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{Event, EventBody, FromAgent, Hello, PROTOCOL, Plan, Probe, Stream, ToAgent};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::announced::announced_bytes;
use super::backlog::Backlog;
use super::deploy::{AgentStart, EarlyFrames};
use super::stream::{AgentStream, FrameReader, FrameWriter, StreamEnd};
use super::upload::INLINE_BYTES;
use super::{RemoteError, RemoteSpec, SentRecord, UserPrompt, limits};

/// Opens further streams to agents on the host of a session.
#[async_trait::async_trait]
pub trait Streams: Send + Sync {
    /// One more agent.
    ///
    /// # Errors
    /// The host would not, or the link is gone.
    async fn open(&self) -> Result<AgentStream, RemoteError>;

    /// One round trip to the host.
    fn round_trip(&self) -> Duration {
        Duration::ZERO
    }
}

/// What a followed job sends.
// One at a time, soon taken apart: boxing events would only cost.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq)]
pub enum JobMessage {
    /// An event.
    Event(Event),
    /// Bytes that a program printed; they come before the `output` event that names them.
    Output {
        /// The step.
        step: String,
        /// Which stream.
        stream: Stream,
        /// Offset in that stream.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// The user's jobs on a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostJobs {
    /// The jobs, newest first.
    pub jobs: Vec<JobLine>,
    /// The host's clock, Unix time in milliseconds: what the jobs' times are told against.
    pub now_ms: u64,
    /// Bytes that jobs and their inputs take there.
    pub used_bytes: u64,
    /// Bytes they may take.
    pub quota_bytes: u64,
}

/// What comes from an agent, with the bytes that belong to it.
#[derive(Debug)]
pub(super) enum Incoming {
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
    /// So much of an artifact comes unasked.
    Ahead {
        job: String,
        path: String,
        len: u64,
    },
    Answer(FromAgent),
}

/// An announcement whose bytes have not all come.
enum ExpectedBytes {
    Output { job: String, step: String, stream: Stream, offset: u64, len: u64 },
    Piece(Piece),
}

/// A piece of an artifact of which `bytes` have come.
struct Piece {
    job: String,
    path: String,
    offset: u64,
    len: u64,
    stored: u64,
    zstd: bool,
    bytes: Vec<u8>,
}

/// Messages over one stream, without a memory of what they are about.
pub(super) struct Conversation {
    reader: FrameReader,
    pub(super) writer: FrameWriter,
    writing: JoinHandle<()>,
    ending: StreamEnd,
    expect: Option<ExpectedBytes>,
    /// Whoever is at the other end has not spoken yet.
    coming: Option<StartingAgent>,
    /// Whether our greeting was sent.
    spoken: bool,
    /// Whether anybody reads what was sent.
    pub(super) heard: EarlyFrames,
    /// Whether the agent had to be put there first.
    pub(super) cold: bool,
}

/// An agent that is being brought up.
pub(super) struct StartingAgent {
    pub(super) start: Arc<AgentStart>,
    pub(super) talk: Arc<dyn UserPrompt>,
}

impl Conversation {
    /// Over `wire`; nothing is said yet. With no `coming`, the agent's magic line was read already.
    fn over(wire: AgentStream, coming: Option<StartingAgent>) -> Self {
        let (writer, writing) = FrameWriter::spawn(wire.writer);
        let (reader, ending) = (wire.reader, wire.ending);
        let (expect, spoken, heard) = (None, false, EarlyFrames::All);
        Self { reader, writer, writing, ending, expect, coming, spoken, heard, cold: false }
    }

    /// Greets the agent at the other end of `wire`, whose magic line was read already.
    pub(super) async fn greet(wire: AgentStream) -> Result<(Self, Hello), RemoteError> {
        let mut this = Self::over(wire, None);
        this.speak(None)?;
        let theirs = this.greeted(None).await?;
        Ok((this, theirs))
    }

    /// Says the first words, if they were not said yet.
    fn speak(&mut self, setup: Option<&ToAgent>) -> Result<(), RemoteError> {
        if std::mem::replace(&mut self.spoken, true) {
            return Ok(());
        }
        if self.coming.is_some() {
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

    /// Waits for the agent's first words; says ours then, if they were not said yet.
    async fn greeted(&mut self, setup: Option<&ToAgent>) -> Result<Hello, RemoteError> {
        if let Some(StartingAgent { start, talk }) = self.coming.take() {
            let Self { reader, writer, ending, heard, .. } = self;
            start.run_addressed(reader, writer, ending, &*talk, heard).await?;
            match self.heard {
                EarlyFrames::All => self.writer.forget(),
                EarlyFrames::Nothing => {
                    self.cold = true;
                    self.writer.repeat()?;
                }
            }
            self.heard = EarlyFrames::All;
        }
        self.speak(setup)?;
        let doing = "greeting the agent";
        let frame = timeout(limits::ANSWER, self.reader.frame())
            .await
            .map_err(|_| RemoteError::Silent { doing, limit: limits::ANSWER })??
            .ok_or_else(|| self.cut(doing))?;
        let theirs: Hello =
            serde_json::from_slice(&frame.body).map_err(|_| self.odd(&frame.body))?;
        if theirs.rgpu != PROTOCOL {
            return Err(RemoteError::Mismatch(format!(
                "the agent speaks generation {}, this rgpu {PROTOCOL}",
                theirs.rgpu
            )));
        }
        if let Some(feature) = theirs.required.first() {
            return Err(RemoteError::Mismatch(format!(
                "the agent needs `{feature}`, which this rgpu does not have"
            )));
        }
        Ok(theirs)
    }

    fn cut(&self, doing: &'static str) -> RemoteError {
        let mut why = self.ending.words();
        let last = self.ending.last_words(200);
        if !last.is_empty() {
            why = format!("{why}; its last words: {last}");
        }
        RemoteError::LinkCut { doing, why }
    }

    fn odd(&self, body: &[u8]) -> RemoteError {
        let head = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        RemoteError::Nonsense { what: format!("`{head}`") }
    }

    /// The next thing that comes, complete. Cancel-safe.
    pub(super) async fn incoming(&mut self, doing: &'static str) -> Result<Incoming, RemoteError> {
        loop {
            // A host that never pauses must not keep a cancel from being seen.
            tokio::task::coop::consume_budget().await;
            // Bytes of a piece go where they belong at once. What is no piece's is told by its kind.
            if let Some(ExpectedBytes::Piece(piece)) = &mut self.expect {
                let Some(kind) = self.reader.next_into(&mut piece.bytes).await? else {
                    return Err(self.cut(doing));
                };
                if let Some(incoming) = self.more_of_a_piece(kind)? {
                    return Ok(incoming);
                }
                continue;
            }
            let Some(frame) = self.reader.frame().await? else { return Err(self.cut(doing)) };
            let incoming = match frame.kind {
                Kind::Message => self.message(&frame.body)?,
                Kind::Output | Kind::Blob => self.bytes(frame.kind, frame.body)?,
            };
            if let Some(incoming) = incoming {
                return Ok(incoming);
            }
        }
    }

    /// Waits for the answer to a request, and hands job messages to `backlog` meanwhile.
    async fn answer(
        &mut self,
        request: &Request,
        backlog: &mut Backlog,
    ) -> Result<FromAgent, RemoteError> {
        let (doing, limit) = (request.doing, request.limit);
        timeout(limit, async {
            loop {
                match self.incoming(doing).await? {
                    // Nobody waits for what becomes of a renewal, a cancel or a piece of input:
                    // the job's events tell.
                    Incoming::Answer(FromAgent::Done { request: of }) if of != request.name => {}
                    Incoming::Answer(FromAgent::Refused { request: of, .. })
                        if of != request.name && UNAWAITED.contains(&of.as_str()) => {}
                    Incoming::Answer(FromAgent::Pong {}) => {}
                    Incoming::Answer(FromAgent::Refused { request, code, text }) => {
                        return Err(RemoteError::Refused { request, code, text });
                    }
                    Incoming::Answer(answer) => return Ok(answer),
                    other => backlog.put(other)?,
                }
            }
        })
        .await
        .map_err(|_| RemoteError::Silent { doing, limit })?
    }

    fn message(&mut self, body: &[u8]) -> Result<Option<Incoming>, RemoteError> {
        if self.expect.is_some() {
            return Err(RemoteError::Nonsense { what: "a message among announced bytes".into() });
        }
        let message = serde_json::from_slice(body).map_err(|_| self.odd(body))?;
        announced_bytes(&message)?;
        match message {
            FromAgent::Event { job, event } => {
                Ok(Some(Incoming::Job { job, message: JobMessage::Event(event) }))
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
                    return piece.whole().map(Some);
                }
                self.expect = Some(ExpectedBytes::Piece(piece));
                Ok(None)
            }
            FromAgent::Ahead { job, path, len } => Ok(Some(Incoming::Ahead { job, path, len })),
            FromAgent::Unknown => Ok(None),
            answer => Ok(Some(Incoming::Answer(answer))),
        }
    }

    /// A frame was added to the bytes of the piece that is expected.
    fn more_of_a_piece(&mut self, kind: Kind) -> Result<Option<Incoming>, RemoteError> {
        match self.expect.take() {
            Some(ExpectedBytes::Piece(piece))
                if kind == Kind::Blob && piece.bytes.len() as u64 <= piece.stored =>
            {
                if piece.bytes.len() as u64 == piece.stored {
                    return piece.whole().map(Some);
                }
                self.expect = Some(ExpectedBytes::Piece(piece));
                Ok(None)
            }
            _ if kind == Kind::Message => {
                Err(RemoteError::Nonsense { what: "a message among announced bytes".into() })
            }
            _ => Err(RemoteError::Nonsense { what: "bytes that nothing announced".into() }),
        }
    }

    fn bytes(&mut self, kind: Kind, body: Vec<u8>) -> Result<Option<Incoming>, RemoteError> {
        match (kind, self.expect.take()) {
            (Kind::Output, Some(ExpectedBytes::Output { job, step, stream, offset, len }))
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
                Ok(Some(Incoming::Job { job, message }))
            }
            _ => Err(RemoteError::Nonsense { what: "bytes that nothing announced".into() }),
        }
    }
}

/// Requests whose answers nobody waits for.
const UNAWAITED: [&str; 4] = ["renew", "cancel", "stdin", "forget"];

/// A request whose answer is awaited.
pub(super) struct Request {
    /// As the agent names it in `Done`.
    pub(super) name: &'static str,
    /// What errors say was going on.
    pub(super) doing: &'static str,
    pub(super) limit: Duration,
}

impl Piece {
    /// All of it has come.
    fn whole(self) -> Result<Incoming, RemoteError> {
        let Self { job, path, offset, len, zstd, bytes, .. } = self;
        let bytes = if zstd { unpack(&bytes, len, &path)? } else { bytes };
        if bytes.len() as u64 != len {
            return Err(RemoteError::Nonsense {
                what: format!("{} bytes of `{path}` instead of {len}", bytes.len()),
            });
        }
        Ok(Incoming::Piece { job, path, offset, bytes })
    }
}

/// `len` bytes out of one zstd frame; never more memory than that.
fn unpack(bytes: &[u8], len: u64, path: &str) -> Result<Vec<u8>, RemoteError> {
    zstd::bulk::decompress(bytes, len as usize).map_err(|error| RemoteError::Nonsense {
        what: format!("a compressed piece of `{path}`: {error}"),
    })
}

/// A conversation that knows what it is about.
pub struct Session {
    pub(super) talk: Conversation,
    pub(super) streams: Arc<dyn Streams>,
    /// What was sent there before, where that is remembered.
    pub(super) sent: Option<Arc<SentRecord>>,
    /// The agent's greeting, once it came.
    agent: Option<Hello>,
    /// The user's settings, which go with ours.
    setup: Option<ToAgent>,
    pub(super) backlog: Backlog,
    lease: Option<Lease>,
    pub(super) unsettled: bool,
}

/// Renews a followed job's lease for as long as it exists.
struct Lease(JoinHandle<()>);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Session {
    /// Greets the agent at the other end of `wire` and tells it the user's settings.
    ///
    /// # Errors
    /// The agent does not answer, or is of another generation.
    pub async fn start(
        wire: AgentStream,
        streams: Arc<dyn Streams>,
        spec: &RemoteSpec,
    ) -> Result<Self, RemoteError> {
        let mut this = Self::over(Conversation::over(wire, None), streams, spec);
        this.first_words()?;
        this.greeted().await?;
        Ok(this)
    }

    /// Over a stream on which an agent is being brought up: whatever is asked first is sent before
    /// it has spoken, which saves a round trip, and tells how bringing it up went.
    pub(super) fn begin(
        wire: AgentStream,
        coming: StartingAgent,
        streams: Arc<dyn Streams>,
        spec: &RemoteSpec,
    ) -> Self {
        Self::over(Conversation::over(wire, Some(coming)), streams, spec)
    }

    fn over(talk: Conversation, streams: Arc<dyn Streams>, spec: &RemoteSpec) -> Self {
        let (path, env) = (spec.path.clone(), spec.env.clone());
        let setup = (!path.is_empty() || !env.is_empty()).then_some(ToAgent::Setup { path, env });
        Self {
            talk,
            streams,
            sent: None,
            agent: None,
            setup,
            backlog: Backlog::default(),
            lease: None,
            unsettled: false,
        }
    }

    /// The agent's greeting; `None`: it has not come yet.
    pub fn agent(&self) -> Option<&Hello> {
        self.agent.as_ref()
    }

    /// Waits until the agent has greeted. What was asked of it before waits with it.
    ///
    /// # Errors
    /// It cannot be brought up, does not answer, or is of another generation.
    pub async fn greeted(&mut self) -> Result<(), RemoteError> {
        if self.agent.is_none() {
            self.unsettled = true;
            self.agent = Some(self.talk.greeted(self.setup.as_ref()).await?);
            self.unsettled = false;
        }
        Ok(())
    }

    fn first_words(&mut self) -> Result<(), RemoteError> {
        self.talk.speak(self.setup.as_ref())
    }

    /// Whether a request was dropped before all of its answer came: what comes next belongs to it,
    /// so the session is of no more use.
    pub fn unsettled(&self) -> bool {
        self.unsettled
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn ask(
        &mut self,
        message: &ToAgent,
        request: Request,
    ) -> Result<FromAgent, RemoteError> {
        let early = self.agent.is_none();
        self.unsettled = true;
        self.first_words()?;
        self.talk.writer.message(message)?;
        self.greeted().await?;
        if early {
            if let Ok(answer) = timeout(limits::EARLY_ANSWER, self.answered(&request)).await {
                return answer;
            }
            // An agent that is only slow answers this one, too. One whose host's start-up files have
            // swallowed our greeting takes it for that, and hangs up: we ask again on another link.
            self.talk.writer.message(&ToAgent::Ping {})?;
        }
        self.answered(&request).await
    }

    /// Waits for the answer to a request that was sent.
    pub(super) async fn answered(&mut self, request: &Request) -> Result<FromAgent, RemoteError> {
        self.unsettled = true;
        let answer = self.talk.answer(request, &mut self.backlog).await;
        self.unsettled = !matches!(answer, Ok(_) | Err(RemoteError::Refused { .. }));
        answer
    }

    /// What the agent knows of its host, with the answers to `probes`.
    ///
    /// # Errors
    /// The link, or an agent that refuses.
    pub async fn facts(&mut self, probes: Vec<Probe>) -> Result<AgentFacts, RemoteError> {
        let doing = "asking for the host's facts";
        let request = Request { name: "facts", doing, limit: limits::FACTS };
        match self.ask(&ToAgent::Facts { probes }, request).await? {
            FromAgent::Facts { facts } => Ok(*facts),
            other => Err(unasked(&other)),
        }
    }

    /// The user's jobs on this host, newest first.
    ///
    /// # Errors
    /// The link, or an agent that refuses.
    pub async fn jobs(&mut self) -> Result<HostJobs, RemoteError> {
        let request = Request { name: "jobs", doing: "listing jobs", limit: limits::ANSWER };
        match self.ask(&ToAgent::Jobs {}, request).await? {
            FromAgent::Jobs { jobs, now_ms, used_bytes, quota_bytes } => {
                Ok(HostJobs { jobs, now_ms, used_bytes, quota_bytes })
            }
            other => Err(unasked(&other)),
        }
    }

    /// The plan of a job on this host.
    ///
    /// # Errors
    /// The link, or `no_such_job`.
    pub async fn plan(&mut self, job: &str) -> Result<Plan, RemoteError> {
        let request = Request { name: "plan", doing: "asking for a plan", limit: limits::ANSWER };
        match self.ask(&ToAgent::Plan { job: job.to_owned() }, request).await? {
            FromAgent::Plan { plan } => Ok(*plan),
            other => Err(unasked(&other)),
        }
    }

    /// Removes an ended job's folder from the host.
    ///
    /// # Errors
    /// The link, or an agent that refuses: the job runs.
    pub async fn forget(&mut self, job: &str) -> Result<(), RemoteError> {
        let request = Request { name: "forget", doing: "removing a job", limit: limits::ANSWER };
        match self.ask(&ToAgent::Forget { job: job.to_owned() }, request).await? {
            FromAgent::Done { .. } => Ok(()),
            other => Err(unasked(&other)),
        }
    }

    /// Lets the host drop an ended job of which everything is here. Its answer is not awaited: a
    /// folder that stays is swept some day.
    ///
    /// # Errors
    /// The link.
    pub fn drop_job(&mut self, job: &str) -> Result<(), RemoteError> {
        self.first_words()?;
        self.talk.writer.message(&ToAgent::Forget { job: job.to_owned() })
    }

    /// Follows a job from event `from_seq` and these offsets of its output on.
    ///
    /// # Errors
    /// The link, or `no_such_job`.
    pub async fn attach(
        &mut self,
        job: &str,
        from_seq: u64,
        had: Vec<ReceivedOutput>,
    ) -> Result<(), RemoteError> {
        let message =
            ToAgent::Attach { job: job.to_owned(), from_seq, had, inline_bytes: INLINE_BYTES };
        let doing = "attaching to the job";
        let request = Request { name: "attach", doing, limit: limits::ANSWER };
        match self.ask(&message, request).await? {
            FromAgent::Following { job } => {
                self.follows(job);
                Ok(())
            }
            other => Err(unasked(&other)),
        }
    }

    /// From now on `job` is the one that is followed.
    pub(super) fn follows(&mut self, job: String) {
        let writer = self.talk.writer.clone();
        let renew = ToAgent::Renew { job: job.clone() };
        self.backlog.follow(job);
        self.lease = Some(Lease(tokio::spawn(async move {
            loop {
                tokio::time::sleep(limits::LEASE_RENEWAL).await;
                if writer.message(&renew).is_err() {
                    return;
                }
            }
        })));
    }

    /// The next message of the followed job. Cancel-safe. There is no time limit: a job may be
    /// silent for as long as its own limits allow, and a dead link is noticed by its transport.
    ///
    /// # Errors
    /// [`RemoteError::LinkCut`] when the stream ends; [`RemoteError::Refused`] when the agent
    /// would not take what [`JobStdin`] sent.
    pub async fn next(&mut self) -> Result<JobMessage, RemoteError> {
        loop {
            let incoming = match self.backlog.pop() {
                Some(incoming) => incoming,
                None => self.talk.incoming("following the job").await?,
            };
            if !self.backlog.concerns(&incoming) {
                continue;
            }
            match incoming {
                Incoming::Job { message, .. } => {
                    if let JobMessage::Event(Event { body: EventBody::Ended { .. }, .. }) = &message
                    {
                        self.lease = None;
                    }
                    return Ok(message);
                }
                Incoming::Piece { path, offset: 0, bytes, .. } => {
                    self.backlog.keep_inline(path, bytes);
                }
                Incoming::Ahead { path, len, .. } => self.backlog.announce(path, len)?,
                // A renewal or a cancel that comes too late says nothing that events do not.
                Incoming::Answer(FromAgent::Refused { request, code, text })
                    if request == "stdin" =>
                {
                    return Err(RemoteError::Refused { request, code, text });
                }
                Incoming::Piece { .. } | Incoming::Answer(_) => {}
            }
        }
    }

    /// Asks the agent to stop the job and all that it started; its terminal event confirms.
    ///
    /// # Errors
    /// The link.
    pub fn cancel(&mut self) -> Result<(), RemoteError> {
        match self.backlog.job() {
            Some(job) => self.talk.writer.message(&ToAgent::Cancel { job: job.to_owned() }),
            None => Ok(()),
        }
    }

    /// The way to the followed job's standard input; `None`: no job is followed.
    pub fn input(&self) -> Option<JobStdin> {
        let job = self.backlog.job()?.to_owned();
        let knows = |agent: &Hello| agent.features.iter().any(|f| f == "stdin_offset");
        let places = self.agent.as_ref().is_some_and(knows);
        Some(JobStdin { job, writer: self.talk.writer.clone(), places })
    }

    /// Leaves the job to its own limits.
    ///
    /// # Errors
    /// The link, or `no_such_job`.
    pub async fn detach(&mut self) -> Result<(), RemoteError> {
        let Some(job) = self.backlog.leave() else { return Ok(()) };
        self.lease = None;
        let request = Request { name: "detach", doing: "leaving the job", limit: limits::ANSWER };
        self.ask(&ToAgent::Detach { job }, request).await?;
        Ok(())
    }

    /// Ends the conversation: what was sent is written out, the agent is given the chance to end.
    pub async fn close(self) {
        let Self { talk, lease, .. } = self;
        drop(lease);
        let Conversation { reader: _reader, writer, writing, .. } = talk;
        drop(writer);
        // A stream that will not close within its limit is dropped.
        let _ = timeout(limits::CLOSE, writing).await;
    }
}

/// The way to a job's standard input. It borrows nothing of its session, which must be read while
/// input waits: a program may print as much as it reads.
#[derive(Clone)]
pub struct JobStdin {
    job: String,
    writer: FrameWriter,
    /// Whether the agent passes over what the job has had.
    places: bool,
}

impl JobStdin {
    /// Whether all that was sent may be sent once more over a new link: what the job has had of it
    /// is passed over.
    pub fn may_repeat(&self) -> bool {
        self.places
    }

    /// Sends the beginning of `bytes`, which stand at `offset` of the whole input; how many.
    /// Cancel-safe: one that is dropped has sent nothing.
    ///
    /// # Errors
    /// The link.
    pub async fn send(&self, offset: u64, bytes: &[u8]) -> Result<usize, RemoteError> {
        let bytes = &bytes[..bytes.len().min(rgpu_protocol::frame::MAX_BODY)];
        self.say(offset, bytes, false).await.map(|()| bytes.len())
    }

    /// Ends the input, which is `offset` bytes long. Cancel-safe.
    ///
    /// # Errors
    /// The link.
    pub async fn end(&self, offset: u64) -> Result<(), RemoteError> {
        self.say(offset, &[], true).await
    }

    async fn say(&self, offset: u64, bytes: &[u8], eof: bool) -> Result<(), RemoteError> {
        let offset = self.places.then_some(offset);
        let message =
            ToAgent::Stdin { job: self.job.clone(), len: bytes.len() as u64, eof, offset };
        self.writer.announced(&message, Kind::Output, bytes).await
    }
}

/// An answer that fits no request.
pub(super) fn unasked(answer: &FromAgent) -> RemoteError {
    let mut what = format!("{answer:?}");
    what.truncate(what.char_indices().nth(200).map_or(what.len(), |(at, _)| at));
    RemoteError::Nonsense { what: format!("an answer to nothing: {what}") }
}
