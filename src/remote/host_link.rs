//! A connection to the agent on a host that survives cut links.
//!
//! Runs and commands call it. It opens a [`Session`] on a [`Remote`] for each link, repeats a
//! request on a new link if the link is cut, and passes on the messages of the followed job. The
//! job resumes from the number of its last event and from the amount of output received, so nothing
//! is lost and nothing comes twice. The sender of standard input gets each new link and resends
//! there.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rgpu_protocol::message::ReceivedOutput;
use rgpu_protocol::plan::Limits;
use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{Hello, Plan, Probe};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::client::FOLLOW;
use super::deploy::EarlyFrames;
use super::followed_job::FollowedJob;
use super::upload::{ProgressSink, Submission, UploadTotals};
use super::{
    Bill, ConnectOptions, FetchOutcome, HostJobs, JobMessage, JobStdin, Remote, RemoteError,
    RemoteFile, SentRecord, Session, UserPrompt, limits,
};

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

/// How often and how long to retry after a cut link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconnectPolicy {
    /// The first pause; each next one is twice as long.
    pub first: Duration,
    /// The longest pause between two attempts.
    pub longest: Duration,
    /// How long to keep trying in all.
    pub total: Duration,
}

impl Default for ReconnectPolicy {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            longest: limits::MAX_RECONNECT_PAUSE,
            total: limits::RECONNECT_TIMEOUT,
        }
    }
}

/// The time from the first cut until a link has held for [`STABLE_AFTER`].
struct Outage {
    since: Instant,
    next_try: Instant,
    /// The pause before `next_try`.
    wait: Duration,
    last_error: Option<RemoteError>,
    /// Whether the link is back, but not yet stable.
    restored: bool,
}

/// After a link has held this long, the next cut starts a new outage. A link that comes back and
/// breaks at the same request does not reset the outage, so retries end.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// How often in a row the agent may give up following before that is an error.
const MAX_FAILED_FOLLOWS: u32 = 3;

impl HostLink {
    /// Connects and waits for the agent's hello. Does not retry.
    ///
    /// # Errors
    /// As for [`Remote::connect`] and [`Session::wait_for_hello`].
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
    ///
    /// # Errors
    /// As for [`Remote::connect`].
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
    #[cfg(test)]
    pub(crate) fn with_cancel_timeout(mut self, limit: Duration) -> Self {
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

    /// The agent's facts about its host, with the answers to `probes`.
    ///
    /// # Errors
    /// As for [`Session::facts`], or the link stayed cut.
    pub async fn facts(&mut self, probes: &[Probe]) -> Result<AgentFacts, RemoteError> {
        loop {
            match self.linked_session().await?.facts(probes.to_vec()).await {
                Err(error) if error.is_link() => self.link_lost(error),
                answer => return answer,
            }
        }
    }

    /// The user's jobs on this host, newest first.
    ///
    /// # Errors
    /// As for [`Session::jobs`], or the link stayed cut.
    pub async fn jobs(&mut self) -> Result<HostJobs, RemoteError> {
        loop {
            match self.linked_session().await?.jobs().await {
                Err(error) if error.is_link() => self.link_lost(error),
                answer => return answer,
            }
        }
    }

    /// The plan of a job on this host.
    ///
    /// # Errors
    /// As for [`Session::plan`], or the link stayed cut.
    pub async fn plan(&mut self, job: &str) -> Result<Plan, RemoteError> {
        loop {
            match self.linked_session().await?.plan(job).await {
                Err(error) if error.is_link() => self.link_lost(error),
                answer => return answer,
            }
        }
    }

    /// Removes an ended job's folder from the host.
    ///
    /// # Errors
    /// As for [`Session::remove_job`], or the link stayed cut.
    pub async fn remove_job(&mut self, job: &str) -> Result<(), RemoteError> {
        let mut may_be_removed = false;
        loop {
            match self.linked_session().await?.remove_job(job).await {
                Err(error) if error.is_link() => {
                    self.link_lost(error);
                    may_be_removed = true;
                }
                // The first request removed it, and only its answer was lost.
                Err(error) if may_be_removed && error.no_such_job().is_some() => return Ok(()),
                answer => return answer,
            }
        }
    }

    /// Requests that the host removes an ended job whose files have all been fetched, if the link
    /// is up. Does not wait for an answer.
    pub fn request_job_removal(&mut self, job: &str) {
        if let Some(session) = &mut self.session
            && let Err(error) = session.request_job_removal(job)
        {
            self.link_lost(error);
        }
    }

    /// Submits a plan, sends the blobs that the host lacks, and follows the job. A job followed
    /// before continues without us. If this future is dropped early, call [`HostLink::cancel`] to
    /// make sure that nothing runs.
    ///
    /// # Errors
    /// As for [`Session::submit`], or the link stayed cut.
    pub async fn submit(
        &mut self,
        submission: &Submission,
        progress: ProgressSink<'_>,
    ) -> Result<UploadTotals, RemoteError> {
        self.followed_job = None;
        let job = FollowedJob::new(&submission.plan.job, &submission.plan.limits);
        self.submitted_job = Some(job.clone());
        let answer = loop {
            let sent_record = self.sent_record.clone();
            let session = self.linked_session().await?;
            session.sent_record = sent_record;
            match session.submit(submission, progress).await {
                Err(error) if error.is_link() => self.link_lost(error),
                answer => break answer,
            }
        };
        self.submitted_job = None;
        if let (Some(sent_record), Err(error)) = (&self.sent_record, &answer)
            && error.has_no_usable_agent()
        {
            sent_record.forget();
        }
        if answer.is_ok() {
            self.followed_job = Some(job);
            self.publish_stdin();
        }
        answer
    }

    /// Follows an existing job, whose plan has these `limits`, from event `from_seq` on. `received`
    /// says how much of its output is already here.
    ///
    /// # Errors
    /// As for [`Session::attach`], or the link stayed cut.
    pub async fn attach(
        &mut self,
        job: &str,
        limits: &Limits,
        from_seq: u64,
        received: &[ReceivedOutput],
    ) -> Result<(), RemoteError> {
        let job = FollowedJob::new(job, limits).resume_at(from_seq, received);
        self.followed_job = None;
        loop {
            match self
                .linked_session()
                .await?
                .attach(&job.id, from_seq, job.received_output())
                .await
            {
                Err(error) if error.is_link() => self.link_lost(error),
                answer => {
                    self.followed_job = answer.is_ok().then_some(job);
                    self.publish_stdin();
                    return answer;
                }
            }
        }
    }

    /// The followed job's next message; `None` after its terminal event. Cancel-safe.
    ///
    /// # Errors
    /// [`RemoteError::GaveUp`] when the link stayed cut (the job continues);
    /// [`RemoteError::Unconfirmed`] when a cancelled job has not ended in time.
    pub async fn next(&mut self) -> Result<Option<JobMessage>, RemoteError> {
        let Some(cancelled) = self.followed_job.as_ref().and_then(|job| job.cancelled) else {
            return self.next_message().await;
        };
        let limit = self.cancel_timeout;
        // The timeout alone never fires if the host sends without pause.
        match cancelled.elapsed() < limit {
            true => timeout_at(cancelled + limit, self.next_message())
                .await
                .unwrap_or(Err(RemoteError::Unconfirmed { limit })),
            false => Err(RemoteError::Unconfirmed { limit }),
        }
    }

    async fn next_message(&mut self) -> Result<Option<JobMessage>, RemoteError> {
        loop {
            if self.followed_job.as_ref().is_none_or(|job| job.ended) {
                return Ok(None);
            }
            self.linked_session().await?;
            let Some(session) = &mut self.session else { continue };
            // Reconnecting may have found that the job never started.
            if self.followed_job.as_ref().is_none_or(|job| job.ended) {
                return Ok(None);
            }
            match session.next().await {
                Ok(message) => {
                    if let Some(job) = &mut self.followed_job
                        && let Some(message) = job.accept(message)?
                    {
                        job.failed_follows = 0;
                        return Ok(Some(message));
                    }
                }
                Err(error) if error.is_link() => self.link_lost(error),
                // The agent sends nothing more of the job on this connection.
                Err(error @ RemoteError::Refused { .. }) if self.may_follow_again(&error) => {
                    self.link_lost(error);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the agent gave up following the job, and another connection may do better.
    fn may_follow_again(&mut self, error: &RemoteError) -> bool {
        let gave_up = matches!(error, RemoteError::Refused { request, .. } if request == FOLLOW);
        let Some(job) = self.followed_job.as_mut().filter(|_| gave_up) else { return false };
        job.failed_follows += 1;
        job.failed_follows <= MAX_FAILED_FOLLOWS
    }

    /// Asks the host to stop the followed job, now or once the link is back. The terminal event,
    /// returned by [`HostLink::next`], confirms it. If a submission was dropped halfway, its job is
    /// looked up and stopped if it exists.
    pub fn cancel(&mut self) {
        if let Some(mut job) = self.submitted_job.take() {
            // If no agent received the submission, there is no job to look up.
            job.ended = self
                .session
                .as_ref()
                .is_some_and(|s| s.conversation.early_frames == EarlyFrames::Nothing);
            self.followed_job = Some(job);
            self.session = None;
        }
        if let Some(job) = &mut self.followed_job {
            job.cancelled.get_or_insert_with(Instant::now);
        }
        if let Some(session) = &mut self.session
            && let Err(error) = session.cancel()
        {
            self.link_lost(error);
        }
    }

    /// The sender for the followed job's standard input; `None` while the link is cut. The watch
    /// changes with each new link.
    pub fn stdin(&self) -> watch::Receiver<Option<JobStdin>> {
        self.stdin.subscribe()
    }

    /// Downloads a file of a job to `dest`, whose folder must exist, and to `copy`, as
    /// [`Session::fetch`] does.
    ///
    /// # Errors
    /// As for [`Session::fetch`], or the link stayed cut.
    pub async fn fetch(
        &mut self,
        file: &RemoteFile,
        dest: &Path,
        mut copy: Option<File>,
        progress: ProgressSink<'_>,
    ) -> Result<FetchOutcome, RemoteError> {
        loop {
            match self.linked_session().await?.fetch(file, dest, copy.take(), progress).await {
                Err(error) if error.is_link() => self.link_lost(error),
                answer => return answer,
            }
        }
    }

    /// Stops following the job, which continues under its own limits.
    ///
    /// # Errors
    /// As for [`Session::detach`], or the link stayed cut.
    pub async fn detach(&mut self) -> Result<(), RemoteError> {
        loop {
            match self.linked_session().await?.detach().await {
                Err(error) if error.is_link() => self.link_lost(error),
                answer => {
                    self.followed_job = None;
                    self.remote.keep_host();
                    return answer;
                }
            }
        }
    }

    /// Closes the connection and returns the provider's last bills.
    pub async fn close(self) -> Vec<Bill> {
        // A `JobStdin` keeps the stream open.
        self.stdin.send_replace(None);
        // A session with a dropped request has nothing to flush, and might block for long.
        if let Some(session) = self.session.filter(|session| !session.has_pending_answer()) {
            session.close().await;
        }
        self.remote.take_bills()
    }

    /// Publishes the current link's sender for standard input.
    fn publish_stdin(&self) {
        self.stdin.send_replace(self.session.as_ref().and_then(Session::stdin));
    }

    /// Drops the session and schedules the next try.
    fn link_lost(&mut self, error: RemoteError) {
        self.session = None;
        self.publish_stdin();
        let now = Instant::now();
        if self.linked_at.elapsed() > STABLE_AFTER
            && self.outage.as_ref().is_some_and(|o| o.restored)
        {
            self.outage = None;
        }
        let outage = self.outage.get_or_insert(Outage {
            since: now,
            next_try: now,
            wait: Duration::ZERO,
            last_error: None,
            restored: false,
        });
        outage.restored = false;
        outage.wait =
            (outage.wait * 2).clamp(self.reconnect_policy.first, self.reconnect_policy.longest);
        outage.next_try = now + outage.wait;
        self.options.user_prompt.link_lost(&error, outage.wait);
        outage.last_error = Some(error);
    }

    /// The session; reconnects first if the link was cut, and resumes the followed job.
    async fn linked_session(&mut self) -> Result<&mut Session, RemoteError> {
        // After a dropped request, the next answer would be taken for another request's.
        if self.session.as_ref().is_some_and(Session::has_pending_answer) {
            self.session = None;
        }
        while self.session.is_none() {
            if let Some(outage) = &mut self.outage {
                if outage.since.elapsed() >= self.reconnect_policy.total
                    && let Some(last) = outage.last_error.take()
                {
                    let (after, last) = (self.reconnect_policy.total, Box::new(last));
                    self.outage = None;
                    self.remote.keep_host();
                    return Err(RemoteError::GaveUp { after, last });
                }
                tokio::time::sleep_until(outage.next_try).await;
            }
            match self.reconnect().await {
                Ok(session) => {
                    self.session = Some(session);
                    self.linked_at = Instant::now();
                    self.publish_stdin();
                    if let Some(outage) = &mut self.outage {
                        outage.restored = true;
                        self.options.user_prompt.link_back();
                    }
                }
                Err(error) if error.is_transient() => self.link_lost(error),
                Err(error) => return Err(error),
            }
        }
        match &mut self.session {
            Some(session) => Ok(session),
            // The loop above ends only with a session.
            None => Err(RemoteError::LinkCut { doing: "connecting", why: String::new() }),
        }
    }

    async fn reconnect(&mut self) -> Result<Session, RemoteError> {
        let mut session = self.remote.connect(&self.options).await?;
        // Wait for the hello before sending: the host's start-up files may have swallowed early
        // frames.
        session.wait_for_hello().await?;
        if let Some(job) = self.followed_job.as_mut().filter(|job| !job.ended) {
            match session.attach(&job.id, job.seq + 1, job.received_output()).await {
                Err(error) if error.no_such_job().is_some() => {
                    // Do not attach to it again.
                    job.ended = true;
                    // The job was cancelled before it existed.
                    if job.cancelled.is_some() && job.seq == 0 {
                        return Ok(session);
                    }
                    return Err(error);
                }
                attached => attached?,
            }
            if job.cancelled.is_some() {
                session.cancel()?;
            }
        }
        Ok(session)
    }
}

#[cfg(test)]
mod tests {
    use rgpu_protocol::{EventBody, FromAgent, Stream};

    use super::super::fake::{self, FakeMessage, InProcessAgent};
    use super::*;

    const QUICK: ReconnectPolicy = ReconnectPolicy {
        first: Duration::from_millis(1),
        longest: Duration::from_millis(1),
        total: Duration::from_secs(2),
    };

    fn script() -> Vec<FakeMessage> {
        vec![
            FakeMessage::Event(EventBody::Started { folder: "/tmp/job".into() }),
            FakeMessage::Output(Stream::Stdout, b"one two three"),
            FakeMessage::Output(Stream::Stderr, b"four"),
            FakeMessage::Output(Stream::Stdout, b" five\n"),
            fake::ended(),
        ]
    }

    /// Follows the job to its end; returns the event numbers, stdout and stderr.
    async fn follow_to_end(
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

    async fn connect(host: &InProcessAgent) -> HostLink {
        HostLink::connect(Arc::new(host.clone()), fake::options())
            .await
            .unwrap()
            .with_reconnect_policy(QUICK)
    }

    #[tokio::test]
    async fn a_job_cut_after_any_number_of_bytes_arrives_whole_and_once() {
        let mut resumed = 0;
        // A shorter link could not carry the hellos and one event.
        for cut in (300..1200).step_by(7) {
            let host = InProcessAgent::new(script());
            let mut link = connect(&host).await;
            host.cut_after(cut);
            link.link_lost(RemoteError::LinkCut { doing: "testing", why: String::new() });
            link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
            let (seqs, out, err) = follow_to_end(&mut link).await.unwrap();
            assert_eq!(seqs, [1, 2, 3, 4, 5], "cut after {cut}");
            assert_eq!(
                (out.as_slice(), err.as_slice()),
                (&b"one two three five\n"[..], &b"four"[..])
            );
            resumed += host.links() - 2;
        }
        assert!(resumed > 100, "{resumed}");
    }

    #[tokio::test]
    async fn an_agent_that_gives_up_following_is_asked_again_a_few_times() {
        let host = InProcessAgent::new(script());
        host.give_up_following(2);
        let mut link = connect(&host).await;
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        let (seqs, out, _) = follow_to_end(&mut link).await.unwrap();
        assert_eq!(seqs, [1, 2, 3, 4, 5]);
        assert_eq!(out, b"one two three five\n");

        let host = InProcessAgent::new(script());
        host.give_up_following(usize::MAX);
        let mut link = connect(&host).await;
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        let error = follow_to_end(&mut link).await.unwrap_err();
        assert!(
            matches!(&error, RemoteError::Refused { code, .. } if code == "follow_failed"),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn a_link_that_never_comes_back_is_given_up_in_time() {
        let host = InProcessAgent::new(vec![]);
        let mut link = connect(&host)
            .await
            .with_reconnect_policy(ReconnectPolicy { total: Duration::from_millis(50), ..QUICK });
        host.cut_after(1);
        link.link_lost(RemoteError::LinkCut { doing: "testing", why: String::new() });
        let error = link.facts(&[]).await.unwrap_err();
        assert!(matches!(error, RemoteError::GaveUp { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn a_cancel_while_the_link_is_cut_is_sent_when_it_is_back() {
        let host = InProcessAgent::new(script());
        let mut link = connect(&host).await;
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        link.link_lost(RemoteError::LinkCut { doing: "testing", why: String::new() });
        link.cancel();
        assert_eq!(host.cancels(), 0);
        follow_to_end(&mut link).await.unwrap();
        // The agent reads the cancel after it has sent its answers.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(host.cancels(), 1);
    }

    #[tokio::test]
    async fn a_cancel_that_is_never_confirmed_is_waited_for_no_longer_than_its_limit() {
        // A host that sends nothing more, and one that never pauses.
        for bytes in [None, Some(b"x")] {
            let host = InProcessAgent::new(vec![FakeMessage::Event(EventBody::GpuReleased {})]);
            if let Some(bytes) = bytes {
                host.print_for_ever(bytes);
            }
            let mut link = connect(&host).await.with_cancel_timeout(Duration::from_millis(300));
            link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
            link.cancel();
            let begun = Instant::now();
            let error = loop {
                match link.next().await {
                    Ok(message) => assert!(message.is_some()),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, RemoteError::Unconfirmed { .. }), "{error:?}");
            let waited = begun.elapsed();
            assert!((250..10_000).contains(&waited.as_millis()), "{waited:?}");
        }
    }

    #[tokio::test]
    async fn a_submission_dropped_halfway_is_looked_for_and_cancelled() {
        let host = InProcessAgent::new(script());
        let submission = fake::submission(&[("a", b"abc")]);
        let mut link = connect(&host).await;
        // Dropped before the host has received the plan.
        tokio::select! {
            biased;
            _ = link.submit(&submission, &|_| ()) => panic!("too quick"),
            () = std::future::ready(()) => {}
        }
        link.cancel();
        assert_eq!(link.next().await.unwrap(), None);
        // Dropped while the job already runs.
        connect(&host).await.submit(&submission, &|_| ()).await.unwrap();
        let mut link = connect(&host).await;
        link.submitted_job = Some(FollowedJob::new("run.1", &Limits::default()));
        link.cancel();
        follow_to_end(&mut link).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(host.cancels(), 1);
    }

    #[tokio::test]
    async fn a_request_dropped_halfway_is_not_mistaken_for_the_next() {
        let host = InProcessAgent::new(script());
        let mut link = connect(&host).await;
        for _ in 0..3 {
            // The fake host never answers this one.
            let facts = link.facts(&[]);
            assert!(tokio::time::timeout(Duration::from_millis(5), facts).await.is_err());
        }
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        assert_eq!(follow_to_end(&mut link).await.unwrap().0.len(), 5);
        assert_eq!(host.links(), 4);
    }

    #[tokio::test]
    async fn what_a_host_says_in_place_of_an_answer_is_bounded() {
        let bytes: &[u8] = &[b'x'; 64 << 10];
        let output = |job: &str| FromAgent::Output {
            job: job.to_owned(),
            step: "run".to_owned(),
            stream: Stream::Stdout,
            offset: 0,
            len: bytes.len() as u64,
        };
        let host = InProcessAgent::new(script());
        let mut link = connect(&host).await;
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        follow_to_end(&mut link).await.unwrap();
        host.flood(output("run.1"), bytes);
        let error = link.facts(&[]).await.unwrap_err();
        assert!(matches!(error, RemoteError::ProtocolViolation { .. }), "{error:?}");
        // Messages of a job that is not followed are not stored, so no queue overflows.
        let host = InProcessAgent::new(script());
        let mut link = connect(&host).await;
        host.flood(output("other.1"), bytes);
        let asked = tokio::time::timeout(Duration::from_secs(1), link.facts(&[])).await;
        assert!(asked.is_err(), "{asked:?}");
    }

    #[tokio::test]
    async fn output_beyond_the_plans_limit_ends_the_following() {
        let host = InProcessAgent::new(script());
        let mut submission = fake::submission(&[]);
        submission.plan.limits.log_bytes = 7;
        let mut link = connect(&host).await;
        link.submit(&submission, &|_| ()).await.unwrap();
        let mut out = Vec::new();
        let error = loop {
            match link.next().await {
                Ok(Some(JobMessage::Output { stream: Stream::Stdout, bytes, .. })) => {
                    out.extend(bytes);
                }
                Ok(Some(_)) => {}
                Ok(None) => panic!("the job has ended"),
                Err(error) => break error,
            }
        };
        assert_eq!(out, b"one two");
        assert!(
            matches!(&error, RemoteError::ProtocolViolation { what } if what.contains("7 bytes"))
        );
    }

    #[tokio::test]
    async fn a_job_that_is_not_there_is_refused_not_waited_for() {
        let host = InProcessAgent::new(script());
        let error =
            connect(&host).await.attach("other.1", &Limits::default(), 1, &[]).await.unwrap_err();
        assert!(matches!(&error, RemoteError::Refused { code, .. } if code == "no_such_job"));
    }

    #[tokio::test]
    async fn a_removal_whose_answer_is_lost_is_done_and_a_second_one_is_refused() {
        let host = InProcessAgent::new(script());
        let mut link = connect(&host).await;
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        follow_to_end(&mut link).await.unwrap();
        host.lose_answers_to_forget();
        link.remove_job("run.1").await.unwrap();
        let error = link.remove_job("run.1").await.unwrap_err();
        assert!(error.no_such_job().is_some(), "{error:?}");
    }

    #[tokio::test]
    async fn attaching_in_the_middle_brings_only_the_rest() {
        let host = InProcessAgent::new(script());
        let mut first = connect(&host).await;
        first.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        let received = ReceivedOutput { step: "run".into(), stream: Stream::Stdout, bytes: 4 };
        let mut second = connect(&host).await;
        second.attach("run.1", &Limits::default(), 3, &[received]).await.unwrap();
        let mut texts = Vec::new();
        while let Some(message) = second.next().await.unwrap() {
            if let JobMessage::Output { bytes, .. } = message {
                texts.push(bytes);
            }
        }
        assert_eq!(texts.concat(), b"two threefour five\n");
    }
}
