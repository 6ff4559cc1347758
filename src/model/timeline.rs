//! Time on host and GPU: regions, copies and their sums.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Metric;

/// One NVTX region: all instances of one path summed up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Region {
    /// Path parts, outermost first; `domain@name` for domains other than the default.
    pub path: Vec<String>,
    /// `push_pop` or `start_end`.
    pub kind: String,
    /// How often it was entered; absent where the tool does not tell (ncu).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<u64>,
    /// Host time in nanoseconds over all instances; absent where no tool timed the host. Not GPU
    /// time unless the program synchronised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ns: Option<u64>,
    /// GPU time in nanoseconds of what was launched inside (by the launch call's time), inner
    /// regions included; absent where no GPU times are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ns: Option<u64>,
    /// Kernels launched inside, by name.
    #[serde(default)]
    pub kernels: Vec<KernelSum>,
    /// Metrics of the region as a whole, by NVIDIA's id: range replay measures all its kernels
    /// together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, Metric>,
    /// The profile's launches inside, inner regions included; only of launches with metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<u32>,
    /// Results that a tool took of the range as a whole (ncu's range replay), one for each time it
    /// was profiled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<RangeResult>,
    /// Where the numbers come from: path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// What a tool measured of a whole range at once: the metrics are of all its kernels together, with
/// what lies between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RangeResult {
    /// The entry among the profile's launches that holds the metrics.
    pub launch: u32,
    /// The kernels inside, in the order of their launches; a range has no times of its kernels.
    pub kernels: Vec<String>,
}

impl Region {
    /// The path as users write it: `A::A1`, `domain@A`; a literal `::` in a name is `\::`. A range
    /// in the same domain as the one around it does not repeat the domain.
    pub fn display(&self) -> String {
        let mut domain = "";
        let mut parts = Vec::with_capacity(self.path.len());
        for part in &self.path {
            let (own, name) = part.split_once('@').unwrap_or(("", part));
            let shown = if own == domain { name } else { part };
            parts.push(shown.replace("::", "\\::"));
            domain = own;
        }
        parts.join("::")
    }
}

/// All launches of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelSum {
    /// Demangled name.
    pub kernel: String,
    /// Launches.
    pub launches: u64,
    /// GPU time in nanoseconds.
    pub total_ns: u64,
    /// Least and greatest duration in nanoseconds.
    pub min_ns: u64,
    /// See `min_ns`.
    pub max_ns: u64,
}

/// All copies or memsets of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopySum {
    /// `HtoD`, `DtoH`, `DtoD`, `PtoP`, `memset` …
    pub kind: String,
    /// How many.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// GPU time in nanoseconds.
    pub total_ns: u64,
}

/// What a trace says of the time of each GPU: busy or idle, and what it waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// What was looked at: `program`, or `timed` where rgpu's own runner marked what it measures;
    /// then times are summed over the cases, and what lies between two cases is left out.
    pub scope: String,
    /// Whether the trace lists only the first part of the work: the times are of that part.
    #[serde(default)]
    pub partial: bool,
    /// The GPUs that did something.
    pub devices: Vec<DeviceTime>,
    /// The same by NVTX region, for regions with work in them.
    #[serde(default)]
    pub regions: Vec<RegionTime>,
    /// The artifact it was made from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// The time of one GPU, from the start of its first kernel to the end of its last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceTime {
    /// GPU as the tool numbers it.
    pub device: u32,
    /// From the start of the first kernel to the end of the last, in nanoseconds.
    pub span_ns: u64,
    /// Time in which anything ran: kernels, graphs, copies, fills.
    pub busy_ns: u64,
    /// Time in which nothing ran.
    pub idle_ns: u64,
    /// Time in which at least one kernel or graph ran.
    pub kernel_ns: u64,
    /// Time in which at least one copy or fill ran.
    pub copy_ns: u64,
    /// Time in which both did.
    pub overlap_ns: u64,
    /// Time in which at least two kernels ran.
    pub concurrent_ns: u64,
    /// Most kernels at one moment.
    pub most_at_once: u32,
    /// Kernels of NCCL, by their names: launches.
    #[serde(default)]
    pub nccl_launches: u64,
    /// Time in which at least one of them ran.
    #[serde(default)]
    pub nccl_ns: u64,
    /// Time in which nothing but them ran: communication that no computation hides.
    #[serde(default)]
    pub nccl_alone_ns: u64,
    /// Why no kernel ran, most time first. The times add up to `span_ns - kernel_ns`.
    #[serde(default)]
    pub waiting: Vec<WaitSum>,
    /// The longest times without a kernel, longest first.
    #[serde(default)]
    pub gaps: Vec<IdleGap>,
    /// Streams, by number.
    #[serde(default)]
    pub streams: Vec<StreamTime>,
}

/// Time without a kernel, of one cause: `host_late`, `launch_latency`, `synchronisation`, `copy`,
/// `queued` (the launch was there before the GPU ran dry: its own turnaround, or a wait for another
/// stream), `unknown` (the trace has no call for what ran next).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitSum {
    /// The cause.
    pub cause: String,
    /// Nanoseconds.
    pub total_ns: u64,
    /// Gaps of which it is the largest part.
    pub gaps: u64,
}

/// A time without a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleGap {
    /// When it began, in nanoseconds since the first event of the trace.
    pub start_ns: u64,
    /// How long it was.
    pub duration_ns: u64,
    /// The cause of its largest part.
    pub cause: String,
    /// Every cause with its nanoseconds.
    pub parts: Vec<WaitSum>,
    /// What ran before.
    pub after: String,
    /// What ran next.
    pub before: String,
    /// The call that the next kernel came from, or the host's wait before it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
}

/// One stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamTime {
    /// CUDA stream.
    pub stream: u64,
    /// Kernels and graphs.
    pub kernels: u64,
    /// Copies and fills.
    pub copies: u64,
    /// Time in which anything of the stream ran, in nanoseconds.
    pub busy_ns: u64,
}

/// The GPU time of one region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionTime {
    /// Path parts, outermost first.
    pub path: Vec<String>,
    /// Whether its ranges are start/end ones.
    #[serde(default)]
    pub start_end: bool,
    /// Kernels and graphs launched inside, inner regions included.
    pub kernels: u64,
    /// Time in which anything launched inside ran, in nanoseconds; what ran at the same time is
    /// counted once.
    pub busy_ns: u64,
    /// Time without a kernel that ended with a kernel of this region, by cause.
    #[serde(default)]
    pub waiting: Vec<WaitSum>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_said_once_and_a_literal_separator_is_escaped() {
        let shown = |path: &[&str]| {
            Region { path: path.iter().map(|p| (*p).to_owned()).collect(), ..Region::default() }
                .display()
        };
        assert_eq!(shown(&["rgpu@timed", "rgpu@large", "A", "A1"]), "rgpu@timed::large::A::A1");
        assert_eq!(shown(&["A", "std::sort"]), "A::std\\::sort");
        assert_eq!(shown(&["A", "d@B", "C"]), "A::d@B::C");
    }
}
