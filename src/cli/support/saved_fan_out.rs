//! Reads and shows the joined result of several runs in a run folder.

use std::path::Path;

use super::app::{App, Status};
use super::terminal::escape_but_own_colors;
use rgpu_model::FanOut;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::remotes_table::{markdown, table};
use rgpu_run::store::{RunFolder, RunRecord, remote_suffix};

/// The file with the joined result.
pub(in crate::cli) const FAN_OUT_FILE: &str = "fan-out.json";

/// Prints the table, or the document with `--json`.
pub(in crate::cli) fn show(app: &App, fan_out: &FanOut) -> Result<()> {
    if app.global.json {
        return app.print_json(fan_out);
    }
    app.print(&escape_but_own_colors(table(fan_out, &app.style()).as_bytes()));
    Ok(())
}

/// The joined result in a run folder. `None` if the folder is of a single run.
pub(in crate::cli) fn in_folder(folder: &RunFolder) -> Result<Option<FanOut>> {
    if !folder.path().join(FAN_OUT_FILE).is_file() {
        return Ok(None);
    }
    rgpu_run::saved_json::from_slice(&folder.read(FAN_OUT_FILE)?).map(Some).map_err(|e| {
        Failure::new(Exit::Artifact, "bad_fan_out", "the runs' common document cannot be read")
            .file(folder.path().join(FAN_OUT_FILE).display())
            .cause(e)
    })
}

/// The same for a run that the user named.
pub(in crate::cli) fn find(app: &App, what: &str) -> Result<Option<FanOut>> {
    if Path::new(what).is_file() {
        return Ok(None);
    }
    match app.runs().find_result(what) {
        Ok(folder) => in_folder(&folder),
        // The code that opens profiles reports a wrong name.
        Err(_) => Ok(None),
    }
}

/// Shows it in the format of `rgpu report --format`.
pub(in crate::cli) fn show_as(
    app: &App,
    fan_out: &FanOut,
    what: &str,
    format: Option<&str>,
) -> Result<Status> {
    match format {
        None => show(app, fan_out)?,
        Some("table") => app.print(&escape_but_own_colors(table(fan_out, &app.style()).as_bytes())),
        Some("json") => app.print_json(fan_out)?,
        Some("markdown") => app.print(&markdown(fan_out)),
        Some(other) => {
            let text =
                format!("`{what}` is a fan-out of several runs, which has no format `{other}`");
            let failure = Failure::new(Exit::Artifact, "nothing_to_show", text)
                .hint("it has table, json and markdown; each of its runs has all:");
            let runs = fan_out.remotes.iter().filter_map(|row| row.run.as_ref());
            return Err(runs.fold(failure, |failure, run| {
                failure.hint(format!("rgpu report {run} --format {other}"))
            }));
        }
    }
    Ok(0)
}

/// The folders of the single runs, in the order of their remotes.
pub(in crate::cli) fn run_folders(
    app: &App,
    folder: &RunFolder,
    record: &RunRecord,
) -> Result<Vec<RunFolder>> {
    let of = |name: &&str| {
        let inner = folder.path().join(remote_suffix(name));
        if inner.is_dir() { RunFolder::open(&inner) } else { app.runs().find(&record.id_on(name)) }
    };
    Ok(remote_names(&record.remote)?.iter().map(of).collect::<Result<_, _>>()?)
}

/// The remotes in the list.
pub(in crate::cli) fn remote_names(remotes: &str) -> Result<Vec<&str>> {
    let names: Vec<&str> = remotes.split(',').map(str::trim).collect();
    let usage_error = |what: String| Failure::new(Exit::Usage, "usage", what);
    if names.iter().any(|name| name.is_empty()) {
        return Err(usage_error(format!("`--remote {remotes}` has an empty name in its list"))
            .hint("write the remotes with commas and nothing else between them: a,b,c"));
    }
    for (at, name) in names.iter().enumerate() {
        if names[..at].contains(name) {
            return Err(usage_error(format!("`--remote {remotes}` has `{name}` twice"))
                .hint("two runs on one GPU would only wait for each other"));
        }
    }
    Ok(names)
}
