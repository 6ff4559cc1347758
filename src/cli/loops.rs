//! `rgpu loop`: improves a kernel by changes that a worker proposes and rgpu measures.

mod check;
mod clean;
mod settings;
mod show;
mod start;

#[cfg(test)]
pub(super) use check::{CheckDocument, ProgressDocument};
#[cfg(test)]
pub(super) use clean::PrunedDocument;

use clap::{Args, Subcommand};

use super::support::app::{App, Status};
use super::top;
use rgpu_model::error::{Exit, Result};
use rgpu_work::loops::{DocumentKind, LoopStatus, Loops, StopReason};

/// Improve a kernel in a loop: a worker proposes changes, rgpu measures them and keeps the faster
///
/// loop.toml names the kernel, the files that may change, the worker and the limits. rgpu verifies
/// and measures each change itself. It keeps one only if the results are right at all sizes and two
/// comparisons say FASTER. Everything else is taken back.
#[derive(Subcommand, Clone, Debug)]
pub(super) enum LoopCommand {
    /// Start a loop and run it until it stops
    #[command(after_long_help = examples!(
        "rgpu loop start loop.toml",
        "rgpu loop start loop.toml target=1.5 max_wall_time=1h30m",
    ))]
    Start(start::StartArgs),
    /// Show the state of a loop
    #[command(after_long_help = examples!("rgpu loop status"))]
    Status(LoopArgs),
    /// Show the loop in the terminal: `rgpu top loop`
    #[command(alias = "tui", after_long_help = examples!("rgpu loop top"))]
    Top(TopArgs),
    /// Ask a loop to stop; a second time without the last comparison
    #[command(alias = "stop", after_long_help = examples!("rgpu loop cancel"))]
    Cancel(LoopArgs),
    /// Resume a loop whose process ended; the interrupted phase starts again
    #[command(after_long_help = examples!("rgpu loop resume"))]
    Resume(LoopArgs),
    /// Show the best state: time, interval, commit, profile and code
    #[command(after_long_help = examples!("rgpu loop best --json"))]
    Best(LoopArgs),
    /// Show all iterations, and why each was kept or not
    #[command(after_long_help = examples!("rgpu loop report"))]
    Report(LoopArgs),
    /// Print the JSON Schema of a worker's result or a reviewer's verdict
    #[command(after_long_help = examples!("rgpu loop schema worker"))]
    Schema {
        /// Which file
        #[arg(value_enum)]
        kind: DocumentKind,
    },
    /// Check a worker's result or a reviewer's verdict; exit 7 if it is wrong
    #[command(after_long_help = examples!("rgpu loop validate result.json"))]
    Validate(check::ValidateArgs),
    /// Report an intermediate time (for workers)
    #[command(after_long_help = examples!("rgpu loop report-time --iter 3 --time-us 41.5"))]
    ReportTime(check::ReportTimeArgs),
    /// Remove loops that have stopped: their folders, commits and iterations
    #[command(alias = "prune", after_long_help = examples!("rgpu loop clean"))]
    Clean(clean::CleanArgs),
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct LoopArgs {
    /// The loop's id, or the beginning of it [default: the newest]
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct TopArgs {
    /// Start a loop with the arguments after `--`, those of `loop start`; it continues when the
    /// view ends
    #[arg(long, requires = "start")]
    pub run: bool,

    /// loop.toml and further arguments
    #[arg(last = true, value_name = "ARGS", requires = "run")]
    pub start: Vec<String>,
}

/// Runs a `loop` command.
pub(super) fn run(app: &App, command: &LoopCommand) -> Result<Status> {
    match command {
        LoopCommand::Top(args) => top::run_loop(app, &args.start),
        LoopCommand::Start(args) => start::start(app, args),
        LoopCommand::Status(args) => show::status(app, args),
        LoopCommand::Cancel(args) => start::stop(app, args),
        LoopCommand::Resume(args) => start::resume(app, args),
        LoopCommand::Best(args) => show::best(app, args),
        LoopCommand::Report(args) => show::report(app, args),
        LoopCommand::Schema { kind } => check::schema(app, *kind),
        LoopCommand::Validate(args) => check::validate(app, args),
        LoopCommand::ReportTime(args) => check::report_time(app, args),
        LoopCommand::Clean(args) => clean::clean(app, args),
    }
}

/// The loops of the project, which are created if there are none.
fn open(app: &App) -> Result<Loops> {
    Ok(Loops::open(&app.config.project, &app.state_ids_file())?)
}

/// The loops of the project.
fn open_existing(app: &App) -> Result<Loops> {
    Ok(Loops::open_existing(&app.config.project, &app.state_ids_file())?)
}

/// 0 if the loop reached its target, or had none and stopped well.
fn exit_status(status: &LoopStatus) -> Status {
    let reason = status.stop.as_ref().map(|stop| stop.reason);
    let is_bad = matches!(reason, Some(StopReason::InfraFailures | StopReason::StartRefused));
    if status.target.reached || (status.target.threshold.is_none() && !is_bad) {
        0
    } else {
        Exit::Findings as u8
    }
}
