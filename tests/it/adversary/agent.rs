//! An agent in memory that keeps to the protocol, but for one lie.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rgpu_protocol::frame::{self, FrameKind};
use rgpu_protocol::{
    Digest, Event, EventBody, FromAgent, Hello, Outcome, PROTOCOL, Stream, ToAgent,
};
use rgpu_remote::client::StreamOpener;
use rgpu_remote::stream::{AgentStream, FrameReader, StreamEnd};
use rgpu_remote::{ConnectOptions, Remote, RemoteError, RemoteSpec, Session};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::invalid_messages::{InvalidMessage, SANDBOX, framed};
use super::samples::{self, artifact_event, rung_record};
use super::{ARTIFACT, JOB, OUTPUT};

/// What the client does while the agent lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// It waits for the agent's hello.
    Greeting,
    /// It waits for the facts.
    Facts,
    /// It has submitted a plan.
    Submitting,
    /// It sends the blobs of the plan.
    Uploading,
    /// It follows the running job.
    Following,
    /// It has cancelled the job.
    Cancelling,
    /// It has connected again, and attaches to the job.
    Resuming,
    /// The job has ended, and it fetches a file.
    Fetching,
    /// It leaves a job that goes on.
    Detaching,
    /// It waits for the list of jobs.
    Listing,
    /// It waits for a job's plan.
    Planning,
    /// It waits until a job is removed.
    Forgetting,
}

impl State {
    pub(crate) const ALL: [Self; 12] = [
        Self::Greeting,
        Self::Facts,
        Self::Submitting,
        Self::Uploading,
        Self::Following,
        Self::Cancelling,
        Self::Resuming,
        Self::Fetching,
        Self::Detaching,
        Self::Listing,
        Self::Planning,
        Self::Forgetting,
    ];

    /// The message that the client waits for. A lie about it takes its place; others come before
    /// it.
    pub(crate) fn awaits(self) -> &'static str {
        match self {
            Self::Greeting => "hello",
            Self::Facts => "facts",
            Self::Submitting => "missing",
            Self::Uploading => "stored",
            // Any event may come there.
            Self::Following => "",
            Self::Cancelling => "event ended",
            Self::Resuming => "following",
            Self::Fetching => "data",
            Self::Detaching | Self::Forgetting => "done",
            Self::Listing => "jobs",
            Self::Planning => "plan",
        }
    }
}

/// The agent of one case: it sends one invalid message.
#[derive(Clone)]
pub(crate) struct FaultyAgent(Arc<Inner>);

struct Inner {
    state: State,
    lie: InvalidMessage,
    in_place: bool,
    sandbox: String,
    told: AtomicBool,
    /// Whether the lie was an event, which took a number.
    took_number: AtomicBool,
    links: AtomicUsize,
    /// Set when no link shall work any more.
    down: tokio::sync::watch::Sender<bool>,
    /// Frames read and written, and when the last one was.
    frames: AtomicU64,
    moved: Mutex<Instant>,
}

impl FaultyAgent {
    /// A host that tells this lie once. `in_place`: instead of the honest answer.
    pub(crate) fn new(state: State, lie: InvalidMessage, in_place: bool, sandbox: String) -> Self {
        Self(Arc::new(Inner {
            state,
            lie,
            in_place,
            sandbox,
            told: AtomicBool::new(false),
            took_number: AtomicBool::new(false),
            links: AtomicUsize::new(0),
            down: tokio::sync::watch::Sender::new(false),
            frames: AtomicU64::new(0),
            moved: Mutex::new(Instant::now()),
        }))
    }

    /// Whether the lie was told.
    pub(crate) fn told(&self) -> bool {
        self.0.told.load(Ordering::SeqCst)
    }

    /// When a frame was last read or written.
    pub(crate) fn moved(&self) -> Instant {
        *self.0.moved.lock().unwrap()
    }

    /// Cuts every link and refuses new ones.
    pub(crate) fn go_down(&self) {
        self.0.down.send_replace(true);
    }

    /// Whether every link was cut.
    pub(crate) fn is_down(&self) -> bool {
        *self.0.down.borrow()
    }

    fn link(&self) -> Result<AgentStream, RemoteError> {
        if *self.0.down.borrow() {
            return Err(RemoteError::LinkCut { doing: "connecting", why: "down".into() });
        }
        let (read, write) = tokio::io::split(self.duplex());
        Ok(AgentStream {
            reader: FrameReader::new(Box::new(read)),
            writer: Box::new(write),
            ending: StreamEnd::default(),
        })
    }

    /// A new link: the client's end of it.
    pub(crate) fn duplex(&self) -> DuplexStream {
        let first = self.0.links.fetch_add(1, Ordering::SeqCst) == 0;
        let (client, agent) = tokio::io::duplex(256 << 10);
        let (host, mut down) = (self.0.clone(), self.0.down.subscribe());
        tokio::spawn(async move {
            let mut link = Link { host, io: agent, first, blobs: 0, job: JOB.to_owned() };
            tokio::select! {
                _ = link.serve() => {}
                _ = down.wait_for(|down| *down) => {}
            }
        });
        client
    }
}

#[async_trait::async_trait]
impl Remote for FaultyAgent {
    fn name(&self) -> &str {
        "liar"
    }

    fn transport(&self) -> &'static str {
        "liar"
    }

    async fn connect(&self, _: &ConnectOptions) -> Result<Session, RemoteError> {
        Session::start(self.link()?, Arc::new(self.clone()), &RemoteSpec::local()).await
    }
}

#[async_trait::async_trait]
impl StreamOpener for FaultyAgent {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        self.link()
    }
}

/// The link was cut, by either side.
struct Cut;

/// One link of the host.
struct Link {
    host: Arc<Inner>,
    io: DuplexStream,
    first: bool,
    /// Blobs that are still missing.
    blobs: usize,
    job: String,
}

impl Link {
    async fn serve(&mut self) -> Result<(), Cut> {
        let hello = Hello {
            rgpu: PROTOCOL,
            features: vec!["pieces".into(), "stdin_offset".into()],
            required: Vec::new(),
            version: "a liar".into(),
        };
        let hello = framed(FrameKind::Message, &serde_json::to_vec(&hello).unwrap());
        self.answer(State::Greeting, 1, hello).await?;
        self.read().await?;
        loop {
            let (kind, body) = self.read().await?;
            if kind != FrameKind::Message as u8 {
                continue;
            }
            match serde_json::from_slice(&body).unwrap() {
                ToAgent::Facts { .. } => {
                    let facts = FromAgent::Facts { facts: Box::new(samples::facts()) };
                    self.answer(State::Facts, 1, encoded(&facts)).await?;
                }
                ToAgent::Submit { plan, .. } => {
                    self.job.clone_from(&plan.job);
                    let digests: Vec<Digest> =
                        plan.files.iter().flat_map(|file| file.blobs.clone()).collect();
                    self.blobs = digests.len();
                    let missing =
                        FromAgent::Missing { job: plan.job.clone(), digests, awaited: true };
                    self.answer(State::Submitting, 1, encoded(&missing)).await?;
                }
                ToAgent::Blob { digest, stored, .. } => {
                    let mut left = stored;
                    while left > 0 {
                        left = left.saturating_sub(self.read().await?.1.len() as u64);
                    }
                    let stored = FromAgent::Stored { digest };
                    self.answer(State::Uploading, 1, encoded(&stored)).await?;
                    self.blobs = self.blobs.saturating_sub(1);
                    if self.blobs == 0 {
                        let following = FromAgent::Following { job: self.job.clone() };
                        self.write(&encoded(&following)).await?;
                        self.follow(1, false).await?;
                    }
                }
                ToAgent::Attach { job, from_seq, had, .. } => {
                    self.job.clone_from(&job);
                    let following = FromAgent::Following { job };
                    self.answer(State::Resuming, from_seq, encoded(&following)).await?;
                    let had = had.iter().any(|had| had.bytes >= OUTPUT.len() as u64);
                    self.follow(from_seq, had).await?;
                }
                ToAgent::Cancel { .. } => {
                    let ended = EventBody::Ended { outcome: Outcome::Cancelled };
                    let seq = self.seq(5);
                    let event = FromAgent::Event {
                        job: self.job.clone(),
                        event: Event { seq, at_ms: 0, body: ended },
                    };
                    self.answer(State::Cancelling, seq, encoded(&event)).await?;
                }
                ToAgent::Fetch { job, path, offset, len } => {
                    let bytes = ARTIFACT.get(offset as usize..).unwrap_or_default();
                    let bytes = &bytes[..bytes.len().min(len as usize)];
                    let len = bytes.len() as u64;
                    let data = FromAgent::Data { job, path, offset, len, stored: len, zstd: false };
                    let data = [encoded(&data), framed(FrameKind::Blob, bytes)].concat();
                    self.answer(State::Fetching, self.seq(9), data).await?;
                }
                ToAgent::Jobs {} => {
                    let (jobs, now_ms, used_bytes, quota_bytes) = (Vec::new(), 0, 0, 0);
                    let jobs = FromAgent::Jobs { jobs, now_ms, used_bytes, quota_bytes };
                    self.answer(State::Listing, 1, encoded(&jobs)).await?;
                }
                ToAgent::Plan { .. } => {
                    let plan = FromAgent::Plan { plan: Box::new(samples::plan()) };
                    self.answer(State::Planning, 1, encoded(&plan)).await?;
                }
                ToAgent::Forget { .. } => {
                    let done = FromAgent::Done { request: "forget".into() };
                    self.answer(State::Forgetting, 1, encoded(&done)).await?;
                }
                ToAgent::Detach { .. } => {
                    let done = FromAgent::Done { request: "detach".into() };
                    self.answer(State::Detaching, self.seq(5), encoded(&done)).await?;
                }
                ToAgent::Ping {} => self.write(&encoded(&FromAgent::Pong {})).await?,
                ToAgent::Setup { .. }
                | ToAgent::Stdin { .. }
                | ToAgent::Renew { .. }
                | ToAgent::Unknown => {}
            }
        }
    }

    /// The number of the honest job's event `n`: the lie may have taken a number before it.
    fn seq(&self, n: u64) -> u64 {
        n + u64::from(self.host.took_number.load(Ordering::SeqCst))
    }

    /// Sends the job's events from `from_seq` on.
    async fn follow(&mut self, from_seq: u64, had: bool) -> Result<(), Cut> {
        let (step, rung) = ("exec".to_owned(), "exec".to_owned());
        let (stream, len) = (Stream::Stdout, OUTPUT.len() as u64);
        let before = [
            EventBody::Started { folder: "/jobs/1".into() },
            EventBody::StepStarted { step: step.clone(), title: "running prog".into() },
            EventBody::RungStarted {
                step: step.clone(),
                rung: rung.clone(),
                argv: vec!["prog".into()],
            },
            EventBody::Output { step: step.clone(), stream, offset: 0, len },
        ];
        if !had {
            let (job, step) = (self.job.clone(), step.clone());
            let output = FromAgent::Output { job, step, stream, offset: 0, len };
            self.write(&[encoded(&output), framed(FrameKind::Output, OUTPUT)].concat()).await?;
        }
        for (seq, body) in (1..).zip(before) {
            self.event(from_seq, seq, body).await?;
        }
        let state = self.host.state;
        if state == State::Resuming && self.first {
            return Err(Cut);
        }
        if self.host.took_number.load(Ordering::SeqCst) {
            self.event(from_seq, 5, EventBody::GpuReleased {}).await?;
        }
        if matches!(state, State::Cancelling | State::Detaching) {
            return Ok(());
        }
        self.answer(State::Following, 5, Vec::new()).await?;
        let after = [
            EventBody::RungEnded(rung_record()),
            artifact_event(),
            EventBody::StepEnded { step, rung: Some(rung), code: String::new() },
            EventBody::Ended { outcome: Outcome::Done },
        ];
        for (n, body) in (5..).zip(after) {
            self.event(from_seq, self.seq(n), body).await?;
        }
        Ok(())
    }

    async fn event(&mut self, from_seq: u64, seq: u64, body: EventBody) -> Result<(), Cut> {
        if seq < from_seq {
            return Ok(());
        }
        let event = Event { seq, at_ms: 0, body };
        self.write(&encoded(&FromAgent::Event { job: self.job.clone(), event })).await
    }

    /// Sends an honest answer, and the lie if this is its moment. `seq` is the next event's number.
    async fn answer(&mut self, state: State, seq: u64, honest: Vec<u8>) -> Result<(), Cut> {
        let host = self.host.clone();
        if state != host.state || host.told.swap(true, Ordering::SeqCst) {
            return self.write(&honest).await;
        }
        let mut numbered = false;
        let bytes = host.lie.wire.bytes(&mut |message| {
            fill(message, &self.job, seq, &host.sandbox);
            numbered |= message["event"]["seq"] == json!(seq);
        });
        // After a lie in its place, the honest event of a cancelled job takes no further number.
        if numbered && !(host.in_place && state == State::Cancelling) {
            host.took_number.store(true, Ordering::SeqCst);
        }
        self.write(&bytes).await?;
        if host.lie.cut {
            return Err(Cut);
        }
        if host.in_place {
            return Ok(());
        }
        if numbered && state == State::Cancelling {
            let mut event: Value = serde_json::from_slice(&honest[frame::HEADER..]).unwrap();
            event["event"]["seq"] = json!(seq + 1);
            return self
                .write(&framed(FrameKind::Message, &serde_json::to_vec(&event).unwrap()))
                .await;
        }
        self.write(&honest).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Cut> {
        self.note();
        self.io.write_all(bytes).await.map_err(|_| Cut)
    }

    async fn read(&mut self) -> Result<(u8, Vec<u8>), Cut> {
        let mut header = [0; frame::HEADER];
        self.io.read_exact(&mut header).await.map_err(|_| Cut)?;
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let mut body = vec![0; len as usize];
        self.io.read_exact(&mut body).await.map_err(|_| Cut)?;
        self.note();
        Ok((header[4], body))
    }

    fn note(&self) {
        self.host.frames.fetch_add(1, Ordering::Relaxed);
        *self.host.moved.lock().unwrap() = Instant::now();
    }
}

fn encoded(message: &FromAgent) -> Vec<u8> {
    framed(FrameKind::Message, &serde_json::to_vec(message).unwrap())
}

/// Fills in what a lie leaves open: the sample's job becomes the followed one, an event gets the
/// next number, and paths lead to the sandbox.
fn fill(message: &mut Value, job: &str, seq: u64, sandbox: &str) {
    if message["event"]["seq"] == json!(1) {
        message["event"]["seq"] = json!(seq);
    }
    fill_texts(message, job, sandbox);
}

fn fill_texts(value: &mut Value, job: &str, sandbox: &str) {
    match value {
        Value::String(text) if text == JOB => job.clone_into(text),
        Value::String(text) if text.starts_with(SANDBOX) => {
            *text = text.replacen(SANDBOX, sandbox, 1);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| fill_texts(item, job, sandbox)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| fill_texts(field, job, sandbox));
        }
        _ => {}
    }
}
