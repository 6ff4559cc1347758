//! The GPU work of a graph, and its order in streams.

use std::collections::HashMap;

use rgpu_model::Trace;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::calls::{CallNode, Calls};
use super::costs::Costs;
use super::{NONE, bounded_ns, position};

/// A piece of GPU work.
#[derive(Clone, Debug)]
pub(super) struct WorkNode {
    /// Index into the trace's work.
    pub(super) index: u32,
    /// Start in nanoseconds.
    pub(super) start_ns: i64,
    /// End in nanoseconds.
    pub(super) end_ns: i64,
    /// Number of its stream within the graph.
    pub(super) stream: u32,
    /// The engine that copies of its direction share; `None` for kernels and fills.
    pub(super) engine: Option<Engine>,
    /// Whether it is a copy or a fill.
    pub(super) is_copy: bool,
    /// Whether it is a whole CUDA graph.
    pub(super) is_graph: bool,
    /// Whether it copies from or to pageable memory.
    pub(super) is_pageable: bool,
    /// Whether it copies from the host.
    pub(super) is_from_host: bool,
    /// The outermost call that launched it, as a position in the graph's calls.
    pub(super) call: Option<u32>,
    /// Start of the call that launched it, in nanoseconds; its own start if none is known.
    pub(super) launch_ns: i64,
    /// From the start of the outermost call to the launch within it, in nanoseconds.
    pub(super) offset_ns: i64,
    /// The work that started before it in its stream, as a position in the graph's works.
    pub(super) previous: Option<u32>,
    /// Of the work before it in its stream, that which ended last.
    pub(super) last_ended: Option<u32>,
}

impl WorkNode {
    /// Its duration in nanoseconds.
    pub(super) fn duration_ns(&self) -> i64 {
        self.end_ns - self.start_ns
    }
}

/// A copy engine: the GPU and the direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Engine {
    device: u32,
    /// Index of the name of the direction.
    name: u32,
}

/// A stream: its work in order of start, as positions in the graph's works.
pub(super) type Stream = Vec<u32>;

/// The nodes of `work`, and for each entry of `work` the position of its node or [`NONE`].
pub(super) fn select(trace: &Trace, work: &[u32], calls: &mut Calls) -> (Vec<WorkNode>, Vec<u32>) {
    let mut nodes: Vec<WorkNode> = Vec::with_capacity(work.len());
    let mut listed = Vec::with_capacity(work.len());
    let mut seen = vec![false; trace.work.len()];
    let mut streams: HashMap<(u32, u64), u32> = HashMap::new();
    for index in work {
        let at = *index as usize;
        let (Some(event), Some(seen)) = (trace.work.get(at), seen.get_mut(at)) else {
            listed.push(NONE);
            continue;
        };
        if std::mem::replace(seen, true) {
            listed.push(NONE);
            continue;
        }
        let number = position(streams.len());
        let stream = *streams.entry((event.device, event.stream)).or_insert(number);
        let node = position(nodes.len());
        listed.push(node);
        nodes.push(make_node(trace, *index, event, stream, calls, node));
    }
    (nodes, listed)
}

/// The node of one work.
fn make_node(
    trace: &Trace,
    index: u32,
    event: &TraceWork,
    stream: u32,
    calls: &mut Calls,
    node: u32,
) -> WorkNode {
    let start_ns = bounded_ns(event.start_ns);
    let launch = event.call.and_then(|call| trace.calls.get(call as usize));
    let call = event.call.and_then(|call| calls.call_at.get(call as usize).copied());
    let call = call.filter(|call| *call != NONE);
    let outer = call.and_then(|call| calls.nodes.get_mut(call as usize));
    let launch_ns = launch.map_or(start_ns, |launch| bounded_ns(launch.start_ns));
    let mut offset_ns = 0;
    if let Some(outer) = outer {
        outer.first_work.get_or_insert(node);
        offset_ns = (launch_ns - outer.start_ns).max(0);
    }
    let name = trace.names.get(event.name as usize).map_or("", String::as_str);
    let is_copy = matches!(event.kind, TraceWorkKind::Copy | TraceWorkKind::Set);
    let engine = (event.kind == TraceWorkKind::Copy)
        .then_some(Engine { device: event.device, name: event.name });
    WorkNode {
        index,
        start_ns,
        end_ns: bounded_ns(event.end_ns()),
        stream,
        engine,
        is_copy,
        is_graph: event.kind == TraceWorkKind::Graph,
        is_pageable: event.pageable == Some(true),
        is_from_host: event.kind == TraceWorkKind::Copy && name.starts_with("HtoD"),
        call,
        launch_ns,
        offset_ns,
        previous: None,
        last_ended: None,
    }
}

/// Puts the work of each stream in order of start (of launch, where that is equal), and tells each
/// work what came before it.
pub(super) fn order_streams(works: &mut [WorkNode]) -> Vec<Stream> {
    let count = works.iter().map(|work| work.stream as usize + 1).max().unwrap_or(0);
    let mut streams: Vec<Stream> = vec![Vec::new(); count];
    let mut order: Vec<u32> = (0..position(works.len())).collect();
    order.sort_by_key(|at| {
        works.get(*at as usize).map(|work| (work.start_ns, work.end_ns, work.launch_ns))
    });
    let mut last_ended: Vec<Option<u32>> = vec![None; count];
    for at in order {
        let Some(stream) = works.get(at as usize).map(|work| work.stream as usize) else {
            continue;
        };
        let (Some(list), Some(last)) = (streams.get_mut(stream), last_ended.get_mut(stream)) else {
            continue;
        };
        let last_end = last.and_then(|last| works.get(last as usize)).map(|work| work.end_ns);
        if let Some(work) = works.get_mut(at as usize) {
            work.previous = list.last().copied();
            work.last_ended = *last;
            if last_end.is_none_or(|end| work.end_ns >= end) {
                *last = Some(at);
            }
        }
        list.push(at);
    }
    streams
}

/// A launch call that takes longer than this does something else first: it loads code, or makes a
/// graph ready.
const MIN_LONG_CALL_NS: i64 = 15_000;

/// Moves the launch to where it must have been within a long call: the latency before the start of
/// the work, or at the end of the call. A copy from pageable memory, whose call waits for its
/// stream, stays.
pub(super) fn move_launches(works: &mut [WorkNode], calls: &[CallNode], costs: &Costs) {
    for at in 0..works.len() {
        let Some(work) = works.get(at) else { continue };
        let Some(call) = work.call.and_then(|call| calls.get(call as usize)) else { continue };
        let before = work.previous.and_then(|before| works.get(before as usize));
        let waits_in_call = before.is_some_and(|before| before.end_ns > call.start_ns);
        if call.duration_ns() <= MIN_LONG_CALL_NS || (work.is_pageable && waits_in_call) {
            continue;
        }
        let latest_ns = (work.start_ns - costs.launch_ns(work)).min(call.end_ns);
        let offset_ns = work.offset_ns.max(latest_ns - call.start_ns);
        if let Some(work) = works.get_mut(at) {
            work.offset_ns = offset_ns;
        }
    }
}
