//! Which runs this machine has started. A run folder may come with a cloned project, and resuming a
//! run continues with the command line in its record: that may send more plans, with files of this
//! machine. So the record of a run that was not started here needs the user's consent.

use super::app::App;
use super::terminal::escape_controls;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::bundle::quoted;
use rgpu_run::store::{RunRecord, StartedRuns};

/// Remembers that the run was started here, or that the user agreed to it.
pub(in crate::cli) fn remember(app: &App, record: &RunRecord) {
    // If it cannot be written, the user is asked when the run is resumed.
    let _ = StartedRuns::in_cache(&app.cache).add(record);
}

/// Whether the run was started here, or the user agreed to it.
pub(in crate::cli) fn is_known(app: &App, record: &RunRecord) -> bool {
    StartedRuns::in_cache(&app.cache).has(record)
}

/// Refuses a run that was not started here, unless the user agreed (`--yes`).
pub(in crate::cli) fn check(app: &App, record: &RunRecord, agreed: bool) -> Result<()> {
    if is_known(app, record) {
        return Ok(());
    }
    if agreed {
        remember(app, record);
        return Ok(());
    }
    let argv = record.argv.get(1..).unwrap_or_default();
    let command = escape_controls(format!("rgpu {}", quoted(argv)).as_bytes());
    let message = format!("run `{}` was not started on this machine", record.id);
    Err(Failure::new(Exit::Config, "started_elsewhere", message)
        .hint(format!(
            "its record says that it continues as `{command}`, which may send more files"
        ))
        .hint(format!("if that is yours: `rgpu runs attach {} --yes`", record.id)))
}
