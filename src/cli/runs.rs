//! `rgpu runs`: what was run, what still runs, and taking it up again.

use std::time::Instant;

use clap::{Args, Subcommand};

use super::app::{App, Status};
use super::progress::Live;
use super::session::{self, Voice};
use crate::error::{Exit, Result};
use crate::remote::OnRemote;
use crate::report::{Align, Grid, bytes};
use crate::run::{Reporter, Said};
use crate::store::{RunFolder, RunState, Runs};

/// List, show, take up, cancel and clean runs
///
/// RUN is an id, a unique prefix, `latest`, `latest~1`, or a run folder's path.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum RunsCommand {
    /// List the runs of this project
    List(ListArgs),
    /// Show a run's result
    Show(RunArg),
    /// Take up a run whose command went away, and end as it would have
    Attach(AttachArgs),
    /// Stop a run on its host
    Cancel(RunArg),
    /// Remove ended runs but the newest ones
    Clean(CleanArgs),
}

/// `runs list`.
#[derive(Args, Clone, Debug)]
pub(super) struct ListArgs {
    /// Ask this remote what still runs or waits to be fetched there
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
    /// The run
    #[arg(default_value = "latest")]
    pub run: String,

    /// Write everything the run says as JSON lines
    #[arg(long, value_name = "FILE|-")]
    pub events: Option<String>,
}

/// `runs clean`.
#[derive(Args, Clone, Debug)]
pub(super) struct CleanArgs {
    /// Keep this many of the newest
    #[arg(long, default_value_t = 20)]
    pub keep: usize,

    /// Say what would be removed; remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Runs a `runs` command.
pub(super) fn run(app: &App, command: &RunsCommand) -> Result<Status> {
    let runs = Runs::new(&app.config.runs_dir.value);
    match command {
        RunsCommand::List(args) => match &args.remote {
            Some(remote) => list_remote(app, remote),
            None => list(app, &runs, args.count),
        },
        RunsCommand::Show(arg) => show(app, &runs.find(&arg.run)?),
        RunsCommand::Attach(args) => {
            super::attach::run(app, &runs.find(&args.run)?, args.events.as_deref())
        }
        RunsCommand::Cancel(arg) => cancel(app, &runs.find(&arg.run)?),
        RunsCommand::Clean(args) => clean(app, &runs, args),
    }
}

fn list(app: &App, runs: &Runs, count: usize) -> Result<Status> {
    let lines: Vec<_> = runs.list()?.into_iter().take(count).collect();
    if app.global.json {
        app.print_json(&lines.iter().map(|l| &l.record).collect::<Vec<_>>())?;
        return Ok(0);
    }
    if lines.is_empty() {
        app.say(&format!("no runs in {}", runs.root().display()));
        return Ok(0);
    }
    let mut grid = Grid::new(&[
        ("run", Align::Left),
        ("what", Align::Left),
        ("remote", Align::Left),
        ("state", Align::Left),
        ("time", Align::Right),
        ("size", Align::Right),
    ]);
    for line in lines {
        let r = line.record;
        let state = match (r.state, r.exit) {
            (RunState::Failed, Some(exit)) => format!("failed ({exit})"),
            (state, _) => state.as_str().to_owned(),
        };
        grid.row([
            r.id,
            r.title,
            r.remote,
            state,
            format!("{:.1} s", r.seconds),
            bytes(line.bytes as f64),
        ]);
    }
    app.print(&fitted(&grid, app.style().width));
    Ok(0)
}

/// A table where it fits, else what it holds line by line: names that are typed again stay whole.
fn fitted(grid: &Grid, width: usize) -> String {
    let table = grid.plain(usize::from(u16::MAX), 0);
    match table.lines().all(|line| line.chars().count() <= width) {
        true => table,
        false => grid.stacked(width),
    }
}

fn list_remote(app: &App, remote: &str) -> Result<Status> {
    let spec = session::spec(app, Some(remote))?;
    let voice = Voice { live: Live::Hidden, events: None, accept_new: false, run: "" };
    let jobs = app.block_on(async {
        let mut open = session::open(app, spec, voice).await?;
        let jobs = open.follow.jobs().await;
        open.reporter.say(&Said::Finished { exit: 0 });
        let jobs = jobs.on(open.follow.remote());
        open.follow.close().await;
        jobs
    })?;
    if app.global.json {
        app.print_json(&jobs)?;
        return Ok(0);
    }
    let mut grid = Grid::new(&[
        ("job", Align::Left),
        ("what", Align::Left),
        ("since", Align::Left),
        ("state", Align::Left),
        ("size", Align::Right),
    ]);
    for job in jobs {
        let safe = |text: &str| super::terminal::safe(text.as_bytes());
        let since = i64::try_from(job.started_ms)
            .ok()
            .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let state = match &job.ended {
            None if job.step.is_empty() => "running".to_owned(),
            None => format!("at step {}", safe(&job.step)),
            Some(outcome) => outcome_word(outcome).to_owned(),
        };
        grid.row([
            safe(&job.job),
            safe(&job.title),
            since.map(|t| t.strftime("%Y-%m-%d %H:%M:%SZ").to_string()).unwrap_or_default(),
            state,
            bytes(job.bytes as f64),
        ]);
    }
    if grid.is_empty() {
        app.say("no jobs of yours are there");
    }
    app.print(&fitted(&grid, app.style().width));
    Ok(0)
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
    let record = folder.record()?;
    if folder.path().join("profile.json").is_file() {
        let opened = super::report::saved(folder)?;
        let id = if app.global.json { "json" } else { "table" };
        if let Some(report) = crate::report::report(id) {
            app.print(&report.text(&opened.subject(), &app.style()));
        }
        if !app.global.json {
            app.print(&format!("  run         {}\n", folder.path().display()));
        }
        return Ok(0);
    }
    if let Some(comparison) = super::compare::kept(folder)? {
        super::compare::show(app, &comparison)?;
        if !app.global.json {
            app.print(&format!("  run         {}\n", folder.path().display()));
        }
        return Ok(0);
    }
    if app.global.json {
        app.print_json(&record)?;
        return Ok(0);
    }
    app.print(&format!(
        "{}\n  what        {}\n  remote      {} ({})\n  started     {}\n  state       {}{}\n  run         {}\n",
        record.id,
        record.title,
        record.remote,
        record.address,
        record.started,
        record.state.as_str(),
        record.program_exit.map(|n| format!(", the program ended with status {n}")).unwrap_or_default(),
        folder.path().display()
    ));
    if matches!(record.state, RunState::Running | RunState::Detached) {
        app.say(&format!("take it up with `rgpu runs attach {}`", record.id));
    }
    Ok(0)
}

fn cancel(app: &App, folder: &RunFolder) -> Result<Status> {
    let begun = Instant::now();
    let mut record = folder.record()?;
    let Some(job) = record
        .jobs
        .iter()
        .rev()
        .find(|j| j.outcome.is_none())
        .map(|j| (j.job.clone(), j.remote.clone()))
    else {
        app.say(&format!("`{}` has ended already", record.id));
        if app.global.json {
            app.print_json(&record)?;
        }
        return Ok(0);
    };
    let (job, remote) = job;
    let spec = session::spec(app, Some(&remote))?;
    let id = record.id.clone();
    let voice = Voice { live: Live::Hidden, events: None, accept_new: false, run: &id };
    let outcome = app.block_on(async {
        let mut open = session::open(app, spec, voice).await?;
        open.follow.attach(&job, 1, &[]).await.on(open.follow.remote())?;
        open.follow.cancel();
        let mut outcome = None;
        while let Some(message) = open.follow.next().await.on(open.follow.remote())? {
            if let crate::remote::JobMessage::Event(event) = message
                && let rgpu_protocol::EventBody::Ended { outcome: o } = event.body
            {
                outcome = Some(o);
            }
        }
        open.reporter.say(&Said::Finished { exit: 0 });
        open.follow.close().await;
        Ok(outcome)
    })?;
    let text = outcome.as_ref().map_or("ended", outcome_word);
    if let Some(line) = record.jobs.iter_mut().find(|j| j.job == job) {
        line.outcome.clone_from(&outcome);
    }
    record.state = RunState::Cancelled;
    record.exit = Some(Exit::Cancelled as u8);
    folder.save(&record)?;
    app.say(&format!(
        "`{id}` is stopped on `{remote}`: {text} ({:.1} s)",
        begun.elapsed().as_secs_f64()
    ));
    if app.global.json {
        app.print_json(&record)?;
    }
    Ok(0)
}

fn clean(app: &App, runs: &Runs, args: &CleanArgs) -> Result<Status> {
    let removed = if args.dry_run { runs.ended_beyond(args.keep)? } else { runs.clean(args.keep)? };
    let total: u64 = removed.iter().map(|l| l.bytes).sum();
    if app.global.json {
        app.print_json(&removed.iter().map(|l| &l.record.id).collect::<Vec<_>>())?;
        return Ok(0);
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    for line in &removed {
        app.print(&format!("{verb} {}  {}\n", line.record.id, bytes(line.bytes as f64)));
    }
    app.say(&format!("{verb} {} runs, {}", removed.len(), bytes(total as f64)));
    Ok(0)
}
