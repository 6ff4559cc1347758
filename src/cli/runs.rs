//! `rgpu runs`: lists, shows, attaches to, cancels, annotates, exports and removes runs, and
//! rebuilds the index of suites.

mod clean;
mod export;
mod host;
mod list;

use std::time::Instant;

use clap::{Args, Subcommand, ValueHint};

use super::support::app::{App, Status};
use super::support::progress::LiveOutput;
use super::support::session::{self, OutputOptions};
use super::support::{open_profile, saved_comparison, saved_fan_out, started_here, suite_index};
use rgpu_model::error::{Exit, Result, indent_continuation};
use rgpu_protocol::plan::{Limits, PULLED};
use rgpu_protocol::{EventBody, Outcome};
use rgpu_remote::{HostLink, HostRequest, JobMessage, OnRemote, RemoteError};
use rgpu_report::one_line;
use rgpu_run::run::recorded_outcome;
use rgpu_run::store::{Cost, RunFolder, RunRecord, RunState, Runs};

pub(super) use clean::prune;
#[cfg(test)]
pub(super) use export::ExportResult;
#[cfg(test)]
pub(super) use host::JobList;
#[cfg(test)]
pub(super) use list::RunList;

/// List, show, attach to, cancel, annotate, export and clean up runs
///
/// RUN is an id, a unique prefix, `latest`, `latest~1`, or a run folder's path. `latest` is the
/// newest run; commands that need a result, GPU code or a job pass over runs without one, and say
/// so.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum RunsCommand {
    /// List the runs of this project, or the jobs on a remote
    #[command(after_long_help = examples!(
        "rgpu runs list --failed --reason nvtx",
        "rgpu runs list --remote h200",
    ))]
    List(ListArgs),
    /// Show a run's result
    #[command(after_long_help = examples!(
        "rgpu runs show latest",
        "rgpu runs show 20261121 --json",
    ))]
    Show(RunArg),
    /// Attach to a run that was detached or interrupted, and finish as its command would
    #[command(after_long_help = examples!(
        "rgpu runs attach latest",
        "rgpu runs attach --remote h200 20261121-010121-vecadd.1",
    ))]
    Attach(AttachArgs),
    /// Stop a run on its host
    #[command(after_long_help = examples!("rgpu runs cancel latest"))]
    Cancel(CancelArgs),
    /// Store a note with a run; an empty text removes it
    #[command(after_long_help = examples!(
        "rgpu runs note latest 'before the swizzle'",
        "rgpu runs note latest ''",
    ))]
    Note(NoteArgs),
    /// Pack a run into one archive to share
    #[command(after_long_help = examples!("rgpu runs export latest --redact --out vecadd.tar.zst"))]
    Export(export::ExportArgs),
    /// Remove all but the newest ended runs, or jobs of a remote
    #[command(after_long_help = examples!(
        "rgpu runs clean --keep 5 --dry-run",
        "rgpu runs clean 20261120-101502-vecadd-ncu-3f2a1c",
        "rgpu runs clean --remote h200",
    ))]
    Clean(clean::CleanArgs),
    /// Rebuild the index of suites from the run folders
    #[command(after_long_help = examples!("rgpu runs reindex"))]
    Reindex,
}

#[derive(Args, Clone, Debug)]
pub(super) struct ListArgs {
    /// List the jobs on this remote: what runs, since when, and what is not fetched yet
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Show at most this many, the newest ones
    #[arg(long, short = 'n', default_value_t = 20)]
    pub count: usize,

    /// Only runs that failed
    #[arg(long, conflicts_with = "remote")]
    pub failed: bool,

    /// Only runs that failed for this reason: a code of `rgpu.error/1`, or a word of it
    #[arg(long, value_name = "REASON", requires = "failed")]
    pub reason: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(super) struct RunArg {
    /// The run: an id, a unique prefix, latest, latest~1 or a folder
    #[arg(default_value = "latest")]
    pub run: String,
}

#[derive(Args, Clone, Debug)]
pub(super) struct AttachArgs {
    /// The run; with --remote the name of a job as `runs list --remote` shows it
    #[arg(default_value = "latest")]
    pub run: String,

    /// Attach to a job of this remote that has no run folder here
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Attach without asking, whatever command the record or the host names as the origin
    #[arg(long)]
    pub yes: bool,

    /// Write the run's events as JSON lines
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub events: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(super) struct CancelArgs {
    /// The run; with --remote the name of a job as `runs list --remote` shows it
    #[arg(default_value = "latest")]
    pub run: String,

    /// Stop a job of this remote that has no run folder here
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(super) struct NoteArgs {
    /// The run: an id, a unique prefix, latest, latest~1 or a folder
    pub run: String,

    /// The new text of the note; an empty text removes it
    pub text: String,
}

/// Resumes a run by the command that began it. The dispatcher hands it in, because commands do not
/// import each other.
pub(super) type AttachRun = fn(&App, &RunFolder, Option<&str>, bool) -> Result<Status>;

pub(super) fn run(app: &App, command: &RunsCommand, attach_run: AttachRun) -> Result<Status> {
    let runs = app.runs();
    match command {
        RunsCommand::List(args) => match &args.remote {
            Some(remote) => host::list(app, &runs, remote, args.count),
            None => list::list(app, &runs, args),
        },
        RunsCommand::Show(arg) => show(app, &runs.find(&arg.run)?),
        RunsCommand::Attach(args) => attach(app, &runs, args, attach_run),
        RunsCommand::Cancel(args) => match &args.remote {
            Some(remote) => host::cancel(app, &runs, remote, &args.run),
            None => cancel(app, &find_submitted(app, &runs, &args.run)?),
        },
        RunsCommand::Note(args) => note(app, &runs.find(&args.run)?, &args.text),
        RunsCommand::Export(args) => export::export(app, &runs.find(&args.run)?, args),
        RunsCommand::Clean(args) => match &args.remote {
            Some(remote) => host::clean(app, &runs, remote, args),
            None => clean::clean(app, &runs, args),
        },
        RunsCommand::Reindex => suite_index::reindex(app),
    }
}

fn attach(app: &App, runs: &Runs, args: &AttachArgs, attach_run: AttachRun) -> Result<Status> {
    let Some(remote) = &args.remote else {
        let folder = find_submitted(app, runs, &args.run)?;
        return attach_run(app, &folder, args.events.as_deref(), args.yes);
    };
    let folder = host::folder_of(app, runs, remote, args)?;
    attach_run(app, &folder, args.events.as_deref(), args.yes)
}

/// Finds the run to attach to or to stop. `latest` passes over runs whose command ended before it
/// submitted a job: nothing continues there.
fn find_submitted(app: &App, runs: &Runs, name: &str) -> Result<RunFolder> {
    let found = runs.find_preferring(name, |folder| {
        folder.current_record().map_or(true, |record| !ended_before_submission(folder, &record))
    })?;
    if found.path() != runs.find(name)?.path() {
        app.print_note(&format!(
            "`{name}` is `{}`: newer runs ended before they were submitted",
            found.record()?.id
        ));
    }
    Ok(found)
}

/// Whether a run's command ended before it submitted a job.
fn ended_before_submission(folder: &RunFolder, record: &RunRecord) -> bool {
    let has_ended =
        matches!(record.state, RunState::NeverSubmitted | RunState::Failed | RunState::Cancelled);
    has_ended && record.jobs.is_empty() && !record.is_fan_out() && !folder.has("suite.json")
}

fn outcome_word(outcome: &Outcome) -> &'static str {
    use Outcome::{Cancelled, Done, Failed, HostError, LeaseExpired, NoGpu, QueueTimeout, Unknown};
    match outcome {
        Done => "done",
        Failed { .. } => "failed",
        Cancelled => "cancelled",
        LeaseExpired => "lease expired",
        QueueTimeout => "queue timeout",
        NoGpu { .. } => "no GPU",
        HostError { .. } => "host error",
        Unknown => "ended",
    }
}

pub(super) fn show(app: &App, folder: &RunFolder) -> Result<Status> {
    let record = folder.current_record()?;
    let place = || {
        let note = match record.note.as_str() {
            "" => String::new(),
            note => format!("  note        {}\n", indent_continuation(note, 14)),
        };
        format!("{note}  run         {}\n", folder.path().display())
    };
    if folder.has("profile.json") {
        let opened = open_profile::open_run(folder)?;
        let id = if app.global.json { "json" } else { "table" };
        if let Some(report) = rgpu_report::report(id) {
            app.print(&report.text(&opened.subject(), &app.style()));
        }
        if !app.global.json {
            app.print(&format!("{}{}", failure_text(folder, &record), place()));
        }
        return Ok(0);
    }
    if let Some(fan_out) = saved_fan_out::in_folder(folder)? {
        saved_fan_out::show(app, &fan_out)?;
        if !app.global.json {
            app.print(&place());
        }
        return Ok(0);
    }
    if let Some(comparison) = saved_comparison::in_folder(folder)? {
        saved_comparison::show(app, &comparison)?;
        if !app.global.json {
            app.print(&place());
        }
        return Ok(0);
    }
    if app.global.json {
        app.print_json(&record)?;
        return Ok(0);
    }
    let cost = cost_text(&record.cost).map_or_else(String::new, |c| format!("  cost        {c}\n"));
    app.print(&format!(
        "{}\n  title       {}\n  remote      {} ({})\n  started     {}\n  state       {}{}\n{cost}{}{}",
        record.id,
        one_line(&record.title),
        one_line(&record.remote),
        one_line(&record.address),
        one_line(&rgpu_report::timestamp(&record.started)),
        if has_no_answer(&record) { last_seen(folder, &record) } else { state_text(&record) },
        record
            .program_exit
            .map(|n| format!(", the program ended with status {n}"))
            .unwrap_or_default(),
        failure_text(folder, &record),
        place(),
    ));
    if folder.has("suite.json") {
        app.print_note(&format!("`rgpu bench show {}` shows its cases", record.id));
        return Ok(0);
    }
    if record.state.is_active() {
        app.print_note(&match folder.followed_by() {
            Some(who) => format!("{who} is attached to it"),
            None => format!("attach with `rgpu runs attach {}`", record.id),
        });
    }
    // A record that came with a project could name any command line.
    if record.state == RunState::NeverSubmitted
        && folder.failure().is_none()
        && started_here::is_known(app, &record)
    {
        app.print_note(&rerun_hint(&record));
    }
    Ok(0)
}

/// The hint on how to run a run's command again.
pub(super) fn rerun_hint(record: &RunRecord) -> String {
    let words = record.argv.iter().skip(1).map(String::as_str);
    let id = if words.clone().any(|word| word.starts_with("--run-id")) {
        ", under another `--run-id`"
    } else {
        ""
    };
    let words = shlex::try_join(words).unwrap_or_default();
    format!(
        "run its command again{id}: {}",
        super::support::terminal::escape_controls(format!("rgpu {words}").as_bytes())
    )
}

/// The cost of a run and its source. `None` if it is unknown.
fn cost_text(cost: &Cost) -> Option<String> {
    Some(rgpu_report::cost(cost.cost_usd?, cost.source().as_deref()))
}

/// The state of a run; a failed one with its exit status.
fn state_text(record: &RunRecord) -> String {
    match (record.state, record.exit) {
        (RunState::Failed, Some(exit)) => format!("failed ({exit})"),
        _ if has_no_answer(record) => "no answer".to_owned(),
        (state, _) => state.as_str().to_owned(),
    }
}

/// Whether the last command that followed the run got no answer from the remote, so that its state
/// there is unknown.
fn has_no_answer(record: &RunRecord) -> bool {
    let ended = record.exit.is_some_and(|exit| exit != Exit::Cancelled as u8);
    record.state == RunState::Running && ended
}

/// The state line of a run whose remote did not answer: when `events.jsonl` was last written, and
/// when rgpu last asked.
fn last_seen(folder: &RunFolder, record: &RunRecord) -> String {
    let written = |name: &str| {
        let time = folder.files().modified(name)?;
        let time = jiff::Timestamp::try_from(time).ok()?;
        Some(rgpu_report::timestamp(&time.to_string()))
    };
    let seen = written("events.jsonl").unwrap_or_else(|| rgpu_report::timestamp(&record.started));
    let asked = written("error.json").map(|at| format!(" at {at}")).unwrap_or_default();
    format!("unknown: last seen {seen}; `{}` did not answer{asked}", record.remote)
}

/// The failure that a run's command ended with; empty if it did not fail.
fn failure_text(folder: &RunFolder, record: &RunRecord) -> String {
    if !matches!(record.state, RunState::Failed | RunState::Running | RunState::NeverSubmitted) {
        return String::new();
    }
    let Some(document) = folder.failure() else { return String::new() };
    let text = super::support::terminal::escape_controls(document.error.to_string().as_bytes());
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Adds a note to a run. Fails while another command follows the run: that one writes the record
/// and would overwrite the note.
fn note(app: &App, folder: &RunFolder, text: &str) -> Result<Status> {
    let folder = folder.clone().follow()?;
    let mut record = folder.record()?;
    text.clone_into(&mut record.note);
    folder.save(&record)?;
    if app.global.json {
        app.print_json(&record)?;
    }
    Ok(0)
}

/// Cancels a run, or each run of a fan-out.
fn cancel(app: &App, folder: &RunFolder) -> Result<Status> {
    let mut record = folder.record()?;
    if record.is_fan_out() {
        for own in saved_fan_out::run_folders(app, folder, &record)? {
            stop(app, &own)?;
        }
        if record.state.is_active() {
            record.state = RunState::Cancelled;
            record.exit = Some(Exit::Cancelled as u8);
            if let Ok(folder) = folder.clone().follow() {
                folder.save(&record)?;
            }
        }
    } else {
        record = stop(app, folder)?;
    }
    if app.global.json {
        app.print_json(&record)?;
    }
    Ok(0)
}

#[derive(Debug)]
struct StoppedJob {
    outcome: Option<Outcome>,
    /// Whether it has files for `--pull`.
    has_pulled_files: bool,
    /// Whether the host does not know it.
    is_missing: bool,
}

/// Stops a job and waits for its end. A missing job counts as stopped. The outcome is `None` if the
/// command that follows the job removed it from the host first.
async fn stop_job(link: &mut HostLink, job: &str) -> Result<StoppedJob> {
    // Skip its output.
    let limits = Limits { log_bytes: u64::MAX, ..Limits::default() };
    let attached = link.attach(job, &limits, 1, &[]).await;
    let outcome = attached.as_ref().err().and_then(RemoteError::no_such_job);
    let mut stopped =
        StoppedJob { is_missing: outcome.is_some(), has_pulled_files: false, outcome };
    if stopped.is_missing {
        return Ok(stopped);
    }
    attached.on(link.remote())?;
    link.cancel();
    loop {
        let message = match link.next().await {
            // The job was there, so its follower has removed it after its end.
            Err(error) if error.no_such_job().is_some() => break,
            message => message.on(link.remote())?,
        };
        let Some(message) = message else { break };
        let JobMessage::Event(event) = message else { continue };
        match event.body {
            EventBody::Artifact { kind, .. } => stopped.has_pulled_files |= kind == PULLED,
            EventBody::Ended { outcome } => stopped.outcome = Some(outcome),
            _ => {}
        }
    }
    Ok(stopped)
}

/// Stops the open job of a run. Returns the updated record.
fn stop(app: &App, folder: &RunFolder) -> Result<RunRecord> {
    let started_at = Instant::now();
    let mut record = folder.current_record()?;
    // With a job in the record, `never submitted` is not certain: the command was cancelled before
    // the host answered.
    if record.state == RunState::NeverSubmitted && record.jobs.is_empty() {
        app.print_note(&format!("`{}` was never submitted, so nothing runs", record.id));
        return Ok(record);
    }
    let Some(job) = record
        .jobs
        .iter()
        .rev()
        .find(|j| j.outcome.is_none())
        .map(|j| (j.job.clone(), j.remote.clone()))
    else {
        app.print_note(&format!("`{}` has ended already", record.id));
        return Ok(record);
    };
    let (job, remote) = job;
    session::check_run(app, &record)?;
    let spec = session::spec(app, Some(&remote))?;
    let id = record.id.clone();
    let output_options = OutputOptions {
        live: LiveOutput::Hidden,
        events: None,
        accept_new: false,
        run: &id,
        row: None,
        host: HostRequest::existing(),
    };
    let mut stopped = app.block_on(async {
        let session = session::open(app, spec, output_options).await?;
        session.run_and_close(async |link| stop_job(link, &job).await).await
    })?;
    // A command that follows the run may have recorded the end and removed the job.
    if (stopped.is_missing || stopped.outcome.is_none())
        && let Some(outcome) = recorded_outcome(folder, &record, &job)?
    {
        (stopped.outcome, stopped.is_missing) = (Some(outcome), false);
    }
    let StoppedJob { outcome, has_pulled_files, is_missing } = stopped;
    // A command that follows the run records the end itself.
    let followed = folder.clone().follow();
    let is_unfollowed = followed.is_ok();
    if let Ok(followed) = &followed {
        record = followed.record()?;
    }
    if let Some(job_record) = record.jobs.iter_mut().find(|j| j.job == job && j.outcome.is_none()) {
        job_record.outcome = outcome.clone().or(Some(Outcome::Cancelled));
        // A run whose job never arrived stays `never submitted`.
        if !(is_missing && record.state == RunState::NeverSubmitted) {
            record.state = RunState::Cancelled;
        }
        record.exit = Some(Exit::Cancelled as u8);
        if let Ok(followed) = &followed {
            followed.save(&record)?;
        }
    }
    let text = outcome.as_ref().map_or("ended", outcome_word);
    app.print_note(&if is_missing {
        format!(
            "`{remote}` has no job `{id}`: it never arrived there, or was removed; {}",
            match &followed {
                Ok(_) => format!("its record says `{}` now", record.state.as_str()),
                Err(error) => format!("its record was left as it is: {error}"),
            }
        )
    } else {
        format!(
            "`{id}` is stopped on `{remote}`: {text} ({:.1} s)",
            started_at.elapsed().as_secs_f64()
        )
    });
    // A command that follows the run fetches the files itself.
    if has_pulled_files && is_unfollowed {
        app.print_note(&format!("`rgpu runs attach {id}` fetches the files for `--pull`"));
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_remote::fake::{self, FakeMessage, InProcessAgent};

    #[tokio::test]
    async fn a_job_that_its_follower_removes_once_it_is_cancelled_counts_as_stopped() {
        for events in [0, 2] {
            let released = FakeMessage::Event(EventBody::GpuReleased {});
            let host = InProcessAgent::new(vec![released; events]);
            let mut follower = fake::connect(&host).await;
            follower.submit(&fake::submission(&[]), &|_| ()).await.unwrap();
            host.remove_when_cancelled();
            let mut link = fake::connect(&host).await;
            let stopped = stop_job(&mut link, "run.1").await.unwrap();
            assert_eq!((stopped.is_missing, stopped.outcome), (false, None));
            assert_eq!(link.next().await.unwrap(), None, "the link is of use for other requests");
            // Now it is not there.
            assert!(stop_job(&mut link, "run.1").await.unwrap().is_missing);
        }
    }
}
