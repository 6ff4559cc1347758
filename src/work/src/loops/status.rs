//! The state of a loop for others: `control.json`, `heartbeat.json` and the documents of the
//! commands.

use std::path::Path;
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::{LoopMetric, LoopMode};
use super::documents::{DocumentKind, write_json};
use super::error::LoopError;
use super::state::{IterationRecord, KeptState, LoopComparison, LoopState, Phase, Stop};
use super::{FOLDER, LoopRow, Loops, iteration_folder};
use rgpu_model::beneath::Folder;

/// How old a heartbeat file may get before it is written again.
const HEARTBEAT_INTERVAL_S: u64 = 2;

/// The largest heartbeat file.
const MAX_HEARTBEAT_BYTES: u64 = 64 << 10;

/// The target of a loop.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LoopTarget {
    /// The metric that is to improve.
    pub metric: LoopMetric,
    /// The value to reach. Absent: there is none.
    pub threshold: Option<f64>,
    /// The value of the best. Absent if it was not measured.
    pub best: Option<f64>,
    /// Whether the loop stopped because the target was reached.
    pub reached: bool,
}

/// The answer that a manual loop waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AwaitedAnswer {
    /// The prompt to answer, from the project.
    pub prompt: String,
    /// The file with the answer that the loop waits for, from the project.
    pub file: String,
}

/// The output of `rgpu loop start`, `status`, `stop`, `resume`, `best` and `report` with `--json`,
/// and `control.json` (`rgpu.loop/1`).
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LoopStatus {
    /// Name and version of this schema: `rgpu.loop/1`.
    pub schema: &'static str,
    /// The loop's id.
    pub id: String,
    /// Its folder, from the project.
    pub folder: String,
    /// `INIT`, `RUN_WORKER`, `RUN_REVIEWER`, `APPLY_VERDICT` or `STOPPED`.
    pub state: String,
    /// The phase of that state.
    pub phase: Phase,
    /// Its activity in that phase, in words.
    pub phase_text: &'static str,
    /// The iteration, from 1; 0 before the first.
    pub iteration: u32,
    /// The greatest number of iterations.
    pub max_iterations: u32,
    /// Who proposes and reviews.
    pub mode: LoopMode,
    /// The kernel, from the project.
    pub kernel_path: String,
    /// The process that runs the loop. Absent if there is none.
    pub pid: Option<i32>,
    /// When it started (RFC 3339).
    pub started: String,
    /// When its state changed last (RFC 3339).
    pub changed: String,
    /// Seconds that it has run until then, over all its processes.
    pub active_s: f64,
    /// Seconds that it may run.
    pub max_active_s: f64,
    /// The nonce that the awaited file must contain. Absent while no file is waited for.
    pub nonce: Option<String>,
    /// The answer that a manual loop waits for. Absent while it waits for nothing.
    pub awaited: Option<AwaitedAnswer>,
    /// The metric and the value to reach.
    pub target: LoopTarget,
    /// Number of changes that were kept.
    pub kept: u32,
    /// Iterations in a row that improved nothing.
    pub no_progress: u32,
    /// Failures in a row that were not the change's fault.
    pub infra_failures: u32,
    /// The failure after which the phase is tried again. Absent if there was none.
    pub failure: Option<String>,
    /// The version that the loop began with.
    pub start: Option<KeptState>,
    /// The best so far.
    pub best: Option<KeptState>,
    /// Why it stopped, or stops.
    pub stop: Option<Stop>,
    /// The best compared with the start, measured again when the loop stopped.
    pub final_comparison: Option<LoopComparison>,
    /// The iterations that have ended, oldest first.
    pub iterations: Vec<IterationRecord>,
}

impl LoopStatus {
    /// The status of a loop.
    pub fn for_row(loops: &Loops, row: &LoopRow) -> Result<Self, LoopError> {
        let LoopState { phase, iteration, .. } = row.state;
        let state = row.state.clone();
        let config = &row.config;
        let is_active = phase != Phase::Stopped;
        let waits = matches!(phase, Phase::Worker | Phase::Reviewer);
        let kind = match phase {
            Phase::Worker => Some(DocumentKind::Worker),
            Phase::Reviewer => Some(DocumentKind::Reviewer),
            _ => None,
        };
        let is_asked = config.mode == LoopMode::Manual && !state.nonce.is_empty();
        let iteration_folder =
            iteration_folder(Path::new(&format!("{FOLDER}/{}", row.id)), iteration);
        let awaited = kind.filter(|_| is_asked).map(|kind| AwaitedAnswer {
            prompt: iteration_folder.join(kind.prompt_file()).display().to_string(),
            file: iteration_folder.join(kind.answer_file()).display().to_string(),
        });
        let reached =
            state.stop.as_ref().is_some_and(|stop| stop.reason == super::StopReason::TargetReached);
        Ok(Self {
            schema: "rgpu.loop/1",
            id: row.id.clone(),
            folder: format!("{FOLDER}/{}", row.id),
            state: phase.state().to_owned(),
            phase,
            phase_text: phase.text(),
            iteration,
            max_iterations: config.max_iterations,
            mode: config.mode,
            kernel_path: config.kernel_path.to_string_lossy().into_owned(),
            pid: loops.holder().filter(|_| is_active).map(|holder| holder.pid()),
            started: time_text(row.started_ms),
            changed: time_text(row.at_ms),
            active_s: state.active_s,
            max_active_s: config.max_wall_time.duration().as_secs_f64(),
            target: LoopTarget {
                metric: config.target_metric_name,
                threshold: config.target_metric_threshold,
                best: state.best_metric(config.target_metric_name),
                reached,
            },
            awaited,
            nonce: Some(state.nonce).filter(|nonce| waits && !nonce.is_empty()),
            kept: state.kept,
            no_progress: state.no_progress,
            infra_failures: state.infra_failures,
            failure: state.failure,
            start: state.start,
            best: state.best,
            stop: state.stop,
            final_comparison: state.final_comparison,
            iterations: loops.iterations(row.number)?,
        })
    }

    /// The best time divided into the start's; `None` if either is unknown.
    pub fn speedup(&self) -> Option<f64> {
        let time = |kept: &Option<KeptState>| Some(kept.as_ref()?.time.as_ref()?.gmean_us);
        Some(time(&self.start)? / time(&self.best)?)
    }
}

/// A time of the database as RFC 3339, in whole milliseconds.
fn time_text(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap_or_default().to_string()
}

/// `heartbeat.json`: that the loop lives, and what it does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// When it was written (RFC 3339).
    pub at: String,
    /// The id of the loop's process.
    pub pid: u32,
    /// The phase that the loop is in.
    pub phase: Phase,
    /// The iteration; 0 is the start.
    pub iteration: u32,
    /// The process that the loop waits for. Absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<i32>,
}

/// Writes the heartbeat, if the last one is old. It is for people, so a failure is no error.
pub(super) fn write_heartbeat(
    files: &Folder,
    folder: &Path,
    state: &LoopState,
    child: Option<i32>,
) {
    let path = folder.join("heartbeat.json");
    let age = files.modified(&path).and_then(|time| SystemTime::now().duration_since(time).ok());
    if age.is_some_and(|age| age.as_secs() < HEARTBEAT_INTERVAL_S) {
        return;
    }
    let heartbeat = Heartbeat {
        at: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        pid: std::process::id(),
        phase: state.phase,
        iteration: state.iteration,
        child,
    };
    let _ = write_json(files, &path, &heartbeat);
}

/// The heartbeat of a loop; `None` if there is none.
pub(super) fn read_heartbeat(files: &Folder, folder: &Path) -> Option<Heartbeat> {
    let bytes = files.read(folder.join("heartbeat.json"), MAX_HEARTBEAT_BYTES).ok()?;
    rgpu_run::saved_json::from_slice(&bytes).ok()
}
