//! The job that a host link follows: it is submitted or attached to, sends its messages, and may be
//! cancelled.

use rgpu_protocol::message::ReceivedOutput;
use rgpu_protocol::plan::Limits;
use tokio::time::{Instant, timeout_at};

use super::HostLink;
use crate::client::FOLLOW;
use crate::deploy::EarlyFrames;
use crate::followed_job::FollowedJob;
use crate::upload::{ProgressSink, Submission, UploadTotals};
use crate::{JobMessage, RemoteError};

/// How often in a row the agent may give up following before that is an error.
const MAX_FAILED_FOLLOWS: u32 = 3;

impl HostLink {
    /// Submits a plan, sends the blobs that the host lacks, and follows the job. A job followed
    /// before continues without us. If this future is dropped early, call [`HostLink::cancel`] to
    /// make sure that nothing runs.
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
        if cancelled.elapsed() < limit {
            timeout_at(cancelled + limit, self.next_message())
                .await
                .unwrap_or(Err(RemoteError::Unconfirmed { limit }))
        } else {
            Err(RemoteError::Unconfirmed { limit })
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

    /// Stops following the job, which continues under its own limits.
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rgpu_protocol::{EventBody, Stream};

    use super::*;
    use crate::fake::{self, FakeMessage, InProcessAgent};

    #[tokio::test]
    async fn a_job_cut_after_any_number_of_bytes_arrives_whole_and_once() {
        let mut resumed = 0;
        // A shorter link could not carry the hellos and one event.
        for cut in (300..1200).step_by(7) {
            let host = InProcessAgent::new(fake::printing_job());
            let mut link = fake::connect(&host).await;
            host.cut_after(cut);
            link.link_lost(RemoteError::LinkCut { doing: "testing", why: String::new() });
            link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
            let (seqs, out, err) = fake::follow_to_end(&mut link).await.unwrap();
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
        let host = InProcessAgent::new(fake::printing_job());
        host.give_up_following(2);
        let mut link = fake::connect(&host).await;
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        let (seqs, out, _) = fake::follow_to_end(&mut link).await.unwrap();
        assert_eq!(seqs, [1, 2, 3, 4, 5]);
        assert_eq!(out, b"one two three five\n");

        let host = InProcessAgent::new(fake::printing_job());
        host.give_up_following(usize::MAX);
        let mut link = fake::connect(&host).await;
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        let error = fake::follow_to_end(&mut link).await.unwrap_err();
        assert!(
            matches!(&error, RemoteError::Refused { code, .. } if code == "follow_failed"),
            "{error:?}"
        );
    }

    #[tokio::test]
    async fn a_cancel_while_the_link_is_cut_is_sent_when_it_is_back() {
        let host = InProcessAgent::new(fake::printing_job());
        let mut link = fake::connect(&host).await;
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        link.link_lost(RemoteError::LinkCut { doing: "testing", why: String::new() });
        link.cancel();
        assert_eq!(host.cancels(), 0);
        fake::follow_to_end(&mut link).await.unwrap();
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
            let mut link =
                fake::connect(&host).await.with_cancel_timeout(Duration::from_millis(300));
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
        let host = InProcessAgent::new(fake::printing_job());
        let submission = fake::submission(&[("a", b"abc")]);
        let mut link = fake::connect(&host).await;
        // Dropped before the host has received the plan.
        tokio::select! {
            biased;
            _ = link.submit(&submission, &|_| ()) => panic!("too quick"),
            () = std::future::ready(()) => {}
        }
        link.cancel();
        assert_eq!(link.next().await.unwrap(), None);
        // Dropped while the job already runs.
        fake::connect(&host).await.submit(&submission, &|_| ()).await.unwrap();
        let mut link = fake::connect(&host).await;
        link.submitted_job = Some(FollowedJob::new("run.1", &Limits::default()));
        link.cancel();
        fake::follow_to_end(&mut link).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(host.cancels(), 1);
    }

    #[tokio::test]
    async fn output_beyond_the_plans_limit_ends_the_following() {
        let host = InProcessAgent::new(fake::printing_job());
        let mut submission = fake::submission(&[]);
        submission.plan.limits.log_bytes = 7;
        let mut link = fake::connect(&host).await;
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
        let host = InProcessAgent::new(fake::printing_job());
        let error = fake::connect(&host)
            .await
            .attach("other.1", &Limits::default(), 1, &[])
            .await
            .unwrap_err();
        assert!(matches!(&error, RemoteError::Refused { code, .. } if code == "no_such_job"));
    }

    #[tokio::test]
    async fn attaching_in_the_middle_brings_only_the_rest() {
        let host = InProcessAgent::new(fake::printing_job());
        let mut first = fake::connect(&host).await;
        first.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        let received = ReceivedOutput { step: "run".into(), stream: Stream::Stdout, bytes: 4 };
        let mut second = fake::connect(&host).await;
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
