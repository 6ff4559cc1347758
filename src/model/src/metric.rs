//! A measured value with its unit and its source.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SharedText;

/// A metric of a launch or a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Metric {
    /// The value of the metric.
    pub value: Value,
    /// Base unit as printed by NVIDIA's tools with `--print-units base`: `ns`, `byte`, `%`, `inst`,
    /// `byte/ns` …; empty for pure numbers and texts.
    #[serde(default, skip_serializing_if = "SharedText::is_empty")]
    pub unit: SharedText,
    /// The artifact that the value comes from, as its path in the run folder.
    #[serde(default, skip_serializing_if = "SharedText::is_empty")]
    pub from: SharedText,
}

impl From<Value> for Metric {
    /// A value without unit and source.
    fn from(value: Value) -> Self {
        Self { value, unit: SharedText::default(), from: SharedText::default() }
    }
}

/// A finite number or a text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A whole number, kept exact: counters exceed what f64 can hold.
    Int(u64),
    /// A number that is not NaN or infinite.
    Float(f64),
    /// A text instead of a number.
    Text(String),
}

impl Value {
    /// The value as a number; `None` for a text.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Float(x) => Some(*x),
            Self::Text(_) => None,
        }
    }
}

/// A share of a peak that every report shows of a launch.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MainMetric {
    /// NVIDIA's names. Of a launch the first that it has is shown.
    pub ids: &'static [&'static str],
    /// The head of its column.
    pub head: &'static str,
    /// Its name beside a single number.
    pub name: &'static str,
    /// What it is a share of.
    pub of: &'static str,
}

/// How busy the SMs are.
pub const SM_THROUGHPUT: MainMetric = MainMetric {
    ids: &["sm__throughput.avg.pct_of_peak_sustained_elapsed"],
    head: "SM %",
    name: "Compute (SM)",
    of: "of peak",
};

/// How busy the busiest part of the memory is.
pub const MEMORY_THROUGHPUT: MainMetric = MainMetric {
    ids: &["gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"],
    head: "mem %",
    name: "Memory",
    of: "of peak",
};

/// How busy the DRAM is.
pub const DRAM_THROUGHPUT: MainMetric = MainMetric {
    ids: &[
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    ],
    head: "DRAM %",
    name: "DRAM",
    of: "of peak",
};

/// The warps that were active, of those that an SM can hold.
pub const OCCUPANCY: MainMetric = MainMetric {
    ids: &["sm__warps_active.avg.pct_of_peak_sustained_active"],
    head: "occ %",
    name: "Achieved occupancy",
    of: "of the SM's warps",
};

/// All of them, in the order of reports.
pub const MAIN_METRICS: [MainMetric; 4] =
    [SM_THROUGHPUT, MEMORY_THROUGHPUT, DRAM_THROUGHPUT, OCCUPANCY];
