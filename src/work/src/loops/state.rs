//! The state of a loop: the phase that it is in, and all that later phases need. It is the `detail`
//! of the loop's last event, so a resumed loop knows what the killed one knew.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::LoopMetric;
use super::documents::{ReviewerVerdict, WorkerResult};
use rgpu_model::comparison::TimeVerdict;

/// The phases of a loop, in the order of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The start is copied, verified and profiled.
    Init,
    /// A worker changes the kernel.
    Worker,
    /// The change is verified on all named sizes.
    Verify,
    /// It is compared with the best.
    Compare,
    /// It is compared a second time.
    Confirm,
    /// It is profiled, for the prompts.
    Profile,
    /// A reviewer judges the iteration.
    Reviewer,
    /// The change is kept or taken back.
    Apply,
    /// The best is compared with the start.
    Final,
    /// The loop has ended.
    Stopped,
}

impl Phase {
    /// The phases in their order.
    pub const ALL: [Self; 10] = [
        Self::Init,
        Self::Worker,
        Self::Verify,
        Self::Compare,
        Self::Confirm,
        Self::Profile,
        Self::Reviewer,
        Self::Apply,
        Self::Final,
        Self::Stopped,
    ];

    /// The word in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Worker => "worker",
            Self::Verify => "verify",
            Self::Compare => "compare",
            Self::Confirm => "confirm",
            Self::Profile => "profile",
            Self::Reviewer => "reviewer",
            Self::Apply => "apply",
            Self::Final => "final",
            Self::Stopped => "stopped",
        }
    }

    /// The activity of a loop in the phase.
    pub fn text(self) -> &'static str {
        match self {
            Self::Init => "measures the start",
            Self::Worker => "waits for the worker's change",
            Self::Verify => "verifies the change",
            Self::Compare => "compares the change with the best",
            Self::Confirm => "compares the change a second time",
            Self::Profile => "profiles the change",
            Self::Reviewer => "waits for the reviewer",
            Self::Apply => "keeps the change or takes it back",
            Self::Final => "compares the best with the start",
            Self::Stopped => "stopped",
        }
    }

    /// The state that the phase belongs to.
    pub fn state(self) -> &'static str {
        match self {
            Self::Init => "INIT",
            Self::Worker | Self::Verify | Self::Compare | Self::Confirm | Self::Profile => {
                "RUN_WORKER"
            }
            Self::Reviewer => "RUN_REVIEWER",
            Self::Apply | Self::Final => "APPLY_VERDICT",
            Self::Stopped => "STOPPED",
        }
    }
}

/// Why a loop stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The target was reached often enough in a row.
    TargetReached,
    /// Too many iterations in a row improved nothing.
    NoProgress,
    /// The greatest number of iterations.
    MaxIterations,
    /// The greatest running time.
    WallTime,
    /// Too many failures in a row that were not the change's fault.
    InfraFailures,
    /// The user asked for it.
    Stopped,
    /// The reviewer asked for it.
    Reviewer,
    /// The kernel that the loop began with is wrong, or has no reference.
    StartRefused,
    /// Another loop was started in its place.
    Replaced,
}

impl StopReason {
    /// The word in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TargetReached => "target_reached",
            Self::NoProgress => "no_progress",
            Self::MaxIterations => "max_iterations",
            Self::WallTime => "wall_time",
            Self::InfraFailures => "infra_failures",
            Self::Stopped => "stopped",
            Self::Reviewer => "reviewer",
            Self::StartRefused => "start_refused",
            Self::Replaced => "replaced",
        }
    }
}

/// How a loop stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stop {
    /// The reason why it stopped.
    pub reason: StopReason,
    /// The reason in a sentence, with names and numbers.
    pub text: String,
}

/// The outcome of an iteration's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is the best now.
    Kept,
    /// The worker changed no file.
    Unchanged,
    /// The worker took it back itself.
    Withdrawn,
    /// A file that may not be changed was changed.
    Refused,
    /// Its times cannot be believed. The worker hears only that it was refused.
    NotBelieved,
    /// It does not compile, or its results are wrong.
    Wrong,
    /// It is slower than the best.
    Slower,
    /// It is as fast as the best.
    Same,
    /// Its times are too uncertain for a verdict.
    Ambiguous,
    /// It was faster once, and not a second time.
    NotConfirmed,
    /// The reviewer took it back.
    RevertedByReviewer,
    /// The worker failed.
    WorkerFailed,
    /// It could not be measured.
    NotMeasured,
}

impl Outcome {
    /// The words in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Unchanged => "unchanged",
            Self::Withdrawn => "withdrawn",
            Self::Refused => "refused",
            Self::NotBelieved => "not believed",
            Self::Wrong => "wrong",
            Self::Slower => "slower",
            Self::Same => "same",
            Self::Ambiguous => "ambiguous",
            Self::NotConfirmed => "not confirmed",
            Self::RevertedByReviewer => "reverted by the reviewer",
            Self::WorkerFailed => "worker failed",
            Self::NotMeasured => "not measured",
        }
    }
}

/// The time of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseTime {
    /// The size's name in kernel.toml.
    pub name: String,
    /// Its median time in microseconds.
    pub median_us: f64,
}

/// A time over all sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredTime {
    /// The geometric mean of the medians, in microseconds.
    pub gmean_us: f64,
    /// The geometric means of the ends of the sizes' 95 % intervals; absent if one has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_us: Option<[f64; 2]>,
    /// The time of each size.
    pub cases: Vec<CaseTime>,
}

impl MeasuredTime {
    /// The time over these sizes: name, median and interval in nanoseconds. `None` without sizes.
    pub(super) fn from_cases(cases: &[(String, f64, Option<[f64; 2]>)]) -> Option<Self> {
        let mean = |values: Vec<f64>| {
            let logs: f64 = values.iter().map(|value| value.ln()).sum();
            (logs / values.len() as f64).exp() / 1000.0
        };
        let medians: Vec<f64> = cases.iter().map(|(_, median, _)| *median).collect();
        if medians.is_empty() || medians.iter().any(|median| *median <= 0.0) {
            return None;
        }
        let ends: Option<Vec<[f64; 2]>> = cases.iter().map(|(_, _, interval)| *interval).collect();
        let end = |at: usize, ends: &[[f64; 2]]| mean(ends.iter().map(|ends| ends[at]).collect());
        Some(Self {
            gmean_us: mean(medians),
            interval_us: ends.map(|ends| [end(0, &ends), end(1, &ends)]),
            cases: cases
                .iter()
                .map(|(name, median, _)| CaseTime {
                    name: name.clone(),
                    median_us: median / 1000.0,
                })
                .collect(),
        })
    }
}

/// One comparison that rgpu made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoopComparison {
    /// Its run folder, from the project.
    pub run: String,
    /// Whether the other is faster than the base.
    pub verdict: TimeVerdict,
    /// The verdict in a sentence.
    pub summary: String,
    /// The base's time divided by the other's.
    pub speedup: f64,
    /// Its 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// The time of the base.
    pub base: MeasuredTime,
    /// The time of the other.
    pub new: MeasuredTime,
}

/// A state that was kept.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeptState {
    /// The iteration; 0 is the start.
    pub iteration: u32,
    /// Its files, from the project.
    pub files: String,
    /// The sha256 over its files.
    pub digest: String,
    /// Its commit, on `refs/rgpu/loop/<id>`. Absent without a git repository.
    pub commit: Option<String>,
    /// Its time. Absent if it was not measured.
    pub time: Option<MeasuredTime>,
    /// Its profile, from the project.
    pub profile: Option<String>,
    /// Its compiled code, from the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cubins: Vec<String>,
}

/// The change of the current iteration, and what is known about it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proposal {
    /// The changed files, from the project.
    #[serde(default)]
    pub changed: Vec<PathBuf>,
    /// The sha256 over all files with the change.
    #[serde(default)]
    pub digest: String,
    /// The worker's result.
    pub claim: Option<WorkerResult>,
    /// The outcome of the iteration. Absent while that is open.
    pub outcome: Option<Outcome>,
    /// Why it has that outcome, in a sentence.
    #[serde(default)]
    pub reason: String,
    /// The run folder of the verification, from the project.
    pub verification: Option<String>,
    /// The comparison with the best.
    pub comparison: Option<LoopComparison>,
    /// The second comparison, which confirms the first.
    pub confirmation: Option<LoopComparison>,
    /// The profile, from the project.
    pub profile: Option<String>,
    /// Its compiled code, from the project.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cubins: Vec<String>,
    /// The reviewer's verdict.
    pub verdict: Option<ReviewerVerdict>,
}

/// An iteration that has ended.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IterationRecord {
    /// Its number, from 1.
    pub iteration: u32,
    /// The outcome of the change.
    pub outcome: Outcome,
    /// Why it has that outcome, in a sentence.
    pub reason: String,
    /// The changed files, from the project.
    pub changed: Vec<PathBuf>,
    /// The worker's own claim. rgpu does not use it.
    pub claim: Option<WorkerResult>,
    /// The comparison with the best.
    pub comparison: Option<LoopComparison>,
    /// The second comparison, which confirms the first.
    pub confirmation: Option<LoopComparison>,
    /// The reviewer's verdict.
    pub verdict: Option<ReviewerVerdict>,
}

/// The state of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopState {
    /// The phase that runs, or runs next.
    pub phase: Phase,
    /// The iteration, from 1; 0 before the first.
    pub iteration: u32,
    /// The nonce that the file for the current prompt must contain.
    pub nonce: String,
    /// Failures in a row that were not the change's fault.
    pub infra_failures: u32,
    /// The failure after which this phase is tried again.
    #[serde(default)]
    pub failure: Option<String>,
    /// Iterations in a row that improved nothing.
    pub no_progress: u32,
    /// Comparisons in a row that reached the target.
    pub target_hits: u32,
    /// Number of kept changes.
    pub kept: u32,
    /// Seconds that the loop has run, over all its processes.
    pub active_s: f64,
    /// Files and time at the start; `None` before they are measured.
    pub start: Option<KeptState>,
    /// The best so far.
    pub best: Option<KeptState>,
    /// The change of the current iteration.
    pub proposal: Proposal,
    /// The last reviewer's hint for the worker.
    pub next_change_hint: Option<String>,
    /// The number of the user's requests to stop that have been acted on.
    pub stops_seen: u32,
    /// Why the loop stops.
    pub stop: Option<Stop>,
    /// The best compared with the start, measured again.
    pub final_comparison: Option<LoopComparison>,
}

impl LoopState {
    /// The state of a new loop.
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Init,
            iteration: 0,
            nonce: String::new(),
            infra_failures: 0,
            failure: None,
            no_progress: 0,
            target_hits: 0,
            kept: 0,
            active_s: 0.0,
            start: None,
            best: None,
            proposal: Proposal::default(),
            next_change_hint: None,
            stops_seen: 0,
            stop: None,
            final_comparison: None,
        }
    }

    /// Whether the first `requests` stop requests have been handled.
    pub(super) fn has_seen(&self, requests: u32) -> bool {
        requests <= self.stops_seen
    }

    /// The value of a metric for a time of a later state. `None` if it or the start is unknown.
    pub(super) fn metric(&self, metric: LoopMetric, time: &MeasuredTime) -> Option<f64> {
        match metric {
            LoopMetric::GmeanUs => Some(time.gmean_us),
            LoopMetric::Speedup => {
                let start = self.start.as_ref()?.time.as_ref()?;
                Some(start.gmean_us / time.gmean_us)
            }
        }
    }

    /// The value of a metric for the best.
    pub fn best_metric(&self, metric: LoopMetric) -> Option<f64> {
        self.metric(metric, self.best.as_ref()?.time.as_ref()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_over_sizes_is_their_geometric_mean() {
        let case = |name: &str, median, interval| (name.to_owned(), median, interval);
        let time = MeasuredTime::from_cases(&[
            case("a", 1000.0, Some([900.0, 1100.0])),
            case("b", 4000.0, Some([3600.0, 4400.0])),
        ])
        .unwrap();
        assert!((time.gmean_us - 2.0).abs() < 1e-9);
        let [low, high] = time.interval_us.unwrap();
        assert!((low - 1.8).abs() < 1e-9 && (high - 2.2).abs() < 1e-9);
        assert!(MeasuredTime::from_cases(&[]).is_none());
        assert!(MeasuredTime::from_cases(&[case("a", 0.0, None)]).is_none());
        let time =
            MeasuredTime::from_cases(&[case("a", 1.0, None), case("b", 1.0, Some([1.0, 1.0]))]);
        assert_eq!(time.unwrap().interval_us, None);
    }

    #[test]
    fn a_state_is_read_back_whole() {
        let state = LoopState { iteration: 3, nonce: "x".to_owned(), ..LoopState::new() };
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<LoopState>(&text).unwrap(), state);
    }
}
