//! One kernel launch as a profiler saw it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Classification, Metric, Value};

/// A launch. Launches of one kernel are separate entries, in time order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Launch {
    /// Number in this profile, from 0.
    pub id: u32,
    /// Demangled name.
    pub kernel: String,
    /// Mangled name, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mangled: Option<String>,
    /// Blocks in x, y, z; absent for a range, which has no grid of its own.
    #[serde(default, skip_serializing_if = "unmeasured")]
    pub grid: [u32; 3],
    /// Threads in x, y, z; absent for a range.
    #[serde(default, skip_serializing_if = "unmeasured")]
    pub block: [u32; 3],
    /// The tool's own duration in nanoseconds, under the tool's clock policy; the run's time is in
    /// [`super::profile::Timing`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<f64>,
    /// Start in nanoseconds since the first event of the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_ns: Option<u64>,
    /// CUDA stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<u64>,
    /// Registers per thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Static and dynamic shared memory per block in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
    /// The NVTX ranges around the launch, outermost first, as path parts; a range of a domain
    /// other than the default is `domain@name`.
    #[serde(default)]
    pub region: Vec<String>,
    /// Metrics by NVIDIA's id.
    #[serde(default)]
    pub metrics: BTreeMap<String, Metric>,
    /// Why warps waited, largest first.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// What bounds this launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classification: Option<Classification>,
    /// The tool's own rule messages.
    #[serde(default)]
    pub rules: Vec<RuleMessage>,
    /// The tool's own section tables, as its details page shows them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raw_sections: Vec<RawSection>,
    /// Ceilings and achieved points of the tool's roofline charts.
    #[serde(default)]
    pub roofline: Vec<Roof>,
    /// Index of the code ([`super::KernelCode`]) in the profile's `code`, where joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
}

/// Whether a size is not known: none that CUDA launches has a zero.
pub(crate) fn unmeasured(size: &[u32; 3]) -> bool {
    *size == [0; 3]
}

impl Launch {
    /// A metric's number.
    pub fn number(&self, id: &str) -> Option<f64> {
        self.metrics.get(id).and_then(|m| m.value.as_f64())
    }

    /// The first of `ids` that is there, with its id: metric names vary with the architecture.
    pub fn first_number<'a>(&self, ids: &[&'a str]) -> Option<(&'a str, f64)> {
        ids.iter().find_map(|id| self.number(id).map(|x| (*id, x)))
    }
}

/// A stall reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// NVIDIA's name without prefix and suffix: `long_scoreboard`.
    pub reason: String,
    /// Share of all warp cycles between two issues, in percent (from the exact counters).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// Warp samples with this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
}

/// A message of one of the tool's own rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RuleMessage {
    /// The rule's id, e.g. `SOLBottleneck`.
    pub rule: String,
    /// `ok`, `warning`, `error`, `optimization`, `none`.
    pub kind: String,
    /// Short title.
    pub title: String,
    /// Its text without markup.
    pub text: String,
    /// Estimated speed-up in percent, as the rule says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speedup_percent: Option<f64>,
}

/// A section of the tool's own report, in the tool's words and order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RawSection {
    /// The tool's id, e.g. `SpeedOfLight`.
    pub id: String,
    /// Its name, e.g. `GPU Speed Of Light Throughput`.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The rows of its head, which is what the tool's details page prints.
    #[serde(default)]
    pub rows: Vec<RawRow>,
    /// The tables and bar charts of its body.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<RawTable>,
    /// What the tool's rules said about it: numbers in the launch's `rules`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<u32>,
}

/// A table or bar chart of a section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RawTable {
    /// Its label.
    pub label: String,
    /// Its rows; metrics without a value are left out.
    pub rows: Vec<RawRow>,
}

/// One labelled value of a section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RawRow {
    /// The tool's label, e.g. `Memory Throughput`.
    pub label: String,
    /// The metric's id.
    pub metric: String,
    /// Its value, in the base unit.
    pub value: Value,
    /// Base unit, as in [`Metric`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

/// One ceiling of a roofline with the achieved point under it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Roof {
    /// The chart, e.g. `SpeedOfLight_RooflineChart`.
    pub chart: String,
    /// The ceiling's label, e.g. `FP32`, `DRAM`.
    pub label: String,
    /// Highest value: FLOP/s for compute ceilings, byte/s for memory ceilings.
    pub peak: f64,
    /// `FLOP/s` or `byte/s`.
    pub unit: String,
    /// What the launch reached, same unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub achieved: Option<f64>,
    /// Where the ceiling comes from: `report`, `device`, `datasheet`.
    pub source: String,
}
