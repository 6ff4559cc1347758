//! A session with one agent: sends requests, and receives answers and the followed job's messages.
//!
//! A session follows one job at a time; requests may be sent meanwhile. Messages of that job that
//! arrive before an awaited answer go into a bounded queue. [`Session::next`] is cancel-safe; a
//! session whose request future was dropped before its answer cannot be used any more
//! ([`Session::has_pending_answer`]).
//!
//! | module | contents |
//! |---|---|
//! | `conversation` | messages over one stream, without state about jobs |
//! | `job_stdin` | standard input of the followed job |

mod conversation;
mod job_stdin;

use std::sync::Arc;
use std::time::Duration;

use rgpu_protocol::message::{JobLine, ReceivedOutput};
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{Event, EventBody, FromAgent, Hello, Plan, Probe, Stream, ToAgent};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::deploy::AgentStart;
use super::pending_messages::PendingMessages;
use super::stream::AgentStream;
use super::upload::INLINE_BYTES;
use super::{RemoteError, RemoteSpec, SentRecord, limits};

pub(super) use conversation::{
    Conversation, FOLLOW, IncomingMessage, Request, StartingAgent, unexpected_answer,
};
pub use job_stdin::JobStdin;

/// Opens further streams to agents on the host of a session.
#[async_trait::async_trait]
pub trait StreamOpener: Send + Sync {
    /// Connects to one more agent.
    async fn open(&self) -> Result<AgentStream, RemoteError>;

    /// Starts an agent with another command from the same host. Only connections over ssh can.
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
    pub async fn wait_for_hello(&mut self) -> Result<(), RemoteError> {
        if self.agent.is_none() {
            self.is_answer_pending = true;
            let hello = self.conversation.wait_for_hello(self.setup.as_ref()).await?;
            tracing::debug!(version = hello.version, features = ?hello.features, "agent: hello");
            self.agent = Some(hello);
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
        tracing::debug!(request = request.name, limit = ?request.limit, "agent: asking");
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
        if let Err(error) = &answer {
            tracing::debug!(request = request.name, %error, "agent: no answer");
        } else {
            tracing::debug!(request = request.name, "agent: answered");
        }
        answer
    }

    /// The agent's facts about its host, with the answers to `probes`.
    pub async fn facts(&mut self, probes: Vec<Probe>) -> Result<AgentFacts, RemoteError> {
        let doing = "asking for the host's facts";
        let request = Request { name: "facts", doing, limit: limits::FACTS_TIMEOUT };
        match self.ask(&ToAgent::Facts { probes }, request).await? {
            FromAgent::Facts { facts } => Ok(*facts),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// The user's jobs on this host, newest first.
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
    pub async fn plan(&mut self, job: &str) -> Result<Plan, RemoteError> {
        let request =
            Request { name: "plan", doing: "asking for a plan", limit: limits::ANSWER_TIMEOUT };
        match self.ask(&ToAgent::Plan { job: job.to_owned() }, request).await? {
            FromAgent::Plan { plan } => Ok(*plan),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// Removes an ended job's folder from the host.
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
    pub fn request_job_removal(&mut self, job: &str) -> Result<(), RemoteError> {
        self.send_hello()?;
        self.conversation.writer.message(&ToAgent::Forget { job: job.to_owned() })
    }

    /// Follows a job from event `from_seq` on; `had` says how much of its output is already here.
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
        conversation.close().await;
    }
}
