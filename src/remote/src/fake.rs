//! An in-process agent for tests: the protocol over a pipe that can be cut after any byte.

#![allow(clippy::unwrap_used, reason = "only tests use it, and a panic fails them")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rgpu_protocol::frame::{self, FrameKind};
use rgpu_protocol::plan::InputFile;
use rgpu_protocol::{
    Digest, Event, EventBody, FromAgent, Hello, Outcome, PIECE_BYTES, PROTOCOL, Plan, Stream,
    ToAgent,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::client::{FOLLOW, StreamOpener};
use super::options::NoPrompt;
use super::stream::{AgentStream, FrameReader, StreamEnd};
use super::{
    BlobReader, ConnectOptions, HostLink, JobMessage, ReconnectPolicy, Remote, RemoteError,
    RemoteSpec, Session, Submission, UnknownHostPolicy,
};

/// A host with one agent, reachable over any number of links.
#[derive(Clone, Default)]
pub struct InProcessAgent(Arc<State>);

#[derive(Default)]
struct State {
    blobs: Mutex<BTreeMap<Digest, Vec<u8>>>,
    job: Mutex<Option<String>>,
    /// The messages that the job sends, in order.
    pub script: Mutex<Vec<FakeMessage>>,
    artifacts: Mutex<BTreeMap<String, Vec<u8>>>,
    links: AtomicUsize,
    blob_bytes: AtomicU64,
    cancels: AtomicUsize,
    /// Sent without end in place of the host's facts.
    flood: Mutex<Option<(FromAgent, Vec<u8>)>>,
    /// Printed by the job without end after its script.
    endless: Mutex<Option<&'static [u8]>>,
    /// Whether each submission finds no blobs.
    forgetful: AtomicBool,
    /// Bytes from the agent after which each link is cut; 0: never.
    cut: AtomicUsize,
    /// How often the agent gives up following after the second event.
    give_ups: AtomicUsize,
    /// Whether the agent reads nothing more: neither requests nor hellos.
    silent: AtomicBool,
    /// Whether a removal is carried out and its link cut before the answer.
    loses_removals: AtomicBool,
    /// Whether a cancelled job is removed at once and its link cut.
    removes_cancelled: AtomicBool,
}

/// One message of a fake job.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "a script of a few lines")]
pub enum FakeMessage {
    /// An event of the job.
    Event(EventBody),
    /// Bytes that a step prints.
    Output(Stream, &'static [u8]),
}

impl InProcessAgent {
    /// A host whose job sends `script`.
    pub fn new(script: Vec<FakeMessage>) -> Self {
        let host = Self::default();
        *host.0.script.lock().unwrap() = script;
        host
    }

    /// Cuts each link after this many bytes.
    pub fn cut_after(&self, bytes: usize) {
        self.0.cut.store(bytes, Ordering::SeqCst);
    }

    /// Gives up following after the second event, this often.
    pub fn give_up_following(&self, times: usize) {
        self.0.give_ups.store(times, Ordering::SeqCst);
    }

    /// Loses every blob before each submission.
    pub fn forget_blobs(&self) {
        self.0.forgetful.store(true, Ordering::SeqCst);
    }

    /// Answers a request for facts with this message, repeated without end.
    pub fn flood(&self, message: FromAgent, bytes: &[u8]) {
        *self.0.flood.lock().unwrap() = Some((message, bytes.to_vec()));
    }

    /// Answers nothing from now on, on any link.
    pub fn never_answer(&self) {
        self.0.silent.store(true, Ordering::SeqCst);
    }

    /// Removes the job when asked to, and cuts the link before the answer.
    pub fn lose_answers_to_forget(&self) {
        self.0.loses_removals.store(true, Ordering::SeqCst);
    }

    /// Removes the job as soon as it is cancelled, as another client that follows it would, and
    /// cuts the link.
    pub fn remove_when_cancelled(&self) {
        self.0.removes_cancelled.store(true, Ordering::SeqCst);
    }

    /// Makes the job print this without end after its script.
    pub fn print_for_ever(&self, bytes: &'static [u8]) {
        *self.0.endless.lock().unwrap() = Some(bytes);
    }

    /// Puts an artifact on the host, and returns its digest.
    pub fn artifact(&self, path: &str, bytes: Vec<u8>) -> Digest {
        let digest = Digest::sha256(&bytes);
        self.0.artifacts.lock().unwrap().insert(path.to_owned(), bytes);
        digest
    }

    /// How many links were opened.
    pub fn links(&self) -> usize {
        self.0.links.load(Ordering::SeqCst)
    }

    /// The bytes of all blobs received.
    pub fn blob_bytes(&self) -> u64 {
        self.0.blob_bytes.load(Ordering::SeqCst)
    }

    /// How many cancels were asked for.
    pub fn cancels(&self) -> usize {
        self.0.cancels.load(Ordering::SeqCst)
    }

    fn link(&self) -> AgentStream {
        self.0.links.fetch_add(1, Ordering::SeqCst);
        let (client_end, agent_end) = tokio::io::duplex(64 << 10);
        let (read, write) = tokio::io::split(client_end);
        let cut = match self.0.cut.load(Ordering::SeqCst) {
            0 => usize::MAX,
            cut => cut,
        };
        tokio::spawn(Agent { host: self.0.clone(), io: agent_end, left: cut }.serve());
        AgentStream {
            reader: FrameReader::new(Box::new(read)),
            writer: Box::new(write),
            ending: StreamEnd::default(),
        }
    }
}

#[async_trait::async_trait]
impl Remote for InProcessAgent {
    fn name(&self) -> &str {
        "fake"
    }

    fn transport(&self) -> &'static str {
        "fake"
    }

    async fn connect(&self, _: &ConnectOptions) -> Result<Session, RemoteError> {
        Session::start(self.link(), Arc::new(self.clone()), &RemoteSpec::local()).await
    }
}

#[async_trait::async_trait]
impl StreamOpener for InProcessAgent {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        Ok(self.link())
    }

    fn round_trip(&self) -> Duration {
        Duration::from_millis(50)
    }
}

struct Agent {
    host: Arc<State>,
    io: DuplexStream,
    left: usize,
}

/// The link was cut, by either side.
struct Cut;

impl Agent {
    async fn serve(mut self) {
        // A cut link ends the agent, like a lost connection.
        let _ = self.user_prompt().await;
    }

    async fn user_prompt(&mut self) -> Result<(), Cut> {
        let hello = Hello {
            rgpu: PROTOCOL,
            features: Vec::new(),
            required: Vec::new(),
            version: "fake".to_owned(),
        };
        self.send(FrameKind::Message, &serde_json::to_vec(&hello).unwrap()).await?;
        self.receive().await?;
        loop {
            let (_, body) = self.receive().await?;
            match serde_json::from_slice(&body).unwrap() {
                ToAgent::Submit { plan, .. } => self.submit(*plan).await?,
                ToAgent::Blob { digest, size, stored, zstd } => {
                    let mut bytes = Vec::new();
                    while (bytes.len() as u64) < stored {
                        bytes.extend(self.receive().await?.1);
                    }
                    self.host.blob_bytes.fetch_add(stored, Ordering::SeqCst);
                    if zstd {
                        bytes = zstd::bulk::decompress(&bytes, size as usize).unwrap();
                    }
                    assert_eq!(Digest::sha256(&bytes), digest);
                    self.host.blobs.lock().unwrap().insert(digest.clone(), bytes);
                    self.send_message(FromAgent::Stored { digest }).await?;
                }
                ToAgent::Attach { job, from_seq, had, .. } => {
                    if self.host.job.lock().unwrap().as_ref() != Some(&job) {
                        self.refuse_unknown_job("attach").await?;
                        continue;
                    }
                    let had = had.into_iter().map(|h| (h.stream, h.bytes)).collect();
                    self.follow(job, from_seq, had).await?;
                }
                ToAgent::Fetch { job, path, offset, len } => {
                    // As the real agent does, sends what exists of the requested range.
                    let piece = {
                        let artifacts = self.host.artifacts.lock().unwrap();
                        let rest = artifacts[&path].get(offset as usize..).unwrap_or_default();
                        rest[..rest.len().min(len as usize)].to_vec()
                    };
                    let len = piece.len() as u64;
                    let packed = zstd::bulk::compress(&piece, 1).unwrap();
                    let stored = packed.len() as u64;
                    let data = FromAgent::Data { job, path, offset, len, stored, zstd: true };
                    self.send_message(data).await?;
                    for piece in packed.chunks(frame::MAX_BODY) {
                        self.send(FrameKind::Blob, piece).await?;
                    }
                }
                ToAgent::Facts { .. } => {
                    let flood = self.host.flood.lock().unwrap().clone();
                    while let Some((message, bytes)) = &flood {
                        self.send_message(message.clone()).await?;
                        self.send(FrameKind::Output, bytes).await?;
                    }
                }
                ToAgent::Cancel { .. } => {
                    self.host.cancels.fetch_add(1, Ordering::SeqCst);
                    if self.host.removes_cancelled.load(Ordering::SeqCst) {
                        *self.host.job.lock().unwrap() = None;
                        return Err(Cut);
                    }
                }
                ToAgent::Forget { job } if self.host.loses_removals.load(Ordering::SeqCst) => {
                    let removed = self.host.job.lock().unwrap().take_if(|known| *known == job);
                    if removed.is_some() {
                        return Err(Cut);
                    }
                    self.refuse_unknown_job("forget").await?;
                }
                _ => {}
            }
        }
    }

    async fn submit(&mut self, plan: Plan) -> Result<(), Cut> {
        let missing: Vec<Digest> = {
            let mut blobs = self.host.blobs.lock().unwrap();
            if self.host.forgetful.load(Ordering::SeqCst) {
                blobs.clear();
            }
            let all = plan.files.iter().flat_map(|file| &file.blobs);
            all.filter(|digest| !blobs.contains_key(digest)).cloned().collect()
        };
        if !missing.is_empty() {
            return self
                .send_message(FromAgent::Missing {
                    job: plan.job,
                    digests: missing,
                    awaited: false,
                })
                .await;
        }
        *self.host.job.lock().unwrap() = Some(plan.job.clone());
        self.follow(plan.job, 1, BTreeMap::new()).await
    }

    async fn follow(
        &mut self,
        job: String,
        from_seq: u64,
        had: BTreeMap<Stream, u64>,
    ) -> Result<(), Cut> {
        self.send_message(FromAgent::Following { job: job.clone() }).await?;
        let script = self.host.script.lock().unwrap().clone();
        let mut sent_bytes: BTreeMap<Stream, u64> = BTreeMap::new();
        let mut seq = 0;
        for say in script {
            let event = match say {
                FakeMessage::Event(body) => body,
                FakeMessage::Output(stream, bytes) => {
                    let offset = *sent_bytes.get(&stream).unwrap_or(&0);
                    let (step, len) = ("run".to_owned(), bytes.len() as u64);
                    *sent_bytes.entry(stream).or_default() += len;
                    let already_sent =
                        had.get(&stream).unwrap_or(&0).saturating_sub(offset).min(len);
                    if already_sent < len {
                        let (job, step, offset) =
                            (job.clone(), step.clone(), offset + already_sent);
                        let len = len - already_sent;
                        let output = FromAgent::Output { job, step, stream, offset, len };
                        self.send_message(output).await?;
                        self.send(FrameKind::Output, &bytes[already_sent as usize..]).await?;
                    }
                    EventBody::Output { step, stream, offset, len }
                }
            };
            seq += 1;
            if seq >= from_seq {
                let event = Event { seq, at_ms: 0, body: event };
                self.send_message(FromAgent::Event { job: job.clone(), event }).await?;
            }
            let fewer = |left: usize| left.checked_sub(1);
            if seq == 2
                && self
                    .host
                    .give_ups
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer)
                    .is_ok()
            {
                let (request, code) = (FOLLOW.to_owned(), "follow_failed".to_owned());
                let text = "the log cannot be read".to_owned();
                return self.send_message(FromAgent::Refused { request, code, text }).await;
            }
        }
        let endless = *self.host.endless.lock().unwrap();
        let mut offset = *sent_bytes.get(&Stream::Stdout).unwrap_or(&0);
        while let Some(bytes) = endless {
            let (job, step, stream) = (job.clone(), "run".to_owned(), Stream::Stdout);
            let len = bytes.len() as u64;
            self.send_message(FromAgent::Output { job, step, stream, offset, len }).await?;
            self.send(FrameKind::Output, bytes).await?;
            offset += len;
        }
        Ok(())
    }

    async fn refuse_unknown_job(&mut self, request: &str) -> Result<(), Cut> {
        let (request, code) = (request.to_owned(), "no_such_job".to_owned());
        let text = "there is no such job".to_owned();
        self.send_message(FromAgent::Refused { request, code, text }).await
    }

    async fn wait_while_silent(&self) {
        if self.host.silent.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    async fn send_message(&mut self, message: FromAgent) -> Result<(), Cut> {
        self.send(FrameKind::Message, &serde_json::to_vec(&message).unwrap()).await
    }

    async fn send(&mut self, kind: FrameKind, body: &[u8]) -> Result<(), Cut> {
        self.wait_while_silent().await;
        let mut bytes = frame::header(kind, body.len()).to_vec();
        bytes.extend_from_slice(body);
        let n = bytes.len().min(self.left);
        self.left -= n;
        self.io.write_all(&bytes[..n]).await.map_err(|_| Cut)?;
        if self.left == 0 { Err(Cut) } else { Ok(()) }
    }

    async fn receive(&mut self) -> Result<(u8, Vec<u8>), Cut> {
        let mut header = [0; frame::HEADER];
        self.io.read_exact(&mut header).await.map_err(|_| Cut)?;
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let mut body = vec![0; len as usize];
        self.io.read_exact(&mut body).await.map_err(|_| Cut)?;
        Ok((header[4], body))
    }
}

/// Connects to a host, with pauses that no test waits for.
pub async fn connect(host: &InProcessAgent) -> HostLink {
    let patience = ReconnectPolicy {
        first: Duration::from_millis(1),
        longest: Duration::from_millis(1),
        total: Duration::from_secs(20),
    };
    HostLink::connect(Arc::new(host.clone()), options())
        .await
        .unwrap()
        .with_reconnect_policy(patience)
}

/// Options without a user.
pub fn options() -> ConnectOptions {
    ConnectOptions {
        agent: "unused".into(),
        unknown_host_policy: UnknownHostPolicy::Refuse,
        user_prompt: Arc::new(NoPrompt),
        run: String::new(),
        host_request: Default::default(),
    }
}

/// The blobs of a submission.
#[derive(Default)]
pub struct Blobs(BTreeMap<Digest, Vec<u8>>);

impl BlobReader for Blobs {
    fn open(&self, digest: &Digest) -> std::io::Result<Vec<u8>> {
        self.0.get(digest).cloned().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

/// A plan with these files.
pub fn submission(files: &[(&str, &[u8])]) -> Submission {
    let mut blobs = Blobs::default();
    let mut inputs = Vec::new();
    for (path, bytes) in files {
        let pieces: Vec<_> = bytes.chunks(PIECE_BYTES as usize).collect();
        for piece in &pieces {
            blobs.0.insert(Digest::sha256(piece), piece.to_vec());
        }
        inputs.push(InputFile {
            path: (*path).to_owned(),
            size: bytes.len() as u64,
            digest: Digest::sha256(bytes),
            blobs: pieces.into_iter().map(Digest::sha256).collect(),
            piece_bytes: PIECE_BYTES,
            executable: false,
        });
    }
    let plan = Plan {
        job: "run.1".to_owned(),
        title: "a test".to_owned(),
        facts: None,
        files: inputs,
        steps: Vec::new(),
        gpu: None,
        env: BTreeMap::new(),
        secrets: Vec::new(),
        origin: None,
        limits: Default::default(),
    };
    Submission { plan, blobs: Arc::new(blobs), secrets: BTreeMap::new() }
}

/// The usual last message.
pub fn ended() -> FakeMessage {
    FakeMessage::Event(EventBody::Ended { outcome: Outcome::Done })
}

/// The script of a job that prints `one two three five` and a line's end, and `four` to standard
/// error. It has five events.
pub fn printing_job() -> Vec<FakeMessage> {
    vec![
        FakeMessage::Event(EventBody::Started { folder: "/tmp/job".into() }),
        FakeMessage::Output(Stream::Stdout, b"one two three"),
        FakeMessage::Output(Stream::Stderr, b"four"),
        FakeMessage::Output(Stream::Stdout, b" five\n"),
        ended(),
    ]
}

/// Follows the job to its end; returns the event numbers, stdout and stderr.
pub async fn follow_to_end(
    link: &mut HostLink,
) -> Result<(Vec<u64>, Vec<u8>, Vec<u8>), RemoteError> {
    let (mut seqs, mut out, mut err) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(message) = link.next().await? {
        match message {
            JobMessage::Event(event) => seqs.push(event.seq),
            JobMessage::Output { stream, offset, bytes, .. } => {
                let bytes_so_far = if stream == Stream::Stdout { &mut out } else { &mut err };
                assert_eq!(offset, bytes_so_far.len() as u64);
                bytes_so_far.extend(bytes);
            }
        }
    }
    Ok((seqs, out, err))
}
