//! Lists the single events of a trace in memory.

use std::collections::HashMap;

use rgpu_format::nsys_row::{self, CopyDirection, CopyKind};

use super::attribute::{AttributedWork, LaunchPlace};
use super::calls::{ListedCalls, WaitRule, plain_name};
use super::pieces::PieceKind;
use super::ranks::RankNumbers;
use super::trace::{ListedWork, OtherWork, Trace, process};
use crate::region_tree::NO_REGIONS;
use crate::trace_events::{NameTable, RegionTable, list_ranges, ns_since};
use rgpu_model as model;
use rgpu_model::SharedList;
use rgpu_model::trace::{CallEvent, KernelShape, SCHEMA, TraceWork, TraceWorkKind, UnlistedEvents};

/// Bytes up to which a copy from pageable memory does not wait for its transfer ("API
/// synchronization behavior" in the manual of CUDA's runtime).
const MAX_STAGED_BYTES: u64 = 64 * 1024;

/// The events of `trace`. `placed` gives the regions in which its work was launched. `numbers`
/// are those of its ranks.
pub(super) fn list(
    trace: &Trace,
    placed: &AttributedWork,
    from: &str,
    numbers: &RankNumbers,
) -> model::Trace {
    let mut names = NameTable::default();
    let mut regions = RegionTable::default();
    let mut ranks = ThreadRanks { numbers, last: None };
    let call_names = CallNames::new(trace, &mut names);
    let calls = trace.calls.calls.iter().map(|call| CallEvent {
        name: call_names.index(call.name),
        start_ns: ns_since(trace.first_ns, call.start_ns),
        duration_ns: ns_since(call.start_ns, call.end_ns),
        thread: call.thread,
        waits: matches!(call_names.rule(call.name), WaitRule::Waits | WaitRule::Copies),
        rank: ranks.of_thread(call.thread),
    });
    let mut calls: Vec<CallEvent> = calls.collect();
    let (mut ranges, more_ranges) = list_ranges(
        (&trace.ranges, trace.max_ranges),
        &placed.tree,
        trace.first_ns,
        &mut names,
        &mut regions,
    );
    ranges.iter_mut().for_each(|range| range.rank = ranks.of_thread(range.thread));
    let launches: HashMap<u64, u32> =
        trace.first_kernels.iter().zip(0..).map(|((work, _), id)| (work.number, id)).collect();
    let rank_of_process: Vec<Option<u32>> =
        trace.processes.all().iter().map(|process| numbers.get(process).copied()).collect();
    let call_at = trace.calls.index_by_number();
    let mut lookup = placed.launches(trace);
    let mut kinds = WorkKinds::new(trace);
    let mut shapes = ShapeNumbers::default();
    let mut lists = RegionLists::default();
    let mut work: Vec<TraceWork> = Vec::with_capacity(trace.listed.len());
    for listed in &trace.listed {
        let process = trace.processes.get(listed.process).unwrap_or(0);
        let place = listed.correlation().and_then(|id| lookup.find((process, id)));
        let call = place.as_ref().and_then(|place| call_at.get(place.call as usize).copied());
        let call = call.filter(|at| (*at as usize) < calls.len());
        let what = PieceKind::from_number(listed.what);
        let kind = kinds.kind(what);
        if let (Some(OtherWork::Copy(copy)), Some(at)) = (kinds.other(what), call)
            && let (Some(call), Some(of)) =
                (calls.get_mut(at as usize), trace.calls.calls.get(at as usize))
        {
            call.waits = copy_waits(call_names.rule(of.name), copy, listed, call.waits);
        }
        let has_bytes = matches!(kind, TraceWorkKind::Copy | TraceWorkKind::Set);
        work.push(TraceWork {
            kind,
            name: kinds.name(what, &mut names),
            start_ns: ns_since(trace.first_ns, listed.start_ns),
            duration_ns: listed.ns,
            device: listed.device,
            stream: u64::from(listed.stream),
            bytes: has_bytes.then_some(listed.bytes),
            pageable: listed.pageable,
            call,
            launch: launches.get(&listed.number()).copied(),
            regions: place.map_or_else(SharedList::default, |place| {
                lists.get(&place, |node| regions.index(&placed.tree, node))
            }),
            rank: rank_of_process.get(listed.process as usize).copied().flatten(),
            shape: listed.shape().map(|shape| shapes.number(shape)),
        });
    }
    mark_waiting_frees(&mut calls, trace, &call_names);
    let stacks = trace.stacks.of_calls(&calls, trace.first_ns);
    model::Trace {
        schema: SCHEMA.to_owned(),
        span_ns: ns_since(trace.first_ns, trace.last_ns),
        cut: UnlistedEvents {
            work: trace.work_count.saturating_sub(work.len() as u64),
            ranges: more_ranges,
            calls: trace.calls.cut,
        },
        names: names.into_vec(),
        regions: regions.all,
        work,
        shapes: shapes.all(&trace.shapes),
        ranges,
        calls,
        host: Vec::new(),
        stacks,
        ranks: Vec::new(),
        memory: Vec::new(),
        from: from.to_owned(),
    }
}

/// Ranks by thread. Consecutive events are mostly of one thread.
struct ThreadRanks<'a> {
    numbers: &'a RankNumbers,
    last: Option<(u64, Option<u32>)>,
}

impl ThreadRanks<'_> {
    fn of_thread(&mut self, thread: u64) -> Option<u32> {
        if let Some((_, rank)) = self.last.filter(|(last, _)| *last == thread) {
            return rank;
        }
        let rank = self.numbers.get(&process(Some(thread.cast_signed()))).copied();
        self.last = Some((thread, rank));
        rank
    }
}

/// The names of calls: their index in the trace, and what they tell about waiting.
struct CallNames {
    known: Vec<(u32, WaitRule)>,
    unnamed: (u32, WaitRule),
}

impl CallNames {
    /// Adds the names to `names`, in order of their first call.
    fn new(trace: &Trace, names: &mut NameTable) -> CallNames {
        let calls: &ListedCalls = &trace.calls;
        let mut all = CallNames {
            known: vec![(0, WaitRule::Returns); calls.name_count()],
            unnamed: (0, WaitRule::Returns),
        };
        let mut is_new = vec![true; calls.name_count() + 1];
        for call in &calls.calls {
            let at = (call.name as usize).min(calls.name_count());
            if std::mem::take(&mut is_new[at]) {
                let name = calls.name_id(call.name).and_then(|id| trace.strings.get(id));
                let name = plain_name(name.unwrap_or("(unnamed)"));
                let known = (names.index(name), WaitRule::of(name));
                *all.known.get_mut(at).unwrap_or(&mut all.unnamed) = known;
            }
        }
        all
    }

    fn get(&self, name: u32) -> (u32, WaitRule) {
        self.known.get(name as usize).copied().unwrap_or(self.unnamed)
    }

    fn index(&self, name: u32) -> u32 {
        self.get(name).0
    }

    fn rule(&self, name: u32) -> WaitRule {
        self.get(name).1
    }
}

/// The kinds and names of GPU work.
struct WorkKinds<'a> {
    trace: &'a Trace,
    /// Index of the name among those of the trace, by number of the kernel's name.
    kernels: Vec<Option<u32>>,
    /// The same by number of other work.
    others: HashMap<u32, u32>,
}

impl<'a> WorkKinds<'a> {
    fn new(trace: &'a Trace) -> WorkKinds<'a> {
        WorkKinds { trace, kernels: vec![None; trace.kernels.len()], others: HashMap::new() }
    }

    fn other(&self, what: PieceKind) -> Option<OtherWork> {
        match what {
            PieceKind::Kernel(_) => None,
            PieceKind::Other(number) => self.trace.pieces.other(number),
        }
    }

    fn kind(&self, what: PieceKind) -> TraceWorkKind {
        match (what, self.other(what)) {
            (PieceKind::Kernel(_), _) => TraceWorkKind::Kernel,
            (_, Some(OtherWork::Copy(_))) => TraceWorkKind::Copy,
            (_, Some(OtherWork::Set)) => TraceWorkKind::Set,
            (_, Some(OtherWork::Graph) | None) => TraceWorkKind::Graph,
        }
    }

    fn name(&mut self, what: PieceKind, names: &mut NameTable) -> u32 {
        let trace = self.trace;
        match what {
            PieceKind::Kernel(number) => match self.kernels.get_mut(number as usize) {
                Some(known) => *known.get_or_insert_with(|| names.index(&trace.name(what))),
                None => names.index(""),
            },
            PieceKind::Other(number) => {
                *self.others.entry(number).or_insert_with(|| names.index(&trace.name(what)))
            }
        }
    }
}

/// The lists of regions of the work. Pieces that were launched in the same regions share one.
#[derive(Default)]
struct RegionLists {
    /// By push/pop region, of work in no start/end region.
    of_region: HashMap<Option<usize>, SharedList<u32>>,
    /// The list of the last piece in a start/end region.
    last: Option<((Option<usize>, u32), SharedList<u32>)>,
}

impl RegionLists {
    /// The list of a place; `index` gives a region's index in the trace.
    fn get(&mut self, place: &LaunchPlace<'_>, index: impl FnMut(usize) -> u32) -> SharedList<u32> {
        let key = place.key();
        let known = match key {
            (region, NO_REGIONS) => self.of_region.get(&region),
            _ => self.last.as_ref().filter(|(last, _)| *last == key).map(|(_, list)| list),
        };
        if let Some(known) = known {
            return known.clone();
        }
        let list: SharedList<u32> = place.regions().map(index).collect();
        match key {
            (region, NO_REGIONS) => {
                self.of_region.insert(region, list.clone());
            }
            _ => self.last = Some((key, list.clone())),
        }
        list
    }
}

/// Numbers shapes in order of their first listed use, so that two formats of one recording give the
/// same numbers.
#[derive(Default)]
struct ShapeNumbers {
    known: HashMap<u32, u32>,
}

impl ShapeNumbers {
    fn number(&mut self, shape: u32) -> u32 {
        let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        *self.known.entry(shape).or_insert(next)
    }

    /// The shapes by their new numbers; one that was not kept has no blocks.
    fn all(&self, kept: &[nsys_row::KernelShape]) -> Vec<KernelShape> {
        let mut all = vec![KernelShape::default(); self.known.len().min(kept.len())];
        for (old, new) in &self.known {
            if let (Some(kept), Some(slot)) = (kept.get(*old as usize), all.get_mut(*new as usize))
            {
                *slot = KernelShape { grid: kept.grid, block: kept.block };
            }
        }
        all
    }
}

/// Whether a call waits for the GPU that made this copy. `waits` is what is known without it.
fn copy_waits(rule: WaitRule, kind: CopyKind, copy: &ListedWork, waits: bool) -> bool {
    let direction = kind.direction();
    match rule {
        // Without a side on the host there is nothing that the host could wait for.
        WaitRule::Copies => direction != CopyDirection::OnDevice,
        WaitRule::CopiesLater => {
            let is_pageable = copy.pageable == Some(true);
            waits
                || match direction {
                    CopyDirection::FromHost => is_pageable && copy.bytes > MAX_STAGED_BYTES,
                    CopyDirection::ToHost => is_pageable,
                    CopyDirection::OnHost => true,
                    CopyDirection::OnDevice | CopyDirection::Unknown => false,
                }
        }
        WaitRule::Waits | WaitRule::Returns | WaitRule::Frees => waits,
    }
}

/// Marks calls that free memory and waited for the GPU: all work of their process that had begun
/// before they returned had ended by then, and the last of it while they ran. The same call on an
/// idle GPU waits for nothing.
fn mark_waiting_frees(calls: &mut [CallEvent], trace: &Trace, names: &CallNames) {
    let frees = trace.calls.calls.iter().enumerate();
    let frees = frees.filter(|(_, call)| names.rule(call.name) == WaitRule::Frees);
    // Starts of the work of each process, with the latest end so far.
    let mut reached: HashMap<u64, Vec<(i64, i64)>> = HashMap::new();
    for (at, free) in frees {
        if reached.is_empty() {
            reached = latest_ends(trace);
        }
        let process = process(Some(free.thread.cast_signed()));
        let Some(of_process) = reached.get(&process) else { continue };
        let begun = of_process.partition_point(|(start_ns, _)| *start_ns < free.end_ns);
        let latest = begun.checked_sub(1).and_then(|last| of_process.get(last));
        let has_waited =
            latest.is_some_and(|(_, end_ns)| free.start_ns < *end_ns && *end_ns <= free.end_ns);
        if let Some(call) = calls.get_mut(at) {
            call.waits = has_waited;
        }
    }
}

/// For each process the starts of its listed work, in order, each with the latest end of the work
/// until then.
fn latest_ends(trace: &Trace) -> HashMap<u64, Vec<(i64, i64)>> {
    let mut all: HashMap<u64, Vec<(i64, i64)>> = HashMap::new();
    for work in &trace.listed {
        let process = trace.processes.get(work.process).unwrap_or(0);
        let of_process = all.entry(process).or_default();
        let end_ns = work.start_ns.saturating_add_unsigned(work.ns);
        let reached = of_process.last().map_or(end_ns, |(_, latest)| end_ns.max(*latest));
        of_process.push((work.start_ns, reached));
    }
    all
}

#[cfg(test)]
mod tests;
