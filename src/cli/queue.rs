//! `rgpu queue`: commands that wait for their turn on this machine.

mod add;
mod change;
mod list;
mod log;
mod run;
mod show;
mod top;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::support::app::{App, Status};
use rgpu_model::error::{Failure, Result};
use rgpu_work::queue::{AttemptCall, Queue, watch_attempt};

/// Queue commands and run them one after another
///
/// The queue belongs to the project and to this machine. Entries whose needs differ (`--gpu`,
/// `--remote`) run side by side. A host's own order for its GPUs, between all its users, is the GPU
/// lock; `rgpu profile --queue-timeout` is about that one.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum QueueCommand {
    /// Add a command or a script
    Add(Box<add::AddArgs>),
    /// Run the entries; only one process can run the queue
    #[command(after_long_help = examples!("rgpu queue run", "rgpu queue run --once"))]
    Run(run::RunArgs),
    /// List the entries
    #[command(alias = "ls", after_long_help = examples!("rgpu queue list", "rgpu queue list --json"))]
    List(list::ListArgs),
    /// Show an entry and what happened to it
    #[command(after_long_help = examples!("rgpu queue show 2"))]
    Show(show::ShowArgs),
    /// Print an entry's output
    #[command(after_long_help = examples!("rgpu queue log 2 --follow"))]
    Log(log::LogArgs),
    /// Wait until entries have ended; exit 1 if one did not end ok
    #[command(after_long_help = examples!("rgpu queue wait 2 3"))]
    Wait(change::WaitArgs),
    /// End entries: waiting ones at once, running ones with all their processes
    #[command(after_long_help = examples!("rgpu queue cancel 2"))]
    Cancel(change::CancelArgs),
    /// Put ended entries back
    #[command(after_long_help = examples!("rgpu queue requeue 2", "rgpu queue requeue --failed"))]
    Requeue(change::RequeueArgs),
    /// Start no more entries; running ones continue
    #[command(after_long_help = examples!("rgpu queue pause"))]
    Pause,
    /// Start entries again
    #[command(after_long_help = examples!("rgpu queue resume"))]
    Resume,
    /// Remove old entries with their logs
    #[command(
        alias = "prune",
        after_long_help = examples!("rgpu queue clean --keep 50 --dry-run")
    )]
    Clean(change::CleanArgs),
    /// Show the entries and print the list again after each change
    #[command(alias = "watch", after_long_help = examples!("rgpu queue top"))]
    Top(top::TopArgs),
    /// Watch one attempt (started by the runner)
    #[command(name = "__attempt", hide = true)]
    Attempt(AttemptArgs),
}

#[derive(Args, Clone, Debug)]
pub(super) struct AttemptArgs {
    project: PathBuf,
    own_ids: PathBuf,
    entry: i64,
    attempt: u32,
    runner: i64,
}

/// Runs a command that needs no settings, so that broken ones do not stop a queue; `None` for all
/// others.
pub(super) fn run_without_settings(command: &QueueCommand) -> Option<Result<Status>> {
    let QueueCommand::Attempt(args) = command else { return None };
    let AttemptArgs { project, own_ids, entry, attempt, runner } = args.clone();
    let call = AttemptCall { project, own_ids, entry, attempt, runner };
    Some(watch_attempt(&call).map(|()| 0).map_err(Into::into))
}

/// Runs a `queue` command.
pub(super) fn run(app: &App, command: &QueueCommand) -> Result<Status> {
    match command {
        QueueCommand::Add(args) => add::run(app, args),
        QueueCommand::Run(args) => run::run(app, args),
        QueueCommand::List(args) => list::run(app, args),
        QueueCommand::Show(args) => show::run(app, args),
        QueueCommand::Log(args) => log::run(app, args),
        QueueCommand::Wait(args) => change::wait(app, args),
        QueueCommand::Cancel(args) => change::cancel(app, args),
        QueueCommand::Requeue(args) => change::requeue(app, args),
        QueueCommand::Pause => change::set_paused(app, true),
        QueueCommand::Resume => change::set_paused(app, false),
        QueueCommand::Clean(args) => change::clean(app, args),
        QueueCommand::Top(args) => top::run(app, args),
        // `run_without_settings` has run it.
        QueueCommand::Attempt(_) => Ok(0),
    }
}

/// The project whose queue it is.
fn project(app: &App) -> &Path {
    &app.config.project
}

/// The queue of the project, which is created if there is none.
fn open(app: &App) -> Result<Queue> {
    Ok(Queue::open(project(app), &app.state_ids_file())?)
}

/// The queue of the project.
fn open_existing(app: &App) -> Result<Queue> {
    Queue::open_existing(project(app), &app.state_ids_file()).map_err(|error| {
        let failure = Failure::from(error);
        match queue_above(app).filter(|_| !has_queue(app)) {
            Some(above) => failure.hint(format!("`{}` has one", above.display())),
            None => failure,
        }
    })
}

/// Whether the project has a queue.
fn has_queue(app: &App) -> bool {
    Queue::exists_in(project(app))
}

/// The nearest folder above the project that has a queue, which the user may mean.
fn queue_above(app: &App) -> Option<&Path> {
    project(app).ancestors().skip(1).find(|folder| Queue::exists_in(folder))
}
