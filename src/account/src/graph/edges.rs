//! The edges of a graph, by the rules in the head of `graph.rs`.

use std::collections::HashMap;

use super::calls::CallNode;
use super::costs::Costs;
use super::waits::Waits;
use super::works::{Engine, Stream, WorkNode};
use super::{Label, NONE, PointKind, position};

/// A pause of a thread that another thread may have ended.
const MIN_PAUSE_NS: i64 = 50_000;

/// Calls looked at, back from the end of a pause, for a thread that launched.
const MAX_CALLS_LOOKED_AT: usize = 64;

/// A start that is later than launch and stream explain by more than this waited for another
/// stream, if work of one ended shortly before.
const MIN_UNEXPLAINED_NS: i64 = 3_000;

/// Work that waits for another stream starts within this time after that one's work.
const MAX_EVENT_NS: i64 = 5_000;

/// The same where the start is much later than explained: up to 13 µs were seen.
const MAX_SLOW_EVENT_NS: i64 = 15_000;

/// A start is much later than explained if it is by this many times what a slow event takes.
const SLOW_EVENT_TIMES: i64 = 3;

/// Ends of work looked at, back from a start that waited for another stream.
const MAX_ENDS_LOOKED_AT: usize = 16;

/// Work that starts this much after the work before in its stream, while its own call still runs,
/// waited for the call.
const MIN_STAGING_NS: i64 = 20_000;

/// What an edge stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EdgeKind {
    /// Start of work → its end.
    Run,
    /// End of the work before in the stream → start of work.
    Stream,
    /// Start of the work before in the stream → start of work that overlaps it.
    Overlap,
    /// End of awaited work → end of the call.
    Wait,
    /// End of a blocking copy → end of its call.
    Copy,
    /// End of the work that made room in the queue → end of the launch call. Inferred.
    QueueFull,
    /// End of work on another stream → start of work. Inferred.
    Event,
    /// End of the copy before on the same engine → start of the copy. Inferred.
    Engine,
    /// Start of the launch call → start of work.
    Launch,
    /// Start of a call → its end.
    Body,
    /// End of the thread's call before → start of a call.
    Thread,
    /// Start of the thread's call before → start of a call that overlaps it.
    ThreadOverlap,
    /// End of another thread's call → start of the call that ends a pause. Inferred.
    Handover,
}

/// An edge, filed under the point where it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    /// Where it starts: a position in the graph's points.
    pub(super) from: u32,
    /// Least delay in nanoseconds.
    pub(super) delay_ns: i64,
    /// What the recording shows above the delay, if this edge was the last to arrive; else 0.
    pub(super) residual_ns: i64,
    /// What it stands for.
    pub(super) kind: EdgeKind,
    /// What its time was spent on.
    pub(super) label: Label,
}

impl Edge {
    /// When it arrives with its recorded time, if it starts at `from_ns`.
    pub(super) fn recorded_arrival_ns(&self, from_ns: i64) -> i64 {
        from_ns.saturating_add(self.delay_ns).saturating_add(self.residual_ns)
    }
}

/// An edge between numbers of points.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberedEdge {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) delay_ns: i64,
    pub(super) kind: EdgeKind,
    pub(super) label: Label,
}

/// The number of a point: starts and ends of the work, then starts and ends of the calls. `None`
/// if there are too many.
pub(super) fn point_number(works: usize, what: PointKind) -> Option<u32> {
    let pair = |at: usize, end: usize| u32::try_from(at.checked_mul(2)?.checked_add(end)?).ok();
    match what {
        PointKind::WorkStart(at) => pair(at as usize, 0),
        PointKind::WorkEnd(at) => pair(at as usize, 1),
        PointKind::CallStart(at) => pair(works.checked_add(at as usize)?, 0),
        PointKind::CallEnd(at) => pair(works.checked_add(at as usize)?, 1),
    }
}

/// Collects edges.
struct Edges<'g> {
    works: &'g [WorkNode],
    calls: &'g [CallNode],
    list: Vec<NumberedEdge>,
}

impl Edges<'_> {
    /// The recorded time of a point.
    fn time_ns(&self, what: PointKind) -> Option<i64> {
        Some(match what {
            PointKind::WorkStart(at) => self.works.get(at as usize)?.start_ns,
            PointKind::WorkEnd(at) => self.works.get(at as usize)?.end_ns,
            PointKind::CallStart(at) => self.calls.get(at as usize)?.start_ns,
            PointKind::CallEnd(at) => self.calls.get(at as usize)?.end_ns,
        })
    }

    /// Adds an edge, with at most the recorded time as its delay. Returns its arrival; `None` if it
    /// would go back in time, and is left out.
    fn add(
        &mut self,
        from: PointKind,
        to: PointKind,
        delay_ns: i64,
        kind: EdgeKind,
        label: Label,
    ) -> Option<i64> {
        let (start_ns, end_ns) = (self.time_ns(from)?, self.time_ns(to)?);
        let span_ns = end_ns - start_ns;
        if span_ns < 0 {
            return None;
        }
        let delay_ns = delay_ns.clamp(0, span_ns);
        let from = point_number(self.works.len(), from)?;
        let to = point_number(self.works.len(), to)?;
        self.list.push(NumberedEdge { from, to, delay_ns, kind, label });
        Some(start_ns + delay_ns)
    }
}

/// All edges.
pub(super) fn make(
    works: &[WorkNode],
    streams: &[Stream],
    calls: &[CallNode],
    waits: &Waits,
    costs: &Costs,
) -> Vec<NumberedEdge> {
    let mut edges =
        Edges { works, calls, list: Vec::with_capacity(3 * works.len() + 2 * calls.len()) };
    let unexplained = add_work(&mut edges, costs);
    add_events(&mut edges, &unexplained);
    add_engines(&mut edges, streams);
    add_calls(&mut edges, waits);
    add_waits(&mut edges, waits);
    edges.list
}

/// Runs, launches and the order of streams. Returns the work whose start they do not explain, and
/// how many nanoseconds of it.
fn add_work(edges: &mut Edges<'_>, costs: &Costs) -> Vec<(u32, i64)> {
    let mut unexplained = Vec::new();
    for (at, work) in edges.works.iter().enumerate() {
        let at = position(at);
        let (start, end) = (PointKind::WorkStart(at), PointKind::WorkEnd(at));
        edges.add(start, end, work.duration_ns(), EdgeKind::Run, Label::Work(work.index));
        let mut arrival = add_launch(edges, at, work, costs);
        arrival = arrival.max(add_stream(edges, at, work, costs));
        let unexplained_ns = arrival.map_or(i64::MAX, |arrival| work.start_ns - arrival);
        if unexplained_ns > MIN_UNEXPLAINED_NS {
            unexplained.push((at, unexplained_ns));
        }
    }
    unexplained
}

/// The edge from the launch call.
fn add_launch(edges: &mut Edges<'_>, at: u32, work: &WorkNode, costs: &Costs) -> Option<i64> {
    let from = PointKind::CallStart(work.call?);
    let delay_ns = work.offset_ns + costs.launch_ns(work);
    let label = Label::LaunchLatency(work.index);
    edges.add(from, PointKind::WorkStart(at), delay_ns, EdgeKind::Launch, label)
}

/// The edges from the work before in the stream. Work that started before that ended (dependent
/// launch) follows its start.
fn add_stream(edges: &mut Edges<'_>, at: u32, work: &WorkNode, costs: &Costs) -> Option<i64> {
    let start = PointKind::WorkStart(at);
    let mut arrival = None;
    let last = work.last_ended.filter(|last| work.previous != Some(*last));
    for before_at in work.previous.into_iter().chain(last) {
        let Some(before) = edges.works.get(before_at as usize) else { continue };
        let reached = if before.end_ns <= work.start_ns {
            let delay_ns = costs.turnaround_ns(before, work);
            let staging = find_staging(edges, before, work);
            let label = staging.map_or(Label::Turnaround(work.index), Label::Call);
            edges.add(PointKind::WorkEnd(before_at), start, delay_ns, EdgeKind::Stream, label)
        } else if work.previous == Some(before_at) {
            let delay_ns = work.start_ns - before.start_ns;
            let label = Label::Work(before.index);
            edges.add(PointKind::WorkStart(before_at), start, delay_ns, EdgeKind::Overlap, label)
        } else {
            None
        };
        arrival = arrival.max(reached);
    }
    arrival
}

/// The call (index into the trace's calls) that kept work from starting right behind `before`: a
/// copy from pageable memory whose call waits for its stream, then prepares the data. `None` if the call
/// had returned.
fn find_staging(edges: &Edges<'_>, before: &WorkNode, work: &WorkNode) -> Option<u32> {
    let call = edges.calls.get(work.call? as usize)?;
    let is_within = before.end_ns > call.start_ns && work.start_ns <= call.end_ns;
    let is_long = work.start_ns - before.end_ns > MIN_STAGING_NS;
    (is_within && is_long && work.is_pageable).then_some(call.index)
}

/// Inferred waits for other streams: of the work that ended just before and was launched earlier,
/// the nearest.
fn add_events(edges: &mut Edges<'_>, unexplained: &[(u32, i64)]) {
    let mut ends: Vec<(i64, u32)> =
        edges.works.iter().enumerate().map(|(at, work)| (work.end_ns, position(at))).collect();
    ends.sort_unstable();
    for (at, unexplained_ns) in unexplained {
        let slow_ns = MAX_SLOW_EVENT_NS.min(unexplained_ns / SLOW_EVENT_TIMES);
        let most_ns = MAX_EVENT_NS.max(slow_ns);
        let Some(work) = edges.works.get(*at as usize) else { continue };
        let ended = ends.partition_point(|(end_ns, _)| *end_ns <= work.start_ns);
        let before = ends.get(..ended).unwrap_or_default().iter().rev().take(MAX_ENDS_LOOKED_AT);
        let source = before.take_while(|(end_ns, _)| work.start_ns - end_ns <= most_ns).find(
            |(_, other)| {
                edges.works.get(*other as usize).is_some_and(|other| {
                    other.stream != work.stream && other.launch_ns <= work.launch_ns
                })
            },
        );
        if let Some((end_ns, source)) = source {
            let label = Label::Event(work.index);
            let delay_ns = work.start_ns - end_ns;
            let (from, to) = (PointKind::WorkEnd(*source), PointKind::WorkStart(*at));
            edges.add(from, to, delay_ns, EdgeKind::Event, label);
        }
    }
}

/// Copies of one direction on different streams: one after the other.
fn add_engines(edges: &mut Edges<'_>, streams: &[Stream]) {
    let mut copies: Vec<(i64, u32)> = Vec::new();
    for at in streams.iter().flatten() {
        let work = edges.works.get(*at as usize);
        if let Some(work) = work.filter(|work| work.engine.is_some()) {
            copies.push((work.start_ns, *at));
        }
    }
    copies.sort_unstable();
    let mut last: HashMap<Engine, u32> = HashMap::new();
    for (start_ns, at) in copies {
        let Some(work) = edges.works.get(at as usize) else { continue };
        let Some(before_at) = work.engine.and_then(|engine| last.insert(engine, at)) else {
            continue;
        };
        let before = edges.works.get(before_at as usize);
        if before.is_some_and(|b| b.stream != work.stream && b.end_ns <= start_ns) {
            let label = Label::Event(work.index);
            let (from, to) = (PointKind::WorkEnd(before_at), PointKind::WorkStart(at));
            edges.add(from, to, 0, EdgeKind::Engine, label);
        }
    }
}

/// Bodies of calls, the order within threads, and handovers between threads.
fn add_calls(edges: &mut Edges<'_>, waits: &Waits) {
    let mut ends: Vec<(i64, u32)> =
        edges.calls.iter().enumerate().map(|(at, call)| (call.end_ns, position(at))).collect();
    ends.sort_unstable();
    for (at, call) in edges.calls.iter().enumerate() {
        let body_ns = waits.body_ns.get(at).copied().flatten().unwrap_or(call.duration_ns());
        let at = position(at);
        let (start, end) = (PointKind::CallStart(at), PointKind::CallEnd(at));
        edges.add(start, end, body_ns, EdgeKind::Body, Label::Call(call.index));
        let label = Label::HostBefore(call.index);
        let handover = find_handover(edges, &ends, call);
        if let Some(source) = handover {
            edges.add(PointKind::CallEnd(source), start, i64::MAX, EdgeKind::Handover, label);
        }
        let Some(before_at) = call.previous else { continue };
        let Some(before) = edges.calls.get(before_at as usize) else { continue };
        if before.end_ns <= call.start_ns {
            let host_ns = if handover.is_some() { 0 } else { i64::MAX };
            edges.add(PointKind::CallEnd(before_at), start, host_ns, EdgeKind::Thread, label);
        } else {
            let label = Label::Call(before.index);
            let from = PointKind::CallStart(before_at);
            edges.add(from, start, i64::MAX, EdgeKind::ThreadOverlap, label);
        }
    }
}

/// The call of another thread that a call followed after a pause: the last call of the thread that
/// launched or waited last within the pause. None if that thread was done in the first half of the
/// pause: then the pause is the thread's own work.
fn find_handover(edges: &Edges<'_>, ends: &[(i64, u32)], call: &CallNode) -> Option<u32> {
    let before = call.previous.and_then(|at| edges.calls.get(at as usize));
    let pause_start_ns = before.map_or(i64::MIN, |before| before.end_ns);
    if before.is_some() && call.start_ns - pause_start_ns < MIN_PAUSE_NS {
        return None;
    }
    let ended = ends.partition_point(|(end_ns, _)| *end_ns <= call.start_ns);
    let within = ends.get(..ended)?.iter().rev().take(MAX_CALLS_LOOKED_AT);
    let within = within.take_while(|(end_ns, _)| *end_ns > pause_start_ns);
    let mut last_of_threads: Vec<(u32, u32)> = Vec::new();
    for (_, at) in within {
        let Some(other) = edges.calls.get(*at as usize) else { continue };
        if other.thread == call.thread {
            continue;
        }
        let known = last_of_threads.iter().find(|(thread, _)| *thread == other.thread);
        let last = known.map_or(*at, |(_, last)| *last);
        if known.is_none() {
            last_of_threads.push((other.thread, *at));
        }
        if other.first_work.is_some() || other.waits {
            let end_ns = edges.calls.get(last as usize)?.end_ns;
            let rest_ns = call.start_ns - end_ns;
            let is_near = before.is_none() || rest_ns <= (call.start_ns - pause_start_ns) / 2;
            return is_near.then_some(last);
        }
    }
    None
}

/// Waits of calls for work.
fn add_waits(edges: &mut Edges<'_>, waits: &Waits) {
    // The rest after the work that ended last; work of other streams needs no longer.
    let mut rests: HashMap<u32, i64> = HashMap::new();
    for wait in &waits.list {
        let (Some(call), Some(work)) =
            (edges.calls.get(wait.call as usize), edges.works.get(wait.work as usize))
        else {
            continue;
        };
        let rest_ns = call.end_ns - work.end_ns;
        rests.entry(wait.call).and_modify(|rest| *rest = (*rest).min(rest_ns)).or_insert(rest_ns);
    }
    for wait in &waits.list {
        let index = edges.calls.get(wait.call as usize).map_or(NONE, |call| call.index);
        let rest_ns = rests.get(&wait.call).copied().unwrap_or_default();
        let (from, to) = (PointKind::WorkEnd(wait.work), PointKind::CallEnd(wait.call));
        edges.add(from, to, rest_ns, wait.kind, Label::WaitReturn(index));
    }
}
