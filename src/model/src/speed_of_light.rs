//! Rates of a case as shares of the device's peaks, such as model FLOP utilisation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;

/// The work of one case, as `[work]` counts it, compared with the peaks of the device.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpeedOfLight {
    /// Name of the case.
    pub case: String,
    /// Floating-point rate; its `percent` is the model FLOP utilisation (MFU).
    pub flops: Option<Utilization>,
    /// DRAM rate; exact only if the counted bytes really go through DRAM.
    pub bytes: Option<Utilization>,
    /// The resource that would take longer at its peak rate: `compute` or `memory`.
    pub bound: SpeedBound,
    /// Time that `bound` would take at its peak rate, in nanoseconds.
    pub least_ns: f64,
    /// `least_ns` as a share of the measured median, in percent.
    pub percent: f64,
}

/// A rate compared with its peak.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Utilization {
    /// Achieved rate, in `unit`.
    pub achieved: f64,
    /// Peak rate, in `unit`.
    pub peak: f64,
    /// Unit: `FLOP/s` or `byte/s`.
    pub unit: String,
    /// `achieved / peak`, in percent.
    pub percent: f64,
    /// Name of the peak: `FP32`, `tensor bf16 to fp32`, `DRAM` …
    pub label: String,
    /// Source of the peak: `report`, `device`, `datasheet`, or `measured` (on the device, with the
    /// run).
    pub source: PeakSource,
    /// Remark on the choice of the peak.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

open_enum! {
    /// The resource that takes longer at its peak rate.
    pub enum SpeedBound {
        /// The arithmetic of the kernel.
        Compute = "compute",
        /// The memory traffic of the kernel.
        Memory = "memory",
    }
}

open_enum! {
    /// Source of a peak rate.
    pub enum PeakSource {
        /// The report's own chart.
        Report = "report",
        /// Attributes of the device.
        Device = "device",
        /// NVIDIA's datasheet of the GPU.
        Datasheet = "datasheet",
        /// A measurement on the device, with the run.
        Measured = "measured",
    }
}
