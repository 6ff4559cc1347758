//! Adds up which operators and functions a thread of the host was in while the GPU waited for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use rgpu_model::Trace;
use rgpu_model::timeline::HostWork;
use rgpu_model::trace::HostEvent;

/// The time of deeper events counts for those around them. This bounds the work for a hostile file.
const MAX_DEPTH: u32 = 128;

/// Operator and function.
type Key<'a> = (Option<&'a str>, Option<&'a str>);

/// The operators and functions of each thread, as they nest.
pub(super) struct HostEvents<'a> {
    by_thread: HashMap<u64, Vec<NestedEvent<'a>>>,
}

struct NestedEvent<'a> {
    event: &'a HostEvent,
    /// The event around it, as an index into the events of its thread.
    outer: Option<usize>,
    depth: u32,
    /// Whether an event of the same operator and function is around it.
    again: bool,
}

impl<'a> NestedEvent<'a> {
    fn key(&self) -> Key<'a> {
        (self.event.operator.as_deref(), self.event.function.as_deref())
    }

    fn end_ns(&self) -> u64 {
        self.event.start_ns.saturating_add(self.event.duration_ns)
    }
}

impl<'a> HostEvents<'a> {
    pub(super) fn new(trace: &'a Trace) -> HostEvents<'a> {
        let mut order: Vec<&HostEvent> = trace.host.iter().collect();
        // An operator is inside of a function that takes as long.
        order.sort_by_key(|e| (e.thread, e.start_ns, Reverse(e.duration_ns), e.operator.is_some()));
        let mut by_thread: HashMap<u64, Vec<NestedEvent<'a>>> = HashMap::new();
        for event in order {
            let events = by_thread.entry(event.thread).or_default();
            let mut outer = events.len().checked_sub(1);
            while let Some(at) = outer.filter(|at| events[*at].end_ns() <= event.start_ns) {
                outer = events[at].outer;
            }
            let depth = outer.map_or(0, |at| events[at].depth + 1);
            if depth >= MAX_DEPTH {
                continue;
            }
            let nested = NestedEvent { event, outer, depth, again: false };
            let again = around(events, outer).any(|other| other.key() == nested.key());
            events.push(NestedEvent { again, ..nested });
        }
        HostEvents { by_thread }
    }

    /// Adds what a thread did from `start_ns` to `end_ns`.
    pub(super) fn add(&self, thread: u64, (start_ns, end_ns): (u64, u64), sums: &mut HostSums<'a>) {
        let Some(events) = self.by_thread.get(&thread) else { return };
        let first = events.partition_point(|nested| nested.event.start_ns <= start_ns);
        let inside = events[first..].iter().take_while(|nested| nested.event.start_ns < end_ns);
        for nested in
            around(events, first.checked_sub(1)).chain(inside).filter(|nested| !nested.again)
        {
            let until = nested.end_ns().min(end_ns);
            let ns = until.saturating_sub(nested.event.start_ns.max(start_ns));
            if ns > 0 {
                let sum = sums.by_key.entry(nested.key()).or_default();
                sum.0 = sum.0.max(nested.depth);
                sum.1 += ns;
            }
        }
    }
}

/// An event and those around it, innermost first.
fn around<'e, 'a>(
    events: &'e [NestedEvent<'a>],
    innermost: Option<usize>,
) -> impl Iterator<Item = &'e NestedEvent<'a>> {
    std::iter::successors(innermost, |at| events[*at].outer).map(|at| &events[at])
}

/// Depth and nanoseconds by operator and function. Time inside of others counts for those, too.
#[derive(Debug, Default)]
pub(super) struct HostSums<'a> {
    by_key: BTreeMap<Key<'a>, (u32, u64)>,
}

impl HostSums<'_> {
    /// The innermost operator or function that was there for at least half of `whole_ns`.
    pub(super) fn most(&self, whole_ns: u64) -> Option<HostWork> {
        let most = self.by_key.iter().filter(|(_, (_, ns))| ns.saturating_mul(2) >= whole_ns);
        let ((operator, function), (_, ns)) = most.max_by_key(|(_, sum)| **sum)?;
        Some(HostWork {
            operator: operator.map(str::to_owned),
            function: function.map(str::to_owned),
            total_ns: *ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use rgpu_format::torch_trace::TorchTrace;

    use super::*;
    use crate::timeline::finding::findings;
    use crate::timeline::{Graphs, timeline};
    use crate::{Limits, Thresholds};
    use rgpu_import::torch_trace;

    /// A trace of torch's profiler: twelve steps of 1 ms, each with a kernel of 60 µs. `host` has
    /// what the loader of each step does, as category, name, start and end in microseconds.
    fn loaded(host: &[(&str, &str, u64, u64)]) -> Option<HostWork> {
        let event = |cat: &str, name: &str, start: u64, end: u64| {
            format!(
                r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":7,"tid":7,"ts":{start},"dur":{}}}"#,
                end - start
            )
        };
        let module = event("python_function", "/a/slow_loader.py(1): <module>", 0, 20_000);
        let range = event("user_annotation", "torch@step", 0, 20_000);
        let mut events = vec![module, range];
        for step in 0..12 {
            let at = step * 1000;
            events.extend(
                host.iter().map(|(cat, name, start, end)| event(cat, name, at + start, at + end)),
            );
            events.push(event("cpu_op", "aten::addmm", at + 930, at + 950));
            events.push(format!(
                r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,
                    "ts":{},"dur":4,"args":{{"correlation":{step}}}}},
                   {{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":{},"dur":60,
                    "args":{{"correlation":{step},"device":0,"stream":7}}}}"#,
                at + 940,
                at + 945
            ));
        }
        let file = format!(r#"{{"traceEvents":[{}]}}"#, events.join(","));
        let read = TorchTrace::read(file.as_bytes()).unwrap();
        let trace = torch_trace::import(&read, "trace.json").sidecars.trace.unwrap();
        let own = Thresholds::default();
        let limits = Limits::new(&own, None);
        let timeline = timeline(&trace, &limits).unwrap();
        let finding = findings(&timeline, None, &Graphs::default(), &limits).remove(0);
        assert_eq!((finding.id.as_str(), finding.places.len()), ("gpu_waits_for_host", 1));
        finding.places[0].host.clone()
    }

    #[test]
    fn the_operator_or_function_of_the_host_that_fills_the_gaps_is_named() {
        let next = ("python_function", "/a/data.py(12): __next__", 20, 920);
        let inner = ("cpu_op", "aten::normal_", 40, 820);
        let work = |operator: Option<&str>, function: &str, us: u64| HostWork {
            operator: operator.map(str::to_owned),
            function: Some(function.to_owned()),
            total_ns: 11 * us * 1000,
        };
        // The operator that the loader calls, not the one inside.
        let random = loaded(&[next, ("cpu_op", "aten::randn", 30, 830), inner]);
        assert_eq!(random, Some(work(Some("aten::randn"), "/a/data.py(12): __next__", 800)));
        // Several operators, or none, such as `time.sleep`.
        let several = [("cpu_op", "aten::rand", 30, 430), ("cpu_op", "aten::to", 440, 840)];
        let several = loaded(&[&[next], &several[..]].concat());
        let function = Some(work(None, "/a/data.py(12): __next__", 900));
        assert_eq!(several, function);
        assert_eq!(loaded(&[next]), function);
        // A range of the loader in torch, whose functions are no places.
        let range = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
        let loader = loaded(&[("user_annotation", range, 20, 920)]);
        assert_eq!(loader, Some(work(Some(range), "/a/slow_loader.py: <module>", 900)));
        assert_eq!(loaded(&[]), Some(work(None, "/a/slow_loader.py: <module>", 935)));
    }
}
