//! The queue and the loops, from the state database.

use schemars::JsonSchema;
use serde::Serialize;

use super::DashboardContext;
use super::overview::problem_lines;
use super::run_table::Snapshot;
use super::text_document::TextDocument;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::store::live;
use rgpu_work::loops::{LoopError, LoopMode, LoopStatus, Loops};
use rgpu_work::queue::{
    Entry, EntryRun, EntryState, Queue, QueueDocument, QueueEntryDocument, QueueError,
};

/// The largest patch of an iteration.
const MAX_PATCH_BYTES: u64 = 4 << 20;

/// At most this many bytes at the end of an entry's output are shown.
const MAX_OUTPUT_BYTES: u64 = 256 << 10;

/// How many loops are listed.
const MAX_LOOPS: usize = 50;

/// What the overview shows of the queue and the loops.
#[derive(Default)]
pub(super) struct QueueAndLoops {
    pub(super) entries: Vec<Entry>,
    pub(super) queue: Option<QueueCounts>,
    pub(super) loops: Vec<LoopLine>,
    /// What could not be read, each with the reason.
    pub(super) problems: Vec<String>,
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
    /// Entries that failed.
    pub(super) failed: usize,
    /// Entries that were ended by their time limit.
    pub(super) timeout: usize,
    /// Entries whose end is unknown.
    pub(super) lost: usize,
    /// Entries that were skipped, since another one did not end well.
    pub(super) skipped: usize,
    /// Entries that the user cancelled.
    pub(super) cancelled: usize,
    /// Whether no entry is started.
    pub(super) paused: bool,
    /// The process that runs the queue. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runner: Option<i32>,
}

/// The loops (`rgpu.dashboard-loops/1`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct LoopList {
    /// Name and version of this schema: `rgpu.dashboard-loops/1`.
    pub(super) schema: &'static str,
    /// The loops, newest first.
    pub(super) loops: Vec<LoopLine>,
}

/// A loop in a list.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct LoopLine {
    /// The id of the loop.
    pub(super) id: String,
    /// Its kernel, from the project.
    pub(super) kernel_path: String,
    /// Who proposes and reviews. A dry run measures nothing.
    pub(super) mode: LoopMode,
    /// The state, as in `rgpu.loop/1`.
    pub(super) state: String,
    /// What it does, in words.
    pub(super) phase_text: &'static str,
    /// The iteration, from 1; 0 before the first.
    pub(super) iteration: u32,
    /// The greatest number of iterations.
    pub(super) max_iterations: u32,
    /// When it started (RFC 3339).
    pub(super) started: String,
    /// Number of changes that were kept.
    pub(super) kept: u32,
    /// The best time divided into the start's. Absent if either is unknown.
    pub(super) speedup: Option<f64>,
    /// Why it stopped. Absent while it runs.
    pub(super) stopped: Option<String>,
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
pub(super) fn queue(context: &DashboardContext) -> Result<QueueDocument> {
    let queue = open_queue(context)?.ok_or_else(no_queue)?;
    let entries = queue.entries()?;
    Ok(QueueDocument::for_entries(&queue, entries)?)
}

/// An entry of the queue with its output.
pub(super) fn entry(
    context: &DashboardContext,
    snapshot: &Snapshot,
    id: i64,
) -> Result<QueueEntryDocument> {
    let queue = open_queue(context)?.ok_or_else(no_queue)?;
    let entry = queue.entry(id)?;
    let runs = snapshot.runs.iter().map(|run| &run.summary);
    let own = runs.filter(|run| run.parent.as_ref().is_some_and(|p| p.queue == Some(id)));
    let runs = own.map(|run| EntryRun { id: run.id.clone(), state: run.state }).collect();
    let log = queue.open_log(id, entry.attempt).ok();
    let output = log.and_then(|log| live::tail_of(log, MAX_OUTPUT_BYTES)).map(|(text, _)| text);
    Ok(QueueEntryDocument::for_entry(&queue, entry, runs, output)?)
}

fn open_loops(context: &DashboardContext) -> Result<Option<Loops>> {
    match Loops::open_existing(&context.project, &context.own_ids) {
        Err(LoopError::NoLoop(_)) => Ok(None),
        loops => Ok(Some(loops?)),
    }
}

/// The loops, newest first.
pub(super) fn loops(context: &DashboardContext) -> Result<LoopList> {
    let mut lines = Vec::new();
    if let Some(loops) = open_loops(context)? {
        for id in loops.ids_with("")?.into_iter().take(MAX_LOOPS) {
            lines.push(LoopLine::from_status(&LoopStatus::for_row(
                &loops,
                &loops.find(Some(&id))?,
            )?));
        }
    }
    Ok(LoopList { schema: "rgpu.dashboard-loops/1", loops: lines })
}

impl LoopLine {
    fn from_status(status: &LoopStatus) -> Self {
        Self {
            id: status.id.clone(),
            kernel_path: status.kernel_path.clone(),
            mode: status.mode,
            state: status.state.clone(),
            phase_text: status.phase_text,
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
pub(super) fn loop_status(context: &DashboardContext, id: &str) -> Result<LoopStatus> {
    let loops = open_loops(context)?.ok_or(LoopError::NoLoop(Some(id.to_owned())))?;
    let row = loops.find(Some(id))?;
    let mut status = LoopStatus::for_row(&loops, &row)?;
    // With it, a file of somebody else would count as the worker's.
    status.nonce = None;
    Ok(status)
}

/// The change of an iteration.
pub(super) fn patch(context: &DashboardContext, id: &str, iteration: u32) -> Result<TextDocument> {
    let loops = open_loops(context)?.ok_or(LoopError::NoLoop(Some(id.to_owned())))?;
    let row = loops.find(Some(id))?;
    let path = loops.iteration_folder(&row.id, iteration).join("git_diff.patch");
    TextDocument::from_end(loops.files(), &path, "git_diff.patch", MAX_PATCH_BYTES)
}

/// What the overview shows of queue and loops. What cannot be read is a problem of its own.
pub(super) fn for_overview(context: &DashboardContext) -> QueueAndLoops {
    let mut state = QueueAndLoops::default();
    match queue_counts(context, &mut state) {
        Ok(queue) => state.queue = queue,
        Err(failure) => state.problems.push(problem_lines(&failure)),
    }
    match loops(context) {
        Ok(list) => state.loops = list.loops,
        // Both are in one database, so both failed for one reason.
        Err(failure) if state.problems.is_empty() => {
            state.problems.push(problem_lines(&failure));
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
    Ok(Some(QueueCounts {
        waiting: count(EntryState::Waiting),
        running: count(EntryState::Running),
        ok: count(EntryState::Ok),
        failed: count(EntryState::Failed),
        timeout: count(EntryState::Timeout),
        lost: count(EntryState::Lost),
        skipped: count(EntryState::Skipped),
        cancelled: count(EntryState::Cancelled),
        paused: queue.is_paused()?,
        runner: queue.runner().map(|holder| holder.pid()),
    }))
}
