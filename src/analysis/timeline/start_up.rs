//! Tells which gaps are a program's start-up: the host prepares launches, and does so once.
//!
//! A gap is start-up if one of these holds:
//!
//! 1. The first launch of a kernel ends it.
//! 2. One of XLA's autotuning kernels ends it, or a launch of Triton's benchmarks begins or ends it.
//! 3. The launching thread loads or compiles code in it, or compilers' NVTX ranges cover half of it:
//!    another kernel may have the same name. Before one kernel this happens a few times at most,
//!    else it repeats.
//! 4. It is by far longer than all other gaps before that kernel, and some kernel has yet to be
//!    launched first.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::computes;
use super::idle::AttributedGap;
use crate::analysis::Limits;
use crate::analysis::known_kernel::is_autotuning;
use crate::analysis::threshold::{ONE_OFF_NS, PREPARATIONS};
use crate::analysis::tuning;
use crate::model::Trace;
use crate::model::trace::TraceWork;

/// Parts of the names of calls that load, link or compile code.
const LOADS: &[&str] = &[
    "cuModuleLoad",
    "cuModuleGetFunction",
    "cuLibraryLoad",
    "cudaLibraryLoad",
    "cuLink",
    "nvrtcCompile",
];

/// What the names of XLA's ranges of compilation begin with, after its domain. `XlaModule` is not one
/// of them: it is around launches.
const COMPILES: &[&str] = &["XlaPass", "XlaCompile", "XlaEmit", "XlaCreateGpuExecutable"];
const XLA_DOMAIN: &str = "TSL@";

/// How many times as long as all others before its kernel a gap is that happens once.
const ONE_OFF_RATIO: u64 = 10;

/// Rank, GPU, and name of a kernel.
type Key = (Option<u32>, u32, u32);

/// What a trace tells about preparations of launches.
pub(super) struct StartUp<'a> {
    trace: &'a Trace,
    /// Start of the first work of each name.
    first_starts: HashMap<Key, u64>,
    /// Starts of calls that load code, sorted, by thread.
    loads: HashMap<u64, Vec<u64>>,
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
    pub(super) fn new(trace: &'a Trace, limits: &Limits<'_>) -> StartUp<'a> {
        let mut first_starts = HashMap::new();
        for work in trace.work.iter().filter(|work| computes(work)) {
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
            tuning: tuning_kernels(trace),
            compiling: compiling.into_iter().map(|(rank, all)| (rank, disjoint(all))).collect(),
            most_preparations: limits.threshold(&PREPARATIONS).value,
            one_off_ns: limits.threshold(&ONE_OFF_NS).value,
        }
    }

    /// For each gap of one GPU whether it is start-up.
    pub(super) fn mark(&self, gaps: &[AttributedGap<'_>]) -> Vec<bool> {
        let prepares: Vec<bool> = gaps.iter().map(|gap| self.prepares(gap)).collect();
        // Preparations and nanoseconds of all gaps before each kernel.
        let mut before: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for (gap, prepares) in gaps.iter().zip(&prepares) {
            let sums = before.entry(gap.next.name).or_default();
            sums.0 += u64::from(*prepares);
            sums.1 += gap.end_ns - gap.start_ns;
        }
        let firsts = gaps.iter().filter(|gap| self.is_first(gap)).map(|gap| gap.end_ns);
        let last_first = firsts.max().unwrap_or(0);
        let mark = |(gap, prepares): (&AttributedGap<'_>, &bool)| {
            let (preparations, total_ns) = before[&gap.next.name];
            let ns = gap.end_ns - gap.start_ns;
            let one_off = ns as f64 >= self.one_off_ns
                && ns >= ONE_OFF_RATIO.saturating_mul(total_ns - ns)
                && gap.end_ns < last_first;
            let few = preparations as f64 <= self.most_preparations;
            self.is_first(gap)
                || self.is_tuning_kernel(gap.next)
                || self.is_tuning_kernel(gap.previous)
                || *prepares && few
                || one_off
        };
        gaps.iter().zip(&prepares).map(mark).collect()
    }

    /// Whether a kernel only tunes.
    pub(super) fn is_tuning_kernel(&self, work: &TraceWork) -> bool {
        self.tuning.contains(&place(work))
    }

    fn is_first(&self, gap: &AttributedGap<'_>) -> bool {
        self.first_starts.get(&key(gap.next)) == Some(&gap.next.start_ns)
    }

    /// Whether code is loaded or compiled in a gap.
    fn prepares(&self, gap: &AttributedGap<'_>) -> bool {
        let call = gap.next.call.and_then(|call| self.trace.calls.get(call as usize));
        let loads = call.and_then(|call| self.loads.get(&call.thread)).is_some_and(|starts| {
            let next = starts.partition_point(|start| *start < gap.start_ns);
            starts.get(next).is_some_and(|start| *start < gap.end_ns)
        });
        let compiling = self.compiling.get(&gap.next.rank).map_or(&[][..], Vec::as_slice);
        let first = compiling.partition_point(|(_, end)| *end <= gap.start_ns);
        let inside = compiling[first..].iter().take_while(|(start, _)| *start < gap.end_ns);
        let compiled: u64 =
            inside.map(|(start, end)| gap.end_ns.min(*end) - gap.start_ns.max(*start)).sum();
        loads || compiled * 2 >= gap.end_ns - gap.start_ns
    }
}

/// Rank, GPU and start of a kernel.
fn place(work: &TraceWork) -> (Option<u32>, u32, u64) {
    (work.rank, work.device, work.start_ns)
}

/// The places of the kernels that only tune.
fn tuning_kernels(trace: &Trace) -> HashSet<(Option<u32>, u32, u64)> {
    let name = |work: &TraceWork| trace.names.get(work.name as usize).map_or("", String::as_str);
    let mut works: Vec<&TraceWork> = trace.work.iter().filter(|work| computes(work)).collect();
    works.sort_by_key(|work| place(work));
    let order: Vec<_> =
        works.iter().map(|work| (name(work), Some(work.duration_ns as f64), [1; 3])).collect();
    let flushes = tuning::flushes(&order);
    let mut at = 0;
    let mut tuning = HashSet::new();
    for of_device in works.chunk_by(|a, b| (a.rank, a.device) == (b.rank, b.device)) {
        let order = &order[at..at + of_device.len()];
        let benchmarked = tuning::benchmarked(order, &flushes);
        let tunes = |(work, inside): &(&&TraceWork, bool)| *inside || is_autotuning(name(work));
        let all = of_device.iter().zip(benchmarked).filter(tunes);
        tuning.extend(all.map(|(work, _)| place(work)));
        at += of_device.len();
    }
    tuning
}

/// Intervals without overlaps, sorted.
fn disjoint(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (start, end) in intervals {
        match all.last_mut().filter(|last| start <= last.1) {
            Some(last) => last.1 = last.1.max(end),
            None => all.push((start, end)),
        }
    }
    all
}
