//! A program of several ranks: where each rank spent its time, and which rank the others wait for.
//!
//! The analysis of ranks (`rgpu_analysis::ranks`) computes these types from the reports of all
//! ranks ([`super::rank_work`]). They are `ranks` of the profile; reports and comparisons read
//! them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;

/// Bound on the number of ranks: a report that names a rank with this number or a higher one is
/// wrong.
pub const MAX_RANKS: u32 = 1 << 20;

/// The ranks of a program. Times of ranks are unions of intervals, never
/// sums. Lists with one number for each rank are in the order of `ranks`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranks {
    /// How the clocks of the ranks are related.
    pub clock: RankClock,
    /// The ranks, by number.
    pub ranks: Vec<RankTime>,
    /// Collectives that every rank of their group called, by group, operation and size; most time
    /// first.
    #[serde(default)]
    pub collectives: Vec<CollectiveSum>,
    /// Number of calls of collectives that could not be matched between ranks.
    #[serde(default)]
    pub unmatched: u64,
    /// The calls that waited longest for their last rank, longest first.
    #[serde(default)]
    pub waits: Vec<CollectiveWait>,
    /// Ranks that the others wait for, most time first. Their start-up does not count.
    #[serde(default)]
    pub stragglers: Vec<Straggler>,
    /// Computing time of each region by rank, largest difference first.
    #[serde(default)]
    pub regions: Vec<RegionBalance>,
    /// Steps of the program; absent if no range repeats on every rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
}

impl Ranks {
    /// Whether a GPU worked for any rank.
    pub fn has_gpu_time(&self) -> bool {
        let gpu_ns = |rank: &RankTime| rank.compute_ns + rank.communication_ns + rank.copy_ns;
        self.ranks.iter().any(|rank| gpu_ns(rank) > 0)
    }
}

/// A rank of a program, and where it ran.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankLocation {
    /// Number of the rank.
    pub rank: u32,
    /// Name of its host; absent if the report does not tell.
    pub host: Option<String>,
    /// CUDA device number of its GPU in its process; absent if it did no work on a GPU.
    pub gpu: Option<u32>,
    /// Process id; absent if the report does not tell.
    pub pid: Option<u32>,
    /// The report that it was read from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// The relation of the clocks of ranks.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankClock {
    /// The source of a common clock.
    pub source: ClockSource,
    /// For `fitted`: 95 % of the ends of the matched collectives agree to this many nanoseconds. No
    /// order finer than it is claimed.
    pub residual_ns: Option<u64>,
    /// For `fitted`: the number of collectives in the fit of the rank that has the fewest.
    pub collectives: Option<u64>,
}

/// The time of one rank, from the start of its first work on the GPU to the end of its last.
/// `compute_ns`, `exposed_ns`, `copy_ns` and `idle_ns` add up to `span_ns`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankTime {
    /// The rank, its host and its GPU.
    #[serde(flatten)]
    pub location: RankLocation,
    /// From the start of the first work to the end of the last, in nanoseconds.
    pub span_ns: u64,
    /// Time in nanoseconds in which kernels other than collectives ran.
    pub compute_ns: u64,
    /// Time in nanoseconds in which collectives ran.
    pub communication_ns: u64,
    /// The part of `communication_ns` in which nothing computed.
    pub exposed_ns: u64,
    /// The part of `communication_ns` in which kernels computed.
    pub overlapped_ns: u64,
    /// Time in nanoseconds in which only copies and memsets ran.
    pub copy_ns: u64,
    /// Time in nanoseconds in which nothing ran.
    pub idle_ns: u64,
    /// Causes of `idle_ns`, longest first.
    #[serde(default)]
    pub idle: Vec<RankIdle>,
    /// The part of `communication_ns` in which its collectives waited for a later rank.
    pub waited_ns: u64,
    /// Number of collectives to which it came last by more than the clock can err.
    pub times_last: u64,
    /// By how much it came last to these in total, in nanoseconds.
    pub late_ns: u64,
}

/// Idle time of one cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankIdle {
    /// Why nothing ran on the GPU.
    pub cause: RankIdleCause,
    /// Idle time of this cause in nanoseconds.
    pub total_ns: u64,
}

/// Matched calls of one collective.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CollectiveSum {
    /// The operation, e.g. `all_reduce`; the name in the report if it is none of the known ones.
    pub operation: CollectiveOperation,
    /// The process group, by a name that is equal on all its ranks.
    pub group: String,
    /// Number of ranks in the group.
    pub ranks: u32,
    /// Bytes by the convention of nccl-tests: the whole buffer that every rank has before or after.
    /// Absent if the report does not tell.
    pub bytes: Option<u64>,
    /// Number of calls.
    pub calls: u64,
    /// The least duration over ranks, which has no wait for a rank; median over the calls, in
    /// nanoseconds.
    pub median_ns: u64,
    /// Sum of the least durations in nanoseconds.
    pub total_ns: u64,
    /// Time in nanoseconds that ranks waited in these calls for later ranks, summed over ranks.
    pub waited_ns: u64,
    /// `bytes` by `median_ns`, in bytes per second.
    pub algorithm_bytes_per_s: Option<f64>,
    /// The rate of the busiest link, as nccl-tests computes it, in bytes per second.
    pub bus_bytes_per_s: Option<f64>,
    /// `bus_bytes_per_s` as a share of the peak of NVLink, one way, 0 to 1. Absent between hosts,
    /// and for a GPU that the catalogue does not have.
    pub link_share: Option<f64>,
}

/// A call of a collective that waited for its last rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CollectiveWait {
    /// The operation, e.g. `all_reduce`; the name in the report if it is none of the known ones.
    pub operation: CollectiveOperation,
    /// The process group, by a name that is equal on all its ranks.
    pub group: String,
    /// Index among the calls of the group, from 0.
    pub number: u64,
    /// Its start on each rank, in nanoseconds since the first event, or without a common clock that
    /// of the rank's own report; absent on ranks outside the group.
    pub start_ns: Vec<Option<u64>>,
    /// Its duration on each rank in nanoseconds; absent on ranks outside the group.
    pub duration_ns: Vec<Option<u64>>,
    /// The rank that came last.
    pub last: u32,
    /// By how much it came later than the median of the others, in nanoseconds.
    pub late_ns: u64,
    /// The last rank's activity while the others waited.
    pub cause: LateCause,
    /// The region in which it did that; absent outside of all regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

/// A rank that the others wait for.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Straggler {
    /// Number of the rank.
    pub rank: u32,
    /// Number of collectives to which it came last.
    pub times_last: u64,
    /// By how much in total, in nanoseconds.
    pub late_ns: u64,
    /// The activity that took most of the time that the others did not need.
    pub cause: LateCause,
    /// That time in nanoseconds.
    pub cause_ns: u64,
    /// The region in which most of it is; absent outside of all regions.
    pub region: Option<String>,
    /// For `compute`: the kernel that took longer than on the other ranks.
    pub kernel: Option<String>,
}

/// Computing time of one region by rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionBalance {
    /// Path parts, outermost first.
    pub path: Vec<String>,
    /// Time of each rank in nanoseconds in which kernels launched inside computed.
    pub compute_ns: Vec<u64>,
    /// The rank with the most.
    pub slowest: u32,
    /// Maximum of `compute_ns` over its mean, minus 1; 0 is balanced.
    pub imbalance: f64,
}

/// Steps of a program: the ranges of one name, which every rank has equally often.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Steps {
    /// Name of the range, with `#` for a number that counts up.
    pub name: String,
    /// The first steps, at most 200.
    pub steps: Vec<StepTime>,
    /// Number of steps that are not listed.
    #[serde(default)]
    pub cut: u64,
    /// The step that took some rank longest on its host, of all steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest: Option<LongestStep>,
}

/// The longest step of all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LongestStep {
    /// Index among the steps, from 0.
    pub number: u64,
    /// Number of the rank.
    pub rank: u32,
    /// Its duration on the host of this rank, in nanoseconds.
    pub host_ns: u64,
    /// The median over all steps of all ranks, in nanoseconds.
    pub median_ns: u64,
}

/// One step on each rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepTime {
    /// Its start on each rank, in nanoseconds since the first event.
    pub start_ns: Vec<u64>,
    /// Its duration on the host of each rank, in nanoseconds.
    pub host_ns: Vec<u64>,
    /// Time of each rank in nanoseconds in which kernels launched in the step computed.
    pub compute_ns: Vec<u64>,
}

open_enum! {
    /// Source of a common clock of ranks.
    pub enum ClockSource {
        /// One report has all ranks.
        Report = "report",
        /// The clock of the one host on which all ran.
        Host = "host",
        /// The ends of matched collectives, which all ranks leave together.
        Fitted = "fitted",
        /// None: only durations are compared.
        None = "none",
    }
}

open_enum! {
    /// Cause of idle time of a rank.
    pub enum RankIdleCause {
        /// The host launched late.
        HostLate = "host_late",
        /// The launch was on its way.
        Launch = "launch",
        /// The host waited for another rank.
        Rank = "rank",
        /// Work was launched before, or the report has no call for it.
        Unexplained = "other",
    }
}

open_enum! {
    /// A rank's activity while the others waited for it.
    pub enum LateCause {
        /// It computed longer than the others.
        Compute = "compute",
        /// Only copies ran on its GPU.
        Copy = "copy",
        /// Its GPU was idle: its host launched the next kernel late.
        Host = "host",
        /// Its GPU was idle until the first launch of a kernel: it started up, which happens once.
        StartUp = "start_up",
        /// It was in another collective.
        Communication = "communication",
        /// No cause was found: it spent its time like the other ranks.
        Unknown = "unknown",
    }
}

open_enum! {
    /// Operation of a collective.
    pub enum CollectiveOperation {
        /// Every rank gets the reduction of all.
        AllReduce = "all_reduce",
        /// Every rank gets the parts of all.
        AllGather = "all_gather",
        /// Every rank gets a part of the reduction.
        ReduceScatter = "reduce_scatter",
        /// Every rank sends a part to every other.
        AllToAll = "all_to_all",
        /// Every rank gets the data of one.
        Broadcast = "broadcast",
        /// One rank gets the reduction of all.
        Reduce = "reduce",
        /// One rank sends to another.
        SendRecv = "send_recv",
    }
}

impl CollectiveOperation {
    /// The operation that a name contains: of a kernel or call of NCCL, or of torch. `Other` with
    /// the name if it contains no known operation.
    pub fn from_name(text: &str) -> CollectiveOperation {
        let plain: String =
            text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        let operations = [
            ("allreduce", CollectiveOperation::AllReduce),
            ("allgather", CollectiveOperation::AllGather),
            ("reducescatter", CollectiveOperation::ReduceScatter),
            ("alltoall", CollectiveOperation::AllToAll),
            ("broadcast", CollectiveOperation::Broadcast),
            ("reduce", CollectiveOperation::Reduce),
            // Also `SendRecv`, and torch's `send` and `recv`.
            ("send", CollectiveOperation::SendRecv),
            ("recv", CollectiveOperation::SendRecv),
        ];
        let found = operations.into_iter().find(|(word, _)| plain.contains(word));
        found.map_or_else(|| CollectiveOperation::Other(text.to_owned()), |(_, known)| known)
    }

    /// Whether it has one sender and one receiver, so that it is no collective.
    pub fn is_point_to_point(&self) -> bool {
        *self == CollectiveOperation::SendRecv
    }

    /// Whether every rank must give the same size.
    pub fn has_equal_sizes(&self) -> bool {
        matches!(
            self,
            CollectiveOperation::AllReduce
                | CollectiveOperation::AllGather
                | CollectiveOperation::ReduceScatter
                | CollectiveOperation::Broadcast
                | CollectiveOperation::Reduce
        )
    }

    /// Whether no rank can leave it before every rank has entered it.
    pub fn synchronises(&self) -> bool {
        matches!(
            self,
            CollectiveOperation::AllReduce
                | CollectiveOperation::AllGather
                | CollectiveOperation::ReduceScatter
                | CollectiveOperation::AllToAll
        )
    }

    /// Bus bandwidth divided by algorithm bandwidth for `ranks` ranks, as nccl-tests defines it;
    /// `None` for fewer than two ranks and for operations that nccl-tests does not have.
    pub fn bus_factor(&self, ranks: u32) -> Option<f64> {
        let n = f64::from(ranks);
        match self {
            _ if ranks < 2 => None,
            CollectiveOperation::AllReduce => Some(2.0 * (n - 1.0) / n),
            CollectiveOperation::AllGather
            | CollectiveOperation::ReduceScatter
            | CollectiveOperation::AllToAll => Some((n - 1.0) / n),
            CollectiveOperation::Broadcast | CollectiveOperation::Reduce => Some(1.0),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_read_from_kernels_calls_and_torchs_names() {
        let names = [
            (
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)",
                "all_reduce",
            ),
            ("ncclKernel_AllGather_RING_LL_Sum_int8_t", "all_gather"),
            ("NCCL@ncclReduceScatter", "reduce_scatter"),
            ("_allgather_base", "all_gather"),
            ("all_to_allv", "all_to_all"),
            ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
            ("ncclDevKernel_SendRecv", "send_recv"),
            ("recv", "send_recv"),
        ];
        for (name, expected) in names {
            assert_eq!(CollectiveOperation::from_name(name).as_str(), expected, "{name}");
        }
        assert_eq!(CollectiveOperation::from_name("barrier").as_str(), "barrier");
    }

    #[test]
    fn bus_factors_are_those_of_nccl_tests() {
        assert_eq!(CollectiveOperation::AllReduce.bus_factor(4), Some(1.5));
        assert_eq!(CollectiveOperation::AllGather.bus_factor(4), Some(0.75));
        assert_eq!(CollectiveOperation::Broadcast.bus_factor(4), Some(1.0));
        assert_eq!(CollectiveOperation::AllReduce.bus_factor(1), None);
    }
}
