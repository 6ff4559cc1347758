//! Tells which gaps are a program's start-up: the host prepares launches, and does so once.
//!
//! A gap is start-up if one of these holds:
//!
//! 1. The first launch of a kernel ends it, unless the recording has an optimizer's steps, which
//!    our hook of torch records from the second one on.
//! 2. One of XLA's autotuning kernels ends it, or a launch of Triton's benchmarks begins or ends
//!    it.
//! 3. The launching thread loads or compiles code in it, or compilers' NVTX ranges cover half of
//!    it: another kernel may have the same name. Before one kernel this happens a few times at
//!    most, else it repeats.
//! 4. The launching thread allocates memory for half of it, which an allocator with a cache does
//!    until it has enough: before one kernel a few times at most, or only in the first half of the
//!    gaps.
//! 5. The first of many replays of CUDA graphs ends it, or comes after it: what a graph replays is
//!    launched for warm-up and captured before.
//! 6. It is by far longer than all other gaps before that kernel that are no start-up, and some
//!    kernel has yet to be launched first.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::computes;
use super::graphs::is_graph_launch;
use super::idle::AttributedGap;
use super::measure::{disjoint, overlap_ns};
use crate::Limits;
use crate::threshold::{ONE_OFF_NS, PREPARATIONS};
use crate::tuning;
use rgpu_model::Trace;
use rgpu_model::trace::TraceWork;

/// Parts of the names of calls that load, link or compile code.
const LOADS: &[&str] = &[
    "cuModuleLoad",
    "cuModuleGetFunction",
    "cuLibraryLoad",
    "cudaLibraryLoad",
    "cuLink",
    "nvrtcCompile",
];

/// Prefixes of the calls that allocate memory on the GPU or pinned memory.
const ALLOCATES: &[&str] =
    &["cudaMalloc", "cudaHostAlloc", "cuMemAlloc", "cuMemHostAlloc", "cuMemCreate"];

/// Fewer replays may be no more than a trial.
const MIN_REPLAYS: usize = 10;
/// With more kernels before the first replay for each replay, those are work of their own.
const MAX_KERNELS_PER_REPLAY: usize = 10;

/// Prefixes of XLA's ranges of compilation, after its domain. `XlaModule` is not one
/// of them: it is around launches.
const COMPILES: &[&str] = &["XlaPass", "XlaCompile", "XlaEmit", "XlaCreateGpuExecutable"];
const XLA_DOMAIN: &str = "TSL@";

/// The range of an optimizer's step that our hook of torch records.
const LATER_STEP: &str = "torch@step";

/// How many times as long as all others before its kernel a gap is that happens once.
const ONE_OFF_RATIO: u64 = 10;

/// Rank, GPU, and name of a kernel.
type Key = (Option<u32>, u32, u32);

/// Preparations of launches, as a trace shows them.
pub(super) struct StartUp<'a> {
    trace: &'a Trace,
    /// Start of the first work of each name.
    first_starts: HashMap<Key, u64>,
    /// Starts of calls that load code, sorted, by thread.
    loads: HashMap<u64, Vec<u64>>,
    /// Start and end of calls that allocate memory, sorted, by thread.
    allocations: HashMap<u64, Vec<(u64, u64)>>,
    /// Start of the first of many replays of CUDA graphs, by rank and GPU.
    first_replays: HashMap<(Option<u32>, u32), u64>,
    /// Kernels that only tune: rank, GPU and start.
    tuning: HashSet<(Option<u32>, u32, u64)>,
    /// Times in which a compiler works, sorted and disjoint, by rank.
    compiling: HashMap<Option<u32>, Vec<(u64, u64)>>,
    most_preparations: f64,
    one_off_ns: f64,
}

fn key(work: &TraceWork) -> Key {
    (work.rank, work.device, work.name)
}

impl<'a> StartUp<'a> {
    /// `whole` for a whole program, which replays graphs in no other case of the same run.
    pub(super) fn new(trace: &'a Trace, whole: bool, limits: &Limits<'_>) -> StartUp<'a> {
        let mut first_starts = HashMap::new();
        let begins_later = trace.names.iter().any(|name| name == LATER_STEP);
        for work in trace.work.iter().filter(|work| computes(work) && !begins_later) {
            let first = first_starts.entry(key(work)).or_insert(work.start_ns);
            *first = work.start_ns.min(*first);
        }
        let named = |holds: &dyn Fn(&str) -> bool| -> HashSet<u32> {
            (0..).zip(&trace.names).filter(|(_, name)| holds(name)).map(|(at, _)| at).collect()
        };
        let load_names = named(&|name| LOADS.iter().any(|load| name.starts_with(load)));
        let mut loads: HashMap<u64, Vec<u64>> = HashMap::new();
        for call in trace.calls.iter().filter(|call| load_names.contains(&call.name)) {
            loads.entry(call.thread).or_default().push(call.start_ns);
        }
        loads.values_mut().for_each(|starts| starts.sort_unstable());
        let allocates = named(&|name| ALLOCATES.iter().any(|call| name.starts_with(call)));
        let mut allocations: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
        for call in trace.calls.iter().filter(|call| allocates.contains(&call.name)) {
            let end = call.start_ns.saturating_add(call.duration_ns);
            allocations.entry(call.thread).or_default().push((call.start_ns, end));
        }
        let compile_names = named(&|name| {
            let name = name.strip_prefix(XLA_DOMAIN);
            name.is_some_and(|name| COMPILES.iter().any(|compile| name.starts_with(compile)))
        });
        let mut compiling: HashMap<Option<u32>, Vec<(u64, u64)>> = HashMap::new();
        for range in trace.ranges.iter().filter(|range| compile_names.contains(&range.name)) {
            let end = range.start_ns.saturating_add(range.duration_ns.unwrap_or(0));
            compiling.entry(range.rank).or_default().push((range.start_ns, end));
        }
        StartUp {
            trace,
            first_starts,
            loads,
            allocations: allocations.into_iter().map(|(id, all)| (id, disjoint(all))).collect(),
            first_replays: if whole { first_replays(trace) } else { HashMap::new() },
            tuning: tuning_kernels(trace),
            compiling: compiling.into_iter().map(|(rank, all)| (rank, disjoint(all))).collect(),
            most_preparations: limits.threshold(&PREPARATIONS).value,
            one_off_ns: limits.threshold(&ONE_OFF_NS).value,
        }
    }

    /// For each gap of one GPU whether it is start-up.
    pub(super) fn mark(&self, gaps: &[AttributedGap<'_>]) -> Vec<bool> {
        let prepares: Vec<bool> = gaps.iter().map(|gap| self.prepares(gap)).collect();
        let allocates: Vec<bool> = gaps.iter().map(|gap| self.allocates(gap)).collect();
        let mut before: BTreeMap<u32, Preparations> = BTreeMap::new();
        for (at, gap) in gaps.iter().enumerate() {
            let sums = before.entry(gap.next.name).or_default();
            sums.loads += u64::from(prepares[at]);
            sums.allocations += u64::from(allocates[at]);
            sums.allocates_late |= allocates[at] && at >= gaps.len() / 2;
        }
        let is_few = |count: u64| count as f64 <= self.most_preparations;
        let is_known = |(at, gap): (usize, &AttributedGap<'_>)| {
            let sums = before[&gap.next.name];
            self.is_first(gap)
                || self.is_tuning_kernel(gap.next)
                || self.is_tuning_kernel(gap.previous)
                || prepares[at] && is_few(sums.loads)
                || allocates[at] && (is_few(sums.allocations) || !sums.allocates_late)
                || self.precedes_replays(gap)
        };
        let known: Vec<bool> = gaps.iter().enumerate().map(is_known).collect();
        // Nanoseconds of the other gaps before each kernel.
        let mut others: BTreeMap<u32, u64> = BTreeMap::new();
        for (gap, _) in gaps.iter().zip(&known).filter(|(_, known)| !**known) {
            *others.entry(gap.next.name).or_default() += gap.end_ns - gap.start_ns;
        }
        let firsts = gaps.iter().filter(|gap| self.is_first(gap)).map(|gap| gap.end_ns);
        let last_first = firsts.max().unwrap_or(0);
        let mark = |(gap, known): (&AttributedGap<'_>, &bool)| {
            let ns = gap.end_ns - gap.start_ns;
            let rest_ns = others.get(&gap.next.name).map_or(0, |all| all.saturating_sub(ns));
            *known
                || ns as f64 >= self.one_off_ns
                    && ns >= ONE_OFF_RATIO.saturating_mul(rest_ns)
                    && gap.end_ns < last_first
        };
        gaps.iter().zip(&known).map(mark).collect()
    }

    /// Whether a kernel only tunes.
    pub(super) fn is_tuning_kernel(&self, work: &TraceWork) -> bool {
        self.tuning.contains(&rank_gpu_start(work))
    }

    fn is_first(&self, gap: &AttributedGap<'_>) -> bool {
        self.first_starts.get(&key(gap.next)) == Some(&gap.next.start_ns)
    }

    /// Whether the first of many replays of CUDA graphs does not come before the gap's end.
    fn precedes_replays(&self, gap: &AttributedGap<'_>) -> bool {
        let first = self.first_replays.get(&(gap.next.rank, gap.next.device));
        first.is_some_and(|first| gap.end_ns <= *first)
    }

    /// Whether the launching thread allocates memory for at least half of a gap.
    fn allocates(&self, gap: &AttributedGap<'_>) -> bool {
        self.allocation_ns(gap) * 2 >= gap.end_ns - gap.start_ns
    }

    /// Nanoseconds of a gap in which the launching thread allocates memory.
    pub(super) fn allocation_ns(&self, gap: &AttributedGap<'_>) -> u64 {
        let call = gap.next.call.and_then(|call| self.trace.calls.get(call as usize));
        let allocations = call.and_then(|call| self.allocations.get(&call.thread));
        overlap_ns(allocations.map_or(&[][..], Vec::as_slice), (gap.start_ns, gap.end_ns))
    }

    /// Whether code is loaded or compiled in a gap.
    fn prepares(&self, gap: &AttributedGap<'_>) -> bool {
        let call = gap.next.call.and_then(|call| self.trace.calls.get(call as usize));
        let loads = call.and_then(|call| self.loads.get(&call.thread)).is_some_and(|starts| {
            let next = starts.partition_point(|start| *start < gap.start_ns);
            starts.get(next).is_some_and(|start| *start < gap.end_ns)
        });
        let compiling = self.compiling.get(&gap.next.rank).map_or(&[][..], Vec::as_slice);
        let compiled_ns = overlap_ns(compiling, (gap.start_ns, gap.end_ns));
        loads || compiled_ns * 2 >= gap.end_ns - gap.start_ns
    }
}

/// Preparations in the gaps before one kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Preparations {
    /// Gaps in which code is loaded or compiled.
    loads: u64,
    /// Gaps in which memory is allocated, and whether one of them is in the later half of all gaps.
    allocations: u64,
    allocates_late: bool,
}

/// Start of the first replay of CUDA graphs on each GPU that has many of them, and not many more
/// kernels before.
fn first_replays(trace: &Trace) -> HashMap<(Option<u32>, u32), u64> {
    let replays: HashSet<u32> = (0..)
        .zip(&trace.calls)
        .filter(|(_, call)| {
            trace.names.get(call.name as usize).is_some_and(|name| is_graph_launch(name))
        })
        .map(|(at, _)| at)
        .collect();
    let mut calls: HashMap<(Option<u32>, u32), HashSet<u32>> = HashMap::new();
    let mut firsts: HashMap<(Option<u32>, u32), u64> = HashMap::new();
    for work in trace.work.iter().filter(|work| computes(work)) {
        if let Some(call) = work.call.filter(|call| replays.contains(call)) {
            let gpu = (work.rank, work.device);
            calls.entry(gpu).or_default().insert(call);
            let first = firsts.entry(gpu).or_insert(work.start_ns);
            *first = work.start_ns.min(*first);
        }
    }
    firsts.retain(|gpu, first| {
        let replays = calls.get(gpu).map_or(0, HashSet::len);
        let before = trace.work.iter().filter(|work| {
            computes(work) && (work.rank, work.device) == *gpu && work.start_ns < *first
        });
        replays >= MIN_REPLAYS && before.count() <= replays * MAX_KERNELS_PER_REPLAY
    });
    firsts
}

/// Rank, GPU and start of a kernel.
fn rank_gpu_start(work: &TraceWork) -> (Option<u32>, u32, u64) {
    (work.rank, work.device, work.start_ns)
}

/// Rank, GPU and start of each kernel that only tunes.
fn tuning_kernels(trace: &Trace) -> HashSet<(Option<u32>, u32, u64)> {
    let name = |work: &TraceWork| trace.names.get(work.name as usize).map_or("", String::as_str);
    let mut works: Vec<&TraceWork> = trace.work.iter().filter(|work| computes(work)).collect();
    works.sort_by_key(|work| rank_gpu_start(work));
    let order: Vec<_> =
        works.iter().map(|work| (name(work), Some(work.duration_ns as f64), [1; 3])).collect();
    let flushes = tuning::flushes(&order);
    let mut at = 0;
    let mut tuning = HashSet::new();
    for of_device in works.chunk_by(|a, b| (a.rank, a.device) == (b.rank, b.device)) {
        let order = &order[at..at + of_device.len()];
        let benchmarked = tuning::benchmarked(order, &flushes);
        let all = of_device.iter().zip(benchmarked).filter(|(_, inside)| *inside);
        tuning.extend(all.map(|(work, _)| rank_gpu_start(work)));
        at += of_device.len();
    }
    tuning
}
