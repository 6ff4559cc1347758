//! Reconnects after a cut link: when the next try is, and when to give up.
//!
//! A new link resumes the followed job from the number of its last event and from the amount of
//! output received, so nothing is lost and nothing comes twice. The sender of standard input gets
//! each new link and resends there.

use std::time::Duration;

use tokio::time::Instant;

use super::HostLink;
use crate::{RemoteError, Session, limits};

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
pub(super) struct Outage {
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

impl HostLink {
    /// Drops the session and schedules the next try.
    pub(super) fn link_lost(&mut self, error: RemoteError) {
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
        tracing::debug!(%error, wait = ?outage.wait, "link: lost");
        self.options.user_prompt.link_lost(&error, outage.wait);
        outage.last_error = Some(error);
    }

    /// The session; reconnects first if the link was cut, and resumes the followed job.
    pub(super) async fn linked_session(&mut self) -> Result<&mut Session, RemoteError> {
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
                    tracing::debug!("link: up again");
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
    use super::*;
    use crate::fake::{self, InProcessAgent};

    #[tokio::test]
    async fn a_link_that_never_comes_back_is_given_up_in_time() {
        let host = InProcessAgent::new(vec![]);
        let mut link = fake::connect(&host).await.with_reconnect_policy(ReconnectPolicy {
            first: Duration::from_millis(1),
            longest: Duration::from_millis(1),
            total: Duration::from_millis(50),
        });
        host.cut_after(1);
        link.link_lost(RemoteError::LinkCut { doing: "testing", why: String::new() });
        let error = link.facts(&[]).await.unwrap_err();
        assert!(matches!(error, RemoteError::GaveUp { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn a_request_dropped_halfway_is_not_mistaken_for_the_next() {
        let host = InProcessAgent::new(fake::printing_job());
        let mut link = fake::connect(&host).await;
        for _ in 0..3 {
            // The fake host never answers this one.
            let facts = link.facts(&[]);
            assert!(tokio::time::timeout(Duration::from_millis(5), facts).await.is_err());
        }
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        assert_eq!(fake::follow_to_end(&mut link).await.unwrap().0.len(), 5);
        assert_eq!(host.links(), 4);
    }
}
