//! The graph of a run: points in time, and what had to happen before each.
//!
//! Each call of the host and each piece of GPU work is two points, its start and its end. An edge
//! goes from an earlier point to a later one and has a least delay. A point is reached when the
//! last of its edges arrives; what the recording shows above that is the residual of that edge.
//! The unchanged replay therefore gives the recorded times, and a shorter delay never makes a
//! point later.
//!
//! | edge | from → to | delay |
//! |---|---|---|
//! | thread | end of a call → start of the thread's next | the host's own time |
//! | handover | last call of another thread in a pause → the call that ends the pause | the rest |
//! | body | start → end of a call | its own time; where it waited, what such calls take |
//! | launch | start of the call → start of the work | what this recording shows for an idle GPU |
//! | stream | end of the work before → start of the work | the GPU's turnaround |
//! | event | end of work on another stream → start of the work | the rest |
//! | wait | end of the awaited work → end of the call | the rest |
//! | queue full | end of the work that made room → end of the call | the rest |
//!
//! Traces do not record handovers, events and full queues: those edges are inferred.

mod calls;
mod costs;
mod edges;
mod full_queue;
mod order;
mod queue;
mod replay;
#[cfg(test)]
mod tests;
mod waits;
mod works;

use rgpu_model::Trace;

use calls::CallNode;
use costs::Costs;
use edges::{Edge, EdgeKind};
pub use replay::Replayed;
use works::WorkNode;

/// What the time along an edge was spent on. Numbers are indexes into the trace's `work` or
/// `calls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    /// The work runs.
    Work(u32),
    /// From the call that launched the work to its start.
    LaunchLatency(u32),
    /// Between two works of a stream that were queued: the GPU's turnaround before this work.
    Turnaround(u32),
    /// From the end of work on another stream to the start of this work.
    Event(u32),
    /// The call's own time.
    Call(u32),
    /// The host's own time before this call.
    HostBefore(u32),
    /// From the end of work to the return of the call that waited for it.
    WaitReturn(u32),
}

/// Stands for "none" in lists of indexes.
const NONE: u32 = u32::MAX;

/// Latest time of a graph, in nanoseconds (about 36 years): later times are cut to it, so that sums
/// of several fit.
const MAX_TIME_NS: u64 = 1 << 60;

/// Calls passed over to find what the host worked for.
const MAX_CALLS_PASSED: usize = 16;

/// A graph over consecutive launches of one process.
pub struct Graph<'t> {
    /// The trace that it is made of.
    pub trace: &'t Trace,
    /// The work, each once.
    works: Vec<WorkNode>,
    /// The outermost calls.
    calls: Vec<CallNode>,
    /// Position in `works` by the trace's index; [`NONE`] for work outside.
    work_at: Vec<u32>,
    /// Position in `calls` of the outermost call by the trace's index; [`NONE`] for calls outside.
    call_at: Vec<u32>,
    /// Position in `works` for each entry of the list that the graph was made of, or [`NONE`].
    listed: Vec<u32>,
    /// The points in an order in which each edge goes forward.
    points: Vec<Point>,
    /// The edges, grouped by the point where they end.
    edges: Vec<Edge>,
    /// Position in `points` by the number of a point.
    point_at: Vec<u32>,
    /// What launches and turnarounds take in this recording.
    costs: Costs,
    /// By call: nanoseconds that it waited for work from before the graph.
    queue_wait_ns: Vec<i64>,
}

/// A point in time.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// What happens.
    what: PointKind,
    /// Recorded time in nanoseconds since the first event.
    time_ns: i64,
    /// Its edges: start of the range.
    first_edge: u32,
    /// Its edges: end of the range.
    end_edge: u32,
    /// The edge that arrived last; [`NONE`] without edges.
    binding: u32,
}

/// What happens at a point. Numbers are positions in the graph's `works` and `calls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PointKind {
    /// Work starts.
    WorkStart(u32),
    /// Work ends.
    WorkEnd(u32),
    /// A call starts.
    CallStart(u32),
    /// A call returns.
    CallEnd(u32),
}

/// The time cut to the range of a graph.
fn bounded_ns(ns: u64) -> i64 {
    i64::try_from(ns.min(MAX_TIME_NS)).unwrap_or(i64::MAX)
}

/// A position as the graph stores it. A graph has fewer than 2³¹ points, since its lists come from
/// lists that are counted by `u32`, and points of more work than that are not made.
fn position(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NONE)
}

impl<'t> Graph<'t> {
    /// The graph of `work` (indexes into the trace's work, in the order of the launches) with all
    /// calls of the process from the first launch among them to the last. Indexes outside the
    /// trace, and those that come twice, are left out.
    pub fn new(trace: &'t Trace, work: &[u32]) -> Graph<'t> {
        let mut calls = calls::select(trace, work);
        let (mut works, listed) = works::select(trace, work, &mut calls);
        let streams = works::order_streams(&mut works);
        let costs = Costs::measure(&works, &calls.nodes);
        works::move_launches(&mut works, &calls.nodes, &costs);
        let waits = waits::find(trace, &works, &streams, &calls, &costs);
        let made = edges::make(&works, &streams, &calls.nodes, &waits, &costs);
        let queue_wait_ns = full_queue::find(trace, &works, &calls.nodes, &waits.list);
        let (points, edges, point_at) = order::arrange(&works, &calls.nodes, made);
        let mut work_at = vec![NONE; trace.work.len()];
        for (at, node) in works.iter().enumerate() {
            if let Some(slot) = work_at.get_mut(node.index as usize) {
                *slot = position(at);
            }
        }
        let calls::Calls { nodes, call_at } = calls;
        Graph {
            trace,
            works,
            calls: nodes,
            work_at,
            call_at,
            listed,
            points,
            edges,
            point_at,
            costs,
            queue_wait_ns,
        }
    }

    /// The outermost call that launched a work, as an index into the trace's calls. `None` if the
    /// work is not in the graph or its call is not known.
    pub fn launch_call(&self, work: u32) -> Option<u32> {
        let node = self.work_node(work)?;
        Some(self.calls.get(node.call? as usize)?.index)
    }

    /// The outermost call around a call of the graph, as an index into the trace's calls: the call
    /// itself if it is not nested. `None` if it is not in the graph.
    pub fn outermost_call(&self, call: u32) -> Option<u32> {
        Some(self.call_node(call)?.index)
    }

    /// The work (index into the trace's work) at whose end a call returned because it had waited
    /// for it. `None` if the call is not in the graph or did not wait.
    pub fn awaited_work(&self, call: u32) -> Option<u32> {
        let at = *self.call_at.get(call as usize)?;
        let point = self.points.get(self.point(PointKind::CallEnd(at))?)?;
        let edge = self.edges.get(point.binding as usize)?;
        if !matches!(edge.kind, EdgeKind::Wait | EdgeKind::Copy | EdgeKind::QueueFull) {
            return None;
        }
        self.work_of(edge.from)
    }

    /// The work (index into the trace's work) that the start of `work` waited for last, and the
    /// label of that time. `None` if a call was last, or the work is not in the graph.
    pub fn work_before(&self, work: u32) -> Option<(u32, Label)> {
        let at = *self.work_at.get(work as usize)?;
        let point = self.points.get(self.point(PointKind::WorkStart(at))?)?;
        let edge = self.edges.get(point.binding as usize)?;
        Some((self.work_of(edge.from)?, edge.label))
    }

    /// Nanoseconds of the start of `work` above what its launch, its stream and other streams
    /// explain. `None` if the work is not in the graph or nothing before it is known.
    pub fn residual_ns(&self, work: u32) -> Option<u64> {
        let at = *self.work_at.get(work as usize)?;
        let point = self.points.get(self.point(PointKind::WorkStart(at))?)?;
        let edge = self.edges.get(point.binding as usize)?;
        u64::try_from(edge.residual_ns).ok()
    }

    /// The work at a point, as an index into the trace's work.
    fn work_of(&self, point: u32) -> Option<u32> {
        match self.points.get(point as usize)?.what {
            PointKind::WorkStart(at) | PointKind::WorkEnd(at) => {
                Some(self.works.get(at as usize)?.index)
            }
            PointKind::CallStart(_) | PointKind::CallEnd(_) => None,
        }
    }

    /// The node of a work by the trace's index.
    fn work_node(&self, work: u32) -> Option<&WorkNode> {
        self.works.get(*self.work_at.get(work as usize)? as usize)
    }

    /// The node of the outermost call around a call, by the trace's index.
    fn call_node(&self, call: u32) -> Option<&CallNode> {
        self.calls.get(*self.call_at.get(call as usize)? as usize)
    }

    /// The position of a point in `points`.
    fn point(&self, what: PointKind) -> Option<usize> {
        let number = edges::point_number(self.works.len(), what)?;
        Some(*self.point_at.get(number as usize)? as usize)
    }

    /// The edges that end at a point.
    fn edges_of(&self, point: &Point) -> &[Edge] {
        self.edges.get(point.first_edge as usize..point.end_edge as usize).unwrap_or_default()
    }

    /// The times after `edits`.
    pub fn replay(&self, edits: &crate::edits::Edits) -> Replayed {
        replay::replay(self, edits)
    }
}

/// A step back along the critical path.
pub(crate) struct StepBack {
    /// The point it leads to.
    pub(crate) from: u32,
    /// The time of that point; `None` if nothing before is known.
    pub(crate) start_ns: Option<u64>,
    /// The time of the point that it starts from.
    pub(crate) end_ns: u64,
    /// What the time was spent on.
    pub(crate) label: Label,
    /// Where the time is of two kinds: until when it is the first, and that kind.
    pub(crate) first: Option<(u64, Label)>,
}

impl Graph<'_> {
    /// The step back from the start of `work`, or from its end. `None` if it is not in the graph.
    pub(crate) fn last_before(&self, work: u32, from_end: bool) -> Option<StepBack> {
        let at = *self.work_at.get(work as usize)?;
        let what = if from_end { PointKind::WorkEnd(at) } else { PointKind::WorkStart(at) };
        self.before(position(self.point(what)?))
    }

    /// The step back from a point, along the edge that arrived last. `None` if there is no such
    /// point.
    pub(crate) fn before(&self, point: u32) -> Option<StepBack> {
        let point = self.points.get(point as usize)?;
        let end_ns = u64::try_from(point.time_ns).unwrap_or_default();
        let Some(edge) = self.edges.get(point.binding as usize) else {
            let label = match point.what {
                PointKind::WorkStart(at) | PointKind::WorkEnd(at) => {
                    Label::LaunchLatency(self.works.get(at as usize)?.index)
                }
                PointKind::CallStart(at) | PointKind::CallEnd(at) => {
                    Label::HostBefore(self.calls.get(at as usize)?.index)
                }
            };
            return Some(StepBack { from: NONE, start_ns: None, end_ns, label, first: None });
        };
        let start_ns = self.points.get(edge.from as usize)?.time_ns;
        let start_ns = u64::try_from(start_ns).unwrap_or_default();
        let first = self
            .time_before_launch(point, edge)
            .map(|(ns, label)| (start_ns.saturating_add(ns).min(end_ns), label));
        Some(StepBack {
            from: edge.from,
            start_ns: Some(start_ns),
            end_ns,
            label: edge.label,
            first,
        })
    }

    /// The time in a call before it launched the work that starts at `point`: it is the call's own.
    /// `None` if the edge is no launch, or that time is zero.
    fn time_before_launch(&self, point: &Point, edge: &Edge) -> Option<(u64, Label)> {
        let PointKind::WorkStart(at) = point.what else { return None };
        let work = self.works.get(at as usize).filter(|work| work.offset_ns > 0)?;
        let call = self.calls.get(work.call? as usize)?;
        if edge.kind != EdgeKind::Launch {
            return None;
        }
        Some((u64::try_from(work.offset_ns).ok()?, Label::Call(call.index)))
    }

    /// The work of the graph, as indexes into the trace's work.
    pub(crate) fn work_indexes(&self) -> impl Iterator<Item = u32> + '_ {
        self.works.iter().map(|work| work.index)
    }

    /// The outermost calls of the graph that do not wait for the GPU, as indexes into the trace's
    /// calls.
    pub(crate) fn busy_calls(&self) -> impl Iterator<Item = u32> + '_ {
        let calls = self.calls.iter().filter(|call| !call.waits).map(|call| call.index);
        calls.filter(|call| self.awaited_work(*call).is_none())
    }

    /// The call itself, or, if it only asks or sets something, the next call of its thread that
    /// does more, by `does_more`: what the host worked for before it.
    pub(crate) fn purpose(&self, call: u32, mut does_more: impl FnMut(u32) -> bool) -> u32 {
        let mut at = self.call_at.get(call as usize).copied().unwrap_or(NONE);
        for _ in 0..MAX_CALLS_PASSED {
            let Some(node) = self.calls.get(at as usize) else { break };
            if node.waits || node.first_work.is_some() || does_more(node.index) {
                return node.index;
            }
            at = node.next.unwrap_or(NONE);
        }
        call
    }

    /// The first work that a call launched, as an index into the trace's work.
    pub(crate) fn first_launched(&self, call: u32) -> Option<u32> {
        let work = self.call_node(call)?.first_work?;
        Some(self.works.get(work as usize)?.index)
    }
}
