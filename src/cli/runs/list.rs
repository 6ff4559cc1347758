//! `rgpu runs list`: the runs of this project.

use schemars::JsonSchema;
use serde::Serialize;

use super::super::support::app::{App, Status};
use super::{ListArgs, cost_text, state_text};
use crate::error::Result;
use crate::report::{Align, TextTable, bytes};
use crate::store::{RunFolder, RunLine, RunRecord, RunState, Runs, StoreError};

/// A note with less room than this, in characters, goes below the table.
const MIN_NOTE_WIDTH: usize = 20;

/// At most this many folders that cannot be read are named.
const MAX_NAMED_FOLDERS: usize = 3;

/// The output of `runs list --json` (`rgpu.runs/1`).
#[derive(Serialize, JsonSchema)]
pub(in crate::cli) struct RunList {
    /// Name and version of this schema: `rgpu.runs/1`.
    schema: &'static str,
    /// Number of runs. The list has the newest.
    total: usize,
    /// The `run.json` of each listed run, newest first.
    runs: Vec<RunRecord>,
}

/// Lists the newest runs.
pub(super) fn list(app: &App, runs: &Runs, args: &ListArgs) -> Result<Status> {
    let (mut lines, unreadable) = runs.list_with_unreadable()?;
    note_unreadable(app, &unreadable);
    if args.failed {
        lines.retain(|line| has_failed(line, args.reason.as_deref()));
    }
    let all = lines.len();
    lines.truncate(args.count);
    if all > lines.len() {
        app.print_note(&format!(
            "the newest {} of {all} runs; `--count {all}` shows all",
            lines.len()
        ));
    }
    if app.global.json {
        let runs = lines.into_iter().map(|line| line.record).collect();
        app.print_json(&RunList { schema: "rgpu.runs/1", total: all, runs })?;
        return Ok(0);
    }
    if all == 0 && args.failed {
        app.print_note("no run failed for this reason");
        return Ok(0);
    }
    if all == 0 {
        app.print_note(&format!("no runs in {}", runs.root().display()));
        return Ok(0);
    }
    let mut table = TextTable::new(&[
        ("run", Align::Left),
        ("reason", Align::Left),
        ("title", Align::Left),
        ("remote", Align::Left),
        ("state", Align::Left),
        ("time", Align::Right),
        ("cost", Align::Right),
        ("size", Align::Right),
        ("note", Align::Left),
    ]);
    for line in lines {
        let r = line.record;
        // The run is done even if its program failed.
        let state = match r.program_exit {
            Some(status) if r.state == RunState::Done && status != 0 => {
                format!("{}, status {status}", state_text(&r))
            }
            _ => state_text(&r),
        };
        let away =
            matches!(r.state, RunState::Detached | RunState::Running | RunState::NeverSubmitted);
        let reason = match args.failed {
            true => reason(&line.folder).unwrap_or_default(),
            false => String::new(),
        };
        table.add_row([
            r.id,
            reason,
            r.title,
            r.remote,
            state,
            // Only the host knows how long a running one takes.
            if away { String::new() } else { format!("{:.1} s", r.seconds) },
            cost_text(&r.cost).filter(|_| !away).unwrap_or_default(),
            bytes(line.bytes as f64),
            super::super::support::terminal::escape_controls(r.note.as_bytes()),
        ]);
    }
    app.print(&table.without_empty_columns().fitted_with_words(
        app.style().width,
        0,
        "note",
        MIN_NOTE_WIDTH,
    ));
    Ok(0)
}

/// Tells which folders are not in the list.
fn note_unreadable(app: &App, unreadable: &[StoreError]) {
    for error in unreadable.iter().take(MAX_NAMED_FOLDERS) {
        app.print_note(&format!("left out: {error}"));
    }
    if unreadable.len() > MAX_NAMED_FOLDERS {
        let more = unreadable.len() - MAX_NAMED_FOLDERS;
        app.print_note(&format!("left out: {more} more folders with a record that cannot be read"));
    }
}

/// Whether a run failed, for this reason if there is one.
fn has_failed(line: &RunLine, wanted: Option<&str>) -> bool {
    let code = || reason(&line.folder).unwrap_or_default();
    line.record.state == RunState::Failed
        && wanted.is_none_or(|wanted| crate::suite::is_reason(wanted, &code()))
}

/// The code of a run's failure; `None` if it left none.
fn reason(folder: &std::path::Path) -> Option<String> {
    Some(RunFolder::open(folder).ok()?.failure()?.error.code)
}
