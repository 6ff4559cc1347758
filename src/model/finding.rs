//! Conclusions of the analysis: verdicts with their evidence, and findings with hints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;

/// What limits a launch. Several verdicts may hold; one is primary.
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
    /// The unit of the value and the threshold.
    pub unit: String,
    /// The threshold that the value was compared with.
    pub threshold: f64,
    /// Source of the threshold.
    pub source: String,
}

/// A finding: a problem or an opportunity, with the next step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// snake_case id of the rule.
    pub id: String,
    /// `memory`, `compute`, `occupancy`, `correctness`, `host`, `nvtx` …
    pub category: String,
    /// Priority; 1 is the first thing to do.
    pub priority: u8,
    /// Id of the launch that it concerns; absent if it concerns no single launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<u32>,
    /// Name of that launch's kernel; absent if the profile has only one kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Description, with the number that shows it.
    pub text: String,
    /// The next concrete step.
    pub hint: String,
    /// The numbers that the finding is based on.
    #[serde(default)]
    pub evidence: Vec<Evidence>,
}

open_enum! {
    /// How reliable the evidence for a verdict is.
    pub enum Confidence {
        /// Exact counters with no other explanation.
        High = "high",
        /// Counters that usually have this explanation.
        Medium = "medium",
        /// An indication only.
        Low = "low",
    }
}
