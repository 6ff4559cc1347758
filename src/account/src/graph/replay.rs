//! The times of a graph again, after changes.
//!
//! A forward pass over the points: each is reached when the last of its edges arrives. Edits change
//! delays, drop edges, or lead edges of a stream past work that has left it. The residual of an
//! edge stays with it, so that a start that waited long for its launch is not late for its stream.

use std::collections::HashMap;

use crate::edits::Edits;

use super::costs::{EVENT_NS, percentile};
use super::edges::{Edge, EdgeKind};
use super::works::Engine;
use super::{Graph, Label, NONE, Point, PointKind, bounded_ns};

/// Times of a replay, in nanoseconds since the first event of the trace.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// Start of each work of the graph, by its position in the list that the graph was made of. 0
    /// for entries that the graph left out.
    pub work_start_ns: Vec<i64>,
    /// End of each work, in the same order.
    pub work_end_ns: Vec<i64>,
    /// Number of each work's stream in the graph, in the same order.
    work_stream: Vec<u32>,
    /// Start of the outermost call that launched each work, in the same order. `None` if it is not
    /// known.
    pub launch_start_ns: Vec<Option<i64>>,
    /// Nanoseconds that the thread of that call had waited in launches for work from before the
    /// graph, until that call.
    pub queue_wait_ns: Vec<i64>,
}

impl Replayed {
    /// The steady time of a step in nanoseconds. `boundaries` are the positions of the first work
    /// of each step in the list that the graph was made of, and that of the step after the last.
    /// `None` if there are less than two, or one is outside.
    ///
    /// It is the distance of equal points over the last half of the steps: on the GPU or on the
    /// host, whichever is larger. Where the host ran ahead, its lead shrinks before the GPU waits
    /// for it; such a step is no faster than the host's. Time in which the host waited for work
    /// from before the graph is not the host's own.
    pub fn step_ns(&self, boundaries: &[u32]) -> Option<f64> {
        let steps = boundaries.len().checked_sub(1).filter(|steps| *steps > 0)?;
        let middle = steps / 2;
        let (first, last) = (*boundaries.get(middle)? as usize, *boundaries.get(steps)? as usize);
        let count = (steps - middle) as f64;
        let gpu_ns = self.work_start_ns.get(last)?.saturating_sub(*self.work_start_ns.get(first)?);
        let launches = (self.launch_start_ns.get(first)?, self.launch_start_ns.get(last)?);
        let host_ns =
            if let (Some(first), Some(last)) = launches { last.saturating_sub(*first) } else { 0 };
        let waited = |at: usize| self.queue_wait_ns.get(at).copied().unwrap_or_default();
        let host_ns = host_ns.saturating_sub(waited(last).saturating_sub(waited(first)));
        Some(gpu_ns.max(host_ns) as f64 / count)
    }

    /// The time from step to step at which the streams are done with a step, in nanoseconds, for
    /// the stream where it is longest, over as many steps as [`Self::step_ns`], one earlier: what
    /// is after the last boundary is no part of the steps. The mean or the median, whichever is
    /// less: a single start may be late for a reason that the graph does not know. `None` if there
    /// are less than two steps, or no stream has work in each.
    ///
    /// Where work has left its stream, the first work of a step no longer waits for the rest of the
    /// steps before, and its distance alone would say too little.
    pub fn completion_ns(&self, boundaries: &[u32]) -> Option<f64> {
        let steps = boundaries.len().checked_sub(1).filter(|steps| *steps > 0)?;
        let middle = steps / 2;
        let mut ends: HashMap<u32, Vec<i64>> = HashMap::new();
        for step in middle.checked_sub(1)?..steps {
            for (stream, end_ns) in self.ends_by_stream(boundaries, step)? {
                ends.entry(stream).or_default().push(end_ns);
            }
        }
        let count = steps - middle;
        let whole = ends.into_values().filter(|ends| ends.len() == count + 1);
        whole.filter_map(|ends| typical_distance_ns(&ends)).max_by(f64::total_cmp)
    }

    /// The last end of a step's work on each stream.
    fn ends_by_stream(&self, boundaries: &[u32], step: usize) -> Option<HashMap<u32, i64>> {
        let range = *boundaries.get(step)? as usize..*boundaries.get(step + 1)? as usize;
        let streams = self.work_stream.get(range.clone())?;
        let mut ends: HashMap<u32, i64> = HashMap::new();
        for (stream, end_ns) in streams.iter().zip(self.work_end_ns.get(range)?) {
            let last = ends.entry(*stream).or_insert(i64::MIN);
            *last = (*last).max(*end_ns);
        }
        Some(ends)
    }
}

/// The mean or the median distance of neighbours, whichever is less. `None` for less than two.
fn typical_distance_ns(times: &[i64]) -> Option<f64> {
    let (first, last) = (times.first()?, times.last()?);
    let mut distances: Vec<i64> =
        times.iter().zip(times.iter().skip(1)).map(|(a, b)| b.saturating_sub(*a)).collect();
    let mean_ns = last.saturating_sub(*first) as f64 / distances.len() as f64;
    let median_ns = percentile(&mut distances, 50)?;
    Some(mean_ns.min(median_ns as f64))
}

/// The times of `graph` after `edits`.
pub(super) fn replay(graph: &Graph<'_>, edits: &Edits) -> Replayed {
    let changes = Changes::new(graph, edits);
    let mut times: Vec<i64> = Vec::with_capacity(graph.points.len());
    for point in &graph.points {
        let mut time: Option<i64> = None;
        for edge in graph.edges_of(point) {
            time = time.max(changes.arrival(&times, point, edge));
        }
        if let PointKind::WorkStart(work) = point.what {
            time = time.max(changes.arrival_of_others(&times, work));
        }
        times.push(time.unwrap_or_else(|| recorded_arrival(graph, &times, point)));
    }
    let time_at = |what| times.get(graph.point(what)?).copied();
    let waited_ns = changes.waited_before();
    let mut replayed = Replayed::default();
    for work in &graph.listed {
        replayed.work_start_ns.push(time_at(PointKind::WorkStart(*work)).unwrap_or_default());
        replayed.work_end_ns.push(time_at(PointKind::WorkEnd(*work)).unwrap_or_default());
        let node = graph.works.get(*work as usize);
        replayed.work_stream.push(node.map_or(NONE, |node| node.stream));
        let call = node.and_then(|work| work.call);
        let launch_ns = call.and_then(|call| time_at(PointKind::CallStart(call)));
        replayed.launch_start_ns.push(launch_ns);
        let waited = call.and_then(|call| waited_ns.get(call as usize));
        replayed.queue_wait_ns.push(waited.copied().unwrap_or_default());
    }
    replayed
}

/// The time of a point whose edges are all dropped: as the recording has it, after what was last
/// before it.
fn recorded_arrival(graph: &Graph<'_>, times: &[i64], point: &Point) -> i64 {
    let binding = graph.edges.get(point.binding as usize);
    binding.map_or(point.time_ns, |edge| edge.recorded_arrival_ns(time_of(times, edge.from)))
}

fn time_of(times: &[i64], point: u32) -> i64 {
    times.get(point as usize).copied().unwrap_or_default()
}

/// What happens to a work.
#[derive(Clone, Copy, Default)]
struct WorkChange {
    duration_ns: Option<i64>,
    has_own_stream: bool,
    drops_events: bool,
    is_in_graph: bool,
}

impl WorkChange {
    fn is_removed(&self) -> bool {
        self.duration_ns == Some(0)
    }
}

/// What happens to an outermost call.
#[derive(Clone, Copy, Default)]
struct CallChange {
    body_ns: Option<i64>,
    /// What calls within it no longer take.
    saved_ns: i64,
    host_before_ns: Option<i64>,
    drops_waits: bool,
    /// The most time from the end of the awaited work to the call's return.
    return_ns: Option<i64>,
}

impl CallChange {
    fn is_removed(&self) -> bool {
        self.body_ns == Some(0)
    }
}

/// Edits by position in the graph.
struct Changes<'g, 't> {
    graph: &'g Graph<'t>,
    /// Nanoseconds of each call that are the profiler's: the first half within the call, the second
    /// before the next one.
    tool_ns: i64,
    /// The part of either time that is the profiler's at most.
    most_tool_share: f64,
    /// By position in `works`; empty without edits of work.
    works: Vec<WorkChange>,
    /// By position in `calls`; empty without edits of calls.
    calls: Vec<CallChange>,
    /// For work in a queue of its own: the work before it in that queue.
    own_previous: HashMap<u32, u32>,
    /// For work that must wait for work in a queue of its own: that work.
    sources: HashMap<u32, Vec<u32>>,
    /// For each work, the nearest before it in the stream that has not left the stream; empty if
    /// none has.
    kept_previous: Vec<Option<u32>>,
}

impl<'g, 't> Changes<'g, 't> {
    fn new(graph: &'g Graph<'t>, edits: &Edits) -> Changes<'g, 't> {
        let mut changes = Changes {
            graph,
            tool_ns: bounded_ns(edits.tool.ns),
            most_tool_share: edits.tool.most_share.clamp(0.0, 1.0),
            works: Vec::new(),
            calls: Vec::new(),
            own_previous: HashMap::new(),
            sources: HashMap::new(),
            kept_previous: Vec::new(),
        };
        changes.edit_works(edits);
        changes.edit_calls(edits);
        if !edits.own_stream.is_empty() {
            changes.make_queues(edits);
        }
        changes
    }

    fn edit_works(&mut self, edits: &Edits) {
        let is_unchanged = edits.work_ns.is_empty()
            && edits.own_stream.is_empty()
            && edits.no_event.is_empty()
            && edits.in_graph.is_empty();
        if is_unchanged {
            return;
        }
        self.works = vec![WorkChange::default(); self.graph.works.len()];
        for (index, ns) in &edits.work_ns {
            if let Some(change) = self.work_change_mut(*index) {
                change.duration_ns = Some(bounded_ns(*ns));
            }
        }
        for index in edits.own_stream.keys() {
            if let Some(change) = self.work_change_mut(*index) {
                change.has_own_stream = true;
            }
        }
        for index in &edits.no_event {
            if let Some(change) = self.work_change_mut(*index) {
                change.drops_events = true;
            }
        }
        for index in &edits.in_graph {
            if let Some(change) = self.work_change_mut(*index) {
                change.is_in_graph = true;
            }
        }
    }

    fn work_change_mut(&mut self, index: u32) -> Option<&mut WorkChange> {
        let at = *self.graph.work_at.get(index as usize)?;
        self.works.get_mut(at as usize)
    }

    fn edit_calls(&mut self, edits: &Edits) {
        let is_unchanged = edits.call_ns.is_empty()
            && edits.host_before_ns.is_empty()
            && edits.no_wait.is_empty()
            && edits.return_ns.is_empty();
        if is_unchanged {
            return;
        }
        let graph = self.graph;
        self.calls = vec![CallChange::default(); graph.calls.len()];
        for (index, ns) in &edits.call_ns {
            let ns = bounded_ns(*ns);
            let is_nested = graph.outermost_call(*index) != Some(*index);
            let Some(change) = self.call_change_mut(*index) else { continue };
            if is_nested {
                let call = graph.trace.calls.get(*index as usize);
                let duration_ns = call.map_or(0, |call| bounded_ns(call.duration_ns));
                let saved_ns = duration_ns.saturating_sub(ns).max(0);
                change.saved_ns = change.saved_ns.saturating_add(saved_ns);
            } else {
                change.body_ns = Some(ns);
            }
        }
        for (index, ns) in &edits.host_before_ns {
            if graph.outermost_call(*index) != Some(*index) {
                // Between calls within a call is no time of the host's own.
                continue;
            }
            if let Some(change) = self.call_change_mut(*index) {
                change.host_before_ns = Some(bounded_ns(*ns));
            }
        }
        for index in &edits.no_wait {
            if let Some(change) = self.call_change_mut(*index) {
                change.drops_waits = true;
            }
        }
        for (index, ns) in &edits.return_ns {
            if let Some(change) = self.call_change_mut(*index) {
                change.return_ns = Some(bounded_ns(*ns));
            }
        }
    }

    /// By call: nanoseconds that its thread had waited before it for work from before the graph, in
    /// calls that are not changed.
    fn waited_before(&self) -> Vec<i64> {
        let mut sums: HashMap<u32, i64> = HashMap::new();
        let waits = self.graph.calls.iter().zip(&self.graph.queue_wait_ns).enumerate();
        let waits = waits.map(|(at, (call, wait_ns))| {
            let sum = sums.entry(call.thread).or_default();
            let before = *sum;
            let is_changed = self.calls.get(at).is_some_and(|change| change.body_ns.is_some());
            if !is_changed {
                *sum = sum.saturating_add(*wait_ns);
            }
            before
        });
        waits.collect()
    }

    fn call_change_mut(&mut self, index: u32) -> Option<&mut CallChange> {
        let at = *self.graph.call_at.get(index as usize)?;
        self.calls.get_mut(at as usize)
    }

    /// Queues of work that leaves its stream: copies of a direction share one, as they share an
    /// engine; other work shares another.
    fn make_queues(&mut self, edits: &Edits) {
        let graph = self.graph;
        let mut own: Vec<(i64, u32)> = Vec::new();
        for (index, waiting) in &edits.own_stream {
            let Some(at) = graph.work_at.get(*index as usize).copied().filter(|at| *at != NONE)
            else {
                continue;
            };
            let start_ns = graph.works.get(at as usize).map_or(0, |work| work.start_ns);
            own.push((start_ns, at));
            let waiting = waiting.and_then(|index| graph.work_at.get(index as usize).copied());
            if let Some(waiting) = waiting.filter(|at| *at != NONE) {
                self.sources.entry(waiting).or_default().push(at);
            }
        }
        own.sort_unstable();
        let mut last: HashMap<Option<Engine>, u32> = HashMap::new();
        for (_, at) in own {
            let engine = graph.works.get(at as usize).and_then(|work| work.engine);
            if let Some(before) = last.insert(engine, at) {
                self.own_previous.insert(at, before);
            }
        }
        let mut order: Vec<(i64, u32)> =
            graph.works.iter().zip(0..).map(|(work, at)| (work.start_ns, at)).collect();
        order.sort_unstable_by_key(|(start_ns, at)| {
            (*start_ns, graph.point(PointKind::WorkStart(*at)))
        });
        self.kept_previous = vec![None; graph.works.len()];
        for (_, at) in order {
            let Some(before) = graph.works.get(at as usize).and_then(|work| work.previous) else {
                continue;
            };
            let kept = if self.work(before).has_own_stream {
                self.kept_previous.get(before as usize).copied().flatten()
            } else {
                Some(before)
            };
            if let Some(slot) = self.kept_previous.get_mut(at as usize) {
                *slot = kept;
            }
        }
    }

    fn work(&self, at: u32) -> WorkChange {
        self.works.get(at as usize).copied().unwrap_or_default()
    }

    fn call(&self, at: u32) -> CallChange {
        self.calls.get(at as usize).copied().unwrap_or_default()
    }

    /// The recorded time along an edge of the host, without what the profiler added.
    fn without_tool_ns(&self, edge: &Edge, from_ns: i64) -> i64 {
        let recorded_ns = edge.recorded_arrival_ns(from_ns);
        let most_ns =
            (recorded_ns.saturating_sub(from_ns).max(0) as f64 * self.most_tool_share) as i64;
        recorded_ns - (self.tool_ns / 2).min(most_ns)
    }

    /// When an edge of the host arrives that takes `changed_ns` now, which was made of recorded
    /// times: the profiler added to it as much as to the whole. No later than unchanged.
    fn changed_arrival(
        &self,
        edge: &Edge,
        from_ns: i64,
        changed_ns: i64,
        unchanged_ns: i64,
    ) -> i64 {
        if self.tool_ns == 0 {
            return from_ns.saturating_add(changed_ns);
        }
        let recorded_ns = edge.recorded_arrival_ns(from_ns).saturating_sub(from_ns).max(1);
        let left = unchanged_ns.saturating_sub(from_ns).max(0) as f64 / recorded_ns as f64;
        from_ns.saturating_add((changed_ns as f64 * left) as i64).min(unchanged_ns)
    }

    /// When an edge arrives. `None` if an edit drops it.
    fn arrival(&self, times: &[i64], point: &Point, edge: &Edge) -> Option<i64> {
        let from_ns = time_of(times, edge.from);
        let is_hosts = matches!(edge.kind, EdgeKind::Thread | EdgeKind::Handover | EdgeKind::Body);
        let unchanged_ns = if self.tool_ns > 0 && is_hosts {
            self.without_tool_ns(edge, from_ns)
        } else {
            edge.recorded_arrival_ns(from_ns)
        };
        match point.what {
            PointKind::WorkStart(at) if !self.works.is_empty() || !self.calls.is_empty() => {
                self.arrival_of_start(times, at, edge, from_ns)
            }
            PointKind::WorkEnd(at) => {
                let duration_ns = self.work(at).duration_ns.unwrap_or(edge.delay_ns);
                Some(from_ns.saturating_add(duration_ns))
            }
            PointKind::CallStart(at) if !self.calls.is_empty() => {
                let Some(host_ns) = self.call(at).host_before_ns else { return Some(unchanged_ns) };
                let changed_ns = self.changed_arrival(edge, from_ns, host_ns, unchanged_ns);
                Some(match edge.kind {
                    EdgeKind::Handover => changed_ns,
                    EdgeKind::Thread if self.has_handover(point) => unchanged_ns,
                    EdgeKind::Thread => changed_ns,
                    _ => unchanged_ns,
                })
            }
            PointKind::CallEnd(at) if !self.calls.is_empty() => {
                let change = self.call(at);
                if edge.kind == EdgeKind::Body {
                    let saved_ns = unchanged_ns.saturating_sub(change.saved_ns).max(from_ns);
                    let Some(body_ns) = change.body_ns else { return Some(saved_ns) };
                    return Some(self.changed_arrival(edge, from_ns, body_ns, unchanged_ns));
                }
                if change.drops_waits || change.is_removed() {
                    return None;
                }
                let is_wait = matches!(edge.kind, EdgeKind::Wait | EdgeKind::Copy);
                let return_ns = change.return_ns.filter(|_| is_wait);
                // After the work ended the call takes no longer than it takes now in all.
                let most_ns = return_ns.into_iter().chain(change.body_ns).min();
                let latest_ns = most_ns.map_or(i64::MAX, |ns| from_ns.saturating_add(ns));
                Some(unchanged_ns.min(latest_ns))
            }
            _ => Some(unchanged_ns),
        }
    }

    fn has_handover(&self, point: &Point) -> bool {
        self.graph.edges_of(point).iter().any(|edge| edge.kind == EdgeKind::Handover)
    }

    /// When an edge arrives at the start of work.
    fn arrival_of_start(&self, times: &[i64], at: u32, edge: &Edge, from_ns: i64) -> Option<i64> {
        let change = self.work(at);
        let unchanged_ns = edge.recorded_arrival_ns(from_ns);
        match edge.kind {
            EdgeKind::Launch => {
                let work = self.graph.works.get(at as usize)?;
                let call = work.call.map_or_else(CallChange::default, |call| self.call(call));
                if change.is_in_graph {
                    // Without its call, the time on the host is that of the graph's launch.
                    return call.is_removed().then_some(from_ns);
                }
                if change.is_removed() {
                    return Some(from_ns);
                }
                let Some(body_ns) = call.body_ns else { return Some(unchanged_ns) };
                let cut_ns = work.offset_ns.saturating_sub(body_ns).max(0);
                let residual_ns = if call.is_removed() { 0 } else { edge.residual_ns };
                let delay_ns = edge.delay_ns.saturating_sub(cut_ns).max(0);
                Some(from_ns.saturating_add(delay_ns).saturating_add(residual_ns))
            }
            EdgeKind::Stream | EdgeKind::Overlap => {
                self.arrival_in_stream(times, at, edge, from_ns)
            }
            EdgeKind::Event if change.drops_events => None,
            EdgeKind::Event | EdgeKind::Engine if change.is_removed() => Some(from_ns),
            _ => Some(unchanged_ns),
        }
    }

    /// When the work before in the stream lets work start.
    fn arrival_in_stream(&self, times: &[i64], at: u32, edge: &Edge, from_ns: i64) -> Option<i64> {
        let change = self.work(at);
        if change.has_own_stream {
            return None;
        }
        let work = self.graph.works.get(at as usize)?;
        let (PointKind::WorkStart(before_at) | PointKind::WorkEnd(before_at)) =
            self.graph.points.get(edge.from as usize)?.what
        else {
            return None;
        };
        if self.work(before_at).has_own_stream {
            let kept_at = self.kept_previous.get(at as usize).copied().flatten()?;
            let kept = self.graph.works.get(kept_at as usize)?;
            let delay_ns = self.graph.costs.turnaround_ns(kept, work);
            let delay_ns = delay_ns.min((work.start_ns - kept.end_ns).max(0));
            let delay_ns = if change.is_removed() || change.is_in_graph { 0 } else { delay_ns };
            return Some(self.end_ns(times, kept_at)?.saturating_add(delay_ns));
        }
        if edge.kind == EdgeKind::Stream {
            let is_linked = change.is_removed() || change.is_in_graph;
            if is_linked {
                return Some(from_ns);
            }
            // A call that prepared the data, and takes another time now, holds it up no longer.
            let is_staged = matches!(edge.label, Label::Call(_));
            let call = work.call.map_or_else(CallChange::default, |call| self.call(call));
            if is_staged && call.body_ns.is_some() {
                return Some(from_ns.saturating_add(edge.delay_ns));
            }
            return Some(edge.recorded_arrival_ns(from_ns));
        }
        // Overlapping work: as much of the work before is left as in the recording.
        let before = self.graph.works.get(before_at as usize)?;
        let duration_ns = before.duration_ns();
        let changed_ns = self.work(before_at).duration_ns.unwrap_or(duration_ns);
        let delay_ns = edge.delay_ns.saturating_add(changed_ns).saturating_sub(duration_ns).max(0);
        Some(from_ns.saturating_add(delay_ns).saturating_add(edge.residual_ns))
    }

    /// When queues and sources that edits made let work start. `None` if there are none.
    fn arrival_of_others(&self, times: &[i64], at: u32) -> Option<i64> {
        if self.own_previous.is_empty() && self.sources.is_empty() {
            return None;
        }
        let queue_ns = self.own_previous.get(&at).and_then(|before| self.end_ns(times, *before));
        let sources = self.sources.get(&at).into_iter().flatten();
        let source_ns = sources.filter_map(|source| {
            let event_ns = if self.work(*source).is_removed() { 0 } else { EVENT_NS };
            Some(self.end_ns(times, *source)?.saturating_add(event_ns))
        });
        queue_ns.max(source_ns.max())
    }

    /// The end of work that has started. `None` if it has not, in the order of the points.
    fn end_ns(&self, times: &[i64], at: u32) -> Option<i64> {
        if let Some(end_ns) = times.get(self.graph.point(PointKind::WorkEnd(at))?) {
            return Some(*end_ns);
        }
        let start_ns = *times.get(self.graph.point(PointKind::WorkStart(at))?)?;
        let recorded_ns = self.graph.works.get(at as usize)?.duration_ns();
        Some(start_ns.saturating_add(self.work(at).duration_ns.unwrap_or(recorded_ns)))
    }
}
