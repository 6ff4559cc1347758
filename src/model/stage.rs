//! The parts of a model's work that it marks itself: prefill, decode, a stage of blocks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Utilization;

/// One NVTX region of a kernel with a `[model]`, over all times that it was entered in the timed
/// phase of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// The case.
    pub case: String,
    /// The region's own name: `LLM@prefill`.
    pub region: String,
    /// How often it was entered.
    pub instances: u64,
    /// Mean time of an instance in nanoseconds, by `clock`.
    pub mean_ns: f64,
    /// `gpu`: what the GPU worked on what was launched inside; `host`: from entering to leaving.
    pub clock: String,
    /// Floating-point operations of an instance, from `[work.regions]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops: Option<f64>,
    /// The rate at which they were done, in FLOP/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops_per_s: Option<f64>,
    /// That rate against the peak: `percent` is the model FLOP utilisation (MFU). Absent where no
    /// peak is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<Utilization>,
    /// Where the times come from: path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}
