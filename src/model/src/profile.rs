//! The profile: everything rgpu knows about one run, as one JSON document (`rgpu.profile/1`).
//!
//! The importers (`rgpu_import`) fill it from the files that tools wrote on the host, and
//! `rgpu_analysis` adds verdicts and findings. It is stored as `profile.json` in the run
//! folder; reports, comparisons, the dashboard and the MCP server read it. Doc comments of fields
//! are also the descriptions in `schemas/profile.json`.
//!
//! A rung is one command that can do a step of a plan; the ladder lists the rungs of a step, best
//! first. A worse rung measures less ([`Profile::data_lost_on_rung`]).

use std::collections::BTreeMap;

use rgpu_protocol::{HostFacts, RungRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bound::BoundShare;
use super::finding::{KernelVerdict, MIN_STEP_SHARE, START_UP};
use super::memory::MemoryUse;
use super::open_enum::open_enum;
use super::ranks::Ranks;
use super::sanitizer::SanitizerResult;
use super::selection::Selection;
use super::timeline::{CopySum, KernelSum, Timeline};
use super::{Account, Finding, KernelCode, Launch, Operator, Region, RungId, SpeedOfLight, Stage};

/// The schema name that every profile carries.
pub const SCHEMA: &str = "rgpu.profile/1";

/// The profile of one run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// Name and version of this schema: `rgpu.profile/1`.
    pub schema: String,
    /// When, where and how it ran.
    pub run: RunInfo,
    /// The host it ran on.
    pub host: Option<HostFacts>,
    /// UUID of the GPU used, one of `host.gpus`; absent if no GPU was used.
    pub gpu: Option<String>,
    /// The GPU's name as the reports give it.
    pub device: Option<String>,
    /// The kernel or program that was profiled.
    pub kernel: KernelInfo,
    /// Id of the rung whose results these are: `ncu.asked`, `cpu` …; `none` if nothing ran.
    pub rung: RungId,
    /// The part of the program that was profiled; absent if all of it was, with the tool's
    /// defaults.
    pub selection: Option<Selection>,
    /// Every rung tried, in order.
    #[serde(default)]
    pub ladder: Vec<RungRecord>,
    /// Missing data, each with the reason.
    #[serde(default)]
    pub gaps: Vec<Gap>,
    /// Time of the default case, measured without a profiling tool.
    pub timing: Option<Timing>,
    /// Results of each case.
    #[serde(default)]
    pub cases: Vec<CaseResult>,
    /// The time that a leaderboard would rank; absent for a kernel that is meant for none.
    pub score: Option<Score>,
    /// Geometric means over the cases; absent unless several were timed on a GPU.
    pub geometric_mean: Option<GeometricMean>,
    /// Rates of each case that has `[work]`, as shares of the device's peaks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub speed_of_light: Vec<SpeedOfLight>,
    /// Times of cases that have `[work]` as shares of their speed-of-light bound; only on a GPU of
    /// the catalogue of `rgpu model hw list`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound: Vec<BoundShare>,
    /// Stages of a model or a training, in the order in which they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// Correctness over all cases.
    pub correctness: Option<Correctness>,
    /// Launches, in time order.
    #[serde(default)]
    pub launches: Vec<Launch>,
    /// Launches summed by kernel, longest first.
    #[serde(default)]
    pub kernels: Vec<KernelSum>,
    /// Copies and memsets summed by kind.
    #[serde(default)]
    pub copies: Vec<CopySum>,
    /// NVTX regions, parents before children.
    #[serde(default)]
    pub regions: Vec<Region>,
    /// Operators of a framework, longest first: by GPU time if it is known, else by host time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<Operator>,
    /// Largest use of each GPU's memory by a framework's allocator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryUse>,
    /// Busy time of each GPU and the causes of its idle time; absent without a trace that has them.
    pub timeline: Option<Timeline>,
    /// Where the time of a step, and of the program, goes; absent without a trace that tells.
    pub account: Option<Account>,
    /// The ranks of a program of several processes on GPUs; absent for one process.
    pub ranks: Option<Ranks>,
    /// Results of the sanitizer tools.
    #[serde(default)]
    pub sanitizer: Vec<SanitizerResult>,
    /// Compiled code of the kernels.
    #[serde(default)]
    pub code: Vec<KernelCode>,
    /// The kernels with at least 5 % of the GPU time, longest first, with what limits each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_verdicts: Vec<KernelVerdict>,
    /// Findings to act on, most time at stake first.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Warnings about the run, such as the state of the host before the first timed call.
    #[serde(default)]
    pub warnings: Vec<Gap>,
    /// Files of the run folder.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
}

impl Profile {
    /// The part of a step that acting on a finding could give back, 0 to 1. `None` if no steps are
    /// known, or the finding is not about time.
    pub fn step_share(&self, finding: &Finding) -> Option<f64> {
        let step = self.account.as_ref()?.step.as_ref().filter(|step| step.median_ns > 0)?;
        let gpus = self.timeline.as_ref().map_or(1, Timeline::gpus) as u64;
        let ns = finding.stake.as_ref()?.comparable_ns(step.count, gpus);
        Some(ns as f64 / step.median_ns as f64)
    }

    /// Whether acting on a finding could give back so little of a step that it is only told in a
    /// list at the end.
    pub fn is_little(&self, finding: &Finding) -> bool {
        let timed = finding.category != "correctness" && finding.id != START_UP;
        timed && self.step_share(finding).is_some_and(|share| share < MIN_STEP_SHARE)
    }

    /// What the reached rung cannot measure, as text; `None` if it measures everything.
    pub fn data_lost_on_rung(&self) -> Option<&str> {
        let reached = self.ladder.iter().rev().find(|record| record.ok && record.rung == self.rung);
        reached.map(|record| record.loses.as_str()).filter(|lost| !lost.is_empty())
    }

    /// The warning that a pass was stopped before the program ended, with how to avoid that; `None`
    /// if none was.
    pub fn stopped_pass(&self) -> Option<&Gap> {
        self.selection.as_ref()?.left_out.iter().find(|gap| gap.code == "stopped")
    }

    /// Everything that was not measured: the gaps, then the parts that the selection left out.
    pub fn missing(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter().chain(self.selection.iter().flat_map(|selection| &selection.left_out))
    }

    /// Whether it has a number from a GPU: a time of the kernel, a launch, a copy or memory. The
    /// host's clock around a program says only in mode `bench` what was asked for.
    pub fn has_gpu_number(&self) -> bool {
        let is_program = self.kernel.language == CodeLanguage::Program;
        let has_host_time = self.gpu.is_some() && (!is_program || self.run.mode == "bench");
        let is_of_gpu = |timing: &Timing| match timing.clock {
            TimingClock::CpuReference => false,
            TimingClock::HostClock => has_host_time,
            _ => true,
        };
        let mut timings = self.cases.iter().filter_map(|case| case.timing.as_ref());
        timings.any(is_of_gpu)
            || self.timing.as_ref().is_some_and(is_of_gpu)
            || !(self.launches.is_empty() && self.kernels.is_empty() && self.copies.is_empty())
            || !self.memory.is_empty()
            || self.ranks.as_ref().is_some_and(Ranks::has_gpu_time)
    }

    /// Whether any time is that of the CPU reference, which says nothing about the kernel.
    pub fn has_cpu_reference_time(&self) -> bool {
        let timings = self.cases.iter().filter_map(|case| case.timing.as_ref());
        timings.chain(&self.timing).any(|timing| timing.clock == TimingClock::CpuReference)
    }
}

/// When, where and how a run was made.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunInfo {
    /// The id of the run.
    pub id: String,
    /// RFC 3339, UTC, by the laptop's clock.
    pub started: String,
    /// Wall-clock seconds of the whole run.
    pub seconds: f64,
    /// Cost of the run in US dollars; absent if unknown.
    pub cost_usd: Option<f64>,
    /// Source of `cost_usd`: `provider` (the provider's bill) or `price` (`seconds` times the price
    /// in the remote's settings).
    pub cost_from: Option<CostSource>,
    /// Mode: `ncu`, `nsys`, `bench` …
    pub mode: String,
    /// Name of the remote; `local` for this machine.
    pub remote: String,
    /// The command line as typed, secrets removed.
    #[serde(default)]
    pub command: Vec<String>,
    /// Labels of `--label KEY=VALUE`, by key.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The version of rgpu.
    pub rgpu: String,
    /// The SM clock in MHz at which `--lock-clocks` locked the GPU; absent: as it was found.
    pub locked_sm_mhz: Option<u32>,
}

/// The kernel or program profiled.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelInfo {
    /// Name of the kernel; for a program, its file name.
    pub name: String,
    /// The language: `cuda`, `python`, `cute` or `triton`; `program` or `report` if unknown.
    pub language: CodeLanguage,
    /// Entry point; empty if unknown or for a program.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub entry: String,
    /// Path of the source, relative to the project if it lies inside it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// sha256 of the source.
    pub sha256: Option<String>,
    /// Architectures that the code was compiled for: `sm_90a` …
    #[serde(default)]
    pub arch: Vec<String>,
    /// Compiler and machine that produced the code, e.g. `nvcc 13.0 on h200`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compiler: String,
    /// The model that was run: of a Python kernel with a `[model]`, or of a program in mode
    /// `torch`.
    pub model: Option<ModelInfo>,
}

/// A model, as described in kernel.toml and as built.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelInfo {
    /// Name of the model.
    pub name: String,
    /// Variant of the model, such as its size.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// Dtype of most parameters as built; before that, the dtype given in kernel.toml.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dtype: String,
    /// Number of parameters, counted after the model was built.
    pub parameters: Option<u64>,
    /// Further settings of the model from kernel.toml.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// Best measured rate of large matrix products of this dtype on the same device, in FLOP/s. It
    /// serves as the peak if no datasheet gives one.
    pub matmul_flops_per_s: Option<f64>,
}

/// A piece of missing data with the reason. Also used for warnings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// Stable code: `no_driver`, `nan_metric`, `unknown_metric`, `no_gpu_rows` …
    pub code: String,
    /// The missing data and the reason, as a sentence.
    pub text: String,
}

/// Time of a case, measured around single launches without a profiling tool; `clock` says how.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// Median of the samples in nanoseconds.
    pub median_ns: f64,
    /// 95 % confidence interval of the median in nanoseconds, from order statistics.
    pub ci95_ns: [f64; 2],
    /// Number of samples kept.
    pub samples: u64,
    /// Number of samples dropped because clocks changed or the GPU was throttled.
    #[serde(default)]
    pub discarded: u64,
    /// Shortest sample in nanoseconds.
    pub min_ns: f64,
    /// Median absolute deviation in nanoseconds.
    pub mad_ns: f64,
    /// Source of the times: `cuda_events`, `host_clock`, `cpu_reference`.
    pub clock: TimingClock,
    /// Time of `rgpu_prepare` in nanoseconds; only for host entries.
    pub prepare_ns: Option<f64>,
    /// Whether L2 was flushed before each sample.
    #[serde(default)]
    pub l2_flushed: bool,
    /// Bytes written before each sample to flush L2: twice the L2 size that the device reports.
    pub flushed_bytes: Option<u64>,
    /// Wall-clock time of one call in nanoseconds, from the launch on an idle GPU until the whole
    /// GPU is idle again; median of a few calls made before the samples. If it is far above
    /// `median_ns`, the kernel does work that the events do not cover, or its launch is slow.
    pub wall_ns: Option<f64>,
    /// Number of distinct inputs over the timed calls; equals the number of calls if each
    /// got its own data.
    pub distinct_inputs: Option<u64>,
    /// Number of timed calls whose outputs were compared with the reference's outputs for the same
    /// inputs; absent if none were.
    pub verified: Option<u64>,
    /// Number of timed calls whose outputs were compared, bit by bit, with those of the first call
    /// on the same inputs; absent if none were.
    pub repeated: Option<u64>,
    /// Median SM clock over the samples in MHz.
    pub sm_mhz: Option<f64>,
    /// GPU temperature at the end in °C.
    pub temperature_c: Option<f64>,
    /// Throttle reasons seen, by their NVML names.
    #[serde(default)]
    pub throttle: Vec<String>,
    /// Floating-point operations per second at the median; the count comes from `[work]`.
    pub flops_per_s: Option<f64>,
    /// Bytes per second at the median; the count comes from `[work]`.
    pub bytes_per_s: Option<f64>,
    /// How the samples are spread.
    pub histogram: Option<Histogram>,
    /// The time inside a CUDA graph; only for short kernels.
    pub graph: Option<GraphTiming>,
    /// The wait for a hot GPU before the samples; absent if it was not hot.
    pub cooling: Option<Cooling>,
    /// How far the kernel could have influenced the times; absent in runs of older builds.
    pub trust: Option<Trust>,
    /// Why the times are `unprotected`.
    pub trust_reason: Option<String>,
    /// The judge's own wall time in nanoseconds a call, over rounds whose outputs were all right:
    /// the kernel's work took no longer than that. The judge is the process that holds the clock.
    pub bound_ns: Option<f64>,
    /// The least and the largest of the rounds of `bound_ns`.
    pub bound_range_ns: Option<[f64; 2]>,
    /// Median of the times that the kernel's process claimed, in nanoseconds.
    pub claimed_ns: Option<f64>,
    /// Bytes that any right kernel moves: those of the outputs, and of the inputs as far as changes
    /// of them were seen to change the outputs; absent if unknown.
    pub needed_bytes: Option<u64>,
    /// Size of the GPU's L2 in bytes, as it reports it.
    pub l2_bytes: Option<u64>,
}

/// How far the kernel could have influenced its times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// The kernel's code cannot reach the clock: it has no code on the host, or the claims of its
    /// process agree with the judge's clock.
    Proven,
    /// The time is the judge's bound, because the claims of the kernel's process lie below it.
    Bounded,
    /// The kernel shares a process with its clock.
    Unprotected,
}

/// A wait until a hot GPU had cooled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cooling {
    /// Seconds that were waited.
    pub seconds: f64,
    /// Headroom before the wait: °C below the temperature at which the driver slows the GPU down.
    pub from_c: i32,
    /// Headroom after the wait.
    pub to_c: i32,
}

/// Samples of a time, counted in bins of one width.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Histogram {
    /// Where the first bin begins, in nanoseconds.
    pub low_ns: f64,
    /// Where the last bin ends, in nanoseconds.
    pub high_ns: f64,
    /// Number of samples in each bin.
    pub counts: Vec<u64>,
    /// Number of samples far below the bins.
    #[serde(default)]
    pub below: u64,
    /// Number of samples far above the bins.
    #[serde(default)]
    pub above: u64,
}

/// Time of a call inside a CUDA graph, with L2 flushed before each call.
///
/// A graph with several calls and the flushes between them is replayed in turn with a graph of the
/// flushes alone. The time is their difference, divided by the number of calls: the kernel, and the
/// step from one node of a graph to the next, which may change from session to session; then
/// `prepare_ns` changes with it. `median_ns` of the timing is the same call between two
/// CUDA events, where the gaps between event and launch count too.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphTiming {
    /// Median of the samples in nanoseconds.
    pub median_ns: f64,
    /// 95 % confidence interval of the median in nanoseconds, from order statistics. If the samples
    /// jump between two levels, it covers both.
    pub ci95_ns: [f64; 2],
    /// Number of samples kept.
    pub samples: u64,
    /// Number of samples dropped because clocks changed or the GPU was throttled.
    #[serde(default)]
    pub discarded: u64,
    /// Number of calls in the graph.
    pub launches: u64,
    /// Median time between two calls in nanoseconds, which is subtracted: flushing L2, restoring
    /// inputs and poisoning outputs.
    pub prepare_ns: f64,
    /// Number of nodes that each call adds to the graph; absent if unknown.
    pub call_nodes: Option<u64>,
    /// Number of nodes between two calls; absent if unknown.
    pub prepare_nodes: Option<u64>,
    /// How the samples are spread.
    pub histogram: Option<Histogram>,
}

/// The time that a leaderboard would rank, of those of its benchmarks. A smaller one is better.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// One time of our medians of the benchmarks, in nanoseconds; absent if not all were timed.
    pub time_ns: Option<f64>,
    /// How the times become one: `last` (the last benchmark), `mean` or `geom` (geometric mean).
    pub ranking_by: String,
    /// Number of benchmarks.
    pub benchmarks: u64,
    /// The result of the board's own program; absent if it did not run.
    pub board: Option<BoardScore>,
}

/// The result of a leaderboard's own program, which measures by its own rules.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoardScore {
    /// One time of that program's means, in nanoseconds; absent if it gave none.
    pub time_ns: Option<f64>,
    /// That program's mean time of each benchmark in nanoseconds, in the board's order.
    #[serde(default)]
    pub mean_ns: Vec<f64>,
    /// How far the kernel could have influenced these times: it shares that program's process.
    pub trust: Trust,
    /// Why there is no time. Empty if there is one.
    #[serde(default)]
    pub message: String,
}

/// Geometric means over the cases.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeometricMean {
    /// Number of cases included.
    pub cases: u64,
    /// Geometric mean of the medians, in nanoseconds.
    pub median_ns: f64,
    /// 95 % interval of the mean in nanoseconds, derived from the intervals of the medians (MOVER,
    /// on logarithms).
    pub ci95_ns: Option<[f64; 2]>,
    /// Geometric mean of the shares of the compute peak, in percent; absent unless every case has
    /// one and the peak is the same.
    pub flops_percent: Option<f64>,
    /// Geometric mean of the shares of the DRAM peak, in percent; absent unless every case has one
    /// and the peak is the same.
    pub bytes_percent: Option<f64>,
}

/// Results of one case of sizes.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseResult {
    /// Name of the case.
    pub name: String,
    /// Sizes by variable name, one map for each group of a grouped kernel; usually there is one.
    #[serde(default)]
    pub sizes: Vec<BTreeMap<String, i64>>,
    /// Measured time; absent if the case was not timed.
    pub timing: Option<Timing>,
    /// Result of the check; absent if the case was not checked.
    pub correctness: Option<Correctness>,
    /// Times of forms of the reference on the same data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub baselines: Vec<BaselineTime>,
}

/// The time of a form of the reference, beside the kernel's.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BaselineTime {
    /// The form: `eager` (as written) or `compile` (after `torch.compile`).
    pub form: String,
    /// Median of its samples in nanoseconds.
    pub median_ns: f64,
    /// This time over the kernel's; absent if the kernel was not timed.
    pub speedup: Option<f64>,
}

/// Whether the outputs are correct.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Correctness {
    /// The verdict: `right`, `wrong` or `unchecked`.
    pub verdict: CheckVerdict,
    /// Number of elements compared, or judged by a function of the task.
    #[serde(default)]
    pub checked: u64,
    /// Number of elements outside the tolerance.
    #[serde(default)]
    pub wrong: u64,
    /// The largest absolute error of an element.
    pub max_abs: Option<f64>,
    /// The largest relative error of an element.
    pub max_rel: Option<f64>,
    /// The first wrong element in words: output, index, value found, value expected.
    pub first_wrong: Option<String>,
    /// Whether two calls on the same inputs gave the same bits.
    pub bit_equal: Option<bool>,
    /// Number of timed calls whose outputs were compared with the reference, not counted in
    /// `checked`.
    pub timed_calls: Option<u64>,
    /// Number of distinct inputs over those timed calls.
    pub timed_inputs: Option<u64>,
    /// The reference and tolerance used, or the reason why nothing was checked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A file of the run folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// Path in the run folder.
    pub path: String,
    /// Kind of file: `ncu_rep`, `cubin`, `ptx` …
    pub kind: ArtifactKind,
    /// Id of the step that produced it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// Size in bytes.
    pub size: u64,
    /// sha256 of the content.
    pub sha256: String,
}

open_enum! {
    /// Source of the cost of a run.
    pub enum CostSource {
        /// The provider's bill for the run.
        Provider = "provider",
        /// The run's seconds times the price in the remote's settings.
        Price = "price",
    }
}

open_enum! {
    /// Source of a kernel's times.
    pub enum TimingClock {
        /// CUDA events around the launches.
        CudaEvents = "cuda_events",
        /// The host's clock, around a launch or a whole program.
        HostClock = "host_clock",
        /// The host's clock, around the reference on the CPU. It says nothing about the kernel.
        CpuReference = "cpu_reference",
    }
}

open_enum! {
    /// Result of the check against the reference.
    pub enum CheckVerdict {
        /// All values are within the tolerance.
        Right = "right",
        /// At least one value is not.
        Wrong = "wrong",
        /// Nothing was compared, so nothing is known.
        Unchecked = "unchecked",
    }
}

open_enum! {
    /// Kind of a file of the run folder.
    pub enum ArtifactKind {
        /// A report of ncu.
        NcuRep = "ncu_rep",
        /// A page of a report as ncu prints it.
        NcuCsv = "ncu_csv",
        /// A report of nsys.
        NsysRep = "nsys_rep",
        /// A report of nsys, exported to SQLite.
        NsysSqlite = "nsys_sqlite",
        /// A raw recording of nsys that was not converted to a report.
        NsysQdstrm = "nsys_qdstrm",
        /// A table as `nsys stats` prints it.
        NsysStatsCsv = "nsys_stats_csv",
        /// The output of Compute Sanitizer.
        SanitizerLog = "sanitizer_log",
        /// The records of Compute Sanitizer.
        SanitizerXml = "sanitizer_xml",
        /// A report of cases by the runner or the harness.
        CaseReport = "case_report",
        /// The results of a program of nvbench.
        NvbenchJson = "nvbench_json",
        /// A log of ranges, by the runner or the harness where no tool records them.
        Ranges = "ranges",
        /// A log of the collector.
        NvtxLog = "nvtx_log",
        /// A trace of torch's profiler.
        TorchTrace = "torch_trace",
        /// Compiled code for one architecture.
        Cubin = "cubin",
        /// The text of a PTX module.
        Ptx = "ptx",
        /// A listing of compiled code.
        Sass = "sass",
        /// A shared library with a host entry: C functions that launch the kernels (`rgpu.h`).
        Library = "library",
        /// Intermediate code: of the CuTe DSL or Triton, or the preprocessed C++ of nvcc.
        Ir = "ir",
        /// Attributes of a compiled kernel (registers, shared memory …), from the CuTe DSL or
        /// Triton.
        CompiledAttrs = "compiled_attrs",
        /// What the CuTe DSL or Triton compiled: kernels with their options, or layouts.
        Dsl = "dsl",
        /// A file of the host that `rgpu exec --pull` fetched.
        Pulled = "pulled",
    }
}

open_enum! {
    /// Language of a kernel.
    pub enum CodeLanguage {
        /// CUDA C++, compiled by nvcc or NVRTC.
        Cuda = "cuda",
        /// Python that uses torch.
        Python = "python",
        /// NVIDIA's CuTe DSL in Python.
        Cute = "cute",
        /// Triton, in Python.
        Triton = "triton",
        /// Unknown: a program of the user.
        Program = "program",
        /// Unknown: a file of another tool.
        Report = "report",
    }
}
