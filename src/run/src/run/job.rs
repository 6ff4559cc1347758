//! Runs one plan as a job: submits it, follows its events to the end, records them and fetches its
//! files.
//!
//! Events and output of the host go to the run folder and the reporter as they arrive.
//! [`JobResult`] holds only the part that later stages need.
//!
//! | module | contents |
//! |---|---|
//! | `submission` | submits the plan |
//! | `artifacts` | fetches the job's files |

mod artifacts;
mod submission;

use std::collections::BTreeMap;

use rgpu_protocol::{Event, EventBody, Outcome, Plan, RungRecord, Stream};
use tokio::sync::mpsc;

use super::cancel::CancelSignal;
use super::event::{Reporter, RunEvent};
use super::file_copies::FileCopies;
use super::profiled_time::ProfiledTimes;
use super::resume::RecordedJob;
use super::stdin_feed::StdinFeed;
use crate::store::{Recorder, RunFolder, RunRecord, StoreError};
use rgpu_model::RungId;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::profile::{Artifact, Gap};
use rgpu_remote::{HostLink, JobMessage, OnRemote, RemoteError, RemoteFile};

use artifacts::{AnnouncedFile, fetch, keep_latest};
pub use submission::NEVER_SUBMITTED;
pub(super) use submission::{SubmitError, submit};

/// What one job left: how it ended, and its files and events.
#[derive(Clone, Debug, Default)]
pub struct JobResult {
    /// The name of the job.
    pub job: String,
    /// How the job ended; `None` if we stopped following it before its end.
    pub outcome: Option<Outcome>,
    /// Every rung that was tried, in order.
    pub rungs: Vec<RungRecord>,
    /// Each step that ended, in order, with the rung that succeeded; `None` if the step failed.
    pub ended: Vec<(String, Option<String>)>,
    /// UUID of the GPU that the job held.
    pub gpu: Option<String>,
    /// Name of the GPU `gpu`.
    pub gpu_name: Option<String>,
    /// The files that were fetched.
    pub files: Vec<HostFile>,
    /// Warnings that the host sent.
    pub warnings: Vec<Gap>,
    /// The rung that each step started last.
    pub(super) running: BTreeMap<String, String>,
    /// How long ncu profiled launches.
    pub(super) profiled: ProfiledTimes,
}

/// A file that a job made on the host and we fetched.
#[derive(Clone, Debug)]
pub struct HostFile {
    /// Path in the job's folder on the host.
    pub host_path: String,
    /// The rung that made the file.
    pub rung: RungId,
    /// The fetched file in the run folder.
    pub artifact: Artifact,
}

impl JobResult {
    /// Whether this step succeeded.
    pub fn step_ok(&self, step: &str) -> bool {
        self.rung_of(step).is_some()
    }

    /// The rung on which the step succeeded; `None` if it failed or did not run.
    pub fn rung_of(&self, step: &str) -> Option<RungId> {
        let (_, rung) = self.ended.iter().find(|(s, _)| s == step)?;
        rung.as_deref().map(RungId::from)
    }

    /// The last rung that was tried of a step.
    pub fn last_rung(&self, step: &str) -> Option<&RungRecord> {
        self.rungs.iter().rev().find(|r| r.step == step)
    }
}

/// What one job of a run needs: its folder, record, event sink, cancel signal and stdin.
pub struct RunContext<'a> {
    /// The run's folder, for logs and artifacts.
    pub folder: &'a RunFolder,
    /// The run's record; the job is added to it and kept up to date.
    pub record: &'a mut RunRecord,
    /// Receives the run's events.
    pub reporter: &'a mut dyn Reporter,
    /// Whether the user asked to stop.
    pub cancel: CancelSignal,
    /// Standard input of the program, in chunks; it ends when the channel closes.
    pub input: Option<mpsc::Receiver<Vec<u8>>>,
}

/// Resumes a job on the host after the last event in the run folder.
///
/// # Errors
/// The link fails, or the host has no such job; the record then gets its outcome, so that nobody
/// waits for it.
pub(super) async fn resume(
    link: &mut HostLink,
    job: &str,
    known: &RecordedJob,
    context: &mut RunContext<'_>,
) -> Result<()> {
    let limits = plan(context.folder, job).map(|plan| plan.limits).unwrap_or_default();
    let attached = tokio::select! {
        attached = link.attach(job, &limits, known.last_seq() + 1, &known.received) => attached,
        () = context.cancel.wait_for_more_than(0) => {
            return Err(cancelled_beside_job(&context.record.id));
        }
    };
    if let Err(error) = &attached
        && let Some(outcome) = error.no_such_job()
    {
        for record in context.record.jobs.iter_mut().filter(|record| record.job == job) {
            record.outcome = Some(outcome.clone());
        }
    }
    attached.on(link.remote())
}

/// The job's plan. `None` if the run folder does not have it, or has one of another version of rgpu
/// that cannot be read.
pub(super) fn plan(folder: &RunFolder, job: &str) -> Option<Plan> {
    let sequence = job.rsplit_once('.').map_or(job, |(_, sequence)| sequence);
    let plan = folder.read(&format!("plan-{sequence}.json")).ok()?;
    crate::saved_json::from_slice(&plan).ok()
}

/// Follows the job to its terminal event. `before` holds the events that are in the run folder
/// already; they are not recorded again.
pub(super) async fn follow_to_end(
    link: &mut HostLink,
    job: &str,
    before: &[Event],
    context: &mut RunContext<'_>,
) -> Result<JobResult> {
    follow_with_filter(link, job, before, context, &|_, _| Ok(true), &mut FileCopies::default())
        .await
}

/// Decides from a file's kind and metadata whether to fetch it. An error rejects all files of the
/// host.
pub(super) type FileFilter<'a> = dyn Fn(&str, &RemoteFile) -> Result<bool> + Sync + 'a;

/// As [`follow_to_end`], but fetches only the files that `accept` accepts, and writes their
/// `copies`.
pub(super) async fn follow_with_filter(
    link: &mut HostLink,
    job: &str,
    before: &[Event],
    context: &mut RunContext<'_>,
    accept: &FileFilter<'_>,
    copies: &mut FileCopies,
) -> Result<JobResult> {
    let result = follow_and_fetch(link, job, before, context, accept, copies).await;
    take_bills(link, context)?;
    result
}

/// Adds the provider's bills so far to the run's record.
pub(super) fn take_bills(link: &HostLink, context: &mut RunContext<'_>) -> Result<()> {
    let bills = link.remote().take_bills();
    if bills.is_empty() {
        return Ok(());
    }
    bills.into_iter().for_each(|bill| context.record.cost.bill(bill.text, bill.usd));
    Ok(context.folder.save(context.record)?)
}

/// Closes the connection after flushing pending messages, and records the provider's last bills. A
/// user who no longer waits for the host (a second request to cancel) does not wait for this either.
pub async fn close(link: HostLink, record: &mut RunRecord, cancel: &mut CancelSignal) {
    let bills = link.close_until(cancel.wait_for_more_than(1)).await;
    bills.into_iter().for_each(|bill| record.cost.bill(bill.text, bill.usd));
}

async fn follow_and_fetch(
    link: &mut HostLink,
    job: &str,
    before: &[Event],
    context: &mut RunContext<'_>,
    accept: &FileFilter<'_>,
    copies: &mut FileCopies,
) -> Result<JobResult> {
    let mut result = JobResult { job: job.to_owned(), ..JobResult::default() };
    let mut announced = Vec::new();
    for event in before {
        apply_event(&mut result, &mut announced, event);
    }
    let mut recorder = context.folder.recorder()?;
    let mut cancel_requests = 0;
    // The program can read stdin only once a rung has started.
    let mut reading = false;
    let mut feed = StdinFeed::new(context.input.take(), link.stdin());
    let mut stdin_failure = None;
    while result.outcome.is_none() {
        let message = tokio::select! {
            message = link.next() => match message {
                Err(late @ RemoteError::Unconfirmed { .. }) => {
                    let failure = stdin_failure.unwrap_or_else(|| unconfirmed(link, &context.record.id));
                    return Err(failure.cause(late));
                }
                message => message.on(link.remote())?,
            },
            // Send stdin while receiving, never instead: the host may need to send output before it
            // can take more input.
            failure = feed.run(), if reading => {
                link.cancel();
                stdin_failure = Some(failure);
                continue;
            }
            () = context.cancel.wait_for_more_than(cancel_requests) => {
                cancel_requests = context.cancel.request_count();
                if cancel_requests > 1 {
                    return Err(unconfirmed(link, &context.record.id));
                }
                if !context.cancel.is_output_unread() {
                    context.reporter.report(&RunEvent::Note { text: "cancelling; Ctrl-C again stops waiting" });
                }
                link.cancel();
                continue;
            }
        };
        match message {
            None => break,
            Some(JobMessage::Output { step, stream, bytes, .. }) => {
                result.profiled.add_output(&step, stream, &bytes);
                record_output(&mut recorder, context.reporter, (&step, stream), &bytes)
                    .map_err(|error| recording_failure(error, context.record))?;
            }
            Some(JobMessage::Event(event)) => {
                reading |= matches!(event.body, EventBody::RungStarted { .. });
                recorder
                    .event(job, &event)
                    .map_err(|error| recording_failure(error, context.record))?;
                context.reporter.report(&RunEvent::Job { job, event: &event });
                match &event.body {
                    EventBody::RungStarted { step, .. } => result.profiled.start_rung(step),
                    EventBody::Output { step, stream, len, .. } => {
                        result.profiled.set_time(step, *stream, *len, event.at_ms);
                    }
                    _ => {}
                }
                apply_event(&mut result, &mut announced, &event);
            }
        }
    }
    if let Some(failure) = stdin_failure {
        return Err(failure);
    }
    // Slurm ends all processes of a job at once. The end of the program may be told before the
    // supervisor is ended, too.
    if is_ended_from_outside(&result) && link.is_host_taken().await {
        let text = "the host was taken away while the program ran".to_owned();
        result.outcome = Some(Outcome::HostError { code: HOST_TAKEN.to_owned(), text });
    }
    if let Some(record) = context.record.jobs.iter_mut().find(|j| j.job == job) {
        record.outcome.clone_from(&result.outcome);
    }
    // The run's record is saved when the command ends. Until then the recorded events hold the
    // outcome.
    keep_latest(&mut announced);
    let mut chosen = Vec::new();
    for file in announced {
        let remote = link.remote();
        let choice = accept(&file.kind, &file.remote_file);
        if choice.map_err(|failure| failure.host(remote.name(), remote.transport()))? {
            chosen.push(file);
        }
    }
    fetch(link, &mut result, chosen, context, copies).await?;
    Ok(result)
}

/// The code of the outcome of a job whose host was taken away.
pub(super) const HOST_TAKEN: &str = "host_taken";

/// Whether SIGTERM or SIGKILL ended the program, or a shell's exit status says that one ended its
/// command, and the user did not cancel.
fn is_ended_from_outside(result: &JobResult) -> bool {
    const BY_SIGNAL: [i32; 2] = [9, 15];
    let is_ended = |record: &RungRecord| {
        let of_shell = record.exit.and_then(|status| status.checked_sub(128));
        record.signal.or(of_shell).is_some_and(|signal| BY_SIGNAL.contains(&signal))
    };
    !matches!(result.outcome, Some(Outcome::Cancelled)) && result.rungs.iter().any(is_ended)
}

/// Records output of a step, then reports the recorded part. Output that a full disk did not take
/// is not reported: the host sends it again when the run is resumed.
pub fn record_output(
    recorder: &mut Recorder,
    reporter: &mut dyn Reporter,
    (step, stream): (&str, Stream),
    mut bytes: &[u8],
) -> Result<(), StoreError> {
    while !bytes.is_empty() {
        let recorded = recorder.output(step, stream, bytes)?;
        let (shown, rest) = bytes.split_at(recorded.len);
        reporter.report(&RunEvent::Output {
            step,
            stream,
            len: shown.len(),
            bytes: shown,
            recorded,
        });
        bytes = rest;
    }
    Ok(())
}

/// The failure of a run whose folder cannot be written while its job continues.
fn recording_failure(error: StoreError, record: &RunRecord) -> Failure {
    let disk = matches!(error, StoreError::Io { .. });
    let failure = Failure::from(error);
    if disk {
        failure
            .hint(format!("free some space, then run `rgpu runs attach {}` to continue", record.id))
    } else {
        failure
    }
}

/// Updates the result and the list of announced files by one event.
fn apply_event(result: &mut JobResult, announced: &mut Vec<AnnouncedFile>, event: &Event) {
    match &event.body {
        EventBody::GpuLocked { uuid, name, .. } => {
            result.gpu = Some(uuid.clone());
            result.gpu_name = Some(name.clone());
        }
        EventBody::RungStarted { step, rung, .. } => {
            result.running.insert(step.clone(), rung.clone());
        }
        EventBody::RungEnded(record) => result.rungs.push(record.clone()),
        EventBody::StepEnded { step, rung, .. } => {
            result.ended.push((step.clone(), rung.clone()));
        }
        EventBody::Warning { code, text } => {
            result.warnings.push(Gap { code: code.clone(), text: text.clone() });
        }
        EventBody::Artifact { step, kind, .. } => {
            let Some(remote_file) = RemoteFile::from_event(&result.job, &event.body) else {
                return;
            };
            let rung = result.running.get(step).cloned().unwrap_or_default();
            announced.push(AnnouncedFile {
                step: step.clone(),
                rung,
                remote_file,
                kind: kind.clone(),
            });
        }
        EventBody::Ended { outcome } => result.outcome = Some(outcome.clone()),
        _ => {}
    }
}

/// The failure of a command that no longer waits for the host to confirm the cancel.
fn unconfirmed(link: &HostLink, id: &str) -> Failure {
    if link.is_linked() {
        cancelled()
            .hint(format!("the job will be cancelled; `rgpu runs attach {id}` shows how it ended"))
    } else {
        cancelled_beside_job(id).cause("the link to the host is lost")
    }
}

/// The failure of a command that was cancelled while the job of its run `id` continues.
pub(super) fn cancelled_beside_job(id: &str) -> Failure {
    let what = "this command was cancelled, and its job continues on the host";
    Failure::new(Exit::Cancelled, "cancelled", what).hint(format!(
        "`rgpu runs attach {id}` continues it here, `rgpu runs cancel {id}` stops it"
    ))
}

pub(super) fn cancelled() -> Failure {
    Failure::new(Exit::Cancelled, "cancelled", "cancelled")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::event::Reporters;
    use super::*;
    use rgpu_remote::fake::{self, FakeMessage, InProcessAgent};

    #[tokio::test]
    async fn a_cancel_that_is_never_confirmed_ends_the_command() {
        // The job starts and sends nothing more.
        let script = vec![FakeMessage::Event(EventBody::Started { folder: "/tmp/job".into() })];
        let host = InProcessAgent::new(script);
        let remote = Arc::new(host.clone());
        let link = HostLink::connect(remote, fake::options()).await.unwrap();
        let mut link = link.with_cancel_timeout(Duration::from_secs(1));
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(dir.path(), "run", None).unwrap();
        let mut record = RunRecord::new("run".into(), "exec", jiff::Timestamp::UNIX_EPOCH);
        let (canceller, cancel) = super::super::cancel::channel();
        let mut context = RunContext {
            folder: &folder,
            record: &mut record,
            reporter: &mut Reporters::default(),
            cancel,
            input: None,
        };
        submit(&mut link, &fake::submission(&[]), &mut context).await.unwrap();
        canceller.request_cancel();
        let failure = follow_to_end(&mut link, "run.1", &[], &mut context).await.unwrap_err();
        assert_eq!((failure.exit, host.cancels()), (Exit::Cancelled, 1));
        let text = failure.to_string();
        assert!(text.contains("has not confirmed within 1 s"), "{text}");
        assert!(text.contains("the job will be cancelled; `rgpu runs attach run`"), "{text}");
        assert!(canceller.handled_all_requests());
    }
}
