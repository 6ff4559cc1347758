//! Suites, the history of their cases, and predictions beside measurements.

use std::collections::HashSet;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::DashboardContext;
use super::run_summary::{RunSummary, SuiteCounts};
use super::run_table::Snapshot;
use rgpu_model::beneath::Folder;
use rgpu_model::bound::BoundShare;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::suite::SuiteRun;
use rgpu_model::suite_history::History;
use rgpu_work::suite::{RunIndex, TimeQuery};

/// The largest suite.json that is read, in bytes.
const MAX_SUITE_BYTES: u64 = 256 << 20;

/// The smallest change of a case's time that the history marks, as a fraction.
const CHANGE_THRESHOLD: f64 = 0.01;

/// The suites (`rgpu.dashboard-suites/1`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct SuiteList {
    /// Name and version of this schema: `rgpu.dashboard-suites/1`.
    pub(super) schema: &'static str,
    /// The suites, newest first.
    pub(super) suites: Vec<SuiteLine>,
}

/// A suite in a list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct SuiteLine {
    /// The id of its run.
    pub(super) id: String,
    /// The title of its run.
    pub(super) title: String,
    /// When it started (RFC 3339, UTC).
    pub(super) started: String,
    /// The state of its run, as lists show it.
    pub(super) state_text: String,
    /// Wall-clock seconds.
    pub(super) seconds: f64,
    /// Its cases by state and verdict.
    pub(super) counts: SuiteCounts,
}

impl SuiteLine {
    /// The line of a run; `None` if it is no suite.
    pub(super) fn from_run(run: &RunSummary) -> Option<Self> {
        Some(Self {
            id: run.id.clone(),
            title: run.title.clone(),
            started: run.started.clone(),
            state_text: run.state_text.clone(),
            seconds: run.seconds,
            counts: run.suite.clone()?,
        })
    }
}

/// Predictions beside measurements (`rgpu.dashboard-model/1`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct PredictionList {
    /// Name and version of this schema: `rgpu.dashboard-model/1`.
    pub(super) schema: &'static str,
    /// The newest run of each kernel and GPU that has a bound.
    pub(super) rows: Vec<PredictionRow>,
}

/// The measured time of a kernel beside the bounds that rgpu predicts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct PredictionRow {
    /// The run's id.
    pub(super) run: String,
    /// The kernel that was measured.
    pub(super) kernel: String,
    /// The GPU that it ran on.
    pub(super) gpu: String,
    /// When it was measured (RFC 3339, UTC).
    pub(super) started: String,
    /// The bounds, one for each case.
    pub(super) bound: Vec<BoundShare>,
}

/// The suites of a project.
pub(super) fn suites(snapshot: &Snapshot) -> SuiteList {
    let runs = snapshot.suites.iter().map(|at| &snapshot.runs[*at].summary);
    let lines = runs.filter_map(SuiteLine::from_run);
    SuiteList { schema: "rgpu.dashboard-suites/1", suites: lines.collect() }
}

/// The result of a suite.
pub(super) fn suite(folder: &Path) -> Result<SuiteRun> {
    let path = folder.join("suite.json");
    let failed = |what: &str| {
        Failure::new(Exit::Artifact, "bad_document", what.to_owned()).file(path.display())
    };
    let bytes = Folder::open(folder)
        .and_then(|folder| folder.read("suite.json", MAX_SUITE_BYTES))
        .map_err(|e| failed("the run has no suite.json that can be read").cause(e))?;
    rgpu_run::saved_json::from_slice(&bytes)
        .map_err(|e| failed("suite.json cannot be read").cause(e))
}

/// The history of cases. `case` may have `*` and `?`.
pub(super) fn history(context: &DashboardContext, case: &str, gpu: &str) -> Result<History> {
    let index = RunIndex::open_existing(&context.project, &context.own_ids)?;
    let gpu = Some(gpu.to_owned()).filter(|gpu| !gpu.is_empty());
    let query = TimeQuery { case: case.to_owned(), gpu };
    let points = index.map(|index| index.history(&query)).transpose()?;
    Ok(rgpu_work::suite::history(points.unwrap_or_default(), CHANGE_THRESHOLD, None))
}

/// The newest run of each kernel and GPU that has a bound.
pub(super) fn predictions(snapshot: &Snapshot) -> PredictionList {
    let mut seen = HashSet::new();
    let runs = snapshot.runs.iter().map(|run| &run.summary);
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
