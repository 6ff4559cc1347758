//! The profile: everything known of one run, in one JSON document (`rgpu.profile/1`).

use std::collections::BTreeMap;

use rgpu_protocol::{HostFacts, RungRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sanitizer::SanitizerResult;
use super::selection::Selection;
use super::timeline::{CopySum, KernelSum, Timeline};
use super::{Finding, KernelCode, Launch, Operator, Region, SpeedOfLight, Stage};

/// The schema's name, in every profile.
pub const SCHEMA: &str = "rgpu.profile/1";

/// The profile of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// [`SCHEMA`].
    pub schema: String,
    /// The run.
    pub run: RunInfo,
    /// The host it ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostFacts>,
    /// UUID of the GPU used, one of `host.gpus`; absent where none was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The GPU's name as the reports have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The kernel or program.
    pub kernel: KernelInfo,
    /// The rung that gave the profile: `ncu.asked`, `cpu` …; `none` where nothing ran.
    pub rung: String,
    /// What of the program was looked at; absent where all of it was, with the tool's defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    /// Every rung tried, in order.
    #[serde(default)]
    pub ladder: Vec<RungRecord>,
    /// What is missing and why.
    #[serde(default)]
    pub gaps: Vec<Gap>,
    /// Time of the default case, measured without a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Every case.
    #[serde(default)]
    pub cases: Vec<CaseResult>,
    /// The geometric mean over the cases, where several were timed on a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geometric_mean: Option<GeometricMean>,
    /// How near each case with `[work]` came to the peaks of its device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub speed_of_light: Vec<SpeedOfLight>,
    /// Stages of a model, in the order in which they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// Correctness over all cases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// Operators of a framework, by GPU time where there is one, else by host time; longest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<Operator>,
    /// When each GPU was busy and what it waited for, where a trace tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// Results of the sanitizer tools.
    #[serde(default)]
    pub sanitizer: Vec<SanitizerResult>,
    /// Compiled code.
    #[serde(default)]
    pub code: Vec<KernelCode>,
    /// What to act on, first things first.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// How the host looked before the first timed call.
    #[serde(default)]
    pub warnings: Vec<Gap>,
    /// Files of the run folder.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
}

impl Profile {
    /// What is lost on the rung that was reached, in words; `None` where nothing is.
    pub fn lost(&self) -> Option<&str> {
        let reached = self.ladder.iter().rev().find(|record| record.ok && record.rung == self.rung);
        reached.map(|record| record.loses.as_str()).filter(|lost| !lost.is_empty())
    }

    /// Whether its times are those of the reference on the CPU, and say nothing of the kernel.
    pub fn times_reference(&self) -> bool {
        let timings = self.cases.iter().filter_map(|case| case.timing.as_ref());
        timings.chain(&self.timing).any(|timing| timing.clock == "cpu_reference")
    }
}

/// What was asked, where and when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunInfo {
    /// Run id.
    pub id: String,
    /// RFC 3339, UTC, by the laptop's clock.
    pub started: String,
    /// Wall-clock seconds of the whole run.
    pub seconds: f64,
    /// What it cost in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Whose figure that is: `provider` (it billed so much), or `price` (those seconds at the price
    /// in the remote's settings).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_from: Option<String>,
    /// `ncu`, `nsys`, `bench` …
    pub mode: String,
    /// The remote's name; `local` for this machine.
    pub remote: String,
    /// The command line as typed, secrets removed.
    #[serde(default)]
    pub command: Vec<String>,
    /// The user's labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Version of rgpu.
    pub rgpu: String,
}

/// The kernel or program profiled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelInfo {
    /// Its name; a program's file name.
    pub name: String,
    /// `cuda`, `python`, `program`.
    pub language: String,
    /// Entry point.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub entry: String,
    /// Source, relative to the project where it lies in it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// sha256 of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Architectures compiled for: `sm_90a` …
    #[serde(default)]
    pub arch: Vec<String>,
    /// The compiler that made the code, e.g. `nvcc 13.0 on h200`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub compiler: String,
    /// The model that it runs, for a Python kernel with a `[model]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelInfo>,
}

/// A model, as kernel.toml describes it and as it was built.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelInfo {
    /// Its name.
    pub name: String,
    /// Which of its kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub variant: String,
    /// The dtype of most of its parameters as built, else as kernel.toml says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub dtype: String,
    /// Parameters, counted once it was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// What else kernel.toml says of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// The best rate of large matrix products of this dtype on the same device, in FLOP/s: what a
    /// peak is where no datasheet tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matmul_flops_per_s: Option<f64>,
}

/// Something missing, and why. Also used for warnings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    /// Code: `no_driver`, `nan_metric`, `unknown_metric`, `no_gpu_rows` …
    pub code: String,
    /// In words.
    pub text: String,
}

/// Time of a case: events around single launches without any tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timing {
    /// Median in nanoseconds.
    pub median_ns: f64,
    /// 95 % confidence interval of the median in nanoseconds, from order statistics.
    pub ci95_ns: [f64; 2],
    /// Samples kept.
    pub samples: u64,
    /// Samples dropped (clocks changed, throttled).
    #[serde(default)]
    pub discarded: u64,
    /// Least sample in nanoseconds.
    pub min_ns: f64,
    /// Median absolute deviation in nanoseconds.
    pub mad_ns: f64,
    /// `cuda_events`, `host_clock`, `cpu_reference`.
    pub clock: String,
    /// Time of `rgpu_prepare` in nanoseconds, for host entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_ns: Option<f64>,
    /// Whether L2 was flushed before each sample.
    #[serde(default)]
    pub l2_flushed: bool,
    /// Bytes written over L2 before each sample: twice the size that the device states for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushed_bytes: Option<u64>,
    /// Time of a whole call by the host's clock in nanoseconds, from the launch on an idle GPU until
    /// all of it is idle again; the median of a few calls before the samples. Far above the median:
    /// the kernel works where events do not see it, or its launch is slow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_ns: Option<f64>,
    /// How many different contents of the inputs the timed calls had: as many as calls, where each
    /// got data of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<u64>,
    /// How many timed calls had their outputs compared with what the reference makes of the same
    /// data; absent where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<u64>,
    /// How many timed calls had their outputs compared, bit by bit, with those of the first call on
    /// the same data; absent where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<u64>,
    /// Median SM clock over the samples in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<f64>,
    /// GPU temperature at the end in °C.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// Throttle reasons seen, in NVML's words.
    #[serde(default)]
    pub throttle: Vec<String>,
    /// Floating-point operations per second at the median, from `[work]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops_per_s: Option<f64>,
    /// Bytes per second at the median, from `[work]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
}

/// Geometric means over cases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeometricMean {
    /// Cases in it.
    pub cases: u64,
    /// Of their medians, in nanoseconds.
    pub median_ns: f64,
    /// Its 95 % interval in nanoseconds, recovered from those of the medians (MOVER, on logarithms).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_ns: Option<[f64; 2]>,
    /// Of their shares of the compute peak in percent, where each has one and the peak is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops_percent: Option<f64>,
    /// Of their shares of the DRAM peak in percent, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_percent: Option<f64>,
}

/// One case of sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseResult {
    /// Its name.
    pub name: String,
    /// Sizes by variable, one map a group.
    #[serde(default)]
    pub sizes: Vec<BTreeMap<String, i64>>,
    /// Its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Its correctness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correctness: Option<Correctness>,
}

/// Whether outputs were right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Correctness {
    /// `right`, `wrong`, `unchecked`.
    pub verdict: String,
    /// Elements compared.
    #[serde(default)]
    pub checked: u64,
    /// Elements out of tolerance.
    #[serde(default)]
    pub wrong: u64,
    /// Largest absolute error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_abs: Option<f64>,
    /// Largest relative error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rel: Option<f64>,
    /// The first wrong element in words: output, index, got, expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_wrong: Option<String>,
    /// Whether two calls on the same inputs gave the same bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bit_equal: Option<bool>,
    /// Timed calls whose outputs were compared with the reference, besides the elements above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_calls: Option<u64>,
    /// How many different contents of the inputs those calls had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_contents: Option<u64>,
    /// The reference and tolerance used, or why nothing was checked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A file of the run folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// Path in the run folder.
    pub path: String,
    /// What it is.
    pub kind: String,
    /// The step that made it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// Bytes.
    pub size: u64,
    /// sha256.
    pub sha256: String,
}
