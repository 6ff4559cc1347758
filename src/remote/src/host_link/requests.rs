//! Requests over a host link. Each is repeated on a new link if the link is cut before its answer.

use std::fs::File;
use std::path::Path;

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{Plan, Probe};

use super::HostLink;
use crate::fetch::open_parent;
use crate::upload::ProgressSink;
use crate::{FetchOutcome, HostJobs, RemoteError, RemoteFile};
use rgpu_model::beneath::Folder;

impl HostLink {
    /// The agent's facts about its host, with the answers to `probes`.
    pub async fn facts(&mut self, probes: &[Probe]) -> Result<AgentFacts, RemoteError> {
        loop {
            match self.linked_session().await?.facts(probes.to_vec()).await {
                Err(error) if error.is_link() => self.link_lost(error),
                answer => return answer,
            }
        }
    }

    /// The user's jobs on this host, newest first.
    pub async fn jobs(&mut self) -> Result<HostJobs, RemoteError> {
        loop {
            match self.linked_session().await?.jobs().await {
                Err(error) if error.is_link() => self.link_lost(error),
                answer => return answer,
            }
        }
    }

    /// The plan of a job on this host.
    pub async fn plan(&mut self, job: &str) -> Result<Plan, RemoteError> {
        loop {
            match self.linked_session().await?.plan(job).await {
                Err(error) if error.is_link() => self.link_lost(error),
                answer => return answer,
            }
        }
    }

    /// Removes an ended job's folder from the host.
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

    /// Downloads a file of a job to `dest`, whose folder must exist, and to `copy`, as
    /// [`Session::fetch`](super::Session::fetch) does.
    pub async fn fetch(
        &mut self,
        file: &RemoteFile,
        dest: &Path,
        copy: Option<File>,
        progress: ProgressSink<'_>,
    ) -> Result<FetchOutcome, RemoteError> {
        let (folder, name) = open_parent(dest)?;
        self.fetch_into(file, (&folder, &name), copy, progress).await
    }

    /// As [`HostLink::fetch`], to a path below an open folder.
    pub async fn fetch_into(
        &mut self,
        file: &RemoteFile,
        dest: (&Folder, &Path),
        mut copy: Option<File>,
        progress: ProgressSink<'_>,
    ) -> Result<FetchOutcome, RemoteError> {
        loop {
            match self.linked_session().await?.fetch_into(file, dest, copy.take(), progress).await {
                Err(error) if error.is_link() => self.link_lost(error),
                answer => return answer,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rgpu_protocol::{FromAgent, Stream};

    use super::*;
    use crate::fake::{self, InProcessAgent};

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
        let host = InProcessAgent::new(fake::printing_job());
        let mut link = fake::connect(&host).await;
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        fake::follow_to_end(&mut link).await.unwrap();
        host.flood(output("run.1"), bytes);
        let error = link.facts(&[]).await.unwrap_err();
        assert!(matches!(error, RemoteError::ProtocolViolation { .. }), "{error:?}");
        // Messages of a job that is not followed are not stored, so no queue overflows.
        let host = InProcessAgent::new(fake::printing_job());
        let mut link = fake::connect(&host).await;
        host.flood(output("other.1"), bytes);
        let asked = tokio::time::timeout(Duration::from_secs(1), link.facts(&[])).await;
        assert!(asked.is_err(), "{asked:?}");
    }

    #[tokio::test]
    async fn a_removal_whose_answer_is_lost_is_done_and_a_second_one_is_refused() {
        let host = InProcessAgent::new(fake::printing_job());
        let mut link = fake::connect(&host).await;
        link.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
        fake::follow_to_end(&mut link).await.unwrap();
        host.lose_answers_to_forget();
        link.remove_job("run.1").await.unwrap();
        let error = link.remove_job("run.1").await.unwrap_err();
        assert!(error.no_such_job().is_some(), "{error:?}");
    }
}
