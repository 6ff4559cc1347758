//! `layout diff`: compares two snapshots, and fails if a protected layout changed.

use std::path::PathBuf;

use clap::Args;
use rgpu_layout::{Level, SwizzledLayout, compare};
use schemars::JsonSchema;
use serde::Serialize;

use super::document::{LayoutResult, print};
use super::input::{LimitArgs, usage};
use super::named::{self, NamedLayout};
use crate::cli::support::app::{App, Status};
use rgpu_model::error::{Exit, Failure, Result, nearest};

/// `layout diff`.
///
/// The exit status is 1 if a protected layout changed at its level, or is gone.
#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct DiffArgs {
    /// The older snapshot or dump
    pub old: PathBuf,
    /// The newer snapshot or dump
    pub new: PathBuf,

    /// A layout that must not change; `all` are all. Levels: `function` (every offset), `profile`
    /// (also shape and nesting), `text` (everything) [default level: function]
    #[arg(long, value_name = "NAME[=LEVEL]")]
    pub protect: Vec<String>,

    #[command(flatten)]
    pub limit: LimitArgs,
}

/// The result of `layout diff`.
#[derive(Serialize, JsonSchema)]
pub(super) struct SnapshotDiff {
    /// Whether no protected layout changed.
    kept: bool,
    /// The layouts of both snapshots that are not the same text.
    changes: Vec<LayoutChange>,
}

/// A changed layout.
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct LayoutChange {
    /// The layout's name in the snapshots.
    name: String,
    /// The older layout. Absent if it is new.
    old: Option<SwizzledLayout>,
    /// The newer layout. Absent if it is gone.
    new: Option<SwizzledLayout>,
    /// The strongest level at which both are the same. Absent if even the functions differ.
    same: Option<Level>,
    /// The difference, in words.
    reason: String,
    /// The level at which it is protected.
    protected: Option<Level>,
    /// Whether it is protected and changed at that level.
    broken: bool,
}

pub(super) fn run(app: &App, args: &DiffArgs) -> Result<Status> {
    let (old, new) = (named::read(&args.old)?, named::read(&args.new)?);
    let protected = protections(args, &old, &new)?;
    let level = |name: &str| {
        let of_name = |(protected, _): &&(String, Level)| protected == name || protected == "all";
        protected.iter().filter(of_name).map(|(_, level)| *level).max()
    };
    let by_name = |layouts: &'_ [NamedLayout], name: &str| -> Option<SwizzledLayout> {
        layouts.iter().find(|layout| layout.name == name).map(|layout| layout.layout.clone())
    };
    let mut names: Vec<&str> = old.iter().map(|layout| layout.name.as_str()).collect();
    names.extend(new.iter().map(|layout| layout.name.as_str()));
    let mut changes: Vec<LayoutChange> = Vec::new();
    for name in names {
        if changes.iter().any(|change| change.name == name) {
            continue;
        }
        let (before, after) = (by_name(&old, name), by_name(&new, name));
        let protected = level(name);
        let (same, reason, broken) = match (&before, &after) {
            (Some(before), Some(after)) => {
                let limits = args.limit.limits();
                let change = compare(before, after, limits).map_err(|rejection| {
                    Failure::new(Exit::Findings, "undecided", format!("`{name}` is not compared"))
                        .cause(rejection.reason())
                        .hint("`--max-points N` raises the number of points that may be checked")
                })?;
                let broken = protected.is_some_and(|level| change.violates(level));
                (change.same, change.reason, broken)
            }
            (Some(_), None) => (None, "it is gone".to_owned(), protected.is_some()),
            _ => (None, "it is new".to_owned(), false),
        };
        if same == Some(Level::Text) {
            continue;
        }
        changes.push(LayoutChange {
            name: name.to_owned(),
            old: before,
            new: after,
            same,
            reason,
            protected,
            broken,
        });
    }
    let kept = !changes.iter().any(|change| change.broken);
    let diff = SnapshotDiff { kept, changes };
    let text = text(&diff);
    print(app, LayoutResult::Diff(diff), &text)?;
    Ok(if kept { 0 } else { Exit::Findings as u8 })
}

/// The names of `--protect` with their levels.
fn protections(
    args: &DiffArgs,
    old: &[NamedLayout],
    new: &[NamedLayout],
) -> Result<Vec<(String, Level)>> {
    let names = || old.iter().chain(new).map(|layout| layout.name.as_str());
    let mut protections = Vec::new();
    for text in &args.protect {
        let (name, level) = match text.split_once('=') {
            None => (text.as_str(), Level::Function),
            Some((name, level)) => {
                let level = level.parse().map_err(|()| {
                    usage(format!("`{level}` is not a level")).hint("function, profile or text")
                })?;
                (name, level)
            }
        };
        if name != "all" && !names().any(|known| known == name) {
            let mut failure = usage(format!("neither snapshot has a layout `{name}`"));
            for near in nearest(name, names()) {
                failure = failure.hint(format!("did you mean `{near}`?"));
            }
            return Err(failure);
        }
        protections.push((name.to_owned(), level));
    }
    Ok(protections)
}

fn text(diff: &SnapshotDiff) -> String {
    if diff.changes.is_empty() {
        return "no layout changed\n".to_owned();
    }
    let mut text = String::new();
    for change in &diff.changes {
        let level = match change.same {
            _ if change.old.is_none() || change.new.is_none() => String::new(),
            None => ", another function".to_owned(),
            Some(level) => format!(", the same {}", level.name()),
        };
        let protected = match (change.protected, change.broken) {
            (Some(level), true) => format!(" · PROTECTED as {}", level.name()),
            (Some(level), false) => format!(" · protected as {}, kept", level.name()),
            (None, _) => String::new(),
        };
        text += &format!("{}{level}{protected}\n", change.name);
        for (sign, layout) in [("-", &change.old), ("+", &change.new)] {
            if let Some(layout) = layout {
                text += &format!("  {sign} {layout}\n");
            }
        }
        text += &format!("  {}\n", change.reason);
    }
    text
}
