//! Submits a plan as a job. If that fails or is cancelled, nothing has run, or the run's record
//! says how to ask the host.

use std::sync::Mutex;

use rgpu_protocol::Outcome;
use rgpu_protocol::plan::Origin;

use super::{RunContext, cancelled, unconfirmed};
use crate::run::event::RunEvent;
use crate::store::{JobRecord, RunRecord, StoreError};
use rgpu_model::error::{Exit, Failure};
use rgpu_remote::{HostLink, Remote, RemoteError, Submission, TransferProgress};

/// Why a plan was not submitted.
#[derive(Debug)]
pub(in crate::run) enum SubmitError {
    /// The host has changed since it gave the facts that the plan was made from.
    FactsChanged(Failure),
    /// An input file could not be read, or its bytes did not have the digest in the plan.
    InputChanged(Failure),
    /// Any other failure: it ends the run.
    Failed(Failure),
}

impl SubmitError {
    fn new(error: &RemoteError, remote: &dyn Remote) -> Self {
        let failure = error.failure(remote.name(), remote.transport());
        match error {
            error if error.refuses_facts() => Self::FactsChanged(failure),
            error if error.refuses_input() => Self::InputChanged(failure),
            _ => Self::Failed(failure),
        }
    }
}

impl From<Failure> for SubmitError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<StoreError> for SubmitError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<SubmitError> for Failure {
    fn from(error: SubmitError) -> Self {
        let (SubmitError::FactsChanged(failure)
        | SubmitError::InputChanged(failure)
        | SubmitError::Failed(failure)) = error;
        failure
    }
}

/// Submits a plan. If this fails, nothing has run.
pub(in crate::run) async fn submit(
    link: &mut HostLink,
    submission: &Submission,
    context: &mut RunContext<'_>,
) -> Result<(), SubmitError> {
    let submission = &with_origin(submission, context.record);
    let plan = &submission.plan;
    context.reporter.report(&RunEvent::Planned {
        job: &plan.job,
        steps: plan.steps.iter().map(|s| s.title.as_str()).collect(),
    });
    context.record.jobs.retain(|j| j.job != plan.job);
    context.record.jobs.push(JobRecord {
        job: plan.job.clone(),
        remote: link.remote().name().to_owned(),
        last_seq: 0,
        outcome: None,
        unsynced: Vec::new(),
    });
    context.folder.save(context.record)?;
    let reporter = Mutex::new(&mut *context.reporter);
    let progress = |t: TransferProgress| {
        if let Ok(mut reporter) = reporter.lock() {
            reporter.report(&RunEvent::Uploading { sent: t.done, total: t.total });
        }
    };
    let mut cancel = context.cancel.clone();
    tokio::select! {
        uploaded = link.submit(submission, &progress) => {
            // A plan that was refused, or that no agent received, leaves no job to resume.
            if uploaded.as_ref().is_err_and(RemoteError::is_refusal) {
                context.record.jobs.retain(|j| j.job != plan.job);
                context.folder.save(context.record)?;
            }
            uploaded.map_err(|error| SubmitError::new(&error, link.remote()))?;
        }
        () = cancel.wait_for_more_than(0) => {
            // The job may just have started. Wait until the cancel is confirmed, unless the user
            // asks again.
            if !cancel.is_output_unread() && let Ok(mut reporter) = reporter.lock() {
                let text = "cancelling: waits until the host has answered the submission; Ctrl-C \
                            again stops waiting";
                reporter.report(&RunEvent::Note { text });
            }
            link.cancel();
            let mut has_job = false;
            let stopped = async {
                loop {
                    match link.next().await {
                        Ok(Some(_)) => has_job = true,
                        Ok(None) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                }
            };
            let stopped = tokio::select! {
                stopped = stopped => Some(stopped),
                () = cancel.wait_for_more_than(1) => None,
            };
            let unanswered = || if has_job || link.is_linked() { unconfirmed(link, &context.record.id) } else { never_submitted(&context.record.id) };
            match stopped {
                None => return Err(unanswered().into()),
                Some(Err(late @ RemoteError::Unconfirmed { .. })) => {
                    return Err(unanswered().cause(late).into());
                }
                Some(_) => {}
            }
            // A cancelled job cannot be resumed.
            for record in context.record.jobs.iter_mut().filter(|j| j.job == plan.job) {
                record.outcome = Some(Outcome::Cancelled);
            }
            context.folder.save(context.record)?;
            return Err(cancelled().into());
        }
    }
    Ok(())
}

/// Adds the run's command to the submission, so that the job can be resumed without the run folder.
fn with_origin(submission: &Submission, record: &RunRecord) -> Submission {
    let mut submission = submission.clone();
    submission.plan.origin = Some(Origin {
        run: record.id.clone(),
        started: record.started.clone(),
        command: record.command.clone(),
        title: record.title.clone(),
        argv: record.argv.clone(),
        mode: record.mode.clone(),
        kernel: record.kernel.clone(),
        labels: record.labels.clone(),
        note: record.note.clone(),
    });
    submission
}

/// The code of a cancel that came before the host had answered the submission.
pub const NEVER_SUBMITTED: &str = "never_submitted";

/// The failure of a command that was cancelled before the host had answered the submission. The
/// plan may have been on its way, so the record keeps the job for `rgpu runs cancel`.
fn never_submitted(id: &str) -> Failure {
    let what = "cancelled before the host had taken the job";
    Failure::new(Exit::Cancelled, NEVER_SUBMITTED, what).hint(format!(
        "if the job was on its way: `rgpu runs cancel {id}` asks the host, and stops it"
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::run::cancel;
    use crate::run::event::{Reporter, Reporters};
    use crate::store::RunFolder;
    use rgpu_remote::fake::{self, InProcessAgent};

    /// Keeps the texts of notes.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    impl Reporter for Notes {
        fn report(&mut self, event: &RunEvent<'_>) {
            if let RunEvent::Note { text } = event {
                self.0.lock().unwrap().push((*text).to_owned());
            }
        }
    }

    #[tokio::test]
    async fn a_second_cancel_before_the_host_has_answered_says_that_nothing_was_submitted() {
        let host = InProcessAgent::new(vec![]);
        let mut link = HostLink::connect(Arc::new(host.clone()), fake::options()).await.unwrap();
        host.never_answer();
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path(), "run", None).unwrap();
        let mut record = RunRecord::new("run".into(), "exec", jiff::Timestamp::UNIX_EPOCH);
        let (canceller, cancel) = cancel::channel();
        let notes = Notes::default();
        let mut context = RunContext {
            folder: &folder,
            record: &mut record,
            reporter: &mut Reporters(vec![Box::new(notes.clone())]),
            cancel,
            input: None,
        };
        let stop_twice = async {
            for told_before in [0, 1] {
                tokio::time::sleep(Duration::from_millis(50)).await;
                assert_eq!(notes.0.lock().unwrap().len(), told_before);
                canceller.request_cancel();
            }
        };
        let submission = fake::submission(&[]);
        let (submitted, ()) =
            tokio::join!(submit(&mut link, &submission, &mut context), stop_twice);
        let failure = Failure::from(submitted.unwrap_err());
        assert_eq!((failure.exit, &*failure.code), (Exit::Cancelled, NEVER_SUBMITTED));
        let told = notes.0.lock().unwrap().join("\n");
        assert!(told.contains("waits until the host has answered"), "{told}");
        assert!(told.contains("Ctrl-C again"), "{told}");
        let text = failure.to_string();
        assert!(!text.contains("continues") && !text.contains("link is lost"), "{text}");
        assert!(text.contains("`rgpu runs cancel run` asks the host"), "{text}");
        // The plan may have been on its way: somebody can still ask the host for the job.
        assert!(folder.record().unwrap().jobs[0].outcome.is_none());
    }
}
