//! Reads and shows a comparison saved in a run folder.

use std::path::{Path, PathBuf};

use super::show;
use crate::cli::support::app::{App, Status};
use crate::error::{Exit, Failure, Result};
use crate::model::Comparison;
use crate::report::comparison::markdown;
use crate::store::{RunFolder, Runs};

/// The comparison in the run that the user named. `None` if the run is not one.
pub(in crate::cli) fn kept_by(app: &App, what: &str) -> Result<Option<Comparison>> {
    if Path::new(what).is_file() {
        return Ok(None);
    }
    match Runs::new(&app.config.runs_dir.value).find(what) {
        Ok(folder) => kept(&folder),
        // The code that opens profiles reports a wrong name.
        Err(_) => Ok(None),
    }
}

/// The folder of the run that the user named, if that run is a comparison.
pub(super) fn folder_of(app: &App, what: &str) -> Result<Option<PathBuf>> {
    if kept_by(app, what)?.is_none() {
        return Ok(None);
    }
    Ok(Some(Runs::new(&app.config.runs_dir.value).find(what)?.path().to_owned()))
}

/// The comparison saved in a run folder. `None` if there is none.
pub(in crate::cli) fn kept(folder: &RunFolder) -> Result<Option<Comparison>> {
    let path = folder.path().join("compare.json");
    if !path.is_file() {
        return Ok(None);
    }
    serde_json::from_slice(&folder.read("compare.json")?).map(Some).map_err(|e| {
        Failure::new(Exit::Artifact, "bad_comparison", "the run's comparison cannot be read")
            .file(path.display())
            .cause(e)
    })
}

/// Shows it in the format of `rgpu report --format`.
pub(in crate::cli) fn again(
    app: &App,
    comparison: &Comparison,
    what: &str,
    format: Option<&str>,
) -> Result<Status> {
    match format {
        None => show::result(app, comparison)?,
        Some("table") => show::table(app, comparison),
        Some("json") => app.print_json(comparison)?,
        Some("markdown") => app.print(&markdown(comparison)),
        Some(other) => {
            let text = format!("`{what}` is a comparison, which has no format `{other}`");
            return Err(Failure::new(Exit::Artifact, "nothing_to_show", text)
                .hint("it has table, json, markdown and html")
                .hint("each side is a run of its own, in the folders `a` and `b`"));
        }
    }
    Ok(0)
}
