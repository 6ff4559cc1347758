//! `--html`: the page of a prediction.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::support::app::App;
use crate::cli::support::overwrite;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::prediction::{self, Side};
use rgpu_run::store::atomic;

/// Arguments of commands that can write a page.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct PageArgs {
    /// Write a page with plots to this file, instead of the text
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Overwrite a file that was not written by rgpu
    #[arg(long, requires = "html")]
    pub force: bool,
}

/// A document as a side of a page.
pub(super) fn side(name: &str, document: &impl Serialize) -> Result<Side> {
    let document = serde_json::to_value(document).map_err(|error| {
        Failure::new(Exit::Bug, "unwritten", "the prediction is not JSON").cause(error)
    })?;
    Ok(Side { name: name.to_owned(), document })
}

/// Writes the page that was asked for, and prints its path. Returns whether one was asked for.
pub(super) fn write(
    app: &App,
    args: &PageArgs,
    title: &str,
    place: &str,
    sides: &[Side],
) -> Result<bool> {
    let Some(path) = &args.html else { return Ok(false) };
    let page = prediction::page(title, place, sides);
    if !args.force {
        overwrite::check(path, page.as_bytes()).map_err(|_| {
            Failure::new(Exit::Usage, "foreign_file", "the existing file is not a page of rgpu")
                .file(path.display())
                .hint("write to another path, or overwrite the file with `--force`")
        })?;
    }
    atomic::write(path, page.as_bytes()).map_err(|error| {
        Failure::new(Exit::Disk, "disk", "cannot write").file(path.display()).cause(error)
    })?;
    if app.global.json {
        app.print_note(&format!("wrote {}", path.display()))
    } else {
        app.print(&format!("{}\n", path.display()))
    }
    Ok(true)
}
