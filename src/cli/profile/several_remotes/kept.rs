//! Reads and shows the joined result of several runs in a run folder.

use std::path::Path;

use crate::cli::support::app::{App, Status};
use crate::cli::support::terminal::safe;
use crate::error::{Exit, Failure, Result};
use crate::model::FanOut;
use crate::report::remotes_table::{markdown, table};
use crate::store::{RunFolder, Runs};

/// The file with the joined result.
pub(super) const FAN_OUT_FILE: &str = "fan-out.json";

/// Prints the table, or the document with `--json`.
pub(in crate::cli) fn show(app: &App, fan_out: &FanOut) -> Result<()> {
    if app.global.json {
        return app.print_json(fan_out);
    }
    app.print(&safe(table(fan_out, &app.style()).as_bytes()));
    Ok(())
}

/// The joined result in a run folder. `None` if the folder is of a single run.
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

/// The same for a run that the user named.
pub(in crate::cli) fn kept_by(app: &App, what: &str) -> Result<Option<FanOut>> {
    if Path::new(what).is_file() {
        return Ok(None);
    }
    match Runs::new(&app.config.runs_dir.value).find(what) {
        Ok(folder) => kept(&folder),
        // The code that opens profiles reports a wrong name.
        Err(_) => Ok(None),
    }
}

/// Shows it in the format of `rgpu report --format`.
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
