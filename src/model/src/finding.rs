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
    /// Where in the user's own code it is, most time first; empty if the recording does not tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub code: Vec<CodePlace>,
    /// For idle time: where it is, most time first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<IdleGroup>,
}

/// A place in the user's own code: the innermost frame outside of packages, Python and CUDA from
/// which the calls of a finding came.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodePlace {
    /// The source file, relative to the program's folder if it is in there; for native code the
    /// executable or library.
    pub file: String,
    /// The line of the call, from 1; in mode `torch` that of the function's `def`. Absent for native
    /// code.
    pub line: Option<u32>,
    /// The function; absent if it is not known.
    pub function: Option<String>,
    /// The part of the finding's time that comes from there, 0 to 1.
    pub share: f64,
}

/// Id of the finding about start-up.
pub const START_UP: &str = "gpu_waits_for_first_launches";

/// A finding that could give back a smaller part of a step is told in a list at the end.
pub const MIN_STEP_SHARE: f64 = 0.01;

/// Time that acting on a finding could give back. Times of several findings can overlap.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PotentialGain {
    /// Nanoseconds that it could give back, of one step if `of` is `step`. Of a `bound`: at most.
    pub ns: u64,
    /// The lower end of the interval; absent if none is known. Of a `bound`, the next busiest unit of
    /// the GPU then runs at 60 % of its peak, at the upper end at its peak.
    pub low_ns: Option<u64>,
    /// The upper end of the interval; absent without one.
    pub high_ns: Option<u64>,
    /// The part of the time of `of`, 0 to 1.
    pub share: f64,
    /// The time that this is a part of: `step` (one step), `program` (from the first kernel to the
    /// end of the last, of one GPU), `kernel` (all launches of the profile's kernels, summed) or
    /// `region`.
    pub of: GainScope,
    /// The region; only if `of` is `region`.
    pub region: Option<String>,
    /// What is changed, in a few words; absent if `ns` is of no single change.
    pub change: Option<String>,
    /// `replayed` (the steps with this change were computed again) or `bound` (an upper bound from
    /// the finding's own numbers).
    #[serde(default)]
    pub kind: GainKind,
    /// Time of a step before the change, in nanoseconds; only if `of` is `step`.
    pub step_ns: Option<u64>,
}

impl PotentialGain {
    /// An upper bound of `ns` nanoseconds, the part `share` (0 to 1) of `of`.
    pub fn bound(ns: u64, of: GainScope, share: f64) -> PotentialGain {
        PotentialGain { ns, of, share, kind: GainKind::Bound, ..PotentialGain::default() }
    }

    /// Nanoseconds by which gains of different scopes compare: of one step where the program has
    /// `steps` of them, of the whole program if `steps` is 0. Times of kernels are sums over `gpus`,
    /// which run at the same time.
    pub fn comparable_ns(&self, steps: u64, gpus: u64) -> u64 {
        let of_one_gpu = match self.of {
            GainScope::Step => return self.ns,
            GainScope::Program | GainScope::Region => self.ns,
            _ => self.ns / gpus.max(1),
        };
        of_one_gpu / steps.max(1)
    }
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
    /// The time that a [`PotentialGain`] is a part of.
    pub enum GainScope {
        /// One step.
        Step = "step",
        /// The time from the first kernel to the end of the last, of one GPU.
        Program = "program",
        /// The time of all launches of the profile's kernels, summed over GPUs.
        Kernel = "kernel",
        /// The time of one region.
        Region = "region",
    }
}

impl GainScope {
    /// The time in words; that of a region without its name.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Step => "a step",
            Self::Program => "the time from the first kernel to the last",
            Self::Region => "the time of the region",
            _ => "the GPU time",
        }
    }
}

open_enum! {
    /// Where a [`PotentialGain`] comes from.
    pub enum GainKind {
        /// The graph of the steps was replayed with the change.
        Replayed = "replayed",
        /// An upper bound from the finding's own numbers.
        Bound = "bound",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_of_different_scopes_compare_by_the_time_of_a_step_on_one_gpu() {
        let gain = |of| PotentialGain::bound(1200, of, 0.5);
        let compared = |steps, gpus| {
            let scopes =
                [GainScope::Step, GainScope::Program, GainScope::Kernel, GainScope::Region];
            scopes.map(|of| gain(of).comparable_ns(steps, gpus))
        };
        assert_eq!(compared(10, 4), [1200, 120, 30, 120]);
        assert_eq!(compared(0, 0), [1200; 4], "no steps, and no GPU is known");
    }

    #[test]
    fn the_gain_of_an_older_profile_can_be_read() {
        let older = r#"{"ns": 5, "of": "gpu_time", "share": 0.5}"#;
        let gain: PotentialGain = serde_json::from_str(older).unwrap();
        assert_eq!((gain.ns, gain.of.words(), gain.kind.as_str()), (5, "the GPU time", ""));
    }
}
