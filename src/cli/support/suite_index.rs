//! The index of suites, as the commands open it.

use schemars::JsonSchema;
use serde::Serialize;

use super::app::{App, Status};
use rgpu_model::error::Result;
use rgpu_work::suite::RunIndex;

/// The index of the project, which is created if there is none. `None` if it cannot be used: a
/// suite runs without it.
pub(in crate::cli) fn open(app: &App) -> Option<RunIndex> {
    match RunIndex::open(&app.config.project, &app.state_ids_file()) {
        Ok(index) => Some(index),
        Err(error) => {
            app.print_note(&format!("warning: there is no history: {error}"));
            None
        }
    }
}

/// The index of the project; `None` if there is none.
pub(in crate::cli) fn open_existing(app: &App) -> Result<Option<RunIndex>> {
    Ok(RunIndex::open_existing(&app.config.project, &app.state_ids_file())?)
}

/// The output of `runs reindex --json` (`rgpu.reindexed/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct ReindexResult {
    /// Name and version of this schema: `rgpu.reindexed/1`.
    schema: &'static str,
    /// Number of suites.
    suites: usize,
    /// Number of times.
    times: usize,
}

/// Makes the index again from the run folders.
pub(in crate::cli) fn reindex(app: &App) -> Result<Status> {
    let mut index = RunIndex::open(&app.config.project, &app.state_ids_file())?;
    let (suites, times) = index.rebuild(&app.runs())?;
    if app.global.json {
        app.print_json(&ReindexResult { schema: "rgpu.reindexed/1", suites, times })?
    } else {
        app.print(&format!("{suites} suites with {times} times\n"))
    }
    Ok(0)
}
