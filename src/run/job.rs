//! One plan carried out: submitted, followed to its terminal event, recorded, its files fetched.
//!
//! Everything a host says goes to the run folder and to the reporter as it comes; what is returned
//! is only what later stages need.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use rgpu_protocol::plan::{Limits, Origin};
use rgpu_protocol::{Event, EventBody, Outcome, Plan, RungRecord, Stream};
use tokio::sync::mpsc;

use super::cancel::CancelSignal;
use super::event::{Reporter, RunEvent};
use super::file_copies::FileCopies;
use super::provenance::digest_file;
use super::resume::RecordedJob;
use super::stdin_feed::StdinFeed;
use crate::bundle::{Bundle, Packer};
use crate::error::{Exit, Failure, Result};
use crate::model::profile::{Artifact, Gap};
use crate::remote::{
    HostLink, JobMessage, OnRemote, RemoteError, RemoteFile, Submission, TransferProgress,
};
use crate::store::{JobRecord, Recorder, RunFolder, RunRecord, StoreError, UnsyncedFile};
use crate::tool::Draft;

/// What came of a plan.
#[derive(Clone, Debug, Default)]
pub struct JobResult {
    /// The job.
    pub job: String,
    /// How it ended; `None` when it was let go.
    pub outcome: Option<Outcome>,
    /// Every rung, in order.
    pub rungs: Vec<RungRecord>,
    /// The rung each step ended well on, in order; `None`: it failed.
    pub ended: Vec<(String, Option<String>)>,
    /// UUID of the GPU it held.
    pub gpu: Option<String>,
    /// Its name.
    pub gpu_name: Option<String>,
    /// Files, by their path on the host, with where they lie in the run folder.
    pub files: Vec<HostFile>,
    /// Warnings of the host.
    pub warnings: Vec<Gap>,
    /// The rung each step was last at.
    pub(super) running: BTreeMap<String, String>,
}

/// A file that a job made.
#[derive(Clone, Debug)]
pub struct HostFile {
    /// Path in the job's folder on the host.
    pub host_path: String,
    /// The rung that made it.
    pub rung: String,
    /// In the run folder.
    pub artifact: Artifact,
}

impl JobResult {
    /// Whether this step ended well.
    pub fn step_ok(&self, step: &str) -> bool {
        self.rung_of(step).is_some()
    }

    /// The rung a step ended well on.
    pub fn rung_of(&self, step: &str) -> Option<&str> {
        self.ended.iter().find(|(s, _)| s == step).and_then(|(_, rung)| rung.as_deref())
    }

    /// The last rung tried of a step.
    pub fn last_rung(&self, step: &str) -> Option<&RungRecord> {
        self.rungs.iter().rev().find(|r| r.step == step)
    }
}

/// Where a run is kept and who hears of it, for one job.
pub struct RunContext<'a> {
    /// The run's folder.
    pub folder: &'a RunFolder,
    /// Its record; the job is added and kept up to date.
    pub record: &'a mut RunRecord,
    /// Who hears what is said.
    pub reporter: &'a mut dyn Reporter,
    /// Whether the user wants to stop.
    pub cancel: CancelSignal,
    /// What the running program reads on standard input, piece by piece; its end closes it.
    pub input: Option<mpsc::Receiver<Vec<u8>>>,
}

/// Packs a draft and submits it; `kept` writes down what it became. A file that was written anew
/// after it was hashed, as is found when its bytes are read or the host hashes them, is taken as it
/// is now, once.
///
/// # Errors
/// As [`Packer::pack`] and [`submit`], or those of `kept`.
pub(super) async fn pack_and_submit(
    link: &mut HostLink,
    packer: &mut Packer,
    draft: &Draft,
    context: &mut RunContext<'_>,
    mut kept: impl FnMut(Bundle, &RunContext<'_>) -> Result<Submission>,
) -> Result<()> {
    let bundle = packer.pack(draft)?;
    let hashed = bundle.plan.files.clone();
    let failure = match submit(link, &kept(bundle, context)?, context).await {
        Err(failure) if ["input_gone", "damaged_blob"].contains(&failure.code.as_str()) => failure,
        ended => return ended,
    };
    packer.forget();
    let bundle = packer.pack(draft)?;
    let files = bundle.plan.files.iter().zip(&hashed);
    let Some((anew, _)) = files.into_iter().find(|(now, then)| now.digest != then.digest) else {
        // They are what they were: something else is wrong.
        return Err(failure);
    };
    let text = format!("`{}` was written while it was sent: it is sent as it is now", anew.path);
    context.reporter.say(&RunEvent::Note { text: &text });
    submit(link, &kept(bundle, context)?, context).await
}

/// Submits a plan. Nothing has run when this fails.
///
/// # Errors
/// The link, the host's refusal, our disk.
pub(super) async fn submit(
    link: &mut HostLink,
    submission: &Submission,
    context: &mut RunContext<'_>,
) -> Result<()> {
    let submission = &with_origin(submission, context.record);
    let plan = &submission.plan;
    context.reporter.say(&RunEvent::Planned {
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
            reporter.say(&RunEvent::Uploading { sent: t.done, total: t.total });
        }
    };
    let mut cancel = context.cancel.clone();
    tokio::select! {
        uploaded = link.submit(submission, &progress) => {
            // What was refused, or found no agent, is no job that could be taken up.
            if uploaded.as_ref().is_err_and(RemoteError::is_refusal) {
                context.record.jobs.retain(|j| j.job != plan.job);
                context.folder.save(context.record)?;
            }
            uploaded.on(link.remote())?;
        }
        () = cancel.beyond(0) => {
            // The job may have started just now: whatever is there is stopped, unless the user
            // will not wait for that.
            link.cancel();
            let stopped = async {
                loop {
                    match link.next().await {
                        Ok(Some(_)) => {}
                        Ok(None) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                }
            };
            let stopped = tokio::select! {
                stopped = stopped => stopped,
                () = cancel.beyond(1) => return Err(unconfirmed(link, &context.record.id)),
            };
            if let Err(late @ RemoteError::Unconfirmed { .. }) = stopped {
                return Err(unconfirmed(link, &context.record.id).cause(late));
            }
            // Nothing is left that could be taken up.
            for line in context.record.jobs.iter_mut().filter(|j| j.job == plan.job) {
                line.outcome = Some(Outcome::Cancelled);
            }
            context.folder.save(context.record)?;
            return Err(cancelled());
        }
    }
    Ok(())
}

/// The submission with the command that made it, for whoever takes the job up without the folder.
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

/// Takes up a job that is there, from what the run folder already has.
///
/// # Errors
/// The link, or a job that is not there: the record then says so, since nothing is left that could
/// be waited for.
pub(super) async fn take_up(
    link: &mut HostLink,
    job: &str,
    known: &RecordedJob,
    context: &mut RunContext<'_>,
) -> Result<()> {
    let limits = plan_limits(context.folder, job);
    let attached = tokio::select! {
        attached = link.attach(job, &limits, known.last_seq() + 1, &known.had) => attached,
        () = context.cancel.beyond(0) => {
            return Err(cancelled().hint(format!("the job goes on: `rgpu runs cancel {}` stops it", context.record.id)));
        }
    };
    if let Err(error) = &attached
        && let Some(outcome) = error.no_such_job()
    {
        for line in context.record.jobs.iter_mut().filter(|line| line.job == job) {
            line.outcome = Some(outcome.clone());
        }
    }
    attached.on(link.remote())
}

/// The limits that the plan of a job has; those of any plan where it is not in the folder.
fn plan_limits(folder: &RunFolder, job: &str) -> Limits {
    let sequence = job.rsplit_once('.').map_or(job, |(_, sequence)| sequence);
    let plan = folder.read(&format!("plan-{sequence}.json")).unwrap_or_default();
    serde_json::from_slice::<Plan>(&plan).map(|plan| plan.limits).unwrap_or_default()
}

/// Follows the job to its terminal event. `before` holds the events that the run folder already
/// has; they are not recorded again.
///
/// # Errors
/// The link stayed cut, our disk, or the user stopped waiting.
pub(super) async fn follow_to_end(
    link: &mut HostLink,
    job: &str,
    before: &[Event],
    context: &mut RunContext<'_>,
) -> Result<JobResult> {
    follow_choosing(link, job, before, context, &|_, _| Ok(true), &mut FileCopies::default()).await
}

/// Whether an announced file is fetched, by its kind and what the host says of it. An error refuses the
/// host's files altogether.
pub(super) type Choose<'a> = dyn Fn(&str, &RemoteFile) -> Result<bool> + Sync + 'a;

/// As [`follow_to_end`], bringing only the files that `choose` takes, with `copies` of them.
pub(super) async fn follow_choosing(
    link: &mut HostLink,
    job: &str,
    before: &[Event],
    context: &mut RunContext<'_>,
    choose: &Choose<'_>,
    copies: &mut FileCopies,
) -> Result<JobResult> {
    let end = carry_through(link, job, before, context, choose, copies).await;
    take_bills(link, context)?;
    end
}

/// Adds what the provider has billed to the run's record.
pub(super) fn take_bills(link: &HostLink, context: &mut RunContext<'_>) -> Result<()> {
    let bills = link.remote().take_bills();
    if bills.is_empty() {
        return Ok(());
    }
    bills.into_iter().for_each(|bill| context.record.cost.bill(bill.words, bill.usd));
    Ok(context.folder.save(context.record)?)
}

/// Ends the conversation with a host: what was still to be said there is said. It may be billed, too.
pub async fn close(link: HostLink, record: &mut RunRecord) {
    let bills = link.close().await;
    bills.into_iter().for_each(|bill| record.cost.bill(bill.words, bill.usd));
}

async fn carry_through(
    link: &mut HostLink,
    job: &str,
    before: &[Event],
    context: &mut RunContext<'_>,
    choose: &Choose<'_>,
    copies: &mut FileCopies,
) -> Result<JobResult> {
    let mut end = JobResult { job: job.to_owned(), ..JobResult::default() };
    let mut announced = Vec::new();
    for event in before {
        take(&mut end, &mut announced, event);
    }
    let mut recorder = context.folder.recorder()?;
    let mut asked = 0;
    // A program can read only once it runs.
    let mut reading = false;
    let mut feed = StdinFeed::new(context.input.take(), link.input());
    let mut unfed = None;
    while end.outcome.is_none() {
        let message = tokio::select! {
            message = link.next() => match message {
                Err(late @ RemoteError::Unconfirmed { .. }) => {
                    let failure = unfed.unwrap_or_else(|| unconfirmed(link, &context.record.id));
                    return Err(failure.cause(late));
                }
                message => message.on(link.remote())?,
            },
            // Beside the reading, never instead of it: the host may have to be rid of output
            // before it can take more input.
            failure = feed.run(), if reading => {
                link.cancel();
                unfed = Some(failure);
                continue;
            }
            () = context.cancel.beyond(asked) => {
                asked = context.cancel.asked();
                if asked > 1 {
                    return Err(unconfirmed(link, &context.record.id));
                }
                if !context.cancel.output_unread() {
                    context.reporter.say(&RunEvent::Note { text: "cancelling; Ctrl-C again stops waiting" });
                }
                link.cancel();
                continue;
            }
        };
        match message {
            None => break,
            Some(JobMessage::Output { step, stream, bytes, .. }) => {
                record_output(&mut recorder, context.reporter, (&step, stream), &bytes)
                    .map_err(|error| unrecorded(error, context.record))?;
            }
            Some(JobMessage::Event(event)) => {
                reading |= matches!(event.body, EventBody::RungStarted { .. });
                recorder.event(job, &event).map_err(|error| unrecorded(error, context.record))?;
                context.reporter.say(&RunEvent::Job { job, event: &event });
                take(&mut end, &mut announced, &event);
            }
        }
    }
    if let Some(failure) = unfed {
        return Err(failure);
    }
    if let Some(line) = context.record.jobs.iter_mut().find(|j| j.job == job) {
        line.outcome.clone_from(&end.outcome);
    }
    // The record is written when the command ends: until then the events say it.
    keep_latest(&mut announced);
    let mut chosen = Vec::new();
    for file in announced {
        let remote = link.remote();
        let choice = choose(&file.kind, &file.wanted);
        if choice.map_err(|failure| failure.on(remote.name(), remote.transport()))? {
            chosen.push(file);
        }
    }
    fetch(link, &mut end, chosen, context, copies).await?;
    Ok(end)
}

/// Records output of a step and shows what was recorded. What a full disk does not take is not shown
/// either: it comes again when the run is taken up.
///
/// # Errors
/// As [`Recorder::output`].
pub fn record_output(
    recorder: &mut Recorder,
    reporter: &mut dyn Reporter,
    (step, stream): (&str, Stream),
    mut bytes: &[u8],
) -> Result<(), StoreError> {
    while !bytes.is_empty() {
        let recorded = recorder.output(step, stream, bytes)?;
        let (shown, rest) = bytes.split_at(recorded.len);
        reporter.say(&RunEvent::Output { step, stream, len: shown.len(), bytes: shown, recorded });
        bytes = rest;
    }
    Ok(())
}

/// The failure of a run whose folder takes no more, while its job goes on.
fn unrecorded(error: StoreError, record: &RunRecord) -> Failure {
    let disk = matches!(error, StoreError::Io { .. });
    let failure = Failure::from(error);
    match disk {
        true => failure.hint(format!(
            "make room, then `rgpu runs attach {}`: it goes on where this stopped",
            record.id
        )),
        false => failure,
    }
}

/// A file that the host has announced.
struct AnnouncedFile {
    step: String,
    rung: String,
    wanted: RemoteFile,
    kind: String,
}

/// Keeps the last of those that have the same path: a later rung may write a file again.
fn keep_latest(announced: &mut Vec<AnnouncedFile>) {
    let mut seen = BTreeSet::new();
    announced.reverse();
    announced.retain(|file| seen.insert(file.wanted.path.clone()));
    announced.reverse();
}

/// Takes an event into what is known of the job.
fn take(end: &mut JobResult, announced: &mut Vec<AnnouncedFile>, event: &Event) {
    match &event.body {
        EventBody::GpuLocked { uuid, name, .. } => {
            end.gpu = Some(uuid.clone());
            end.gpu_name = Some(name.clone());
        }
        EventBody::RungStarted { step, rung, .. } => {
            end.running.insert(step.clone(), rung.clone());
        }
        EventBody::RungEnded(record) => end.rungs.push(record.clone()),
        EventBody::StepEnded { step, rung, .. } => {
            end.ended.push((step.clone(), rung.clone()));
        }
        EventBody::Warning { code, text } => {
            end.warnings.push(Gap { code: code.clone(), text: text.clone() });
        }
        EventBody::Artifact { step, kind, .. } => {
            let Some(wanted) = RemoteFile::of(&end.job, &event.body) else { return };
            let rung = end.running.get(step).cloned().unwrap_or_default();
            announced.push(AnnouncedFile { step: step.clone(), rung, wanted, kind: kind.clone() });
        }
        EventBody::Ended { outcome } => end.outcome = Some(outcome.clone()),
        _ => {}
    }
}

/// Brings the announced files into the run folder.
async fn fetch(
    link: &mut HostLink,
    end: &mut JobResult,
    announced: Vec<AnnouncedFile>,
    context: &mut RunContext<'_>,
    copies: &mut FileCopies,
) -> Result<()> {
    let total: u64 = announced.iter().map(|a| a.wanted.size).sum();
    let mut before = 0;
    let mut taken = BTreeSet::new();
    // Of a job that was cancelled, what there is is brought; asking again stops that, too.
    let asked = context.cancel.heard();
    for AnnouncedFile { step, rung, wanted, kind } in announced {
        let place = apart(context.folder.place(&kind, &wanted.path)?, &mut taken);
        let dest = context.folder.path().join(&place);
        if let Some(parent) = dest.parent() {
            std::fs::create_dir_all(parent).map_err(|e| {
                Failure::new(Exit::Disk, "disk", "cannot write the run folder")
                    .file(parent.display())
                    .cause(e)
            })?;
        }
        if !is_here(&dest, &wanted) {
            let reporter = Mutex::new(&mut *context.reporter);
            let progress = |t: TransferProgress| {
                if let Ok(mut reporter) = reporter.lock() {
                    reporter.say(&RunEvent::Fetching {
                        path: &wanted.path,
                        got: before + t.done,
                        total,
                    });
                }
            };
            let mut cancel = context.cancel.clone();
            let (file, copy) = copies.begin(&place, wanted.size).unzip();
            let fetched = tokio::select! {
                fetched = link.fetch(&wanted, &dest, file, &progress) => {
                    fetched.on(link.remote())?
                }
                () = cancel.beyond(asked) => return Err(cancelled().hint(format!(
                    "the job has ended; `rgpu runs attach {}` brings the rest",
                    context.record.id
                ))),
            };
            if let Some(copy) = copy.filter(|_| fetched.copied) {
                copies.keep(&place, copy);
            }
            let line = context.record.jobs.iter_mut().find(|line| line.job == wanted.job);
            if let Some(line) = line {
                line.unsynced.retain(|file| file.path != place);
                let unsynced = UnsyncedFile { path: place.clone(), size: wanted.size };
                // What lies on this very machine is no safer there.
                let lost = !fetched.synced && !super::is_local(link);
                line.unsynced.extend(lost.then_some(unsynced));
            }
        }
        before += wanted.size;
        end.files.push(HostFile {
            host_path: wanted.path.clone(),
            rung,
            artifact: Artifact {
                path: place,
                kind,
                step,
                size: wanted.size,
                sha256: wanted.digest.as_str().to_owned(),
            },
        });
    }
    Ok(())
}

/// A place that no other file of the job has, also where names differ by their case alone: file
/// systems of laptops may not tell them apart.
fn apart(place: String, taken: &mut BTreeSet<String>) -> String {
    if taken.insert(place.to_lowercase()) {
        return place;
    }
    let (folder, name) = place.rsplit_once('/').map_or(("", &*place), |(f, n)| (f, n));
    let (stem, suffix) = name.split_once('.').map_or((name, ""), |(s, _)| (s, &name[s.len()..]));
    let slash = if folder.is_empty() { "" } else { "/" };
    let mut free = (2..).map(|n| format!("{folder}{slash}{stem}~{n}{suffix}"));
    free.find(|place| taken.insert(place.to_lowercase())).unwrap_or(place)
}

/// Whether the very file lies there: an earlier plan may have made another of the same size.
fn is_here(path: &Path, wanted: &RemoteFile) -> bool {
    let same_size = std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() == wanted.size);
    same_size && digest_file(path).is_ok_and(|here| here.sha256 == wanted.digest)
}

/// The failure of a command that waits no longer for its job to be stopped.
fn unconfirmed(link: &HostLink, id: &str) -> Failure {
    cancelled().hint(match link.is_linked() {
        true => format!("the cancel stands; `rgpu runs attach {id}` shows how the job ended"),
        false => format!(
            "the link is cut, so the job goes on there: `rgpu runs cancel {id}` once the host can \
             be reached"
        ),
    })
}

/// The failure of a cancelled command.
pub(super) fn cancelled() -> Failure {
    Failure::new(Exit::Cancelled, "cancelled", "cancelled")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rgpu_protocol::Digest;
    use sha2::{Digest as _, Sha256};

    use super::super::event::Reporters;
    use super::*;
    use crate::remote::fake::{self, FakeHost, Say};

    #[test]
    fn files_whose_names_differ_by_case_alone_get_places_apart() {
        let mut taken = BTreeSet::new();
        let names = ["raw/A.csv", "raw/a.csv", "raw/a~2.csv", "raw/a.CSV", "cubin/a.csv", "x", "X"];
        let places: Vec<String> =
            names.iter().map(|n| apart((*n).to_owned(), &mut taken)).collect();
        assert_eq!(
            places,
            ["raw/A.csv", "raw/a~2.csv", "raw/a~2~2.csv", "raw/a~3.CSV", "cubin/a.csv", "x", "X~2"]
        );
    }

    #[tokio::test]
    async fn a_cancel_that_is_never_confirmed_ends_the_command() {
        // The job begins, and says nothing more.
        let script = vec![Say::Event(EventBody::Started { folder: "/tmp/job".into() })];
        let host = FakeHost::new(script);
        let remote = Arc::new(host.clone());
        let link = HostLink::connect(remote, fake::options()).await.unwrap();
        let mut link = link.confirm_within(Duration::from_secs(1));
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
        canceller.ask();
        let failure = follow_to_end(&mut link, "run.1", &[], &mut context).await.unwrap_err();
        assert_eq!((failure.exit, host.cancels()), (Exit::Cancelled, 1));
        let text = failure.to_string();
        assert!(text.contains("has not confirmed within 1 s"), "{text}");
        assert!(text.contains("the cancel stands; `rgpu runs attach run`"), "{text}");
        assert!(canceller.is_heard());
    }

    #[test]
    fn of_files_with_the_same_path_the_last_one_counts() {
        let announced = |path: &str, step: &str| {
            let digest = Digest::from_bytes(&Sha256::digest(b"").into());
            let (job, path) = ("r.1".to_owned(), path.to_owned());
            let wanted = RemoteFile { job, path, size: 0, digest, composite: None };
            let (step, rung, kind) = (step.to_owned(), String::new(), String::new());
            AnnouncedFile { step, rung, wanted, kind }
        };
        let mut files = vec![announced("a", "1"), announced("b", "2"), announced("a", "3")];
        keep_latest(&mut files);
        let left: Vec<_> = files.iter().map(|f| (&*f.wanted.path, &*f.step)).collect();
        assert_eq!(left, [("b", "2"), ("a", "3")]);
    }

    #[test]
    fn a_file_of_the_same_size_is_not_taken_for_the_one_that_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        let digest = Digest::from_bytes(&Sha256::digest(b"new").into());
        let wanted = RemoteFile {
            job: "r.2".into(),
            path: "raw/report".into(),
            size: 3,
            digest,
            composite: None,
        };
        std::fs::write(&path, "old").unwrap();
        assert!(!is_here(&path, &wanted));
        std::fs::write(&path, "new").unwrap();
        assert!(is_here(&path, &wanted));
    }
}
