//! How near a case came to what its device can do: model FLOP utilisation and its kin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One case's work, as `[work]` counts it, against the peaks of the device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpeedOfLight {
    /// The case.
    pub case: String,
    /// Floating-point operations: `percent` is the model FLOP utilisation (MFU).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops: Option<Utilization>,
    /// Bytes through DRAM, as far as the counted bytes really go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Utilization>,
    /// The side that would take longer at its peak: `compute` or `memory`.
    pub bound: String,
    /// Nanoseconds that this side would take at its peak.
    pub least_ns: f64,
    /// That time as a share of the measured median, in percent.
    pub percent: f64,
}

/// A rate against its peak.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Utilization {
    /// What was reached, in `unit`.
    pub achieved: f64,
    /// The peak, in `unit`.
    pub peak: f64,
    /// `FLOP/s` or `byte/s`.
    pub unit: String,
    /// `achieved / peak`, in percent.
    pub percent: f64,
    /// Which peak: `FP32`, `tensor bf16 to fp32`, `DRAM` …
    pub label: String,
    /// Where the peak comes from: `report`, `device`, `datasheet`, or `measured` beside the run.
    pub source: String,
    /// What to know about the choice of the peak.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}
