//! Conclusions of the analysis: verdicts with their evidence, and findings with hints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;
use super::timeline::IdleGroup;

/// The classification of a launch: its verdicts. Several may hold; one is primary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Classification {
    /// Id of the most important verdict: `memory_bound` …
    pub primary: String,
    /// Every verdict that holds: the primary one first, then bounds, then the rest, by score.
    pub verdicts: Vec<Verdict>,
}

/// A statement about what limits a launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// snake_case id: `memory_bound`, `bank_conflicts` …
    pub verdict: String,
    /// How strongly it holds, 0 to 1.
    pub score: f64,
    /// How reliable the evidence is: `high`, `medium`, `low`.
    pub confidence: Confidence,
    /// The verdict in one sentence, with its number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// The numbers that the verdict is based on.
    pub evidence: Vec<Evidence>,
}

/// A number that a verdict or finding is based on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Metric name, or rgpu's own name for a derived number.
    pub metric: String,
    /// The value of the metric.
    pub value: f64,
    /// The unit of the value and the threshold. Times are in `ns`; shares are in `%`, or in
    /// `% of …` where the metric's name does not say of what.
    pub unit: String,
    /// The threshold that the value was compared with. `None` for a number that only explains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// Source of the threshold; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

impl Evidence {
    /// A number that was not compared with a threshold.
    pub fn number(metric: &str, value: f64, unit: &str) -> Evidence {
        Evidence { metric: metric.to_owned(), value, unit: unit.to_owned(), ..Evidence::default() }
    }
}

/// A finding: a problem or an opportunity, with the next step. One cause is one finding, whatever
/// the number of kernels and launches.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// snake_case id of the rule.
    pub id: String,
    /// `memory`, `compute`, `occupancy`, `correctness`, `host`, `nvtx` …
    pub category: String,
    /// Priority; 1 is the first thing to do.
    pub priority: u8,
    /// Time that acting on it could give back; absent if it is not about time, or no time is known.
    pub stake: Option<PotentialGain>,
    /// Id of the launch that it concerns, of several the one with the most time at stake; absent if
    /// it concerns no launch.
    pub launch: Option<u32>,
    /// Name of that launch's kernel; absent if the profile has only one kernel.
    pub kernel: Option<String>,
    /// Number of the rank that it concerns; absent if it concerns no single rank.
    pub rank: Option<u32>,
    /// Description, with the number that shows it.
    pub text: String,
    /// The next concrete step.
    pub hint: String,
    /// The numbers that the finding is based on. Of several launches, those of `launch`.
    #[serde(default)]
    pub evidence: Vec<Evidence>,
    /// The kernels that it covers, most time at stake first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covers: Vec<CoveredKernel>,
    /// For idle time: where it is, most time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<IdleGroup>,
}

/// Time that acting on a finding could give back. It is an upper bound from the finding's own
/// numbers. Times of several findings can overlap.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PotentialGain {
    /// Nanoseconds that it could give back.
    pub ns: u64,
    /// The total that this time is a part of: `gpu_time` (the sum over all kernels and GPUs),
    /// `wall_time` (from the first kernel to the end of the last, of one GPU) or `region`.
    pub of: GainScope,
    /// The region; only if `of` is `region`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The part of that time, 0 to 1.
    pub share: f64,
}

/// The launches of one kernel that a finding covers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CoveredKernel {
    /// Demangled name.
    pub kernel: String,
    /// Number of launches that it covers: those that were judged, and those that they stand for.
    pub launches: u64,
    /// Their GPU time in nanoseconds.
    pub total_ns: u64,
    /// Time in nanoseconds that they could give back.
    pub stake_ns: u64,
    /// The finding's text for the launch with the most time at stake.
    pub text: String,
}

/// A kernel with at least 5 % of the GPU time, and what limits it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelVerdict {
    /// Demangled name.
    pub kernel: String,
    /// Number of its launches.
    pub launches: u64,
    /// Their GPU time in nanoseconds, without launches that mode `deep` found to be set-up.
    pub total_ns: u64,
    /// The part of the GPU time of all kernels, in percent; without set-up, too.
    pub percent: f64,
    /// Id of the launch that the verdict is about: its longest one with that verdict, or the median
    /// one if they are as short as a launch takes.
    pub launch: Option<u32>,
    /// Id of that launch's primary verdict; absent if it has none.
    pub verdict: Option<String>,
    /// The verdict in one sentence, or why there is none.
    pub text: String,
}

open_enum! {
    /// The total that a [`PotentialGain`] is a part of.
    pub enum GainScope {
        /// The time of all kernels.
        GpuTime = "gpu_time",
        /// The time from the first kernel to the end of the last.
        WallTime = "wall_time",
        /// The time of one region.
        Region = "region",
    }
}

impl GainScope {
    /// The total in words; that of a region without its name.
    pub fn words(&self) -> &'static str {
        match self {
            Self::WallTime => "the time from the first kernel to the last",
            Self::Region => "the time of the region",
            _ => "the GPU time",
        }
    }
}

open_enum! {
    /// How reliable the evidence for a verdict is.
    pub enum Confidence {
        /// Exact counters with no other explanation.
        High = "high",
        /// Counters that usually have this explanation.
        Medium = "medium",
        /// An indication, which may have another explanation.
        Low = "low",
    }
}
