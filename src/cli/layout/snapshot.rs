//! `layout snapshot`: records the layouts of a kernel with what identifies each.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rgpu_layout::sm100::{MmaTile, bundle};
use rgpu_layout::{Identity, identity};
use schemars::JsonSchema;
use serde::Serialize;

use super::dump;
use super::input::{numbers, usage};
use super::named::{self, NamedLayout};
use super::output::save;
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_report::json;

/// `layout snapshot`.
///
/// Without an input, the layouts are those of our formulas for --tile and --shape.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct SnapshotArgs {
    /// A CuTe DSL kernel, whose layouts the DSL prints, or a dump of it
    #[arg(value_name = "KERNEL.py|DUMP.json")]
    pub input: Option<PathBuf>,

    #[command(flatten)]
    pub kernel: dump::KernelArgs,

    /// Write the snapshot into this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// Write it in this format
    #[arg(long, value_enum, default_value_t = SnapshotFormat::Json)]
    pub format: SnapshotFormat,

    /// Overwrite a file that is no snapshot
    #[arg(long, requires = "out")]
    pub force: bool,
}

/// The format of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum SnapshotFormat {
    /// For `layout diff`
    Json,
    /// A table to read
    Markdown,
}

/// A snapshot (`rgpu.layout-snapshot/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct LayoutSnapshot {
    /// Name and version of this schema: `rgpu.layout-snapshot/1`.
    schema: &'static str,
    /// Where the layouts come from: the file, or `formulas`.
    source: String,
    /// The layouts, each with what identifies it.
    layouts: Vec<SnapshotEntry>,
}

/// A layout with what identifies it.
#[derive(Serialize, JsonSchema)]
struct SnapshotEntry {
    #[serde(flatten)]
    layout: NamedLayout,
    /// The shape with its nesting.
    profile: String,
    /// The coalesced form with its swizzle.
    function: String,
}

pub(super) fn run(app: &App, args: &SnapshotArgs) -> Result<Status> {
    let (source, layouts) = match &args.input {
        None => ("formulas".to_owned(), formula_layouts(&args.kernel)?),
        Some(path) if path.extension().is_some_and(|extension| extension == "py") => {
            (path.display().to_string(), dump::layouts(app, path, &args.kernel)?)
        }
        Some(path) => (path.display().to_string(), named::read(path)?),
    };
    let snapshot = snapshot(source, layouts);
    let text = match args.format {
        SnapshotFormat::Json => json::pretty(&snapshot).map_err(|e| {
            Failure::new(Exit::Bug, "bug", "a snapshot cannot be written as JSON").cause(e)
        })?,
        SnapshotFormat::Markdown => markdown(&snapshot),
    };
    let Some(path) = &args.out else {
        app.print(&text);
        return Ok(0);
    };
    let path = save(path, &text, args.force)?;
    if app.global.json {
        app.print_json(&snapshot)?
    } else {
        app.print(&format!("{} layouts: {path}\n", snapshot.layouts.len()))
    }
    Ok(0)
}

/// The layouts of the formulas for a tile and a shape.
pub(super) fn formula_layouts(args: &dump::KernelArgs) -> Result<Vec<NamedLayout>> {
    let tile = args.tile.as_deref().unwrap_or(dump::DEFAULT_TILE);
    let [m, n, k] = numbers(tile, 'x', dump::DEFAULT_TILE)?;
    let tile = MmaTile::new(m, n, k, args.cta_group == 2, 16).map_err(usage)?;
    let shape = args.problem_shape()?;
    let load = args.load_columns(n)?;
    let layouts = bundle(tile, args.stages.unwrap_or(1), load, shape).map_err(usage)?;
    Ok(layouts
        .into_iter()
        .map(|(name, layout)| NamedLayout { name: name.to_owned(), layout })
        .collect())
}

fn snapshot(source: String, layouts: Vec<NamedLayout>) -> LayoutSnapshot {
    let entry = |layout: NamedLayout| {
        let Identity { profile, function, .. } = identity(&layout.layout);
        SnapshotEntry { layout, profile, function }
    };
    let layouts = layouts.into_iter().map(entry).collect();
    LayoutSnapshot { schema: "rgpu.layout-snapshot/1", source, layouts }
}

fn markdown(snapshot: &LayoutSnapshot) -> String {
    let mut text = format!("# Layouts of `{}`\n\n", snapshot.source);
    text += "| name | layout | as a function |\n|---|---|---|\n";
    for SnapshotEntry { layout, function, .. } in &snapshot.layouts {
        text += &format!("| {} | `{}` | `{function}` |\n", layout.name, layout.layout);
    }
    text
}
