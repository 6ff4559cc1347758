//! `rgpu runs`: lists, shows, resumes, cancels, exports and removes runs.

mod clean;
mod export;
mod host;
mod list;

use std::time::Instant;

use clap::{Args, Subcommand};

use super::app::{App, Status};
use super::profile;
use super::progress::LiveOutput;
use super::session::{self, OutputOptions};
use crate::error::{Exit, Result};
use crate::remote::{HostLink, JobMessage, OnRemote, RemoteError};
use crate::store::{Cost, RunFolder, RunRecord, RunState, Runs};
use rgpu_protocol::EventBody;
use rgpu_protocol::plan::{Limits, PULLED};

pub(super) use clean::{CleanResult, prune};
pub(super) use export::ExportResult;
pub(super) use host::JobList;
pub(super) use list::RunList;

/// List, show, take up, cancel and clean runs
///
/// RUN is an id, a unique prefix, `latest`, `latest~1`, or a run folder's path.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum RunsCommand {
    /// List the runs of this project, or the jobs on a remote
    List(ListArgs),
    /// Show a run's result
    Show(RunArg),
    /// Take up a run whose command went away, and end as it would have
    Attach(AttachArgs),
    /// Stop a run on its host
    Cancel(CancelArgs),
    /// Keep a note with a run; an empty one takes it away
    Note(NoteArgs),
    /// Write a run into one archive, to be passed on
    Export(export::ExportArgs),
    /// Remove ended runs but the newest ones, or jobs of a remote
    Clean(clean::CleanArgs),
}

/// `runs list`.
#[derive(Args, Clone, Debug)]
pub(super) struct ListArgs {
    /// Ask this remote what runs there and since when, and what waits to be fetched
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Show this many
    #[arg(long, short = 'n', default_value_t = 20)]
    pub count: usize,
}

/// A run.
#[derive(Args, Clone, Debug)]
pub(super) struct RunArg {
    /// The run
    #[arg(default_value = "latest")]
    pub run: String,
}

/// `runs attach`.
#[derive(Args, Clone, Debug)]
pub(super) struct AttachArgs {
    /// The run; with --remote the name of a job as `runs list --remote` shows it
    #[arg(default_value = "latest")]
    pub run: String,

    /// Take up a job of this remote whose run folder is not here
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Take it up without a question, whatever command its record or the host says it came from
    #[arg(long)]
    pub yes: bool,

    /// Write everything the run says as JSON lines
    #[arg(long, value_name = "FILE|-")]
    pub events: Option<String>,
}

/// `runs cancel`.
#[derive(Args, Clone, Debug)]
pub(super) struct CancelArgs {
    /// The run; with --remote the name of a job as `runs list --remote` shows it
    #[arg(default_value = "latest")]
    pub run: String,

    /// Stop a job of this remote whose run folder is not here
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,
}

/// `runs note`.
#[derive(Args, Clone, Debug)]
pub(super) struct NoteArgs {
    /// The run
    pub run: String,

    /// The note
    pub text: String,
}

/// Runs a `runs` command.
pub(super) fn run(app: &App, command: &RunsCommand) -> Result<Status> {
    let runs = Runs::new(&app.config.runs_dir.value);
    match command {
        RunsCommand::List(args) => match &args.remote {
            Some(remote) => host::list(app, &runs, remote, args.count),
            None => list::list(app, &runs, args.count),
        },
        RunsCommand::Show(arg) => show(app, &runs.find(&arg.run)?),
        RunsCommand::Attach(args) => attach(app, &runs, args),
        RunsCommand::Cancel(args) => match &args.remote {
            Some(remote) => host::cancel(app, &runs, remote, &args.run),
            None => cancel(app, &runs.find(&args.run)?),
        },
        RunsCommand::Note(args) => note(app, &runs.find(&args.run)?, &args.text),
        RunsCommand::Export(args) => export::export(app, &runs.find(&args.run)?, args),
        RunsCommand::Clean(args) => match &args.remote {
            Some(remote) => host::clean(app, &runs, remote, args),
            None => clean::clean(app, &runs, args),
        },
    }
}

fn attach(app: &App, runs: &Runs, args: &AttachArgs) -> Result<Status> {
    let Some(remote) = &args.remote else {
        return super::attach::run(app, &runs.find(&args.run)?, args.events.as_deref(), args.yes);
    };
    let folder = host::folder_of(app, runs, remote, args)?;
    super::attach::run(app, &folder, args.events.as_deref(), args.yes)
}

fn outcome_word(outcome: &rgpu_protocol::Outcome) -> &'static str {
    use rgpu_protocol::Outcome::{
        Cancelled, Done, Failed, HostError, LeaseExpired, NoGpu, QueueTimeout, Unknown,
    };
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
            note => format!("  note        {}\n", super::terminal::safe(note.as_bytes())),
        };
        format!("{note}  run         {}\n", folder.path().display())
    };
    if folder.path().join("profile.json").is_file() {
        let opened = super::report::saved(folder)?;
        let id = if app.global.json { "json" } else { "table" };
        if let Some(report) = crate::report::report(id) {
            app.print(&report.text(&opened.subject(), &app.style()));
        }
        if !app.global.json {
            app.print(&format!("{}{}", failure_text(folder, &record), place()));
        }
        return Ok(0);
    }
    if let Some(fan_out) = super::profile::several_remotes::kept(folder)? {
        super::profile::several_remotes::shown(app, &fan_out)?;
        if !app.global.json {
            app.print(&place());
        }
        return Ok(0);
    }
    if let Some(comparison) = super::compare::kept(folder)? {
        super::compare::show(app, &comparison)?;
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
        "{}\n  what        {}\n  remote      {} ({})\n  started     {}\n  state       {}{}\n{cost}{}{}",
        record.id,
        record.title,
        record.remote,
        record.address,
        crate::report::moment(&record.started),
        match has_no_answer(&record) {
            true => last_seen(folder, &record),
            false => state_text(&record),
        },
        record
            .program_exit
            .map(|n| format!(", the program ended with status {n}"))
            .unwrap_or_default(),
        failure_text(folder, &record),
        place(),
    ));
    if matches!(record.state, RunState::Running | RunState::Detached) {
        app.say(&match folder.followed_by() {
            Some(who) => format!("{who} follows it"),
            None => format!("take it up with `rgpu runs attach {}`", record.id),
        });
    }
    if record.state == RunState::NeverSubmitted && folder.failure().is_none() {
        app.say(&again(&record));
    }
    Ok(0)
}

/// The hint on how to run a run's command again.
pub(super) fn again(record: &RunRecord) -> String {
    let words = record.argv.iter().skip(1).map(String::as_str);
    let id = match words.clone().any(|word| word.starts_with("--run-id")) {
        true => ", under another `--run-id`",
        false => "",
    };
    let words = shlex::try_join(words).unwrap_or_default();
    format!(
        "run its command again{id}: {}",
        super::terminal::safe(format!("rgpu {words}").as_bytes())
    )
}

/// The cost of a run and its source. `None` if it is unknown.
fn cost_text(cost: &Cost) -> Option<String> {
    Some(crate::report::cost(cost.cost_usd?, cost.source().as_deref()))
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

/// When such a run was last heard of, and when its remote did not answer.
fn last_seen(folder: &RunFolder, record: &RunRecord) -> String {
    let written = |name: &str| {
        let time = std::fs::metadata(folder.path().join(name)).ok()?.modified().ok()?;
        let time = jiff::Timestamp::try_from(time).ok()?;
        Some(crate::report::moment(&time.to_string()))
    };
    let seen = written("events.jsonl").unwrap_or_else(|| crate::report::moment(&record.started));
    let asked = written("error.json").map(|at| format!(" at {at}")).unwrap_or_default();
    format!("not known: last seen {seen}; `{}` did not answer{asked}", record.remote)
}

/// The failure that a run's command ended with; empty if it did not fail.
fn failure_text(folder: &RunFolder, record: &RunRecord) -> String {
    if !matches!(record.state, RunState::Failed | RunState::Running | RunState::NeverSubmitted) {
        return String::new();
    }
    let Some(document) = folder.failure() else { return String::new() };
    let text = super::terminal::safe(document.error.to_string().as_bytes());
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

/// Cancels a run, or each of several joined runs.
fn cancel(app: &App, folder: &RunFolder) -> Result<Status> {
    let mut record = folder.record()?;
    if record.is_several() {
        for own in profile::several_remotes::each(app, folder, &record)? {
            stop(app, &own)?;
        }
        if matches!(record.state, RunState::Running | RunState::Detached) {
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

/// A stopped job.
struct StoppedJob {
    outcome: Option<rgpu_protocol::Outcome>,
    /// Whether it has files for `--pull`.
    has_pulled_files: bool,
    /// Whether the host does not know it.
    is_missing: bool,
}

/// Stops a job and waits for its end. A missing job counts as stopped.
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
    while let Some(message) = link.next().await.on(link.remote())? {
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
    if record.state == RunState::NeverSubmitted {
        app.say(&format!("`{}` was never submitted: nothing of it runs", record.id));
        return Ok(record);
    }
    let Some(job) = record
        .jobs
        .iter()
        .rev()
        .find(|j| j.outcome.is_none())
        .map(|j| (j.job.clone(), j.remote.clone()))
    else {
        app.say(&format!("`{}` has ended already", record.id));
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
    };
    let StoppedJob { outcome, has_pulled_files, is_missing } = app.block_on(async {
        let open = session::open(app, spec, output_options).await?;
        open.finish_with(async |link| stop_job(link, &job).await).await
    })?;
    // A command that follows the run records the end itself.
    let own = folder.clone().follow();
    let is_unfollowed = own.is_ok();
    if let Ok(own) = &own {
        record = own.record()?;
    }
    if let Some(line) = record.jobs.iter_mut().find(|j| j.job == job && j.outcome.is_none()) {
        line.outcome.clone_from(&outcome);
        record.state = RunState::Cancelled;
        record.exit = Some(Exit::Cancelled as u8);
        if let Ok(own) = own {
            own.save(&record)?;
        }
    }
    let text = outcome.as_ref().map_or("ended", outcome_word);
    app.say(&match is_missing {
        true => format!("nothing of `{id}` is on `{remote}`: it never came there, or was removed"),
        false => format!(
            "`{id}` is stopped on `{remote}`: {text} ({:.1} s)",
            started_at.elapsed().as_secs_f64()
        ),
    });
    // A command that follows the run fetches the files itself.
    if has_pulled_files && is_unfollowed {
        app.say(&format!("`rgpu runs attach {id}` brings what it had made for `--pull`"));
    }
    Ok(record)
}
