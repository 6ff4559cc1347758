//! Reads the comparison that `rgpu compare` saved in a run folder (`compare.json`), and shows it.

use std::path::{Path, PathBuf};

use super::app::{App, Status};
use super::terminal::escape_but_own_colors;
use rgpu_model::Comparison;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::comparison::{markdown, table};
use rgpu_run::store::RunFolder;

/// The comparison in the run that the user named. `None` if the run is not one.
pub(in crate::cli) fn find(app: &App, what: &str) -> Result<Option<Comparison>> {
    if Path::new(what).is_file() {
        return Ok(None);
    }
    match app.runs().find_result(what) {
        Ok(folder) => in_folder(&folder),
        // The caller then opens a profile, which reports a wrong name.
        Err(_) => Ok(None),
    }
}

/// The folder of the run that the user named, if that run is a comparison.
pub(in crate::cli) fn folder_of(app: &App, what: &str) -> Result<Option<PathBuf>> {
    if find(app, what)?.is_none() {
        return Ok(None);
    }
    Ok(Some(app.runs().find_result(what)?.path().to_owned()))
}

/// The comparison saved in a run folder. `None` if there is none.
pub(in crate::cli) fn in_folder(folder: &RunFolder) -> Result<Option<Comparison>> {
    let path = folder.path().join("compare.json");
    if !path.is_file() {
        return Ok(None);
    }
    rgpu_run::saved_json::from_slice(&folder.read("compare.json")?).map(Some).map_err(|e| {
        Failure::new(Exit::Artifact, "bad_comparison", "the run's comparison cannot be read")
            .file(path.display())
            .cause(e)
    })
}

/// Shows it in the format of `rgpu report --format`.
pub(in crate::cli) fn show_as(
    app: &App,
    comparison: &Comparison,
    what: &str,
    format: Option<&str>,
) -> Result<Status> {
    match format {
        None => show(app, comparison)?,
        Some("table") => show_table(app, comparison),
        Some("json") => app.print_json(comparison)?,
        Some("markdown") => app.print(&markdown(comparison, app.style().names)),
        Some(other) => {
            let text = format!("`{what}` is a comparison, which has no format `{other}`");
            return Err(Failure::new(Exit::Artifact, "nothing_to_show", text)
                .hint("it has table, json, markdown and html")
                .hint("each side is its own run, in the folders `a` and `b`"));
        }
    }
    Ok(0)
}

/// Prints the table, or the document with `--json`.
pub(in crate::cli) fn show(app: &App, comparison: &Comparison) -> Result<()> {
    if app.global.json {
        return app.print_json(comparison);
    }
    show_table(app, comparison);
    Ok(())
}

/// Prints the table. Names of kernels and files are foreign text.
pub(in crate::cli) fn show_table(app: &App, comparison: &Comparison) {
    app.print(&escape_but_own_colors(table(comparison, &app.style()).as_bytes()));
}
