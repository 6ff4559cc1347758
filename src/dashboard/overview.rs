//! The overview: hosts, running and last runs, suites, queue and loops at one glance.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::DashboardContext;
use super::host::{HostState, hosts};
use super::queue_and_loops::{LoopLine, QueueAndLoops, QueueCounts};
use super::run_detail::logs;
use super::run_query::RunLine;
use super::run_summary::RunSummary;
use super::run_table::Snapshot;
use super::suites::SuiteLine;
use rgpu_model::error::Failure;
use rgpu_run::store::{RunFolder, Runs, live};

/// How many of the last runs are shown.
const MAX_RECENT_RUNS: usize = 12;

/// How many running runs are shown.
const MAX_RUNNING_RUNS: usize = 20;

/// At most this many lines of a running run's output are shown, from at most this many bytes at the
/// end of its log.
const MAX_OUTPUT_LINES: usize = 3;
const MAX_OUTPUT_BYTES: u64 = 2 << 10;

/// How many suites are shown.
const MAX_SUITES: usize = 6;

/// The overview (`rgpu.dashboard/1`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Overview {
    /// Name and version of this schema: `rgpu.dashboard/1`.
    pub(super) schema: &'static str,
    /// The project's folder.
    pub(super) project: String,
    /// The version of rgpu.
    pub(super) rgpu: &'static str,
    /// The number of runs.
    pub(super) total: usize,
    /// Whether runs are still being read.
    pub(super) reading: bool,
    /// The hosts of the user's settings, and this machine.
    pub(super) hosts: Vec<HostState>,
    /// Runs that are running or detached, newest first.
    pub(super) running: Vec<RunningRun>,
    /// The last runs that have ended, newest first.
    pub(super) recent: Vec<RunLine>,
    /// The last suites, newest first.
    pub(super) suites: Vec<SuiteLine>,
    /// The queue. Absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<QueueCounts>,
    /// The loops, newest first.
    pub(super) loops: Vec<LoopLine>,
    /// What could not be read, each with the reason.
    pub(super) problems: Vec<String>,
}

/// A run that is running, or detached.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RunningRun {
    /// The run.
    #[serde(flatten)]
    pub(crate) run: RunSummary,
    /// What it does at the moment, if it says so, or what it did when it was last followed.
    pub(crate) phase: Option<String>,
    /// The process that follows it. Absent if none does: then nothing is known of it since.
    pub(crate) followed_by: Option<String>,
    /// The last lines of the output that changed last.
    pub(crate) output: Option<String>,
}

pub(super) fn overview(
    context: &DashboardContext,
    snapshot: &Snapshot,
    state: QueueAndLoops,
    problem: Option<String>,
) -> Overview {
    let summary = |at: &usize| &snapshot.runs[*at].summary;
    let ended = (0..snapshot.runs.len()).filter(|at| !summary(at).is_active());
    let recent = ended.take(MAX_RECENT_RUNS).map(|at| RunLine::from_snapshot(snapshot, at));
    let suites =
        snapshot.suites.iter().map(summary).filter_map(SuiteLine::from_run).take(MAX_SUITES);
    Overview {
        schema: "rgpu.dashboard/1",
        project: context.project.display().to_string(),
        rgpu: env!("CARGO_PKG_VERSION"),
        total: snapshot.runs.len(),
        reading: snapshot.reading,
        hosts: hosts(context, snapshot, &state.entries).hosts,
        running: running_runs(context, snapshot),
        recent: recent.collect(),
        suites: suites.collect(),
        queue: state.queue,
        loops: state.loops,
        problems: distinct(problem, state.problems),
    }
}

/// The problems, each once: the index of runs is in the same database as queue and loops.
fn distinct(problem: Option<String>, mut problems: Vec<String>) -> Vec<String> {
    if let Some(problem) = problem.filter(|problem| !problems.contains(problem)) {
        problems.insert(0, problem);
    }
    problems
}

/// A failure for the page, in lines: what happened, why, and what to do.
pub(super) fn problem_lines(failure: &Failure) -> String {
    let lines = [Some(&failure.what), failure.cause.as_ref()];
    let lines: Vec<&str> =
        lines.into_iter().flatten().chain(&failure.hints).map(String::as_str).collect();
    lines.join("\n")
}

/// The newest of the runs that may not have ended.
pub(super) fn running_runs(context: &DashboardContext, snapshot: &Snapshot) -> Vec<RunningRun> {
    let runs = snapshot.running.iter().map(|at| &snapshot.runs[*at].summary);
    let running = runs.take(MAX_RUNNING_RUNS).map(|run| {
        let folder = Runs::new(&context.runs).find_id(&run.id).and_then(Result::ok);
        RunningRun {
            phase: folder.as_ref().and_then(live::phase),
            followed_by: folder.as_ref().and_then(RunFolder::followed_by),
            output: folder.and_then(|folder| last_output(&folder)),
            run: run.clone(),
        }
    });
    running.collect()
}

/// The last lines of the log that changed last.
fn last_output(folder: &RunFolder) -> Option<String> {
    let changed = |name: &str| {
        let path = Path::new("log").join(name);
        Some((folder.files().modified(&path)?, path))
    };
    let logs = logs(folder).into_iter().filter(|log| log.bytes > 0);
    let (_, newest) = logs.filter_map(|log| changed(&log.name)).max()?;
    let (text, _) = live::tail(folder, &newest, MAX_OUTPUT_BYTES)?;
    let lines: Vec<&str> = text.lines().collect();
    Some(lines[lines.len().saturating_sub(MAX_OUTPUT_LINES)..].join("\n"))
}
