//! What a run folder holds together of several runs, shown now and again.

use std::path::Path;

use crate::cli::app::{App, Status};
use crate::cli::terminal::safe;
use crate::error::{Exit, Failure, Result};
use crate::model::FanOut;
use crate::report::remotes_table::{markdown, table};
use crate::store::{RunFolder, Runs};

/// The file that holds them together.
pub(super) const FAN_OUT_FILE: &str = "fan-out.json";

/// Prints it: the table, or the document under `--json`.
pub(in crate::cli) fn show(app: &App, fan_out: &FanOut) -> Result<()> {
    if app.global.json {
        return app.print_json(fan_out);
    }
    app.print(&safe(table(fan_out, &app.style()).as_bytes()));
    Ok(())
}

/// What a run folder holds together, where it is one that does.
pub(in crate::cli) fn kept(folder: &RunFolder) -> Result<Option<FanOut>> {
    if !folder.path().join(FAN_OUT_FILE).is_file() {
        return Ok(None);
    }
    serde_json::from_slice(&folder.read(FAN_OUT_FILE)?).map(Some).map_err(|e| {
        Failure::new(Exit::Artifact, "bad_fan_out", "the runs' common document cannot be read")
            .file(folder.path().join(FAN_OUT_FILE).display())
            .cause(e)
    })
}

/// The same of the run that a user typed.
pub(in crate::cli) fn kept_by(app: &App, what: &str) -> Result<Option<FanOut>> {
    if Path::new(what).is_file() {
        return Ok(None);
    }
    match Runs::new(&app.config.runs_dir.value).find(what) {
        Ok(folder) => kept(&folder),
        // Whoever looks for a profile says what is wrong with the name.
        Err(_) => Ok(None),
    }
}

/// Shows it as `rgpu report --format` asks.
pub(in crate::cli) fn again(
    app: &App,
    fan_out: &FanOut,
    what: &str,
    format: Option<&str>,
) -> Result<Status> {
    match format {
        None => show(app, fan_out)?,
        Some("table") => app.print(&safe(table(fan_out, &app.style()).as_bytes())),
        Some("json") => app.print_json(fan_out)?,
        Some("markdown") => app.print(&markdown(fan_out)),
        Some(other) => {
            let text = format!("`{what}` is several runs together, which have no format `{other}`");
            let failure = Failure::new(Exit::Artifact, "nothing_to_show", text)
                .hint("together they have table, json and markdown; each of them has all:");
            let runs = fan_out.remotes.iter().filter_map(|row| row.run.as_ref());
            return Err(runs.fold(failure, |failure, run| {
                failure.hint(format!("rgpu report {run} --format {other}"))
            }));
        }
    }
    Ok(0)
}
