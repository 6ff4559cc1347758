//! One kernel launch as a profiler saw it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;
use super::speed_of_light::PeakSource;
use super::{Classification, Metric, Value};

/// One kernel launch. Launches of the same kernel are separate entries, in time order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Launch {
    /// Number of the launch in this profile, from 0.
    pub id: u32,
    /// Demangled name.
    pub kernel: String,
    /// Mangled name, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mangled: Option<String>,
    /// Blocks in x, y, z; absent for the result of a range, which has no grid.
    #[serde(default, skip_serializing_if = "unmeasured")]
    pub grid: [u32; 3],
    /// Threads per block in x, y, z; absent for the result of a range.
    #[serde(default, skip_serializing_if = "unmeasured")]
    pub block: [u32; 3],
    /// Duration in nanoseconds as the tool measured it, under the tool's clock policy. The time of
    /// the case is in [`super::profile::Timing`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<f64>,
    /// Start in nanoseconds since the first event of the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<u64>,
    /// The id of the CUDA stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u64>,
    /// Number of the rank; absent for one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Registers per thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Static and dynamic shared memory per block in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
    /// The NVTX ranges around the launch, outermost first; a range of a domain other than the
    /// default is `domain@name`.
    #[serde(default)]
    pub region: Vec<String>,
    /// Whether `region` is inferred: the launching thread opens no range itself, and another thread
    /// was in the region.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub region_inferred: bool,
    /// Metrics by NVIDIA's metric name.
    #[serde(default)]
    pub metrics: BTreeMap<String, Metric>,
    /// Warp stall reasons, largest first.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// The verdicts on this launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classification: Option<Classification>,
    /// Messages of the tool's own rules.
    #[serde(default)]
    pub rules: Vec<RuleMessage>,
    /// The tool's own section tables, as on its details page.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raw_sections: Vec<RawSection>,
    /// Ceilings and achieved points of the tool's roofline charts.
    #[serde(default)]
    pub roofline: Vec<Roof>,
    /// Metrics that the tool sampled while the launch ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<MetricSeries>,
    /// Index of the kernel's code ([`super::KernelCode`]) in the profile's `code`; absent if there
    /// is no match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
}

/// Whether a grid or block is unknown. CUDA launches none with a zero.
pub(crate) fn unmeasured(size: &[u32; 3]) -> bool {
    *size == [0; 3]
}

impl Launch {
    /// The value of a metric; `None` if it is absent or a text.
    pub fn number(&self, id: &str) -> Option<f64> {
        self.metrics.get(id).and_then(|m| m.value.as_f64())
    }

    /// The first of `ids` that has a value, with its id: metric names vary with the architecture.
    pub fn first_number<'a>(&self, ids: &[&'a str]) -> Option<(&'a str, f64)> {
        ids.iter().find_map(|id| self.number(id).map(|x| (*id, x)))
    }
}

/// A warp stall reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// NVIDIA's name without prefix and suffix: `long_scoreboard`.
    pub reason: String,
    /// Share of all warp cycles between two issues, in percent, from hardware counters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// Number of warp samples with this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
}

/// A metric that was sampled while a launch ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricSeries {
    /// The tool's name, with the sampler's prefix: `TPC.TriageCompute.sm__cycles_active.avg`.
    pub metric: String,
    /// Base unit, as in [`Metric`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// From the start of the launch to the first value, in nanoseconds.
    pub start_ns: u64,
    /// From one value to the next, in nanoseconds.
    pub interval_ns: f64,
    /// At most 128 values. Each is the mean of its interval.
    pub values: Vec<f64>,
}

/// A message of one of the tool's own rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RuleMessage {
    /// The rule's id, e.g. `SOLBottleneck`.
    pub rule: String,
    /// `ok`, `warning`, `error`, `optimization`, `none`.
    pub kind: MessageKind,
    /// The title of the message.
    pub title: String,
    /// Text without markup.
    pub text: String,
    /// Estimated speed-up in percent, as the rule gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup_percent: Option<f64>,
}

/// A section of the tool's own report, with the tool's labels and order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RawSection {
    /// The tool's identifier, e.g. `SpeedOfLight`.
    pub id: String,
    /// Display name, e.g. `GPU Speed Of Light Throughput`.
    pub name: String,
    /// The tool's description of the section.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Rows of the section header, which the tool's details page prints.
    #[serde(default)]
    pub rows: Vec<RawRow>,
    /// Tables and bar charts of the section body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<RawTable>,
    /// Rule messages of this section: indexes into the launch's `rules`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<u32>,
}

/// A table or bar chart of a section body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RawTable {
    /// The label of the table, as the tool prints it.
    pub label: String,
    /// Rows; metrics without a value are left out.
    pub rows: Vec<RawRow>,
}

/// One labelled value of a section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RawRow {
    /// The tool's label, e.g. `Memory Throughput`.
    pub label: String,
    /// The name of the metric.
    pub metric: String,
    /// Value in the base unit.
    pub value: Value,
    /// Base unit, as in [`Metric`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

/// One ceiling of a roofline chart with the achieved point below it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Roof {
    /// The chart, e.g. `SpeedOfLight_RooflineChart`.
    pub chart: String,
    /// The ceiling's label, e.g. `FP32`, `DRAM`.
    pub label: String,
    /// Height of the ceiling: FLOP/s for compute, byte/s for memory.
    pub peak: f64,
    /// `FLOP/s` or `byte/s`.
    pub unit: String,
    /// Rate that the launch reached, in `unit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub achieved: Option<f64>,
    /// Source of the ceiling: `report`, `device`, `datasheet`.
    pub source: PeakSource,
}

open_enum! {
    /// Kind of a rule's message.
    pub enum MessageKind {
        /// Nothing is wrong.
        Ok = "ok",
        /// A warning.
        Warning = "warning",
        /// An error of the rule.
        Error = "error",
        /// Something to improve.
        Optimization = "optimization",
        /// No kind.
        None = "none",
    }
}
