//! Measured times beside their speed-of-light bound, at the specified and at the measured clock.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::speed_of_light::SpeedBound;

/// A measured time of one case as a share of its bound: no run of this work on this GPU is faster,
/// unless its data were in a cache.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoundShare {
    /// Name of the case.
    pub case: String,
    /// The GPU's name in the catalogue of `rgpu model hw list`.
    pub gpu: String,
    /// The resource that sets the bound at the specified clock: `compute` or `memory`.
    pub limit: SpeedBound,
    /// That resource in words: `the tensor cores (bf16)`, `the FP32 units`, `HBM`.
    pub unit: String,
    /// The bound at the clock for which the peaks are specified, in nanoseconds.
    pub bound_ns: f64,
    /// `bound_ns` as a share of the measured median, in percent. Above 100 the measurement or the
    /// counted work is wrong, or data was in a cache.
    pub percent: f64,
    /// The clock for which the peaks are specified, in MHz; absent if it is not known.
    pub specified_mhz: Option<f64>,
    /// The same at the clock that was measured; absent if either clock is not known.
    pub at_measured_clock: Option<ShareAtClock>,
    /// What kernels with this work were measured to take; absent if none such were measured.
    pub predicted: Option<PredictedTime>,
}

impl BoundShare {
    /// The measured median, in nanoseconds.
    pub fn measured_ns(&self) -> f64 {
        100.0 * self.bound_ns / self.percent
    }
}

/// The time that `rgpu model` predicts, from measured efficiencies.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PredictedTime {
    /// The prediction, in nanoseconds.
    pub ns: f64,
    /// The range in which 80 % of such kernels lie, in nanoseconds.
    pub likely_ns: [f64; 2],
    /// The GPU whose efficiencies these are; absent if it is this one.
    pub borrowed_from: Option<String>,
}

/// A bound and its share at another clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShareAtClock {
    /// The median SM clock during the measurement, in MHz.
    pub mhz: f64,
    /// The bound at this clock, in nanoseconds. Memory keeps its rate.
    pub bound_ns: f64,
    /// `bound_ns` as a share of the measured median, in percent.
    pub percent: f64,
}
