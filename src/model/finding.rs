//! What the analysis concludes: verdicts with their evidence, findings with hints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What bounds a launch. Several verdicts may hold; one is primary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Classification {
    /// The id of the verdict that matters most: `memory_bound` …
    pub primary: String,
    /// All that hold: the primary one first, then bounds, then the rest, by score.
    pub verdicts: Vec<Verdict>,
}

/// One verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// snake_case id: `memory_bound`, `bank_conflicts` …
    pub verdict: String,
    /// How strongly it holds, 0 to 1.
    pub score: f64,
    /// How much the evidence can carry: `high`, `medium`, `low`.
    pub confidence: String,
    /// The numbers it rests on.
    pub evidence: Vec<Evidence>,
}

/// A number that a verdict rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// Metric id, or our own name for a derived number.
    pub metric: String,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// What it was held against.
    pub threshold: f64,
    /// Where the threshold comes from.
    pub source: String,
}

/// Something to act on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// snake_case id of the rule.
    pub id: String,
    /// `memory`, `compute`, `occupancy`, `correctness`, `host`, `nvtx` …
    pub category: String,
    /// 1 is the first thing to do.
    pub priority: u8,
    /// The launch it is about, where one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<u32>,
    /// Its kernel, where several kernels stand in the profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// What was found, with its number.
    pub text: String,
    /// The next concrete step.
    pub hint: String,
    /// The numbers it rests on.
    #[serde(default)]
    pub evidence: Vec<Evidence>,
}
