//! Derives from a trace how each GPU spent its time: busy, idle by cause, overlap, streams,
//! regions.
//!
//! Only the time between the first kernel and the last counts. Before that, programs load data and
//! modules, which a trace rarely explains.

mod element_wise;
mod finding;
mod graphs;
mod host_work;
mod idle;
mod idle_totals;
mod measure;
mod pageable;
mod plain_steps;
mod scope;
mod start_up;
mod sums;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::Limits;
use host_work::HostEvents;
use idle::BlockingCalls;
use idle_totals::IdleTotals;
use measure::union_ns;
use rgpu_model::timeline::{DeviceTime, RegionTime, StreamTime, Timeline, TimelineScope};
use rgpu_model::trace::{TraceWork, TraceWorkKind};
use rgpu_model::{Finding, Profile, Trace};
use scope::{RankDevice, WorkPart};
use start_up::StartUp;
use sums::Causes;

pub(crate) use finding::steady_ns;
pub(super) use graphs::{GraphUse, Graphs};

/// The maximum number of gaps listed per GPU.
const MAX_LISTED_GAPS: usize = 20;

/// The timeline of a trace; `None` if no kernel ran.
pub fn timeline(trace: &Trace, limits: &Limits<'_>) -> Option<Timeline> {
    let scope = scope::Scope::find(trace);
    let waits = BlockingCalls::new(trace);
    let host = HostEvents::new(trace);
    let whole = scope.name() == TimelineScope::Program;
    let start_up = StartUp::new(trace, whole, limits);
    let parts = scope.parts(trace);
    let mut regions = region_sums(trace, parts.values().flatten().flatten().copied().collect());
    let devices = parts.iter().map(|(device, parts)| {
        device_time(trace, *device, parts, (&waits, &start_up, &host), &mut regions)
    });
    let devices: Vec<DeviceTime> = devices.collect();
    let regions = regions.into_iter().map(|(index, sums)| sums.into_time(trace, index));
    (!devices.is_empty()).then(|| Timeline {
        scope: scope.name(),
        partial: trace.cut.work > 0,
        regions: regions.collect(),
        devices,
        from: trace.from.clone(),
    })
}

/// Adds the timeline of `trace` to a profile and returns its findings.
pub(super) fn analyze(
    profile: &mut Profile,
    trace: &Trace,
    graphs: &Graphs,
    limits: &Limits<'_>,
) -> Vec<Finding> {
    profile.timeline = timeline(trace, limits);
    let ranks = profile.ranks.as_ref();
    let of_timeline = |timeline| finding::findings(timeline, ranks, graphs, limits);
    let limited =
        |timeline| plain_steps::limit(of_timeline(timeline), timeline, &profile.stages, limits);
    let idle = profile.timeline.iter().flat_map(limited);
    idle.chain(element_wise::finding(trace, profile.timeline.as_ref(), limits)).collect()
}

/// Whether the account of the steps tells what a finding of a timeline says, with a replayed gain:
/// idle time of what repeats, copies, and chains of element-wise kernels.
pub(super) fn is_told_by_account(id: &str) -> bool {
    finding::is_idle_after_start_up(id) || id == element_wise::ID
}

/// Whether a piece of work is a kernel, or a graph, which stands for its kernels.
fn computes(work: &TraceWork) -> bool {
    matches!(work.kind, TraceWorkKind::Kernel | TraceWorkKind::Graph)
}

fn device_time(
    trace: &Trace,
    (rank, device): RankDevice,
    parts: &[WorkPart<'_>],
    (waits, start_up, host): (&BlockingCalls, &StartUp<'_>, &HostEvents<'_>),
    regions: &mut BTreeMap<u32, RegionSums>,
) -> DeviceTime {
    let mut time = DeviceTime { device, rank, ..DeviceTime::default() };
    let mut causes = Causes::default();
    let mut places = IdleTotals::new(trace, host);
    let mut streams: BTreeMap<u64, StreamTime> = BTreeMap::new();
    for part in parts {
        let mut of_streams: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        measure::add(trace, part, &mut time);
        let tuning = part.iter().filter(|work| computes(work) && start_up.is_tuning_kernel(work));
        time.tuning_ns += union_ns(tuning.map(|work| (work.start_ns, work.end_ns())).collect());
        for work in part {
            let stream = streams.entry(work.stream).or_default();
            stream.stream = work.stream;
            *(if computes(work) { &mut stream.kernels } else { &mut stream.copies }) += 1;
            of_streams.entry(work.stream).or_default().push((work.start_ns, work.end_ns()));
        }
        for (stream, busy) in of_streams {
            streams.entry(stream).or_default().busy_ns += union_ns(busy);
        }
    }
    let gaps: Vec<_> = parts.iter().flat_map(|part| idle::gaps(trace, part, waits)).collect();
    let marks = start_up.mark(&gaps);
    let steady = gaps.iter().zip(&marks).filter(|(_, is_start_up)| !**is_start_up);
    let steady: Vec<_> = steady.map(|(gap, _)| (gap.start_ns, gap.end_ns)).collect();
    time.pageable_copies = pageable::sums(trace, parts, steady);
    let mut allocation_ns = 0;
    for (gap, is_start_up) in gaps.iter().zip(marks) {
        causes.add(&gap.parts);
        allocation_ns += if is_start_up { start_up.allocation_ns(gap) } else { 0 };
        places.add(gap, is_start_up);
        for region in gap.regions(trace) {
            regions.entry(region).or_default().causes.add(&gap.parts);
        }
    }
    let mut longest: Vec<_> = gaps.iter().collect();
    longest.sort_by_key(|gap| (std::cmp::Reverse(gap.end_ns - gap.start_ns), gap.start_ns));
    longest.truncate(MAX_LISTED_GAPS);
    time.gaps = longest.into_iter().map(|gap| gap.to_model(trace)).collect();
    time.idle_ns = time.span_ns.saturating_sub(time.busy_ns);
    time.waiting = causes.into_sums();
    time.start_up_allocation_ns = Some(allocation_ns).filter(|ns| *ns > 0);
    (time.places, time.first_launches) = places.finish();
    time.streams = streams.into_values().collect();
    time
}

/// The regions in which a piece of work was launched, with all regions around them, each once.
fn ancestry(trace: &Trace, work: &TraceWork) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    for region in work.regions.iter() {
        let mut next = Some(*region);
        while let Some(index) = next.filter(|index| all.insert(*index)) {
            next = trace.regions.get(index as usize).and_then(|region| region.parent);
        }
    }
    all
}

/// The sums of all regions over this work of all GPUs. A launch may be in many regions, so each
/// region keeps the union of its times so far, and no list of them.
fn region_sums(trace: &Trace, mut all: WorkPart<'_>) -> BTreeMap<u32, RegionSums> {
    all.sort_by_key(|work| work.start_ns);
    let mut regions: BTreeMap<u32, RegionSums> = BTreeMap::new();
    for work in all {
        for region in ancestry(trace, work) {
            regions.entry(region).or_default().add(work);
        }
    }
    regions
}

#[derive(Default)]
struct RegionSums {
    kernels: u64,
    busy_ns: u64,
    /// The time until which `busy_ns` counts.
    busy_until_ns: u64,
    causes: Causes,
}

impl RegionSums {
    /// Adds work that starts no earlier than all before.
    fn add(&mut self, work: &TraceWork) {
        self.kernels += u64::from(computes(work));
        let (start_ns, end_ns) = (work.start_ns.max(self.busy_until_ns), work.end_ns());
        self.busy_ns = self.busy_ns.saturating_add(end_ns.saturating_sub(start_ns));
        self.busy_until_ns = self.busy_until_ns.max(end_ns);
    }

    fn into_time(self, trace: &Trace, index: u32) -> RegionTime {
        let region = trace.regions.get(index as usize).cloned().unwrap_or_default();
        RegionTime {
            path: region.path,
            start_end: region.start_end,
            kernels: self.kernels,
            busy_ns: self.busy_ns,
            waiting: self.causes.into_sums(),
        }
    }
}
