//! Calls that return only after work on the GPU: synchronisations, blocking copies, full queues.

use std::collections::{BTreeSet, HashMap};

use rgpu_model::Trace;

use super::calls::{CallNode, Calls};
use super::costs::{Costs, percentile};
use super::edges::EdgeKind;
use super::works::{Stream, WorkNode};
use super::{position, queue};

/// Streams of which a wait for the whole GPU gets an edge each.
const MAX_STREAMS_OF_WAIT: usize = 32;

/// A synchronisation's own time, where none in the recording returned at once.
const SYNCHRONISATION_NS: i64 = 2_000;

/// A copy call's own time, where none in the recording returned at once.
const COPY_CALL_NS: i64 = 5_000;

/// A staging copy call waited for its stream if it took at least this long.
const MIN_STAGING_NS: i64 = 10_000;

/// A call that returns after the end of work. Numbers are positions in the graph's lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostWait {
    /// The call.
    pub(super) call: u32,
    /// The work.
    pub(super) work: u32,
    /// How it waits.
    pub(super) kind: EdgeKind,
}

/// The waits of a graph.
pub(super) struct Waits {
    /// Which call waits for which work.
    pub(super) list: Vec<HostWait>,
    /// By call: its own time in nanoseconds without the wait, if it waited.
    pub(super) body_ns: Vec<Option<i64>>,
}

/// Finds the waits of all calls.
pub(super) fn find(
    trace: &Trace,
    works: &[WorkNode],
    streams: &[Stream],
    calls: &Calls,
    costs: &Costs,
) -> Waits {
    let nodes = &calls.nodes;
    let mut list = Vec::new();
    let mut is_blocked = vec![false; nodes.len()];
    find_copies(works, nodes, costs, &mut list);
    mark(&list, &mut is_blocked);
    find_synchronisations(trace, works, streams, nodes, &is_blocked, &mut list);
    mark(&list, &mut is_blocked);
    queue::find(works, streams, nodes, costs, &is_blocked, &mut list);
    mark(&list, &mut is_blocked);
    let body_ns = find_bodies(trace, nodes, costs, &list, &is_blocked);
    Waits { list, body_ns }
}

fn mark(list: &[HostWait], is_blocked: &mut [bool]) {
    for wait in list {
        if let Some(slot) = is_blocked.get_mut(wait.call as usize) {
            *slot = true;
        }
    }
}

/// Copies that return after the copy, and copies from pageable memory that return once the data is
/// staged: those wait for the work before them in the stream.
fn find_copies(works: &[WorkNode], calls: &[CallNode], costs: &Costs, list: &mut Vec<HostWait>) {
    // The last end per call.
    let mut own: HashMap<u32, u32> = HashMap::new();
    for (at, work) in works.iter().enumerate() {
        let Some(call) = work.call.and_then(|call| calls.get(call as usize)) else { continue };
        if !(call.waits || work.is_pageable) {
            continue;
        }
        if work.end_ns > call.start_ns && work.end_ns <= call.end_ns {
            let slot = own.entry(work.call.unwrap_or_default()).or_insert(position(at));
            let known = works.get(*slot as usize).map_or(i64::MIN, |known| known.end_ns);
            if work.end_ns > known {
                *slot = position(at);
            }
            continue;
        }
        let usual_ns = costs.call(call.name).map_or(0, |cost| cost.low_ns);
        let is_long = call.duration_ns() >= MIN_STAGING_NS.max(usual_ns.saturating_mul(2));
        let before = work.previous.and_then(|at| works.get(at as usize).map(|work| (at, work)));
        if let (true, true, Some((at, before))) = (work.is_from_host, is_long, before)
            && before.end_ns > call.start_ns
            && before.end_ns <= call.end_ns
        {
            let call = work.call.unwrap_or_default();
            list.push(HostWait { call, work: at, kind: EdgeKind::Copy });
        }
    }
    let mut own: Vec<(u32, u32)> = own.into_iter().collect();
    own.sort_unstable();
    list.extend(own.into_iter().map(|(call, work)| HostWait { call, work, kind: EdgeKind::Copy }));
}

/// Synchronisations. A recording does not tell what they wait for: it is the work launched before
/// the call that ended last, but not after the call. If nothing ended within the call, it did not
/// wait. One that waits for the whole GPU waits for the last work of each stream.
fn find_synchronisations(
    trace: &Trace,
    works: &[WorkNode],
    streams: &[Stream],
    calls: &[CallNode],
    is_blocked: &[bool],
    list: &mut Vec<HostWait>,
) {
    let mut waiting: Vec<(i64, u32)> = Vec::new();
    for (at, (call, is_blocked)) in calls.iter().zip(is_blocked).enumerate() {
        if call.waits && !is_blocked {
            waiting.push((call.start_ns, position(at)));
        }
    }
    waiting.sort_unstable();
    let mut launches: Vec<(i64, u32)> =
        works.iter().enumerate().map(|(at, work)| (work.launch_ns, position(at))).collect();
    launches.sort_unstable();
    let mut launches = launches.into_iter().peekable();
    let mut ends: BTreeSet<(i64, u32)> = BTreeSet::new();
    for (start_ns, at) in waiting {
        while let Some((_, work)) = launches.next_if(|(launch_ns, _)| *launch_ns < start_ns) {
            let end_ns = works.get(work as usize).map_or(i64::MIN, |work| work.end_ns);
            ends.insert((end_ns, work));
        }
        let Some(call) = calls.get(at as usize) else { continue };
        let last = ends.range(..=(call.end_ns, u32::MAX)).next_back();
        let Some((_, last)) = last.filter(|(end_ns, _)| *end_ns > call.start_ns) else { continue };
        list.push(HostWait { call: at, work: *last, kind: EdgeKind::Wait });
        if waits_for_all(name(trace, call)) {
            let streams = streams.iter().take(MAX_STREAMS_OF_WAIT);
            let others = streams.filter_map(|stream| last_ended(works, stream, call));
            let others = others.filter(|other| other != last);
            list.extend(others.map(|work| HostWait { call: at, work, kind: EdgeKind::Wait }));
        }
    }
}

/// Whether a call of this name waits for all streams.
fn waits_for_all(name: &str) -> bool {
    ["DeviceSynchronize", "CtxSynchronize", "ThreadSynchronize"]
        .iter()
        .any(|part| name.contains(part))
}

/// The work of a stream that ended last within a call, of that launched before it.
pub(super) fn last_ended(works: &[WorkNode], stream: &Stream, call: &CallNode) -> Option<u32> {
    let started = stream.partition_point(|at| {
        works.get(*at as usize).is_some_and(|work| work.start_ns <= call.end_ns)
    });
    // The last few: work of a stream hardly overlaps.
    let last = stream.get(..started)?.iter().rev().take(8).copied();
    last.filter(|at| {
        works.get(*at as usize).is_some_and(|work| {
            work.launch_ns < call.start_ns
                && work.end_ns > call.start_ns
                && work.end_ns <= call.end_ns
        })
    })
    .max_by_key(|at| works.get(*at as usize).map(|work| work.end_ns))
}

/// The own time of calls that waited: the median of those of the same name and thread that did
/// not, else a constant; never more than the call took.
fn find_bodies(
    trace: &Trace,
    calls: &[CallNode],
    costs: &Costs,
    list: &[HostWait],
    is_blocked: &[bool],
) -> Vec<Option<i64>> {
    let mut free: HashMap<(u32, u32), Vec<i64>> = HashMap::new();
    for (call, is_blocked) in calls.iter().zip(is_blocked) {
        if !is_blocked {
            free.entry((call.name, call.thread)).or_default().push(call.duration_ns());
        }
    }
    let medians: HashMap<(u32, u32), i64> = free
        .into_iter()
        .filter_map(|(key, mut values)| Some((key, percentile(&mut values, 50)?)))
        .collect();
    let mut bodies = vec![None; calls.len()];
    for wait in list {
        let at = wait.call as usize;
        let (Some(call), Some(slot)) = (calls.get(at), bodies.get_mut(at)) else { continue };
        let low_ns = costs.call(call.name).map_or(0, |cost| cost.low_ns);
        let otherwise = match wait.kind {
            EdgeKind::QueueFull => low_ns,
            _ if name(trace, call).contains("emcpy") => COPY_CALL_NS.min(low_ns),
            _ => SYNCHRONISATION_NS.min(low_ns),
        };
        let median = medians.get(&(call.name, call.thread)).copied().unwrap_or(otherwise);
        *slot = Some(median.min(call.duration_ns()));
    }
    bodies
}

/// The name of a call.
fn name<'t>(trace: &'t Trace, call: &CallNode) -> &'t str {
    trace.names.get(call.name as usize).map_or("", String::as_str)
}
