//! `rgpu loop clean`: removes old loops.

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::cli::support::app::{App, Status};
use rgpu_model::error::Result;

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct CleanArgs {
    /// Keep this many of the newest stopped loops
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub keep: usize,
}

/// The output of `rgpu loop clean --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(in crate::cli) struct PrunedDocument {
    /// Name and version of this schema: `rgpu.loop-pruned/1`.
    pub schema: &'static str,
    /// The ids of the removed loops, oldest first.
    pub removed: Vec<String>,
}

pub(super) fn clean(app: &App, args: &CleanArgs) -> Result<Status> {
    let mut loops = super::open_existing(app)?;
    let removed = loops.prune(args.keep)?;
    if app.global.json {
        app.print_json(&PrunedDocument { schema: "rgpu.loop-pruned/1", removed })?;
        return Ok(0);
    }
    removed.iter().for_each(|id| app.print(&format!("removed {id}\n")));
    let noun = if removed.len() == 1 { "loop" } else { "loops" };
    app.print_note(&format!("removed {} {noun}", removed.len()));
    Ok(0)
}
