//! `rgpu loop clean`: removes old loops.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::support::app::{App, Status};
use crate::cli::support::cleaned::require_consent;
use rgpu_model::error::Result;
use rgpu_model::number_form::counted;

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CleanArgs {
    /// Keep this many of the newest stopped loops
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub keep: usize,

    /// Remove without asking
    #[arg(long, conflicts_with = "dry_run")]
    pub yes: bool,

    /// Print what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The output of `rgpu loop clean --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct PrunedDocument {
    /// Name and version of this schema: `rgpu.loop-pruned/1`.
    pub schema: &'static str,
    /// The ids of the removed loops, oldest first; with `--dry-run`, of those that would be.
    pub removed: Vec<String>,
}

pub(super) fn clean(app: &App, args: &CleanArgs) -> Result<Status> {
    let mut loops = super::open_existing(app)?;
    let mut removed = loops.ids_to_prune(args.keep)?;
    if !args.dry_run && !removed.is_empty() {
        let amount = counted(removed.len(), "loop", "loops");
        let question = format!("Remove {amount}, with their files and commits?");
        require_consent(app, args.yes, &amount, &question)?;
        removed = loops.prune(args.keep)?;
    }
    if app.global.json {
        app.print_json(&PrunedDocument { schema: "rgpu.loop-pruned/1", removed })?;
        return Ok(0);
    }
    let verb = if args.dry_run { "would remove" } else { "removed" };
    removed.iter().for_each(|id| app.print(&format!("{verb} {id}\n")));
    app.print_note(&format!("{verb} {}", counted(removed.len(), "loop", "loops")));
    Ok(0)
}
