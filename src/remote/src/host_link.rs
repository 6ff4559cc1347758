//! A connection to the agent on a host that survives cut links.
//!
//! Runs and commands call it. It opens a [`Session`] on a [`Remote`] for each link:
//!
//! | module | contents |
//! |---|---|
//! | `reconnect` | when a cut link is tried again, and for how long |
//! | `requests` | requests, each repeated on a new link if the link is cut |
//! | `follow` | the followed job: submit, attach, messages, cancel |

mod follow;
mod reconnect;
mod requests;

use std::sync::Arc;
use std::time::Duration;

use rgpu_protocol::Hello;
use tokio::sync::watch;
use tokio::time::Instant;

use super::followed_job::FollowedJob;
use super::{
    Bill, ConnectOptions, JobStdin, Remote, RemoteError, SentRecord, Session, UserPrompt, limits,
};

use reconnect::Outage;
pub use reconnect::ReconnectPolicy;

/// A connection to a remote that reconnects when its link is cut.
pub struct HostLink {
    remote: Arc<dyn Remote>,
    options: ConnectOptions,
    /// `None` while the link is cut.
    session: Option<Session>,
    /// The blobs that the host has had before.
    sent_record: Option<Arc<SentRecord>>,
    /// When the current link came up.
    linked_at: Instant,
    followed_job: Option<FollowedJob>,
    /// The job of a submission that was not answered yet.
    submitted_job: Option<FollowedJob>,
    /// `None` while the link is stable.
    outage: Option<Outage>,
    reconnect_policy: ReconnectPolicy,
    /// How long a cancelled job may take to end.
    cancel_timeout: Duration,
    /// The sender for the followed job's standard input over the current link.
    stdin: watch::Sender<Option<JobStdin>>,
}

impl HostLink {
    /// Connects and waits for the agent's hello. Does not retry.
    pub async fn connect(
        remote: Arc<dyn Remote>,
        options: ConnectOptions,
    ) -> Result<Self, RemoteError> {
        let mut link = Self::begin(remote, options).await?;
        if let Some(session) = &mut link.session {
            session.wait_for_hello().await?;
        }
        Ok(link)
    }

    /// Connects, and lets the first request wait for the agent, which saves a round trip. That
    /// request reports any failure to start the agent.
    pub async fn begin(
        remote: Arc<dyn Remote>,
        options: ConnectOptions,
    ) -> Result<Self, RemoteError> {
        let session = Some(remote.connect(&options).await?);
        let reconnect_policy = ReconnectPolicy::default();
        let linked_at = Instant::now();
        let (sent_record, followed_job, submitted_job, outage) = (None, None, None, None);
        let stdin = watch::Sender::new(None);
        Ok(Self {
            remote,
            options,
            session,
            sent_record,
            linked_at,
            followed_job,
            submitted_job,
            outage,
            reconnect_policy,
            cancel_timeout: limits::CANCEL_TIMEOUT,
            stdin,
        })
    }

    /// Sets how a cut link is retried.
    pub fn with_reconnect_policy(mut self, policy: ReconnectPolicy) -> Self {
        self.reconnect_policy = policy;
        self
    }

    /// Sets how long a cancelled job may take to end.
    /// Waits for the confirmation of a cancel for `limit` at most.
    #[cfg(any(test, feature = "test-host"))]
    pub fn with_cancel_timeout(mut self, limit: Duration) -> Self {
        self.cancel_timeout = limit;
        self
    }

    /// Uses a record of the blobs sent before. On a long link, the upload of a large new bundle
    /// then starts before the host has answered which blobs it lacks.
    pub fn with_sent_record(mut self, sent_record: SentRecord) -> Self {
        self.sent_record = Some(Arc::new(sent_record));
        self
    }

    /// The remote behind this connection.
    pub fn remote(&self) -> &dyn Remote {
        &*self.remote
    }

    /// Whether the host is being taken away ([`Remote::is_host_taken`]).
    pub async fn is_host_taken(&self) -> bool {
        self.remote.is_host_taken(&self.options).await
    }

    /// The front end that answers questions for this connection.
    pub fn user_prompt(&self) -> Arc<dyn UserPrompt> {
        Arc::clone(&self.options.user_prompt)
    }

    /// Whether a link is up.
    pub fn is_linked(&self) -> bool {
        self.session.is_some()
    }

    /// The agent's hello; `None` while the link is cut or before the hello has arrived.
    pub fn agent(&self) -> Option<&Hello> {
        self.session.as_ref().and_then(Session::agent)
    }

    /// The sender for the followed job's standard input; `None` while the link is cut. The watch
    /// changes with each new link.
    pub fn stdin(&self) -> watch::Receiver<Option<JobStdin>> {
        self.stdin.subscribe()
    }

    /// Closes the connection and returns the provider's last bills.
    pub async fn close(self) -> Vec<Bill> {
        self.close_until(std::future::pending()).await
    }

    /// The same; drops the connection once `given_up` is ready, since the host may never let it
    /// close.
    pub async fn close_until(self, given_up: impl Future<Output = ()>) -> Vec<Bill> {
        // A `JobStdin` keeps the stream open.
        self.stdin.send_replace(None);
        // A session with a dropped request has nothing to flush, and might block for long.
        if let Some(session) = self.session.filter(|session| !session.has_pending_answer()) {
            tokio::select! {
                biased;
                () = session.close() => {}
                () = given_up => {}
            }
        }
        self.remote.take_bills()
    }

    /// Publishes the current link's sender for standard input.
    fn publish_stdin(&self) {
        self.stdin.send_replace(self.session.as_ref().and_then(Session::stdin));
    }
}
