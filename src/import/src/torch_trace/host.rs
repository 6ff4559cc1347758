//! What threads of the host did: operators, ranges and Python functions. They explain the times in
//! which the GPU waits for the host.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use rgpu_format::torch_trace::{EventKind, TorchEvent, TorchTrace};

use super::places;
use crate::trace_events::ns_since;
use rgpu_model::trace::HostEvent;

/// Most events listed. The longest are kept: the time of shorter ones counts for those around them.
const MAX_EVENTS: usize = 50_000;

/// Prefix of the ranges that torch's profiler opens for its own steps.
const PROFILER_STEP: &str = "ProfilerStep#";

/// The events in order of start. `places` has the places of operators and ranges.
pub(super) fn events(
    trace: &TorchTrace,
    places: &HashMap<usize, u32>,
    first_ns: i64,
) -> Vec<HostEvent> {
    let is_known = |event: &TorchEvent| match event.kind {
        EventKind::Operator => true,
        // Our own ranges, `torch@step` and `LLM@decode_step`, are around everything.
        EventKind::Annotation => {
            let name = trace.name(event);
            !name.contains('@') && !name.starts_with(PROFILER_STEP)
        }
        _ => false,
    };
    let mut calls: Vec<(usize, &TorchEvent)> =
        trace.events.iter().enumerate().filter(|(_, event)| is_known(event)).collect();
    calls.sort_by_key(|(_, e)| (e.pid, e.tid, e.start_ns, Reverse(e.duration_ns)));
    let mut thread = None;
    let mut reached_ns = i64::MIN;
    // Users know the operators that they call, not those inside.
    calls.retain(|(_, event)| {
        if thread != Some((event.pid, event.tid)) {
            thread = Some((event.pid, event.tid));
            reached_ns = i64::MIN;
        }
        if event.kind != EventKind::Operator {
            return true;
        }
        let is_outermost = event.start_ns >= reached_ns;
        if is_outermost {
            reached_ns = super::end(event);
        }
        is_outermost
    });
    let of_operators = calls.into_iter().map(|(at, event)| {
        let place = places.get(&at).copied();
        (event.duration_ns, event.start_ns, event.tid, Some(event.name), place)
    });
    let functions = trace.python_calls.iter().filter(|call| places::is_place_at(trace, call.name));
    let functions =
        functions.map(|call| (call.duration_ns, call.start_ns, call.tid, None, Some(call.name)));
    let mut all: Vec<_> = of_operators.chain(functions).collect();
    all.sort_by_key(|(duration_ns, ..)| Reverse(*duration_ns));
    all.truncate(MAX_EVENTS);
    all.sort_by_key(|(_, start_ns, ..)| *start_ns);
    let mut names: HashMap<(u32, bool), Arc<str>> = HashMap::new();
    let mut name = |at: u32, is_function: bool| {
        let text = || {
            if is_function {
                places::place_text(trace, at).into()
            } else {
                trace.names.get(at as usize).map_or("", String::as_str).into()
            }
        };
        Arc::clone(names.entry((at, is_function)).or_insert_with(text))
    };
    let events = all.into_iter().map(|(duration_ns, start_ns, tid, operator, function)| {
        let end_ns = start_ns.saturating_add_unsigned(duration_ns);
        let (start_ns, end_ns) = (ns_since(first_ns, start_ns), ns_since(first_ns, end_ns));
        HostEvent {
            operator: operator.map(|at| name(at, false)),
            function: function.map(|at| name(at, true)),
            start_ns,
            duration_ns: end_ns.saturating_sub(start_ns),
            thread: super::thread_id(tid).cast_unsigned(),
        }
    });
    events.collect()
}
