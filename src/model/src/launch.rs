//! One kernel launch as a profiler saw it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;
use super::speed_of_light::PeakSource;
use super::{Classification, Metric, SharedList, SharedText, Value};

/// FP16 operations of a thread that may be loads of constants: two `HFMA2`, each of which counts as
/// four, and rounding.
const MAX_CONSTANT_OPERATIONS: f64 = 8.5;

/// Prefix of the name of an ncu result that covers a whole CUDA graph. The graph's kernels follow.
pub const GRAPH_PREFIX: &str = "CUDA graph of ";

/// Says which operations a rate of the tensor cores counts: a tile that a small product does not
/// fill is executed whole.
pub const EXECUTED: &str = "executed, padding included";

/// One kernel launch. Launches of the same kernel are separate entries, in time order.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Launch {
    /// Number of the launch in this profile, from 0.
    pub id: u32,
    /// Demangled name.
    pub kernel: String,
    /// Mangled name, if known.
    pub mangled: Option<String>,
    /// Blocks in x, y, z; absent for the result of a range, which has no grid.
    #[serde(default, skip_serializing_if = "unmeasured")]
    pub grid: [u32; 3],
    /// Threads per block in x, y, z; absent for the result of a range.
    #[serde(default, skip_serializing_if = "unmeasured")]
    pub block: [u32; 3],
    /// Duration in nanoseconds as the tool measured it, under the tool's clock policy. The time of
    /// the case is in [`super::profile::Timing`].
    pub duration_ns: Option<f64>,
    /// Start in nanoseconds since the first event of the trace.
    pub start_ns: Option<u64>,
    /// The id of the CUDA stream.
    pub stream: Option<u64>,
    /// Number of the rank; absent for one process.
    pub rank: Option<u32>,
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Static and dynamic shared memory per block in bytes.
    pub shared_bytes: Option<u64>,
    /// The NVTX ranges around the launch, outermost first; a range of a domain other than the
    /// default is `domain@name`.
    #[serde(default)]
    pub region: SharedList<String>,
    /// Whether `region` is inferred: the launching thread opens no range itself, or only ranges
    /// around collectives, and another thread was in the region.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub region_inferred: bool,
    /// Metrics by NVIDIA's metric name.
    #[serde(default)]
    pub metrics: BTreeMap<SharedText, Metric>,
    /// Warp stall reasons, largest first.
    #[serde(default)]
    pub stalls: Vec<StallReason>,
    /// The verdicts on this launch.
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
    pub code: Option<u32>,
}

/// Whether a grid or block is unknown. CUDA launches none with a zero.
pub fn unmeasured(size: &[u32; 3]) -> bool {
    *size == [0; 3]
}

impl Launch {
    /// A launch that has nothing but these metrics, without units and sources.
    pub fn from_numbers(metrics: &[(&str, f64)]) -> Self {
        let metric = |(name, x): &(&str, f64)| ((*name).into(), Value::Float(*x).into());
        Self { metrics: metrics.iter().map(metric).collect(), ..Self::default() }
    }

    /// The value of a metric; `None` if it is absent or a text.
    pub fn number(&self, id: &str) -> Option<f64> {
        self.metrics.get(id).and_then(|m| m.value.as_f64())
    }

    /// The first of `ids` that has a value, with its id: metric names vary with the architecture.
    pub fn first_number<'a>(&self, ids: &[&'a str]) -> Option<(&'a str, f64)> {
        ids.iter().find_map(|id| self.number(id).map(|x| (*id, x)))
    }

    /// The compute ceiling with the highest rate reached, in FLOP/s. ncu counts the same operations
    /// below the ceiling of their type (`tensor bf16 to fp32`), which only sparse operations reach,
    /// and below that of the instructions (`tensor hgmma bf16 to fp32`): the latter is returned.
    pub fn compute_roof(&self) -> Option<(&Roof, f64)> {
        let reached = || {
            let compute = self.roofline.iter().filter(|r| r.unit == "FLOP/s" && r.peak > 0.0);
            compute.filter_map(|r| Some((r, r.achieved.filter(|rate| *rate > 0.0)?)))
        };
        let by_instruction: f64 =
            reached().filter(|(roof, _)| roof.names_instruction()).map(|(_, rate)| rate).sum();
        // Half of it, since other instructions can have a part of the type's operations.
        let is_counted_twice = |roof: &Roof, rate: f64| {
            roof.is_tensor() && !roof.names_instruction() && by_instruction >= 0.5 * rate
        };
        reached()
            .filter(|(roof, rate)| {
                !is_counted_twice(roof, *rate) && !self.loads_constants(roof, *rate)
            })
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Whether FP16 operations are nothing but constants that compilers load with `HFMA2`: a few
    /// for each thread, in a kernel that computes in another type.
    fn loads_constants(&self, roof: &Roof, rate: f64) -> bool {
        let Some(ns) = self.duration_ns else { return false };
        let threads = |of: [u32; 3]| of.iter().map(|n| f64::from(*n)).product::<f64>();
        let operations = rate * ns / 1e9;
        let computes = |other: &Roof| {
            matches!(other.label.as_str(), "FP32" | "FP64") && other.achieved > Some(0.0)
        };
        roof.label == "FP16"
            && operations <= MAX_CONSTANT_OPERATIONS * threads(self.grid) * threads(self.block)
            && self.roofline.iter().any(computes)
    }
}

impl Roof {
    /// Whether the ceiling is one of the tensor cores.
    pub fn is_tensor(&self) -> bool {
        self.label.starts_with("tensor ")
    }

    /// Whether the ceiling is that of a matrix instruction (`hmma`, `hgmma`), not of a type.
    fn names_instruction(&self) -> bool {
        self.label.split(' ').any(|word| word.ends_with("mma"))
    }
}

/// A warp stall reason.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StallReason {
    /// NVIDIA's name without prefix and suffix: `long_scoreboard`.
    pub reason: String,
    /// Share of all warp cycles between two issues, in percent, from hardware counters.
    pub percent: Option<f64>,
    /// Number of warp samples with this reason.
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
        /// The rule found nothing wrong.
        Ok = "ok",
        /// A warning of the rule.
        Warning = "warning",
        /// An error of the rule.
        Error = "error",
        /// Something in the kernel to improve.
        Optimization = "optimization",
        /// Information without a kind.
        None = "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compute_ceiling_is_that_of_the_instructions_that_ran() {
        let roof = |label: &str, peak, achieved| Roof {
            chart: "c".to_owned(),
            label: label.to_owned(),
            peak,
            unit: "FLOP/s".to_owned(),
            achieved: Some(achieved),
            source: PeakSource::Report,
        };
        let chosen = |roofline: Vec<Roof>| {
            let launch = Launch { roofline, ..Launch::default() };
            launch.compute_roof().map(|(roof, rate)| (roof.label.clone(), roof.peak, rate))
        };
        let hgmma = "tensor hgmma bf16 to fp32";
        // A product of cuBLAS on an H200, whose tensor cores are 97 % busy.
        let roofs = vec![
            roof("FP32", 5.37e13, 0.0),
            roof(hgmma, 8.59e14, 8.03e14),
            roof("tensor hmma bf16 to fp32", 5.73e14, 0.0),
            roof("tensor bf16 to fp32", 1.72e15, 8.03e14),
        ];
        assert_eq!(chosen(roofs), Some((hgmma.to_owned(), 8.59e14, 8.03e14)));
        // A few products of another type are not what the launch did.
        let fp8 = vec![roof(hgmma, 8.59e14, 1e12), roof("tensor fp8", 1.72e15, 1e15)];
        assert_eq!(chosen(fp8), Some(("tensor fp8".to_owned(), 1.72e15, 1e15)));
        assert_eq!(chosen(vec![roof("FP32", 5.37e13, 0.0)]), None);
    }

    /// CuPy's addition of 16.8 million floats, one for each thread, in 82 µs.
    #[test]
    fn constants_that_hfma2_loads_are_no_work_in_half_precision() {
        let roof = |label: &str, achieved| Roof {
            label: label.to_owned(),
            peak: 6e13,
            unit: "FLOP/s".to_owned(),
            achieved: Some(achieved),
            chart: "c".to_owned(),
            source: PeakSource::Report,
        };
        let chosen = |fp16, fp32| {
            let launch = Launch {
                grid: [131_072, 1, 1],
                block: [128, 1, 1],
                duration_ns: Some(81_840.0),
                roofline: vec![roof("FP16", fp16), roof("FP32", fp32)],
                ..Launch::default()
            };
            launch.compute_roof().map(|(roof, _)| roof.label.clone())
        };
        assert_eq!(chosen(8.2e11, 2.05e11).as_deref(), Some("FP32"));
        assert_eq!(chosen(8.2e11, 0.0).as_deref(), Some("FP16"), "nothing else is computed");
        assert_eq!(chosen(8.2e12, 2.05e11).as_deref(), Some("FP16"), "40 for each thread");
    }
}
