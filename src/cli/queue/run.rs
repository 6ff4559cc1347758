//! `rgpu queue run`: starts the entries of the project's queue, here or in the background, and
//! prints what happens to them.

use std::time::Duration;

use clap::Args;

use super::list::line;
use crate::cli::support::app::{App, Status};
use crate::cli::support::entry_text::seconds_text;
use crate::cli::support::signals;
use rgpu_model::duration::duration;
use rgpu_model::error::{Exit, Result};
use rgpu_run::run::channel;
use rgpu_work::queue::{QueueDocument, Runner, RunnerEvent, RunnerOptions, detach};

/// Run the entries and wait for more; only one process can run the queue
///
/// Ctrl-C starts no more entries and waits for the running ones. A second Ctrl-C leaves them
/// running: the next `rgpu queue run` finds them. Either exits with 130; entries that failed do not
/// change the status.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct RunArgs {
    /// End when no entry waits or runs
    #[arg(long)]
    pub once: bool,

    /// Run in the background, with messages in .rgpu/runner.log
    #[arg(long)]
    pub detach: bool,

    /// Report a running entry that has had no output for this long
    #[arg(
        long,
        alias = "stall",
        value_name = "TIME",
        value_parser = duration,
        default_value = "10m"
    )]
    pub hang: Duration,

    /// This process was started by `--detach`
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub detached: bool,
}

pub(super) fn run(app: &App, args: &RunArgs) -> Result<Status> {
    if args.detached {
        // The terminal's Ctrl-C and its end are not for this process.
        let _ = rustix::process::setsid();
    }
    let queue = super::open(app)?;
    if args.detach {
        let hang = format!("{}s", args.hang.as_secs_f64());
        let mut arguments = vec!["queue", "run", "--detached", "--hang", &hang];
        if args.once {
            arguments.push("--once");
        }
        let pid = detach(&queue, &arguments)?;
        if app.global.json {
            app.print_json(&QueueDocument::for_entries(&queue, Vec::new())?)?;
        } else {
            app.print_note(&format!(
                "process {pid} runs the queue; its messages are in .rgpu/runner.log"
            ));
        }
        return Ok(0);
    }
    if queue.is_paused()? {
        app.print_note("the queue is paused: `rgpu queue resume` continues it");
    }
    let mut runner = Runner::start(queue)?;
    let (canceller, stop) = channel();
    signals::listen(canceller)?;
    let options = RunnerOptions { once: args.once, silent_after: args.hang };
    let mut ended = Vec::new();
    let is_stopped = app.block_on(async {
        let result = runner.run(options, stop, |event| {
            if let RunnerEvent::Ended(entry) = &event
                && !entry.state.is_active()
            {
                ended.push(entry.id);
            }
            match &event {
                RunnerEvent::NotLogged { .. } | RunnerEvent::DiskFull { .. } => {
                    app.print_error(&text(&event, args.detached));
                }
                _ => app.print_note(&text(&event, args.detached)),
            }
        });
        Ok(result.await?)
    })?;
    drop(runner);
    if app.global.json {
        let queue = super::open(app)?;
        let mut entries = queue.entries()?;
        entries.retain(|entry| ended.contains(&entry.id));
        app.print_json(&QueueDocument::for_entries(&queue, entries)?)?;
    }
    Ok(if is_stopped { Exit::Cancelled as u8 } else { 0 })
}

/// What is told of an event; Ctrl-C does not reach a detached runner.
fn text(event: &RunnerEvent, is_detached: bool) -> String {
    match event {
        RunnerEvent::Started { entry, attempt: 1 } => format!("{entry} starts"),
        RunnerEvent::Started { entry, attempt } => format!("{entry} starts, attempt {attempt}"),
        RunnerEvent::Found { entry, .. } => format!("{entry} still runs; it is followed"),
        RunnerEvent::Ended(entry) => line(entry),
        RunnerEvent::Silent { entry, silent } => {
            let silent = seconds_text(silent.as_secs_f64());
            format!("{entry} has had no output for {silent}; `rgpu queue cancel {entry}` ends it")
        }
        RunnerEvent::NotStarted { entry } => {
            format!("{entry} could not be started; the next try is in 5 s")
        }
        RunnerEvent::NotLogged { why } => format!("`queue.log` misses a line: {why}"),
        RunnerEvent::DiskFull { entry } => {
            format!("the state of entry {entry} cannot be recorded: the disk is full")
        }
        RunnerEvent::Left { entries } => {
            let ids: Vec<String> = entries.iter().map(i64::to_string).collect();
            format!("still running: {}; the next `rgpu queue run` finds them", ids.join(", "))
        }
        RunnerEvent::LeftToUser { entries } => {
            let ids: Vec<String> = entries.iter().map(i64::to_string).collect();
            format!(
                "not started, since an agent's runner starts rgpu's own commands only: {}; your \
                 user can type `rgpu queue run`",
                ids.join(", ")
            )
        }
        RunnerEvent::Waiting if is_detached => "waiting for entries".to_owned(),
        RunnerEvent::Waiting => "waiting for entries; Ctrl-C ends the runner, and `rgpu queue run --once` ends when the queue is empty".to_owned(),
        RunnerEvent::Stopping { running: 0 } => "stopping".to_owned(),
        RunnerEvent::Stopping { running } => {
            format!("stopping; {running} still running (Ctrl-C again leaves them running)")
        }
    }
}
