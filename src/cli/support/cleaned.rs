//! The consent and the document of commands that remove what nobody needs any more.

use schemars::JsonSchema;
use serde::Serialize;

use super::app::App;
use rgpu_model::error::{Exit, Failure, Result};

/// Makes sure that `amount` of something may be removed: by `--yes` or by the user's answer.
pub(in crate::cli) fn require_consent(
    app: &App,
    yes: bool,
    amount: &str,
    question: &str,
) -> Result<()> {
    if yes || app.agrees(question) {
        return Ok(());
    }
    let message = format!("{amount} would be removed, and nothing is removed without a yes");
    Err(Failure::new(Exit::Usage, "not_confirmed", message)
        .hint("`--dry-run` lists them; `--yes` removes them without asking"))
}

/// The output of `runs clean --json` and `cache clean --json` (`rgpu.cleaned/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct CleanResult {
    /// Name and version of this schema: `rgpu.cleaned/1`.
    schema: &'static str,
    /// Whether this was a dry run, which removes nothing.
    dry_run: bool,
    /// The ids of the removed runs, the names of the removed jobs, or the removed parts of the
    /// cache.
    removed: Vec<String>,
    /// The bytes that were freed.
    bytes: u64,
    /// How many stay: runs with a note and jobs whose results were not fetched, which `--all`
    /// removes, runs whose folders rgpu has not made here, and parts of the cache that are in use.
    kept: usize,
}

impl CleanResult {
    /// The document for removed things given as `(id, bytes)`.
    pub(in crate::cli) fn new(dry_run: bool, gone: Vec<(String, u64)>, kept: usize) -> Self {
        let bytes = gone.iter().map(|(_, bytes)| bytes).sum();
        let removed = gone.into_iter().map(|(id, _)| id).collect();
        Self { schema: "rgpu.cleaned/1", dry_run, removed, bytes, kept }
    }
}
