//! `rgpu runs list`: the runs of this project.

use schemars::JsonSchema;
use serde::Serialize;

use super::super::support::app::{App, Status};
use super::{ListArgs, cost_text, state_text};
use crate::dashboard::RunSummary;
use rgpu_model::error::Result;
use rgpu_report::{TextTable, bytes, duration, timestamp};
use rgpu_run::store::{RunFolder, RunLine, RunRecord, RunState, Runs, StoreError};

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
    /// The listed runs, newest first.
    runs: Vec<ListedRun>,
}

/// A run in the list: its `run.json`, and what its result says.
#[serde_with::skip_serializing_none]
#[derive(Serialize, JsonSchema)]
struct ListedRun {
    #[serde(flatten)]
    record: RunRecord,
    /// Median time of the default case in nanoseconds. Absent without a time of a GPU.
    median_ns: Option<f64>,
    /// The GPU's name. Absent if none was used.
    gpu: Option<String>,
    /// What limits the kernel with the most time, or the verdict of a comparison.
    verdict: Option<String>,
}

impl ListedRun {
    fn new(line: RunLine) -> Self {
        let summary =
            RunFolder::open(&line.folder).and_then(|folder| RunSummary::from_folder(&folder));
        let mut listed = Self { record: line.record, median_ns: None, gpu: None, verdict: None };
        if let Ok(summary) = summary {
            listed.median_ns = summary.median_ns.filter(|_| !summary.is_cpu_reference);
            listed.gpu = summary.gpu;
            listed.verdict = summary.verdict;
        }
        listed
    }
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
        let runs = lines.into_iter().map(ListedRun::new).collect();
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
    let mut table = TextTable::new(
        "run | reason | title | started | remote | GPU | state | kernel time: | verdict | time: | \
         cost: | size: | note",
    );
    for line in lines {
        let (size, folder) = (line.bytes, line.folder.clone());
        let listed = ListedRun::new(line);
        let r = listed.record;
        // The run is done even if its program failed.
        let state = match r.program_exit {
            Some(status) if r.state == RunState::Done && status != 0 => {
                format!("{}, status {status}", state_text(&r))
            }
            _ => state_text(&r),
        };
        let away =
            matches!(r.state, RunState::Detached | RunState::Running | RunState::NeverSubmitted);
        let reason = if args.failed { reason(&folder).unwrap_or_default() } else { String::new() };
        table.add_row([
            r.id,
            reason,
            r.title,
            timestamp(&r.started),
            r.remote,
            listed.gpu.unwrap_or_default(),
            state,
            listed.median_ns.map(duration).unwrap_or_default(),
            listed.verdict.unwrap_or_default(),
            // Only the host knows how long a running one takes.
            if away { String::new() } else { format!("{:.1} s", r.seconds) },
            cost_text(&r.cost).filter(|_| !away).unwrap_or_default(),
            bytes(size as f64),
            super::super::support::terminal::escape_controls(r.note.as_bytes()),
        ]);
    }
    app.print(&table.without_empty_columns().fitted_with_words(
        app.columns(),
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
        && wanted.is_none_or(|wanted| rgpu_work::suite::is_reason(wanted, &code()))
}

/// The code of a run's failure; `None` if it left none.
fn reason(folder: &std::path::Path) -> Option<String> {
    Some(RunFolder::open(folder).ok()?.failure()?.error.code)
}
