//! Places in the source where operators were called: the innermost Python function around each that
//! is no part of torch or of Python's own library.

use std::cmp::Reverse;

use rgpu_format::torch_trace::{EventKind, TorchTrace};
use std::collections::HashMap;

/// Beginnings of functions that only pass a call on. torch writes paths relative to `sys.path`.
const NOT_A_PLACE: &[&str] = &[
    "torch/",
    "<",
    "nn.Module: ",
    "sitecustomize.py(",
    "contextlib.py(",
    "threading.py(",
    "functools.py(",
    "runpy.py(",
    "typing.py(",
    "concurrent/",
    "importlib/",
    "multiprocessing/",
];

/// The place of each operator and range, as an index into the trace's names, by its index in the
/// trace. A backward operator has the place of its forward operator.
pub(super) fn operator_places(trace: &TorchTrace) -> HashMap<usize, u32> {
    let mut places = HashMap::new();
    if trace.python_calls.is_empty() {
        return places;
    }
    let is_place: Vec<bool> = trace.names.iter().map(|name| is_place(name)).collect();
    let mut calls: Vec<_> = trace.python_calls.iter().collect();
    calls.sort_by_key(|c| (c.pid, c.tid, c.start_ns, Reverse(c.duration_ns)));
    let mut calls = calls.into_iter().peekable();
    let events = &trace.events;
    let has_place =
        |at: &usize| matches!(events[*at].kind, EventKind::Operator | EventKind::Annotation);
    let mut operators: Vec<usize> = (0..events.len()).filter(has_place).collect();
    operators.sort_by_key(|at| (events[*at].pid, events[*at].tid, events[*at].start_ns));
    // End time and place of the open Python calls of a thread, outermost first.
    let mut open: Vec<(i64, Option<u32>)> = Vec::new();
    let mut thread = None;
    for at in operators {
        let event = &events[at];
        if thread != Some((event.pid, event.tid)) {
            thread = Some((event.pid, event.tid));
            open.clear();
        }
        let key = (event.pid, event.tid, event.start_ns);
        while let Some(call) = calls.next_if(|c| (c.pid, c.tid, c.start_ns) <= key) {
            if thread != Some((call.pid, call.tid)) {
                continue;
            }
            while open.last().is_some_and(|(end, _)| *end <= call.start_ns) {
                open.pop();
            }
            let outer = open.last().and_then(|(_, place)| *place);
            let own = is_place.get(call.name as usize).is_some_and(|yes| *yes);
            let place = if own { Some(call.name) } else { outer };
            open.push((call.start_ns.saturating_add_unsigned(call.duration_ns), place));
        }
        while open.last().is_some_and(|(end, _)| *end <= event.start_ns) {
            open.pop();
        }
        if let Some((_, Some(place))) = open.last() {
            places.insert(at, *place);
        }
    }
    let forward: HashMap<i64, u32> = (0..events.len())
        .filter(|at| !events[*at].is_backward)
        .filter_map(|at| Some((events[at].sequence?, *places.get(&at)?)))
        .collect();
    for (at, event) in events.iter().enumerate().filter(|(_, event)| event.is_backward) {
        if let Some(place) = event.sequence.and_then(|number| forward.get(&number)) {
            places.insert(at, *place);
        }
    }
    places
}

/// A place as text: `net.py(9): forward`. Code outside of functions has no line, since torch gives
/// its first, not that of the call.
pub(super) fn place_text(trace: &TorchTrace, place: u32) -> String {
    let name = trace.names.get(place as usize).map(String::as_str).unwrap_or_default();
    match name.strip_suffix("): <module>").and_then(|name| name.rsplit_once('(')) {
        Some((file, _)) => format!("{file}: <module>"),
        None => name.to_owned(),
    }
}

/// Whether a function is a place, by its index in the trace's names.
pub(super) fn is_place_at(trace: &TorchTrace, name: u32) -> bool {
    trace.names.get(name as usize).is_some_and(|name| is_place(name))
}

fn is_place(name: &str) -> bool {
    // Paths that are not below `sys.path` are absolute.
    let name = name.rsplit_once("-packages/").map_or(name, |(_, inner)| inner);
    !NOT_A_PLACE.iter().any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_innermost_function_outside_of_torch_also_for_a_backward_operator() {
        let json = r#"{"traceEvents":[
            {"ph":"X","cat":"python_function","name":"train.py(3): step","pid":7,"tid":8,"ts":1,"dur":50},
            {"ph":"X","cat":"python_function","name":"net.py(9): forward","pid":7,"tid":8,"ts":2,"dur":10},
            {"ph":"X","cat":"python_function","name":"torch/nn/functional.py(1): linear","pid":7,"tid":8,"ts":3,"dur":5},
            {"ph":"X","cat":"cpu_op","name":"aten::linear","pid":7,"tid":8,"ts":4,"dur":2,"args":{"Sequence number":5,"Fwd thread id":0}},
            {"ph":"X","cat":"cpu_op","name":"aten::add","pid":7,"tid":8,"ts":20,"dur":2},
            {"ph":"X","cat":"cpu_op","name":"aten::late","pid":7,"tid":8,"ts":90,"dur":2},
            {"ph":"X","cat":"cpu_op","name":"MmBackward0","pid":7,"tid":9,"ts":30,"dur":2,"args":{"Sequence number":5,"Fwd thread id":1}}]}"#;
        let trace = TorchTrace::read(json.as_bytes()).unwrap();
        let places = operator_places(&trace);
        let shown: Vec<_> = (0..trace.events.len())
            .map(|at| places.get(&at).map_or("", |name| &trace.names[*name as usize]))
            .collect();
        assert_eq!(shown, ["net.py(9): forward", "train.py(3): step", "", "net.py(9): forward"]);
        let names = ["/a/b.py(13): <module>", "net.py(9): forward"].map(str::to_owned).to_vec();
        let trace = TorchTrace { names, ..TorchTrace::default() };
        assert_eq!(
            [0, 1].map(|at| place_text(&trace, at)),
            ["/a/b.py: <module>", "net.py(9): forward"]
        );
        assert!(!is_place("/usr/lib/python3/dist-packages/torch/nn/x.py(1): f"));
    }
}
