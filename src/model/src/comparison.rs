//! A comparison of two runs or reports: `compare.json` (`rgpu.compare/1`).
//!
//! `a` is the base, `b` the side compared with it. Every ratio of times is `a / b`, so that above 1
//! means that `b` is faster. The rules behind the verdict are in `analysis/compare/`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RungId;
use super::account::AccountCause;
use super::finding::GainScope;
use super::open_enum::open_enum;
use super::profile::{CheckVerdict, Gap};

/// The schema name that every comparison carries.
pub const SCHEMA: &str = "rgpu.compare/1";

/// The result of comparing two profiles.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Name and version of this schema: `rgpu.compare/1`.
    pub schema: String,
    /// The base side.
    pub a: ComparedSide,
    /// The side compared with the base.
    pub b: ComparedSide,
    /// Overall verdict on the time.
    pub verdict: TimeVerdict,
    /// One sentence: the verdict with its numbers and, if metrics explain it, the reason.
    pub summary: String,
    /// Smallest effect that counts, as a fraction: 0.01 is 1 %.
    pub threshold: f64,
    /// The time that the verdict is based on; absent if either side has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeChange>,
    /// Times of each case of sizes that both sides measured.
    #[serde(default)]
    pub cases: Vec<CaseChange>,
    /// Kernels that both sides launched, longest time first.
    #[serde(default)]
    pub kernels: Vec<KernelChange>,
    /// Kernels that only the base launched.
    #[serde(default)]
    pub only_a: Vec<UnmatchedKernel>,
    /// Kernels that only the other side launched.
    #[serde(default)]
    pub only_b: Vec<UnmatchedKernel>,
    /// NVTX regions that both sides have.
    #[serde(default)]
    pub regions: Vec<RegionChange>,
    /// Ranks that both sides have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankChange>,
    /// Where the time of a step, or of the program, changed; absent unless both sides have accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<AccountChange>,
    /// Differences in the conditions of the two sides; not empty only if the user forced the
    /// comparison.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// For each tool, whether it has results for both sides, or why not.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// Data that cannot be compared, each with the reason.
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

/// One side of a comparison.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedSide {
    /// As the user named it: a run, a file or a kernel.
    pub name: String,
    /// Run id, or the file's name.
    pub run: String,
    /// The kernel or program.
    pub kernel: String,
    /// Mode, or the kind of file: `ncu`, `nsys`, `bench` …
    pub mode: String,
    /// Id of the rung that was reached.
    pub rung: RungId,
    /// Name of the GPU, if known.
    pub device: Option<String>,
    /// Result of the check: `right`, `wrong`, `unchecked`; absent if nothing was checked.
    pub correctness: Option<CheckVerdict>,
    /// Path of its profile in the comparison's run folder.
    pub profile: Option<String>,
}

/// The times of one rank on both sides, in nanoseconds; see [`super::ranks::RankTime`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankChange {
    /// Number of the rank.
    pub rank: u32,
    /// From the start of its first work to the end of the last.
    pub span_ns: [u64; 2],
    /// Time in which kernels other than collectives ran.
    pub compute_ns: [u64; 2],
    /// Time in which collectives ran and nothing computed.
    pub exposed_ns: [u64; 2],
    /// Time in which only copies ran.
    pub copy_ns: [u64; 2],
    /// Time in which nothing ran.
    pub idle_ns: [u64; 2],
    /// Time in which its collectives waited for a later rank.
    pub waited_ns: [u64; 2],
    /// By how much it came last to collectives.
    pub late_ns: [u64; 2],
}

/// The accounts of both sides, base first.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountChange {
    /// What the times are of: a step, or the whole program if not both sides have steps.
    pub of: GainScope,
    /// Time of it in nanoseconds.
    pub ns: [u64; 2],
    /// What to know when reading it; absent if nothing.
    pub note: Option<String>,
    /// The causes whose time changed, largest change first.
    #[serde(default)]
    pub parts: Vec<PartChange>,
}

/// The time of one cause on both sides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartChange {
    /// The cause.
    pub cause: AccountCause,
    /// Time on the critical path in nanoseconds, base first.
    pub ns: [u64; 2],
    /// By how much it grew, in nanoseconds; negative if it fell.
    pub difference_ns: i64,
    /// The kernel, call or operator whose time changed most; empty if none is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub row: String,
}

/// Verdict on the change of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TimeVerdict {
    /// The whole interval lies beyond the threshold on the faster side.
    Faster,
    /// The whole interval lies beyond the threshold on the slower side.
    Slower,
    /// The whole interval lies within the threshold.
    Same,
    /// None of these: the interval crosses the threshold, or there is no interval.
    Ambiguous,
}

impl TimeVerdict {
    /// The name as displayed and as in the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Faster => "FASTER",
            Self::Slower => "SLOWER",
            Self::Same => "SAME",
            Self::Ambiguous => "AMBIGUOUS",
        }
    }
}

/// The time of one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideTime {
    /// Median time in nanoseconds.
    pub median_ns: f64,
    /// 95 % interval of the median in nanoseconds; absent with fewer than five samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95_ns: Option<[f64; 2]>,
    /// Number of samples or launches that the median is taken over.
    pub samples: u64,
}

/// A time on both sides, with the change.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeChange {
    /// Time of the base.
    pub a: SideTime,
    /// Time of the other side.
    pub b: SideTime,
    /// Estimated ratio of the times, `a / b`: above 1, `b` is faster.
    pub speedup: f64,
    /// 95 % interval of the speedup; absent if either time has none.
    pub ci95: Option<[f64; 2]>,
    /// The verdict that follows from the interval.
    pub verdict: TimeVerdict,
    /// Source of the times and the interval: `abba`, `alternated_processes`, `samples`, `launches`.
    pub source: TimeSource,
    /// Number of rounds: for `abba` of four timed calls (a, b, b, a), for `alternated_processes` of
    /// one process of each side. Absent for other sources.
    pub rounds: Option<u64>,
}

/// The change of one case of sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseChange {
    /// Name of the case.
    pub name: String,
    /// Its time on both sides.
    pub time: TimeChange,
}

/// A kernel that both sides launched.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelChange {
    /// Demangled name on the base.
    pub kernel: String,
    /// Name on the other side; absent if it is the same.
    pub kernel_b: Option<String>,
    /// How the kernels were matched: `name_and_geometry`, `name` (the geometry differs), `alone`
    /// (each side has exactly one kernel left).
    pub joined_by: JoinedBy,
    /// Grid and block on the base.
    pub geometry_a: Geometry,
    /// Grid and block on the other side.
    pub geometry_b: Geometry,
    /// Number of launches on each side.
    pub launches: [u64; 2],
    /// Durations as the tool measured them; absent if either side has none.
    pub time: Option<TimeChange>,
    /// The primary verdict on each side; absent unless both sides were classified.
    pub bound: Option<[String; 2]>,
    /// Resources that it uses: registers, shared memory …
    #[serde(default)]
    pub resources: Vec<MetricChange>,
    /// Metrics that changed, most important first.
    #[serde(default)]
    pub metrics: Vec<MetricChange>,
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Geometry {
    /// Blocks in x, y, z.
    #[serde(default, skip_serializing_if = "super::launch::unmeasured")]
    pub grid: [u32; 3],
    /// Threads per block in x, y, z.
    #[serde(default, skip_serializing_if = "super::launch::unmeasured")]
    pub block: [u32; 3],
}

/// A number on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricChange {
    /// NVIDIA's metric name; for a number derived by rgpu, a name that begins with `rgpu.`.
    pub metric: String,
    /// The label of the metric, for users.
    pub label: String,
    /// Value on the base.
    pub a: f64,
    /// Value on the other side.
    pub b: f64,
    /// Unit of both values; empty for a pure number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// `better` or `worse`; `neutral` if neither direction is better.
    pub change: ChangeEffect,
    /// Importance, used for the order: the weight of the metric times the size of the change.
    pub rank: f64,
}

/// A kernel that only one side launched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnmatchedKernel {
    /// Demangled name.
    pub kernel: String,
    /// Grid and block.
    pub geometry: Geometry,
    /// Number of launches.
    pub launches: u64,
    /// GPU time of all launches in nanoseconds, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_ns: Option<f64>,
}

/// An NVTX region that both sides have.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionChange {
    /// Path as users write it: `A::A1`.
    pub region: String,
    /// Number of instances on each side, if the tools report it.
    pub instances: Option<[u64; 2]>,
    /// Number of launches inside that each side recorded, if both recorded any. GPU times of unlike
    /// numbers have no ratio.
    pub launches: Option<[u64; 2]>,
    /// GPU time in nanoseconds on each side, if known.
    pub gpu_ns: Option<[u64; 2]>,
    /// Host time in nanoseconds on each side, if known.
    pub host_ns: Option<[u64; 2]>,
}

/// A difference in the conditions of the two sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The condition that differs: `gpu`, `driver`, `clocks`, `sizes`, `harness`, `mode`,
    /// `language`, `clock`, `l2_flush`, `kernel`.
    pub what: String,
    /// Its value on the base.
    pub a: String,
    /// Its value on the other side.
    pub b: String,
}

/// Whether a tool has results for both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// The compared part: `speedup`, `nsys` or `ncu`.
    pub part: PartName,
    /// Whether the results are available.
    pub there: bool,
    /// Source of the results, or the reason why they are missing.
    pub note: String,
}

open_enum! {
    /// Source of two times and their interval.
    pub enum TimeSource {
        /// Calls interleaved a b b a in one process.
        Abba = "abba",
        /// Processes of each side alternated a b b a, for kernels that cannot share one.
        AlternatedProcesses = "alternated_processes",
        /// Samples of runs of their own.
        Samples = "samples",
        /// Launches that a tool recorded.
        Launches = "launches",
    }
}

open_enum! {
    /// How the kernels of two sides were matched.
    pub enum JoinedBy {
        /// By name, grid and block.
        NameAndGeometry = "name_and_geometry",
        /// By name; grid or block differ.
        Name = "name",
        /// Each side has exactly one kernel left.
        Alone = "alone",
    }
}

open_enum! {
    /// Effect of a change.
    pub enum ChangeEffect {
        /// The value moved in the better direction of its metric.
        Better = "better",
        /// The value moved in the worse direction of its metric.
        Worse = "worse",
        /// Neither direction is better.
        Neutral = "neutral",
    }
}

open_enum! {
    /// Part of a comparison.
    pub enum PartName {
        /// The comparison of the times.
        Speedup = "speedup",
        /// The results of nsys.
        Nsys = "nsys",
        /// The results of ncu.
        Ncu = "ncu",
    }
}
