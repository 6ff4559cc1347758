//! Time on the host and the GPU: NVTX regions, sums of kernels and copies, busy and idle time.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;
use super::{Metric, SharedText};

/// One NVTX region: all instances of one path added up.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Region {
    /// Path parts, outermost first; `domain@name` for domains other than the default.
    pub path: Vec<String>,
    /// The kind of range: `push_pop` or `start_end`.
    pub kind: RegionKind,
    /// Number of times it was entered; absent if the tool does not report it (ncu).
    pub instances: Option<u64>,
    /// Host time in nanoseconds over all instances; absent if no tool timed the host. It is not GPU
    /// time unless the program synchronised.
    pub host_ns: Option<u64>,
    /// GPU time in nanoseconds of the work launched inside the region (by the time of the launch
    /// call), inner regions included; absent if no GPU times are known.
    pub gpu_ns: Option<u64>,
    /// Time in nanoseconds from the start of the first work launched inside to the end of the last,
    /// summed over all instances: the range projected onto the GPU, as nsys's `nvtx_gpu_proj_sum`
    /// has it. Absent for start/end regions, and if no trace tells.
    pub gpu_span_ns: Option<u64>,
    /// The part of `gpu_ns` that is inferred: a thread without any range, or only with ranges
    /// around collectives, launched it while another thread was in the region, as autograd's does
    /// in a backward pass.
    pub inferred_gpu_ns: Option<u64>,
    /// Kernels launched inside, summed by name.
    #[serde(default)]
    pub kernels: Vec<KernelSum>,
    /// Metrics of the region as a whole, by NVIDIA's metric name: range replay measures all its
    /// kernels together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<SharedText, Metric>,
    /// Ids of the profile's launches inside, inner regions included; only launches that have
    /// metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<u32>,
    /// Results for the range as a whole (ncu's range replay), one for each time the range was
    /// profiled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<RangeResult>,
    /// Source of the numbers: path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// Result of range replay. Its metrics cover all kernels of the range together, and what happens
/// between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RangeResult {
    /// Id of the entry in the profile's launches that holds the metrics.
    pub launch: u32,
    /// Names of the kernels inside, in launch order; a range has no times of single kernels.
    pub kernels: Vec<String>,
}

impl Region {
    /// The path as users write it: `A::A1`, `domain@A`; a literal `::` in a name is `\::`. A range
    /// in the same domain as its parent does not repeat the domain.
    pub fn display(&self) -> String {
        display_path(&self.path)
    }
}

/// A region's path as users write it; see [`Region::display`].
pub fn display_path(path: &[String]) -> String {
    let mut domain = "";
    let mut parts = Vec::with_capacity(path.len());
    for part in path {
        let (own, name) = part.split_once('@').unwrap_or(("", part));
        let shown = if own == domain { name } else { part };
        parts.push(shown.replace("::", "\\::"));
        domain = own;
    }
    parts.join("::")
}

/// The name of the sum of all CUDA graphs that were traced as a whole, without their kernels.
pub const WHOLE_GRAPHS: &str = "CUDA graphs, not traced by kernel";

/// All launches of one kernel, or of CUDA graphs ([`WHOLE_GRAPHS`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelSum {
    /// Demangled name.
    pub kernel: String,
    /// Number of launches.
    pub launches: u64,
    /// GPU time in nanoseconds.
    pub total_ns: u64,
    /// The part of `total_ns` in launches that are set-up, such as a compiler's benchmarks; absent
    /// if none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_up_ns: Option<u64>,
    /// Shortest duration in nanoseconds.
    pub min_ns: u64,
    /// Longest duration in nanoseconds.
    pub max_ns: u64,
}

impl KernelSum {
    /// GPU time in nanoseconds without set-up.
    pub fn work_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.set_up_ns.unwrap_or(0))
    }
}

/// All copies or memsets of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopySum {
    /// `HtoD`, `DtoH`, `DtoD`, `PtoP`, `memset` …
    pub kind: String,
    /// Number of copies or memsets.
    pub count: u64,
    /// Bytes in total.
    pub bytes: u64,
    /// GPU time in nanoseconds.
    pub total_ns: u64,
}

/// Busy and idle time of each GPU according to a trace, with the causes of idle time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// Part of the trace that was analysed: `program` (all of it), or `timed` (the phase that
    /// rgpu's own runner marked as measured). With `timed`, times are summed over the cases, and
    /// the time between two cases is left out.
    pub scope: TimelineScope,
    /// Whether the trace lists only the first part of the work; the times then cover that part.
    #[serde(default)]
    pub partial: bool,
    /// GPUs that did any work.
    pub devices: Vec<DeviceTime>,
    /// The same by NVTX region, for regions with GPU work.
    #[serde(default)]
    pub regions: Vec<RegionTime>,
    /// The artifact that it was made from, as its path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

impl Timeline {
    /// Number of GPUs that ran kernels.
    pub fn gpus(&self) -> usize {
        self.devices.iter().filter(|device| device.span_ns > 0).count()
    }

    /// Number of ranks whose GPUs ran kernels; 0 for one process.
    pub fn ranks(&self) -> usize {
        let devices = self.devices.iter().filter(|device| device.span_ns > 0);
        devices.filter_map(|device| device.rank).collect::<BTreeSet<u32>>().len()
    }
}

/// Times of one GPU, from the start of its first kernel to the end of its last.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceTime {
    /// Number of the GPU in the tool's numbering.
    pub device: u32,
    /// Number of the rank; absent for one process.
    pub rank: Option<u32>,
    /// From the start of the first kernel to the end of the last, in nanoseconds.
    pub span_ns: u64,
    /// Time in nanoseconds in which anything ran: kernels, graphs, copies, memsets.
    pub busy_ns: u64,
    /// Time in nanoseconds in which nothing ran.
    pub idle_ns: u64,
    /// Time in nanoseconds in which at least one kernel or graph ran.
    pub kernel_ns: u64,
    /// Time in nanoseconds in which at least one copy or memset ran.
    pub copy_ns: u64,
    /// Time in nanoseconds in which kernels or graphs ran at the same time as copies or memsets.
    pub overlap_ns: u64,
    /// Time in nanoseconds in which at least two kernels ran.
    pub concurrent_ns: u64,
    /// Largest number of kernels that ran at the same time.
    pub most_at_once: u32,
    /// Number of launches of NCCL kernels, recognised by their names.
    #[serde(default)]
    pub nccl_launches: u64,
    /// Time in nanoseconds in which at least one NCCL kernel ran.
    #[serde(default)]
    pub nccl_ns: u64,
    /// Time in nanoseconds in which only NCCL kernels ran: communication that no computation hides.
    #[serde(default)]
    pub nccl_alone_ns: u64,
    /// Causes of time without a kernel, longest first. The times add up to `span_ns - kernel_ns`.
    #[serde(default)]
    pub waiting: Vec<WaitSum>,
    /// The part of `waiting` in gaps that are the program's start-up: the host loads libraries,
    /// loads or compiles code, allocates memory, or chooses an algorithm before a launch, once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub first_launches: Vec<WaitSum>,
    /// Time in nanoseconds of that start-up in which the launching thread allocates memory on the
    /// GPU or pinned memory; absent if it allocates none.
    pub start_up_allocation_ns: Option<u64>,
    /// Large copies from and to pageable memory while no kernel ran, by kind, most time first.
    /// Those in gaps that are start-up are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pageable_copies: Vec<PageableCopies>,
    /// Time in nanoseconds in which kernels ran that only tune: those of XLA's autotuning and of
    /// Triton's benchmarks.
    #[serde(default)]
    pub tuning_ns: u64,
    /// Where time without a kernel is, by cause, region and the kernel that ends it; most time
    /// first, without small ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<IdleGroup>,
    /// The longest gaps without a kernel, longest first.
    #[serde(default)]
    pub gaps: Vec<IdleGap>,
    /// Streams, in order of their numbers.
    #[serde(default)]
    pub streams: Vec<StreamTime>,
}

impl DeviceTime {
    /// Nanoseconds of start-up: what tunes kernels, and the time in which the host kept the GPU
    /// without work.
    pub fn start_up_ns(&self) -> u64 {
        self.start_up_idle_ns().saturating_add(self.tuning_ns)
    }

    /// Nanoseconds of start-up in which the host kept the GPU without work.
    pub fn start_up_idle_ns(&self) -> u64 {
        let of_host = |sum: &&WaitSum| {
            matches!(
                sum.cause,
                WaitCause::HostLate | WaitCause::LaunchLatency | WaitCause::Synchronisation
            )
        };
        self.first_launches.iter().filter(of_host).map(|sum| sum.total_ns).sum()
    }
}

/// Time without a kernel that has one cause: `host_late`, `launch_latency`, `synchronisation`,
/// `copy`, `queued` (the work was launched before the GPU ran dry: the GPU's own turnaround, or a
/// wait for another stream), `unknown` (the trace has no call for the work that ran next).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitSum {
    /// The cause of the idle time.
    pub cause: WaitCause,
    /// Idle time in nanoseconds.
    pub total_ns: u64,
    /// Number of gaps in which this cause has the largest part.
    pub gaps: u64,
}

/// Gaps of one cause that end in one region with one kernel.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleGroup {
    /// The cause of the time counted here.
    pub cause: WaitCause,
    /// Whether the gaps are the program's start-up; see `first_launches`.
    #[serde(default)]
    pub first_launch: bool,
    /// The innermost region in which the kernel was launched; absent outside of all regions.
    pub region: Option<String>,
    /// Name of the work that ended the gaps.
    pub before: String,
    /// The call of the longest gap: the one that took most of it, else the one that launched the
    /// kernel.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
    /// The innermost operator or function in which the launching thread was for at least half of
    /// the time of this cause; only of `host_late`, and of a framework's trace that tells.
    pub host: Option<HostWork>,
    /// Number of gaps.
    pub gaps: u64,
    /// The fewest gaps that hold at least 90 % of the time, if they are at most a quarter of all.
    pub long_gaps: Option<LongGaps>,
    /// Time of this cause in nanoseconds.
    pub total_ns: u64,
    /// The part of the longest gap that has this cause, in nanoseconds.
    pub longest_ns: u64,
    /// Start of the longest gap, in nanoseconds since the first event of the trace.
    pub longest_start_ns: u64,
}

/// The longest gaps of a group, if they are few and hold most of its time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LongGaps {
    /// Number of gaps.
    pub gaps: u64,
    /// Their time of the group's cause in nanoseconds.
    pub total_ns: u64,
}

/// Copies of one kind from or to pageable memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageableCopies {
    /// `HtoD` or `DtoH`.
    pub kind: String,
    /// Number of copies.
    pub copies: u64,
    /// Bytes of the smallest.
    pub min_bytes: u64,
    /// Bytes of the largest.
    pub max_bytes: u64,
    /// Time in nanoseconds in which they ran and no kernel did.
    pub total_ns: u64,
    /// Time in nanoseconds in which their calls held the host and no kernel ran.
    pub call_ns: u64,
}

/// An operator or a function of the host that the GPU waited for.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostWork {
    /// Name of the operator, or of a range: `aten::randn`; absent if it was the function itself.
    pub operator: Option<String>,
    /// The Python function, as operators have it in `places`: `data.py(9): load`; absent if the
    /// trace does not tell.
    pub function: Option<String>,
    /// Time of the gaps in nanoseconds in which the thread was there.
    pub total_ns: u64,
}

/// A gap in which no kernel ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleGap {
    /// Start, in nanoseconds since the first event of the trace.
    pub start_ns: u64,
    /// Length of the gap in nanoseconds.
    pub duration_ns: u64,
    /// The cause with the largest part.
    pub cause: WaitCause,
    /// Every cause with its time.
    pub parts: Vec<WaitSum>,
    /// Name of the work that ran before the gap.
    pub after: String,
    /// Name of the work that ran after the gap.
    pub before: String,
    /// The call that launched the next kernel, or the host's wait before that call.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub call: String,
}

/// Work on one CUDA stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamTime {
    /// Number of the CUDA stream.
    pub stream: u64,
    /// Number of kernels and graphs.
    pub kernels: u64,
    /// Number of copies and memsets.
    pub copies: u64,
    /// Time in nanoseconds in which any work of the stream ran.
    pub busy_ns: u64,
}

/// The GPU time of one region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionTime {
    /// Path parts, outermost first.
    pub path: Vec<String>,
    /// Whether its ranges were opened with start/end, not push/pop.
    #[serde(default)]
    pub start_end: bool,
    /// Number of kernels and graphs launched inside, inner regions included.
    pub kernels: u64,
    /// Time in nanoseconds in which any work launched inside ran; work that overlaps is counted
    /// once.
    pub busy_ns: u64,
    /// Time without a kernel that ended with a kernel of this region, by cause.
    #[serde(default)]
    pub waiting: Vec<WaitSum>,
}

open_enum! {
    /// How the ranges of a region were opened.
    pub enum RegionKind {
        /// By push and pop: nested, on one thread.
        PushPop = "push_pop",
        /// By start and end.
        StartEnd = "start_end",
    }
}

open_enum! {
    /// Part of a trace.
    pub enum TimelineScope {
        /// The whole trace: nothing is marked as measured.
        Program = "program",
        /// The phase that rgpu's own runner marked as measured.
        Timed = "timed",
    }
}

open_enum! {
    /// Cause of time without a kernel; see [`WaitSum`].
    pub enum WaitCause {
        /// The host launched late.
        HostLate = "host_late",
        /// The launch was on its way.
        LaunchLatency = "launch_latency",
        /// The host had waited for the GPU.
        Synchronisation = "synchronisation",
        /// Only copies ran in that time.
        Copy = "copy",
        /// The work was launched before the GPU ran dry.
        Queued = "queued",
        /// The trace has no call for the work that ran next.
        Unknown = "unknown",
    }
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
