//! Two runs or reports side by side: `compare.json` (`rgpu.compare/1`).
//!
//! `a` is the base, `b` what it is held against; every ratio of times is `a / b`, so that above 1
//! means that `b` is faster. The rules behind the verdict stand in `analysis/compare/`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::profile::Gap;

/// The schema's name, in every comparison.
pub const SCHEMA: &str = "rgpu.compare/1";

/// What comparing two profiles gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// [`SCHEMA`].
    pub schema: String,
    /// The base.
    pub a: ComparedSide,
    /// What is held against it.
    pub b: ComparedSide,
    /// What became of the time.
    pub verdict: TimeVerdict,
    /// One sentence: the verdict with its numbers and, where metrics tell, why.
    pub summary: String,
    /// The least effect that counts, as a fraction: 0.01 is 1 %.
    pub threshold: f64,
    /// The time the verdict rests on; absent where either side has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeChange>,
    /// Each case of sizes that both sides measured.
    #[serde(default)]
    pub cases: Vec<CaseChange>,
    /// Kernels that both sides launched, those with the most time first.
    #[serde(default)]
    pub kernels: Vec<KernelChange>,
    /// Kernels of the base alone.
    #[serde(default)]
    pub only_a: Vec<Unmatched>,
    /// Kernels of the other side alone.
    #[serde(default)]
    pub only_b: Vec<Unmatched>,
    /// NVTX regions that both sides have.
    #[serde(default)]
    pub regions: Vec<RegionChange>,
    /// In what the sides are unlike; not empty only where the user forced the comparison.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// What each tool gave, for both sides, or why it is not there.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// What cannot be compared and why.
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

/// One of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedSide {
    /// As the user named it: a run, a file or a kernel.
    pub name: String,
    /// The run's id, or the file's name.
    pub run: String,
    /// The kernel or program.
    pub kernel: String,
    /// `ncu`, `nsys`, `bench` … or the file's kind.
    pub mode: String,
    /// The rung reached.
    pub rung: String,
    /// The GPU's name, where one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Correctness: `right`, `wrong`, `unchecked`; absent where nothing was checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correctness: Option<String>,
    /// Its profile, as a path in the comparison's run folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

/// What became of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TimeVerdict {
    /// The whole interval lies beyond the threshold, on the fast side.
    Faster,
    /// The same on the slow side.
    Slower,
    /// The whole interval lies within the threshold.
    Same,
    /// Neither: the interval crosses the threshold, or there is none.
    Ambiguous,
}

impl TimeVerdict {
    /// As shown and as in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Faster => "FASTER",
            Self::Slower => "SLOWER",
            Self::Same => "SAME",
            Self::Ambiguous => "AMBIGUOUS",
        }
    }
}

/// A time on one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideTime {
    /// Median in nanoseconds.
    pub median_ns: f64,
    /// 95 % interval of the median in nanoseconds; absent for fewer than five samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_ns: Option<[f64; 2]>,
    /// Samples or launches it is the median of.
    pub samples: u64,
}

/// A time on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeChange {
    /// On the base.
    pub a: SideTime,
    /// On the other side.
    pub b: SideTime,
    /// How many times as fast `b` is: above 1 is faster.
    pub speedup: f64,
    /// 95 % interval of the speedup; absent where either time has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// What follows from the interval.
    pub verdict: TimeVerdict,
    /// Where the times and the interval come from: `abba`, `samples`, `launches`.
    pub source: String,
    /// Rounds of four timed calls (a, b, b, a), for `abba`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u64>,
}

/// One case of sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseChange {
    /// Its name.
    pub name: String,
    /// Its time.
    pub time: TimeChange,
}

/// One kernel on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelChange {
    /// Demangled name, on the base.
    pub kernel: String,
    /// Its name on the other side, where it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_b: Option<String>,
    /// How the two were joined: `name_and_geometry`, `name` (the geometry changed), `alone` (each
    /// side has just one kernel left).
    pub joined_by: String,
    /// Grid and block on the base.
    pub geometry_a: Geometry,
    /// Grid and block on the other side.
    pub geometry_b: Geometry,
    /// Launches on each side.
    pub launches: [u64; 2],
    /// The tool's own durations; absent where either side has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeChange>,
    /// What bounds it, before and after, where both sides were classified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<[String; 2]>,
    /// What it occupies.
    #[serde(default)]
    pub resources: Vec<MetricChange>,
    /// Metrics that changed, those that matter most first.
    #[serde(default)]
    pub metrics: Vec<MetricChange>,
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Geometry {
    /// Blocks in x, y, z.
    #[serde(default, skip_serializing_if = "super::launch::unmeasured")]
    pub grid: [u32; 3],
    /// Threads in x, y, z.
    #[serde(default, skip_serializing_if = "super::launch::unmeasured")]
    pub block: [u32; 3],
}

/// A number on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricChange {
    /// NVIDIA's id; ours, beginning with `rgpu.`, for a number made of several.
    pub metric: String,
    /// In words.
    pub label: String,
    /// On the base.
    pub a: f64,
    /// On the other side.
    pub b: f64,
    /// Unit of both; empty for a pure number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// `better`, `worse`; `neutral` where more is neither.
    pub change: String,
    /// How much it matters, for the order: the weight of the metric times the size of the change.
    pub rank: f64,
}

/// A kernel of one side alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unmatched {
    /// Demangled name.
    pub kernel: String,
    /// Grid and block.
    pub geometry: Geometry,
    /// Launches.
    pub launches: u64,
    /// GPU time of all launches in nanoseconds, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_ns: Option<f64>,
}

/// A region on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionChange {
    /// As users write it: `A::A1`.
    pub region: String,
    /// Instances on each side, where the tools tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<[u64; 2]>,
    /// GPU time in nanoseconds on each side, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ns: Option<[u64; 2]>,
    /// Host time in nanoseconds on each side, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ns: Option<[u64; 2]>,
}

/// Something in which the sides are unlike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// `gpu`, `driver`, `clocks`, `sizes`, `harness`, `mode`, `language`, `clock`, `l2_flush`,
    /// `kernel`.
    pub what: String,
    /// On the base.
    pub a: String,
    /// On the other side.
    pub b: String,
}

/// What a tool gave for both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// `speedup`, `nsys`, `ncu`.
    pub part: String,
    /// Whether it is there.
    pub there: bool,
    /// Where it comes from, or why it is not there.
    pub note: String,
}
