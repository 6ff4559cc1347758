//! The result of a suite of benchmarks: `suite.json` (`rgpu.suite/1`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::comparison::{Part, TimeVerdict};
use super::profile::{CheckVerdict, Gap, GraphTiming, Histogram};

/// The schema name that every result of a suite carries.
pub const SCHEMA: &str = "rgpu.suite/1";

/// A suite that was run, with a row for each case.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteRun {
    /// Name and version of this schema: `rgpu.suite/1`.
    pub schema: String,
    /// The id of the suite's run, which is also its folder's name.
    pub id: String,
    /// When it started (RFC 3339, UTC).
    pub started: String,
    /// Wall-clock seconds of all commands that worked on it.
    pub seconds: f64,
    /// Whether it runs, can be resumed, or is done.
    pub state: SuiteState,
    /// Whether the last attempt of every case is ok.
    pub clean: bool,
    /// The version of rgpu.
    pub rgpu: String,
    /// The file that defines the targets, relative to the project; absent if every kernel is one.
    pub file: Option<String>,
    /// The commit that the project was at; absent outside a git work tree.
    pub commit: Option<String>,
    /// Whether files of the project differed from that commit.
    #[serde(default)]
    pub dirty: bool,
    /// The command line's part of the settings.
    pub options: SuiteOptions,
    /// A row for each case, in the order of the targets.
    pub rows: Vec<SuiteRow>,
    /// Expected values that no case has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orphans: Vec<MeasurementKey>,
    /// What the last `--update-expectations` wrote and refused; empty without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<ExpectationUpdate>,
}

/// An expected time that was written, or refused.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExpectationUpdate {
    /// The case: the target, with the values of its axes in brackets.
    pub case: String,
    /// The side: `kernel`, `baseline` or `optimised`.
    pub side: String,
    /// The sizes, `n=1024`, with `;` between groups.
    pub sizes: String,
    /// The file of the expectations.
    pub file: String,
    /// The expected time that was written, in nanoseconds; absent if it was refused.
    pub written_ns: Option<f64>,
    /// The name of the refusal for `--accept`; absent if it was written.
    pub refused: Option<String>,
    /// The reason of the refusal in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Whether a suite runs, can be resumed, or is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SuiteState {
    /// A command works on it, or was killed.
    #[default]
    Running,
    /// Cases are left: interrupted, or out of budget. `rgpu bench resume` continues it.
    Open,
    /// Every case has ended.
    Done,
}

/// How much is measured besides times.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Times, and ncu's sections for the speed of light, launches and occupancy.
    #[default]
    Minimal,
    /// In addition the roofline.
    Sol,
    /// nsys, and ncu with all sections.
    Deep,
}

impl Level {
    /// The name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Sol => "sol",
            Self::Deep => "deep",
        }
    }

    /// The level with this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "minimal" => Some(Self::Minimal),
            "sol" => Some(Self::Sol),
            "deep" | "deep_dive" => Some(Self::Deep),
            _ => None,
        }
    }
}

/// The options of the command line. Absent ones come from the file or are rgpu's own.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteOptions {
    /// Patterns of `--target`; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// The file of `--file`.
    pub file: Option<String>,
    /// How much is measured besides times (`--level`).
    pub level: Option<Level>,
    /// The mode of `rgpu profile`.
    pub mode: Option<String>,
    /// The remote, or several with commas.
    pub remote: Option<String>,
    /// The GPU of `--gpu`: an index, a UUID, or a part of a name.
    pub gpu: Option<String>,
    /// Whether other processes may use the GPU.
    #[serde(default)]
    pub share_gpu: bool,
    /// Whether doubts about the host are an error.
    #[serde(default)]
    pub strict: bool,
    /// The SM clock in MHz at which GPUs are locked while their cases run; absent: as found.
    pub lock_clocks_mhz: Option<u32>,
    /// Over how many hosts of one remote, or GPUs of one host, the cases are spread; absent: one.
    pub parallel: Option<u32>,
    /// Whether generated targets are included.
    #[serde(default)]
    pub include_generated: bool,
    /// Number of timed launches.
    pub iters: Option<u32>,
    /// Time limit of each step in seconds.
    pub timeout_s: Option<u64>,
    /// Time limit of the check of results in seconds.
    pub verify_timeout_s: Option<u64>,
    /// The speedup below which a pair is too close to call.
    pub min_speedup: Option<f64>,
    /// The smallest effect that counts, as a fraction.
    pub threshold: Option<f64>,
}

/// The result of one case.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteRow {
    /// The case: the target, with the values of its axes in brackets.
    pub case: String,
    /// The target, `suite:case`.
    pub target: String,
    /// Values of the axes of the target's matrix.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub axes: BTreeMap<String, String>,
    /// The kernel or program; of a pair, the optimised side.
    pub kernel: String,
    /// The baseline of a pair.
    pub baseline: Option<String>,
    /// Name of the remote.
    pub remote: String,
    /// Which of the remote's hosts the last attempt ran on, from 0; absent: the first.
    pub host_number: Option<u32>,
    /// State of the last attempt.
    pub state: RowState,
    /// Number of attempts so far.
    pub attempts: u32,
    /// Id of the run of the last attempt.
    pub run: Option<String>,
    /// Wall-clock seconds of the last attempt.
    #[serde(default)]
    pub seconds: f64,
    /// The exit status that the case would have alone; absent until it has ended.
    pub exit: Option<u8>,
    /// Code of the failure, as in `rgpu.error/1`.
    pub reason: Option<String>,
    /// The failure in words.
    pub failure: Option<String>,
    /// The log with the details.
    pub log: Option<String>,
    /// The command that runs this case alone.
    pub again: String,
    /// The times, with a row for each size and side.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<SuiteTime>,
    /// The comparison of a pair.
    pub pair: Option<PairResult>,
    /// Warnings about the host, e.g. other processes on its GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Gap>,
    /// Tools that the level or mode asks for and that gave no results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingTool>,
    /// Metrics of the launch with the most time, by NVIDIA's names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

/// A tool that a case asks for and that gave no results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MissingTool {
    /// The tool, `ncu` or `nsys`; `ncu counters` if it has launches without counters.
    pub tool: String,
    /// Code of the reason, such as `counters_refused`; empty if unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The reason in words.
    pub text: String,
}

impl SuiteRow {
    /// The case without the remote that it is named after where it ran on several: `a:b` for
    /// `a:b@h200`.
    pub fn case_of_any_remote(&self) -> &str {
        let before = self.case.strip_suffix(&self.remote);
        before.and_then(|case| case.strip_suffix('@')).unwrap_or(&self.case)
    }
}

/// Code of the warning that the host has no GPU.
pub const NO_GPU: &str = "no_gpu";

/// The state of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowState {
    /// It has not run yet.
    #[default]
    Waiting,
    /// It runs, or its command was killed.
    Running,
    /// It ended well.
    Ok,
    /// It ended well on a host without a GPU, where no kernel is timed.
    NoGpu,
    /// It failed.
    Failed,
    /// The user interrupted it.
    Cancelled,
    /// The budget did not reach.
    NoBudget,
}

impl RowState {
    /// As shown to users.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Ok => "ok",
            Self::NoGpu => "no GPU",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::NoBudget => "no budget",
        }
    }

    /// Whether the case has a result, good or bad.
    pub fn has_ended(self) -> bool {
        self.has_ended_well() || self == Self::Failed
    }

    /// Whether the case ended well, on a GPU or without one.
    pub fn has_ended_well(self) -> bool {
        matches!(self, Self::Ok | Self::NoGpu)
    }
}

/// The conditions of a measured time. Times with the same key are comparable.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct MeasurementKey {
    /// The case: the target, with the values of its axes in brackets.
    pub case: String,
    /// The side: `kernel`, `baseline` or `optimised`.
    pub side: String,
    /// The sizes, `n=1024`, with `;` between groups.
    pub sizes: String,
    /// The dtypes of the outputs.
    pub dtype: String,
    /// Name of the GPU.
    pub gpu: String,
    /// Major version of the driver.
    pub driver: String,
    /// The compiler with its version.
    pub toolkit: String,
    /// How the SM clock was set: `as_found` or `locked N MHz`.
    pub clocks: String,
    /// How it was timed, with the version of the method.
    pub method: String,
}

/// A time of a case.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteTime {
    /// The conditions under which it was measured.
    #[serde(flatten)]
    pub key: MeasurementKey,
    /// Name of the size.
    pub size: String,
    /// Digest of the files and options that the kernel was made of.
    pub inputs: String,
    /// UUID of the GPU.
    pub device: String,
    /// Median of the samples in nanoseconds.
    pub median_ns: f64,
    /// 95 % interval of the median.
    pub ci95_ns: [f64; 2],
    /// Number of samples.
    pub samples: u64,
    /// How the samples are spread.
    pub histogram: Option<Histogram>,
    /// The time inside a CUDA graph; only for short kernels.
    pub graph: Option<GraphTiming>,
    /// Seconds that a hot GPU was left to cool before the samples; absent if it was not hot.
    pub cooled_s: Option<f64>,
    /// Position of the time under the roofline of its GPU; absent without counted operations and
    /// bytes.
    pub roofline: Option<RooflinePoint>,
    /// Share of the speed of light, in percent.
    pub sol_percent: Option<f64>,
    /// Result of the check.
    pub correctness: Option<CheckVerdict>,
    /// Whether two calls on the same inputs gave the same bits.
    pub bit_equal: Option<bool>,
    /// Throttle reasons seen, by their NVML names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttle: Vec<String>,
    /// The verdict against the expected time.
    pub against: Option<TimeJudgement>,
}

/// Position of a time under the roofline of its GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RooflinePoint {
    /// Floating-point operations per second.
    pub flops_per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Peak rate of the unit that computes, in floating-point operations per second.
    pub flops_peak: f64,
    /// Peak rate of DRAM in bytes per second.
    pub bytes_peak: f64,
    /// Name of the compute peak: `FP32`, `tensor bf16` …
    pub label: String,
}

/// A time against another of the same key.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeJudgement {
    /// The verdict.
    pub verdict: SuiteVerdict,
    /// The other time in nanoseconds, divided by this one: above 1, this one is faster.
    pub speedup: Option<f64>,
    /// Interval of the speedup.
    pub ci95: Option<[f64; 2]>,
    /// The smallest effect that counted, as a fraction.
    pub threshold: Option<f64>,
    /// The reason of INCOMPARABLE and of a gate that was missed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// The verdict on a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum SuiteVerdict {
    /// The whole interval lies beyond the threshold on the faster side.
    Faster,
    /// The whole interval lies beyond the threshold on the slower side, or a gate was missed.
    Slower,
    /// The whole interval lies within the threshold.
    Same,
    /// Neither faster, slower nor the same for certain, e.g. the interval crosses the threshold.
    Ambiguous,
    /// There is nothing to compare with.
    New,
    /// There is, but made under other conditions.
    Incomparable,
}

impl SuiteVerdict {
    /// The name as displayed and as in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::New => "NEW",
            Self::Incomparable => "INCOMPARABLE",
            Self::Faster => TimeVerdict::Faster.as_str(),
            Self::Slower => TimeVerdict::Slower.as_str(),
            Self::Same => TimeVerdict::Same.as_str(),
            Self::Ambiguous => TimeVerdict::Ambiguous.as_str(),
        }
    }
}

impl From<TimeVerdict> for SuiteVerdict {
    fn from(verdict: TimeVerdict) -> Self {
        match verdict {
            TimeVerdict::Faster => Self::Faster,
            TimeVerdict::Slower => Self::Slower,
            TimeVerdict::Same => Self::Same,
            TimeVerdict::Ambiguous => Self::Ambiguous,
        }
    }
}

/// The comparison of the two sides of a pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairResult {
    /// The verdict on the optimised side.
    pub verdict: TimeVerdict,
    /// The baseline's time over that of the optimised side; of several sizes, the geometric mean.
    pub speedup: Option<f64>,
    /// 95 % interval of the speedup.
    pub ci95: Option<[f64; 2]>,
    /// Whether the interval spans the least speedup that is asked for, or lies below it.
    pub too_close: bool,
    /// One sentence with the reason.
    pub summary: String,
    /// For each tool, whether it has results for both sides, or why not.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// Sizes that were too close to call before these, with their speedups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grown: Vec<GrownSizes>,
    /// The comparison at each size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<SizeSpeedup>,
}

/// The comparison of the two sides of a pair at one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SizeSpeedup {
    /// Name of the size.
    pub size: String,
    /// The baseline's time divided by that of the optimised side.
    pub speedup: f64,
    /// 95 % interval of the speedup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// The verdict on the optimised side.
    pub verdict: TimeVerdict,
}

/// Sizes at which a pair was too close to call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GrownSizes {
    /// The sizes, as `n=1024`, with `;` between the groups.
    pub sizes: String,
    /// The speedup of the pair at these sizes; null if it was not determined.
    pub speedup: Option<f64>,
    /// Its 95 % interval.
    pub ci95: Option<[f64; 2]>,
    /// Id of the run.
    pub run: String,
}

impl SuiteRun {
    /// The number of cases in this state.
    pub fn count(&self, state: RowState) -> usize {
        self.rows.iter().filter(|row| row.state == state).count()
    }

    /// All times with their rows.
    pub fn times(&self) -> impl Iterator<Item = (&SuiteRow, &SuiteTime)> {
        self.rows.iter().flat_map(|row| row.times.iter().map(move |time| (row, time)))
    }
}

/// The schema name of a comparison of suites.
pub const COMPARISON_SCHEMA: &str = "rgpu.suite_compare/1";

/// Two runs of a suite, compared (`rgpu.suite_compare/1`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteComparison {
    /// Name and version of this schema: `rgpu.suite_compare/1`.
    pub schema: String,
    /// Id of the base.
    pub a: String,
    /// Id of the run compared with the base.
    pub b: String,
    /// The smallest effect that counts, as a fraction.
    pub threshold: f64,
    /// The times of `b`, in its order.
    pub rows: Vec<ComparedRow>,
    /// Times that only the base has: case, side and sizes.
    pub only_a: Vec<String>,
    /// Cases that ended well in `a` and failed in `b`, with their reasons.
    pub newly_failed: Vec<String>,
}

/// A time of both runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedRow {
    /// The case: the target, with the values of its axes in brackets.
    pub case: String,
    /// The side: `kernel`, `baseline` or `optimised`.
    pub side: String,
    /// The sizes, as `n=1024`, with `;` between the groups.
    pub sizes: String,
    /// Median of the base in nanoseconds; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a_ns: Option<f64>,
    /// Median of the other run in nanoseconds.
    pub b_ns: f64,
    /// The verdict.
    #[serde(flatten)]
    pub judgement: TimeJudgement,
}

impl SuiteComparison {
    /// The number of times with this verdict.
    pub fn count(&self, verdict: SuiteVerdict) -> usize {
        self.rows.iter().filter(|row| row.judgement.verdict == verdict).count()
    }
}
