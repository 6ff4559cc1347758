//! Takes the agent's place: reads a session's frames, sends requests to the worker, and writes
//! frames back.
//!
//! Requests run in parallel, so that a cancel never waits for an upload; only input and the pieces
//! of a file keep their order. A request that fails because of the link ends the stream like a cut
//! connection, and the session then resumes the job.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use rgpu_protocol::frame::{self, FrameKind, MAX_BODY};
use rgpu_protocol::http::{FactsRequest, HostSettings, PLAIN_SIZE, SubmitRequest};
use rgpu_protocol::{BLOB_BYTES, FromAgent, ToAgent};
use serde::Serialize;
use tokio::io::{AsyncWrite, DuplexStream, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::fetching::{ArtifactFetcher, FilePiece};
use super::following::{self, FollowStart};
use super::requests::{WorkerClient, WorkerRequest};
use crate::RemoteError;
use crate::http::HttpError;
use crate::limits;
use crate::stream::{AgentStream, FrameReader, StreamEnd};

/// The size of the pipe between a session and the bridge.
const PIPE_BYTES: usize = 1 << 20;

/// Groups of frames that may wait for the session.
const MAX_QUEUED_GROUPS: usize = 4;

/// How long running requests may take after the session is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes of input per request.
const MAX_STDIN_BYTES: usize = 4 * MAX_BODY;

/// Characters that are not escaped in a path.
const PATH_CHARACTERS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Opens a stream to the worker, which has just sent `greeting`.
pub(super) fn open(requests: Arc<WorkerClient>, greeting: &[u8]) -> AgentStream {
    let (session_end, bridge_end) = tokio::io::duplex(PIPE_BYTES);
    let (_, write) = tokio::io::split(session_end);
    let (out, groups) = mpsc::channel(MAX_QUEUED_GROUPS);
    let ending = StreamEnd::default();
    let (ended, all_sent) = oneshot::channel();
    tokio::spawn(run(bridge_end, out, requests, greeting.to_vec(), ending.clone(), ended));
    AgentStream {
        reader: FrameReader::of_groups(groups),
        writer: Box::new(ClosingWriter::new(write, all_sent)),
        ending,
    }
}

/// The writing side of a session. Its shutdown completes once everything written was sent to the
/// worker.
pub(crate) struct ClosingWriter {
    inner: WriteHalf<DuplexStream>,
    all_sent: oneshot::Receiver<()>,
}

impl ClosingWriter {
    /// Wraps `inner`; the sender of `all_sent` sends or is dropped when everything was sent.
    pub(crate) fn new(inner: WriteHalf<DuplexStream>, all_sent: oneshot::Receiver<()>) -> Self {
        Self { inner, all_sent }
    }
}

impl AsyncWrite for ClosingWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_shutdown(context))?;
        // The sender is dropped with its task.
        let _ = ready!(Pin::new(&mut self.all_sent).poll(context));
        Poll::Ready(Ok(()))
    }
}

async fn run(
    pipe: DuplexStream,
    out: mpsc::Sender<Vec<u8>>,
    requests: Arc<WorkerClient>,
    greeting: Vec<u8>,
    ending: StreamEnd,
    ended: oneshot::Sender<()>,
) {
    let (cut, mut cuts) = mpsc::channel(1);
    let link = RequestContext { requests, out: out.clone(), cut };
    let why = tokio::select! {
        why = Bridge::new(link).listen(FrameReader::new(Box::new(pipe)), greeting) => why,
        Some(why) = cuts.recv() => why,
    };
    // Set before the stream ends, because its reader asks for the reason.
    ending.record_end(why);
    let _ = ended.send(());
    // An empty group is the end of the stream. The session may already be gone.
    let _ = out.send(Vec::new()).await;
}

/// The state that every running request needs.
#[derive(Clone)]
pub(super) struct RequestContext {
    pub(super) requests: Arc<WorkerClient>,
    out: mpsc::Sender<Vec<u8>>,
    cut: mpsc::Sender<String>,
}

/// The session was dropped.
pub(super) struct SessionGone;

impl RequestContext {
    /// Passes complete frames to the session.
    pub(super) async fn pass(&self, frames: Vec<u8>) -> Result<(), SessionGone> {
        // An empty group would end the stream.
        if frames.is_empty() {
            return Ok(());
        }
        self.out.send(frames).await.map_err(|_| SessionGone)
    }

    /// Passes a JSON message to the session.
    pub(super) async fn send_json(&self, json: &[u8]) -> Result<(), SessionGone> {
        let mut group = frame::header(FrameKind::Message, json.len()).to_vec();
        group.extend_from_slice(json);
        self.pass(group).await
    }

    async fn send_message(&self, message: &FromAgent) -> Result<(), SessionGone> {
        match serde_json::to_vec(message) {
            Ok(json) => self.send_json(&json).await,
            Err(_) => Err(SessionGone),
        }
    }

    /// Reports a failed request: a link error ends the stream, another one is answered as a
    /// refusal.
    pub(super) async fn failed(&self, request: &str, error: &HttpError) {
        if error.is_link() {
            return self.cut_off(error);
        }
        let text = error.line();
        let (request, code) = (request.to_owned(), error.code().to_owned());
        // A session that is gone asks again.
        let _ = self.send_message(&FromAgent::Refused { request, code, text }).await;
    }

    /// Ends the stream with this error.
    pub(super) fn cut_off(&self, error: &HttpError) {
        let why = match error {
            HttpError::Cut { why, .. } | HttpError::Unreachable { why, .. } => why.clone(),
            other => other.line(),
        };
        // Only the first reason counts.
        let _ = self.cut.try_send(why);
    }
}

/// Reads the session's messages.
struct Bridge {
    link: RequestContext,
    settings: HostSettings,
    /// Running requests whose answer is one message.
    running: JoinSet<()>,
    following: Option<AbortOnDrop>,
    input: mpsc::Sender<StdinBytes>,
    fetcher: ArtifactFetcher,
    _input: AbortOnDrop,
}

/// Bytes for a job's standard input.
struct StdinBytes {
    job: String,
    bytes: Vec<u8>,
    offset: Option<u64>,
    last: bool,
}

/// A task that is aborted when this is dropped.
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Bridge {
    fn new(link: RequestContext) -> Self {
        let (input, queue) = mpsc::channel(2);
        let task = tokio::spawn(send_input(link.clone(), queue));
        let fetcher = ArtifactFetcher::new(link.clone());
        let (settings, running) = (HostSettings::default(), JoinSet::new());
        let _input = AbortOnDrop(task.abort_handle());
        Self { link, settings, running, following: None, input, fetcher, _input }
    }

    /// Handles messages until the session is closed, and returns the reason.
    async fn listen(mut self, mut reader: FrameReader, greeting: Vec<u8>) -> String {
        let result = self.handle_messages(&mut reader, &greeting).await;
        let why = match result {
            Ok(()) => "the session is closed".to_owned(),
            Err(error) => error.to_string(),
        };
        let ended = async { while self.running.join_next().await.is_some() {} };
        let _ = timeout(CLOSE_TIMEOUT, ended).await;
        why
    }

    async fn handle_messages(
        &mut self,
        reader: &mut FrameReader,
        greeting: &[u8],
    ) -> Result<(), RemoteError> {
        // Skip the session's own hello: the bridge is of the same version.
        if reader.frame().await?.is_none() || self.link.send_json(greeting).await.is_err() {
            return Ok(());
        }
        while let Some(frame) = reader.frame().await? {
            while self.running.try_join_next().is_some() {}
            if frame.kind != FrameKind::Message {
                continue;
            }
            let message = serde_json::from_slice(&frame.body)
                .map_err(|e| RemoteError::ProtocolViolation { what: e.to_string() })?;
            self.handle_message(message, reader).await?;
        }
        Ok(())
    }

    async fn handle_message(
        &mut self,
        message: ToAgent,
        reader: &mut FrameReader,
    ) -> Result<(), RemoteError> {
        match message {
            ToAgent::Setup { path, env } => self.settings = HostSettings { path, env },
            ToAgent::Facts { probes } => {
                let body = json(&FactsRequest { probes, settings: self.settings.clone() })?;
                let ask = WorkerRequest::post("/v1/facts", body, "asking for the host's facts");
                self.send_for_message("facts", ask.within(limits::FACTS_TIMEOUT));
            }
            ToAgent::Submit { plan, secrets, inline_bytes, .. } => {
                let job = plan.job.clone();
                let settings = self.settings.clone();
                let body = json(&SubmitRequest { plan, secrets, settings })?;
                self.follow(FollowStart::Submit { job, body, inline_bytes });
            }
            ToAgent::Attach { job, from_seq, had, inline_bytes } => {
                self.follow(FollowStart::Attach { job, from_seq, had, inline_bytes });
            }
            ToAgent::Blob { digest, size, stored, zstd } => {
                let bytes = announced(reader, FrameKind::Blob, stored).await?;
                let mut ask = WorkerRequest::get(format!("/v1/blobs/{digest}"), "uploading")
                    .method(Method::PUT)
                    .header(CONTENT_TYPE, "application/octet-stream")
                    .body(bytes)
                    .within(limits::STALL_TIMEOUT);
                if zstd {
                    ask = ask
                        .header(CONTENT_ENCODING, "zstd")
                        .header(HeaderName::from_static(PLAIN_SIZE), &size.to_string());
                }
                self.send_for_message("blob", ask);
            }
            ToAgent::Stdin { job, len, eof, offset } => {
                let bytes = announced(reader, FrameKind::Output, len).await?;
                // The receiver lives as long as the link.
                let _ = self.input.send(StdinBytes { job, bytes, offset, last: eof }).await;
            }
            ToAgent::Renew { job } => self.send_unawaited("renew", &job, "renewing the lease"),
            ToAgent::Cancel { job } => self.send_unawaited("cancel", &job, "cancelling the job"),
            ToAgent::Detach { job } => {
                self.send_for_message("detach", control("detach", &job, "leaving the job"));
            }
            ToAgent::Fetch { job, path, offset, len } => {
                self.fetcher.ask(FilePiece { job, path, offset, len: len.min(BLOB_BYTES) });
            }
            ToAgent::Jobs {} => {
                self.send_for_message("jobs", WorkerRequest::get("/v1/jobs", "listing jobs"))
            }
            ToAgent::Plan { job } => {
                let ask = WorkerRequest::get(
                    format!("{}/plan", job_path(&job)),
                    "asking for the job's plan",
                );
                self.send_for_message("plan", ask);
            }
            ToAgent::Forget { job } => {
                let ask =
                    WorkerRequest::get(job_path(&job), "removing a job").method(Method::DELETE);
                self.send_for_message("forget", ask.once());
            }
            ToAgent::Ping {} => {
                let link = self.link.clone();
                self.running.spawn(async move {
                    let _ = link.send_message(&FromAgent::Pong {}).await;
                });
            }
            ToAgent::Unknown => {}
        }
        Ok(())
    }

    /// Sends a request and passes its one message on.
    fn send_for_message(&mut self, request: &'static str, ask: WorkerRequest) {
        let link = self.link.clone();
        self.running.spawn(async move {
            match link.requests.message(ask).await {
                Ok(body) => {
                    let _ = link.send_json(&body).await;
                }
                Err(error) => link.failed(request, &error).await,
            }
        });
    }

    /// Sends a request whose answer nobody waits for.
    fn send_unawaited(&mut self, verb: &'static str, job: &str, doing: &'static str) {
        let (link, ask) = (self.link.clone(), control(verb, job, doing));
        self.running.spawn(async move {
            if let Err(error) = link.requests.message(ask).await {
                link.failed(verb, &error).await;
            }
        });
    }

    /// Drops the previous job: a session follows one at a time.
    fn follow(&mut self, begin: FollowStart) {
        let task = tokio::spawn(following::run(self.link.clone(), begin));
        self.following = Some(AbortOnDrop(task.abort_handle()));
    }
}

/// Sends input in order. An error ends the stream: nobody knows how much arrived, and the next
/// stream sends it again.
async fn send_input(link: RequestContext, mut queue: mpsc::Receiver<StdinBytes>) {
    while let Some(mut next) = queue.recv().await {
        // Chunks for the same job are merged.
        while !next.last && next.bytes.len() + MAX_BODY <= MAX_STDIN_BYTES {
            match queue.try_recv() {
                Ok(chunk) if chunk.job == next.job => {
                    next.bytes.extend_from_slice(&chunk.bytes);
                    next.last = chunk.last;
                }
                _ => break,
            }
        }
        let offset = next.offset.map(|at| format!("&offset={at}")).unwrap_or_default();
        let path = format!("{}/stdin?eof={}{offset}", job_path(&next.job), next.last);
        let ask = WorkerRequest::get(path, "sending input")
            .method(Method::POST)
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(next.bytes)
            .once();
        if let Err(error) = link.requests.message(ask).await {
            link.failed("stdin", &error).await;
        }
    }
}

fn control(verb: &str, job: &str, doing: &'static str) -> WorkerRequest {
    WorkerRequest::get(format!("{}/{verb}", job_path(job)), doing).method(Method::POST)
}

/// The URL path of a job.
pub(super) fn job_path(job: &str) -> String {
    format!("/v1/jobs/{}", in_path(job))
}

/// Escapes text for a URL path.
pub(super) fn in_path(text: &str) -> String {
    utf8_percent_encode(text, PATH_CHARACTERS).to_string()
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, RemoteError> {
    serde_json::to_vec(value).map_err(|e| RemoteError::ProtocolViolation { what: e.to_string() })
}

/// Reads the `len` bytes that a message announced.
async fn announced(
    reader: &mut FrameReader,
    kind: FrameKind,
    len: u64,
) -> Result<Vec<u8>, RemoteError> {
    let mut bytes = Vec::with_capacity(len.min(2 * BLOB_BYTES) as usize);
    while (bytes.len() as u64) < len {
        if reader.next_into(&mut bytes).await? != Some(kind) {
            return Err(RemoteError::ProtocolViolation {
                what: "announced bytes did not come".into(),
            });
        }
    }
    Ok(bytes)
}
