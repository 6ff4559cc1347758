//! Which runs this machine has started. A run folder may come with a cloned project, and resuming a
//! run continues with the command line in its record: that may send more plans, with files of this
//! machine. So the record of a run that was not started here needs the user's consent.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use rgpu_protocol::Digest;

use super::app::App;
use super::terminal::escape_controls;
use crate::bundle::quoted;
use crate::error::{Exit, Failure, Result};
use crate::store::RunRecord;

/// The file with a line for each run.
fn file(app: &App) -> PathBuf {
    app.cache.join("started")
}

/// The line of a run: another command line or another remote is another run.
fn line(record: &RunRecord) -> String {
    let parts = serde_json::to_vec(&(&record.id, &record.remote, &record.argv));
    Digest::of(&parts.unwrap_or_default()).as_str().to_owned()
}

/// Remembers that the run was started here, or that the user agreed to it.
pub(in crate::cli) fn remember(app: &App, record: &RunRecord) {
    // If it cannot be written, the user is asked when the run is resumed.
    let _ = fs::create_dir_all(&app.cache);
    let _ = File::options()
        .append(true)
        .create(true)
        .open(file(app))
        .and_then(|mut file| file.write_all(format!("{}\n", line(record)).as_bytes()));
}

/// Whether the run was started here, or the user agreed to it.
pub(in crate::cli) fn is_known(app: &App, record: &RunRecord) -> bool {
    let (text, line) = (fs::read_to_string(file(app)).unwrap_or_default(), line(record));
    text.lines().any(|known| known == line)
}

/// Refuses a run that was not started here, unless the user agreed (`--yes`).
///
/// # Errors
/// It was not started here.
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
