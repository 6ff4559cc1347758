//! `rgpu runs clean`, and the automatic removal by the setting `keep`.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::support::app::{App, Status};
use crate::config::{Origin, is_below};
use crate::error::Result;
use crate::number_form::counted;
use crate::report::bytes;
use crate::store::Runs;

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

    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The output of `runs clean --json` (`rgpu.cleaned/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct CleanResult {
    /// Name and version of this schema: `rgpu.cleaned/1`.
    schema: &'static str,
    /// Whether this was a dry run, which removes nothing.
    dry_run: bool,
    /// The ids of the removed runs; with `--remote`, the names of the removed jobs.
    removed: Vec<String>,
    /// The bytes that were freed.
    bytes: u64,
    /// How many more `--all` would remove: runs with a note, and jobs whose results were not
    /// fetched.
    kept: usize,
}

impl CleanResult {
    /// The document for removed things given as `(id, bytes)`.
    pub(super) fn new(args: &CleanArgs, gone: Vec<(String, u64)>, kept: usize) -> Self {
        let bytes = gone.iter().map(|(_, bytes)| bytes).sum();
        let removed = gone.into_iter().map(|(id, _)| id).collect();
        Self { schema: "rgpu.cleaned/1", dry_run: args.dry_run, removed, bytes, kept }
    }
}

/// Removes ended runs except the newest.
pub(super) fn clean(app: &App, runs: &Runs, args: &CleanArgs) -> Result<Status> {
    let (old, noted): (Vec<_>, Vec<_>) = runs
        .ended_runs_to_prune(args.keep)?
        .into_iter()
        .partition(|line| args.all || line.record.note.is_empty());
    if !args.dry_run {
        runs.remove(&old)?;
    }
    let total: u64 = old.iter().map(|l| l.bytes).sum();
    if app.global.json {
        let gone = old.into_iter().map(|line| (line.record.id, line.bytes)).collect();
        app.print_json(&CleanResult::new(args, gone, noted.len()))?;
        return Ok(0);
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    for line in &old {
        app.print(&format!("{verb} {}  {}\n", line.record.id, bytes(line.bytes as f64)));
    }
    app.print_note(&format!(
        "{verb} {}, {}",
        counted(old.len(), "run", "runs"),
        bytes(total as f64)
    ));
    if !noted.is_empty() {
        app.print_note(&format!("{} with a note stay; `--all` removes them too", noted.len()));
    }
    Ok(0)
}

/// Removes the oldest ended runs without a note beyond the setting `keep`, if it is set. Errors do
/// not fail the command.
pub(in crate::cli) fn prune(app: &App) {
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
