//! The overview: hosts, running and last runs, suites, queue and loops at one glance.

use schemars::JsonSchema;
use serde::Serialize;

use super::DashboardContext;
use super::campaign::{LoopLine, QueueCounts, SuiteLine};
use super::host::{HostState, hosts};
use super::run_query::{RunLine, trend};
use super::run_summary::RunSummary;
use super::run_table::Snapshot;
use crate::queue::Entry;
use crate::store::{RunState, Runs, live};

/// How many of the last runs are shown.
const RECENT: usize = 12;

/// How many running runs are shown.
const RUNNING: usize = 20;

/// How many suites are shown.
const SUITES: usize = 6;

/// The overview (`rgpu.dashboard/1`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Overview {
    /// `rgpu.dashboard/1`.
    pub(super) schema: &'static str,
    /// The project's folder.
    pub(super) project: String,
    /// The version of rgpu.
    pub(super) rgpu: &'static str,
    /// The number of runs.
    pub(super) total: usize,
    /// Whether runs are still being read.
    pub(super) reading: bool,
    /// The hosts.
    pub(super) hosts: Vec<HostState>,
    /// Runs that are running, newest first.
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

/// A run that is running.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct RunningRun {
    /// The run.
    #[serde(flatten)]
    pub(super) run: RunSummary,
    /// What it does at the moment, if it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
}

/// What the state database has for the overview.
#[derive(Default)]
pub(super) struct Campaigns {
    pub(super) entries: Vec<Entry>,
    pub(super) queue: Option<QueueCounts>,
    pub(super) loops: Vec<LoopLine>,
    pub(super) problems: Vec<String>,
}

/// Makes the overview.
pub(super) fn overview(
    context: &DashboardContext,
    snapshot: &Snapshot,
    campaigns: Campaigns,
    problem: Option<String>,
) -> Overview {
    let runs = Runs::new(&context.runs);
    let rows = || snapshot.rows.iter().map(|row| &row.summary);
    let running = rows().filter(|run| run.state == RunState::Running).take(RUNNING);
    let running = running.map(|run| RunningRun {
        phase: runs.find(&run.id).ok().and_then(|folder| live::phase(&folder)),
        run: run.clone(),
    });
    let ended = snapshot.rows.iter().enumerate();
    let ended = ended.filter(|(_, row)| row.summary.state != RunState::Running).take(RECENT);
    let recent = ended
        .map(|(at, row)| RunLine { run: row.summary.clone(), trend: trend(&snapshot.rows[at..]) });
    Overview {
        schema: "rgpu.dashboard/1",
        project: context.project.display().to_string(),
        rgpu: env!("CARGO_PKG_VERSION"),
        total: snapshot.rows.len(),
        reading: snapshot.reading,
        hosts: hosts(context, snapshot, &campaigns.entries).hosts,
        running: running.collect(),
        recent: recent.collect(),
        suites: rows().filter_map(SuiteLine::of).take(SUITES).collect(),
        queue: campaigns.queue,
        loops: campaigns.loops,
        problems: problem.into_iter().chain(campaigns.problems).collect(),
    }
}
