//! `rgpu runs clean`, and the automatic removal by the setting `keep`.

use clap::Args;

use super::super::support::app::{App, Status};
use super::super::support::cleaned::CleanResult;
use super::super::support::started_here;
use crate::config::{Origin, is_below};
use crate::error::{Exit, Failure, Result};
use crate::number_form::counted;
use crate::report::bytes;
use crate::store::Runs;

/// Runs of `exec` that left nothing but their output: this many of the newest stay.
const KEPT_WITHOUT_RESULTS: usize = 20;

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CleanArgs {
    /// Keep this many of the newest
    #[arg(long, default_value_t = 20, conflicts_with = "remote")]
    pub keep: usize,

    /// Remove jobs of this remote that ended and whose results were fetched here
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Remove runs with a note too; with --remote every ended job, even if its results were not
    /// fetched
    #[arg(long)]
    pub all: bool,

    /// Remove without asking
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,

    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Removes ended runs except the newest, after the user agreed.
pub(super) fn clean(app: &App, runs: &Runs, args: &CleanArgs) -> Result<Status> {
    let (old, noted): (Vec<_>, Vec<_>) = runs
        .ended_runs_to_prune(args.keep)?
        .into_iter()
        .partition(|line| args.all || line.record.note.is_empty());
    let total: u64 = old.iter().map(|l| l.bytes).sum();
    let amount = format!("{}, {}", counted(old.len(), "run", "runs"), bytes(total as f64));
    if !args.dry_run && !old.is_empty() {
        let question =
            format!("Remove {amount}, with all their results, and keep the newest {}?", args.keep);
        require_consent(app, args, &amount, &question)?;
        runs.remove(&old)?;
    }
    if app.global.json {
        let gone = old.into_iter().map(|line| (line.record.id, line.bytes)).collect();
        app.print_json(&CleanResult::new(args.dry_run, gone, noted.len()))?;
        return Ok(0);
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    // A dry run is for reading what would go; afterwards the sum is enough.
    for line in old.iter().filter(|_| args.dry_run) {
        app.print(&format!("{verb} {}  {}\n", line.record.id, bytes(line.bytes as f64)));
    }
    app.print_note(&format!("{verb} {amount}"));
    if !noted.is_empty() {
        app.print_note(&format!("{} with a note stay; `--all` removes them too", noted.len()));
    }
    Ok(0)
}

/// Makes sure that `amount` of runs or jobs may be removed: by `--yes` or by the user's answer.
pub(super) fn require_consent(
    app: &App,
    args: &CleanArgs,
    amount: &str,
    question: &str,
) -> Result<()> {
    if args.yes || app.agrees(question) {
        return Ok(());
    }
    let message = format!("{amount} would be removed, and nothing is removed without a yes");
    Err(Failure::new(Exit::Usage, "not_confirmed", message)
        .hint("`--dry-run` lists them; `--yes` removes them without asking"))
}

/// Removes ended runs after a command: those of `exec` without results beyond the newest, and by the
/// setting `keep`. Errors do not fail the command.
pub(in crate::cli) fn prune(app: &App) {
    prune_without_results(app);
    prune_by_setting(app);
}

/// Removes the oldest runs of `exec` that left nothing but their output. Only runs that this machine
/// has started: others came with the project.
fn prune_without_results(app: &App) {
    let runs = Runs::new(&app.config.runs_dir.value);
    if runs.count() <= KEPT_WITHOUT_RESULTS {
        return;
    }
    let mut bare = runs.ended_runs_without_results();
    bare.retain(|line| started_here::is_known(app, &line.record));
    let old = bare.get(KEPT_WITHOUT_RESULTS..).unwrap_or_default();
    if let Err(error) = runs.remove(old) {
        app.print_note(&format!("warning: old runs without results cannot be removed: {error}"));
    }
}

/// Removes the oldest ended runs without a note beyond the setting `keep`, if it is set.
fn prune_by_setting(app: &App) {
    let Some(keep) = app.config.keep.value else { return };
    // A cloned project may clean its own run folder and no other.
    let is_project_setting = matches!(&app.config.keep.origin, Origin::Project(_));
    if is_project_setting && !is_below(&app.config.runs_dir.value, &app.config.project) {
        return;
    }
    let runs = Runs::new(&app.config.runs_dir.value);
    if runs.count() <= keep {
        return;
    }
    let pruned = runs.ended_runs_to_prune(keep).and_then(|mut old| {
        old.retain(|line| line.record.note.is_empty());
        runs.remove(&old)
    });
    if let Err(error) = pruned {
        app.print_note(&format!("warning: old runs cannot be removed (`keep = {keep}`): {error}"));
    }
}
