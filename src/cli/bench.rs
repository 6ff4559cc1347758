//! `rgpu bench`: runs suites of kernels and programs, and reports what got slower.

mod args;
mod audit;
mod case_runner;
mod compare;
mod expect;
mod history;
mod list;
mod run;
mod saved;
mod suite_work;
mod sweep;

use clap::Args;

use super::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};

use args::BenchCommand;
#[cfg(test)]
pub(super) use list::TargetList;
pub(super) use sweep::run as sweep;

/// Run suites of kernels and programs, and report what got slower
///
/// A suite is bench.toml of the project; without one every kernel is a target. Each case is an
/// ordinary run with its own folder.
#[derive(Args, Clone, Debug)]
pub(super) struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,
}

/// Runs a `bench` command.
pub(super) fn run(app: &App, args: &BenchArgs) -> Result<Status> {
    match &args.command {
        Some(BenchCommand::List(args)) => list::run(app, args),
        Some(BenchCommand::Run(args)) => run::run(app, args),
        Some(BenchCommand::Resume(args)) => run::resume(app, args),
        Some(BenchCommand::Show(args)) => saved::show(app, args),
        Some(BenchCommand::Compare(args)) => compare::run(app, args),
        Some(BenchCommand::History(args)) => history::run(app, args),
        Some(BenchCommand::Audit(args)) => audit::run(app, args),
        None => Err(Failure::new(
            Exit::Usage,
            "usage",
            "`rgpu bench` runs suites: a command is missing",
        )
        .hint("one kernel alone: `rgpu profile --kernel NAME --mode bench`")
        .hint("the suite of this project: `rgpu bench run`; its targets: `rgpu bench list`")),
    }
}
