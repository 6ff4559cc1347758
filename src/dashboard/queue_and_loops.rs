//! Suites, the queue, loops, and predictions beside measurements.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::DashboardContext;
use super::overview::QueueAndLoops;
use super::run_summary::{RunSummary, SuiteCounts};
use super::run_table::Snapshot;
use crate::error::{Exit, Failure, Result};
use crate::loops::{LoopError, LoopStatus, Loops};
use crate::model::bound::BoundShare;
use crate::model::suite::SuiteRun;
use crate::model::suite_history::History;
use crate::queue::{EntryRun, EntryState, Queue, QueueDocument, QueueEntryDocument, QueueError};
use crate::regular_file;
use crate::store::live;
use crate::suite::{RunIndex, TimeQuery};

/// The largest suite.json.
const MAX_SUITE_BYTES: u64 = 256 << 20;

/// The largest patch of an iteration.
const MAX_PATCH_BYTES: u64 = 4 << 20;

/// So much of the end of an entry's output is shown.
const OUTPUT_BYTES: u64 = 256 << 10;

/// The smallest change of a case's time that the history marks, as a fraction.
const CHANGE_THRESHOLD: f64 = 0.01;

/// How many loops are listed.
const MAX_LOOPS: usize = 50;

/// The suites (`rgpu.dashboard-suites/1`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct SuiteList {
    /// `rgpu.dashboard-suites/1`.
    pub(super) schema: &'static str,
    /// The suites, newest first.
    pub(super) suites: Vec<SuiteLine>,
}

/// A suite in a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct SuiteLine {
    /// The id of its run.
    pub(super) id: String,
    /// What was run.
    pub(super) title: String,
    /// When it started (RFC 3339, UTC).
    pub(super) started: String,
    /// AccessControl-clock seconds.
    pub(super) seconds: f64,
    /// Its cases.
    pub(super) counts: SuiteCounts,
}

impl SuiteLine {
    /// The line of a run; `None` if it is no suite.
    pub(super) fn of(run: &RunSummary) -> Option<Self> {
        Some(Self {
            id: run.id.clone(),
            title: run.title.clone(),
            started: run.started.clone(),
            seconds: run.seconds,
            counts: run.suite.clone()?,
        })
    }
}

/// The entries of the queue by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct QueueCounts {
    /// Entries that wait.
    pub(super) waiting: usize,
    /// Entries that run.
    pub(super) running: usize,
    /// Entries that ended ok.
    pub(super) ok: usize,
    /// Entries that ended otherwise.
    pub(super) bad: usize,
    /// Whether no entry is started.
    pub(super) paused: bool,
    /// The process that runs the queue. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runner: Option<i32>,
}

/// The loops (`rgpu.dashboard-loops/1`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct LoopList {
    /// `rgpu.dashboard-loops/1`.
    pub(super) schema: &'static str,
    /// The loops, newest first.
    pub(super) loops: Vec<LoopLine>,
}

/// A loop in a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct LoopLine {
    /// Its id.
    pub(super) id: String,
    /// Its kernel, from the project.
    pub(super) kernel_path: String,
    /// The state, as in `rgpu.loop/1`.
    pub(super) state: String,
    /// The iteration, from 1; 0 before the first.
    pub(super) iteration: u32,
    /// The greatest number of iterations.
    pub(super) max_iterations: u32,
    /// When it started (RFC 3339).
    pub(super) started: String,
    /// Kept changes.
    pub(super) kept: u32,
    /// The best time divided into the start's. Absent if either is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) speedup: Option<f64>,
    /// Why it stopped. Absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stopped: Option<String>,
}

/// A text (`rgpu.dashboard-text/1`): a log or a patch.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct TextDocument {
    /// `rgpu.dashboard-text/1`.
    pub(super) schema: &'static str,
    /// The name of the file.
    pub(super) name: String,
    /// The size of the file in bytes.
    pub(super) bytes: u64,
    /// Whether the beginning of the file is left out.
    pub(super) cut: bool,
    /// The text.
    pub(super) text: String,
}

impl TextDocument {
    /// The end of a file.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn of_end(path: &Path, name: &str, most: u64) -> Result<Self> {
        let (text, bytes) = live::tail(path, most).ok_or_else(|| {
            let what = format!("`{name}` cannot be read");
            Failure::new(Exit::Artifact, "unreadable", what).file(path.display())
        })?;
        let schema = "rgpu.dashboard-text/1";
        Ok(Self { schema, name: name.to_owned(), bytes, cut: bytes > most, text })
    }
}

/// Predictions beside measurements (`rgpu.dashboard-model/1`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct PredictionList {
    /// `rgpu.dashboard-model/1`.
    pub(super) schema: &'static str,
    /// The newest run of each kernel and GPU that has a bound.
    pub(super) rows: Vec<PredictionRow>,
}

/// The measured time of a kernel beside the bounds that rgpu predicts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct PredictionRow {
    /// The run's id.
    pub(super) run: String,
    /// The kernel.
    pub(super) kernel: String,
    /// The GPU.
    pub(super) gpu: String,
    /// When it was measured (RFC 3339, UTC).
    pub(super) started: String,
    /// The bounds, one for each case.
    pub(super) bound: Vec<BoundShare>,
}

/// The suites of a project.
pub(super) fn suites(snapshot: &Snapshot) -> SuiteList {
    let lines = snapshot.runs.iter().filter_map(|row| SuiteLine::of(&row.summary));
    SuiteList { schema: "rgpu.dashboard-suites/1", suites: lines.collect() }
}

/// The result of a suite.
///
/// # Errors
/// It cannot be read.
pub(super) fn suite(folder: &Path) -> Result<SuiteRun> {
    let path = folder.join("suite.json");
    let failed = |what: &str| {
        Failure::new(Exit::Artifact, "bad_document", what.to_owned()).file(path.display())
    };
    let bytes = regular_file::read(&path, MAX_SUITE_BYTES)
        .map_err(|e| failed("the run has no suite.json that can be read").cause(e))?;
    serde_json::from_slice(&bytes).map_err(|e| failed("suite.json cannot be read").cause(e))
}

/// The history of cases. `case` may have `*` and `?`.
///
/// # Errors
/// The state database cannot be read.
pub(super) fn history(context: &DashboardContext, case: &str, gpu: &str) -> Result<History> {
    let index = RunIndex::open_existing(&context.project, &context.own_ids)?;
    let gpu = Some(gpu.to_owned()).filter(|gpu| !gpu.is_empty());
    let query = TimeQuery { case: case.to_owned(), since: None, gpu };
    let points = index.map(|index| index.history(&query)).transpose()?;
    Ok(crate::suite::history(points.unwrap_or_default(), CHANGE_THRESHOLD))
}

fn open_queue(context: &DashboardContext) -> Result<Option<Queue>> {
    match Queue::open_existing(&context.project, &context.own_ids) {
        Err(QueueError::NoQueue(_)) => Ok(None),
        queue => Ok(Some(queue?)),
    }
}

fn no_queue() -> Failure {
    Failure::new(Exit::Usage, "no_queue", "there is no queue in this project")
        .hint("`rgpu queue add -- COMMAND` makes one")
}

/// The queue, in its order.
///
/// # Errors
/// There is none, or the state database cannot be read.
pub(super) fn queue(context: &DashboardContext) -> Result<QueueDocument> {
    let queue = open_queue(context)?.ok_or_else(no_queue)?;
    let entries = queue.entries()?;
    Ok(QueueDocument::of(&queue, entries)?)
}

/// An entry of the queue with its output.
///
/// # Errors
/// There is none, or the state database cannot be read.
pub(super) fn entry(
    context: &DashboardContext,
    snapshot: &Snapshot,
    id: i64,
) -> Result<QueueEntryDocument> {
    let queue = open_queue(context)?.ok_or_else(no_queue)?;
    let entry = queue.entry(id)?;
    let runs = snapshot.runs.iter().map(|row| &row.summary);
    let own = runs.filter(|run| run.parent.as_ref().is_some_and(|p| p.queue == Some(id)));
    let runs = own.map(|run| EntryRun { id: run.id.clone(), state: run.state }).collect();
    let log = queue.log_path(id, entry.attempt);
    let output = live::tail(&log, OUTPUT_BYTES).map(|(text, _)| text);
    Ok(QueueEntryDocument::of(&queue, entry, runs, output)?)
}

fn open_loops(context: &DashboardContext) -> Result<Option<Loops>> {
    match Loops::open_existing(&context.project, &context.own_ids) {
        Err(LoopError::NoLoop(_)) => Ok(None),
        loops => Ok(Some(loops?)),
    }
}

/// The loops, newest first.
///
/// # Errors
/// The state database cannot be read.
pub(super) fn loops(context: &DashboardContext) -> Result<LoopList> {
    let mut lines = Vec::new();
    if let Some(loops) = open_loops(context)? {
        for id in loops.ids_with("")?.into_iter().take(MAX_LOOPS) {
            lines.push(LoopLine::of(&LoopStatus::of(&loops, &loops.find(Some(&id))?)?));
        }
    }
    Ok(LoopList { schema: "rgpu.dashboard-loops/1", loops: lines })
}

impl LoopLine {
    fn of(status: &LoopStatus) -> Self {
        Self {
            id: status.id.clone(),
            kernel_path: status.kernel_path.clone(),
            state: status.state.clone(),
            iteration: status.iteration,
            max_iterations: status.max_iterations,
            started: status.started.clone(),
            kept: status.kept,
            speedup: status.speedup(),
            stopped: status.stop.as_ref().map(|stop| stop.text.clone()),
        }
    }
}

/// A loop with its iterations.
///
/// # Errors
/// There is none, or the state database cannot be read.
pub(super) fn loop_status(context: &DashboardContext, id: &str) -> Result<LoopStatus> {
    let loops = open_loops(context)?.ok_or(LoopError::NoLoop(Some(id.to_owned())))?;
    let row = loops.find(Some(id))?;
    let mut status = LoopStatus::of(&loops, &row)?;
    // With it, a file of somebody else would count as the worker's.
    status.nonce = None;
    Ok(status)
}

/// The change of an iteration.
///
/// # Errors
/// There is none.
pub(super) fn patch(context: &DashboardContext, id: &str, iteration: u32) -> Result<TextDocument> {
    let loops = open_loops(context)?.ok_or(LoopError::NoLoop(Some(id.to_owned())))?;
    let row = loops.find(Some(id))?;
    let path = loops.iteration_folder(&row.id, iteration).join("git_diff.patch");
    TextDocument::of_end(&path, "git_diff.patch", MAX_PATCH_BYTES)
}

/// What the overview shows of queue and loops. What cannot be read is a problem of its own.
pub(super) fn of_overview(context: &DashboardContext) -> QueueAndLoops {
    let mut state = QueueAndLoops::default();
    match queue_counts(context, &mut state) {
        Ok(queue) => state.queue = queue,
        Err(failure) => state.problems.push(failure.to_string()),
    }
    match loops(context) {
        Ok(list) => state.loops = list.loops,
        // Both are in one database, so both failed for one reason.
        Err(failure) if state.problems.is_empty() => {
            state.problems.push(failure.to_string());
        }
        Err(_) => {}
    }
    state
}

fn queue_counts(
    context: &DashboardContext,
    state: &mut QueueAndLoops,
) -> Result<Option<QueueCounts>> {
    let Some(queue) = open_queue(context)? else { return Ok(None) };
    state.entries = queue.entries()?;
    let count = |wanted| state.entries.iter().filter(|entry| entry.state == wanted).count();
    let (waiting, running, ok) =
        (count(EntryState::Waiting), count(EntryState::Running), count(EntryState::Ok));
    Ok(Some(QueueCounts {
        bad: state.entries.len() - waiting - running - ok - count(EntryState::Pruned),
        waiting,
        running,
        ok,
        paused: queue.is_paused()?,
        runner: queue.runner().map(|holder| holder.pid()),
    }))
}

/// The newest run of each kernel and GPU that has a bound.
pub(super) fn predictions(snapshot: &Snapshot) -> PredictionList {
    let mut seen = std::collections::HashSet::new();
    let runs = snapshot.runs.iter().map(|row| &row.summary);
    let newest = runs.filter(|run| {
        !run.bound.is_empty() && seen.insert((run.kernel.as_str(), run.gpu.as_deref()))
    });
    let rows = newest.map(|run| PredictionRow {
        run: run.id.clone(),
        kernel: run.kernel.clone(),
        gpu: run.gpu.clone().unwrap_or_default(),
        started: run.started.clone(),
        bound: run.bound.clone(),
    });
    PredictionList { schema: "rgpu.dashboard-model/1", rows: rows.collect() }
}
