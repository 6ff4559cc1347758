//! Changes of a graph, by the numbers of work and calls in the trace.

use std::collections::{BTreeMap, BTreeSet};

/// What a change of the program does to the graph of its run.
///
/// Numbers are indexes into the trace's `work` and `calls`. A replay applies all of them at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edits {
    /// Work that takes another time, in nanoseconds. 0 removes the work: then it has no gap to its
    /// neighbours and no latency of its own either.
    pub work_ns: BTreeMap<u32, u64>,
    /// Calls whose body takes another time, in nanoseconds; one that waits for work returns at most
    /// this long after it. 0 removes the call.
    pub call_ns: BTreeMap<u32, u64>,
    /// The host's own time before a call, in nanoseconds, in place of the recorded.
    pub host_before_ns: BTreeMap<u32, u64>,
    /// Calls that no longer wait for work on the GPU.
    pub no_wait: BTreeSet<u32>,
    /// Calls that return at most this long after the end of the work that they waited for, in
    /// nanoseconds.
    pub return_ns: BTreeMap<u32, u64>,
    /// Work that no longer waits for its stream, nor holds it up: it has a queue of its own, and
    /// starts when it is launched. Value: the work (index) that must wait for it, if any.
    pub own_stream: BTreeMap<u32, Option<u32>>,
    /// Work that no longer waits for other streams (inferred or recorded events, the legacy default
    /// stream).
    pub no_event: BTreeSet<u32>,
    /// Work whose launch comes from a CUDA graph: it starts right after its predecessor, whatever
    /// its own call says. The calls are removed with `call_ns` and `host_before_ns`.
    pub in_graph: BTreeSet<u32>,
    /// What the profiler adds to each call of the host, which is taken out.
    pub tool: ToolTime,
}

/// What a profiler adds to each call of the host and to the time before the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ToolTime {
    /// Nanoseconds of both together, at most.
    pub ns: u64,
    /// The part of each of the two times that it is at most, 0 to 1.
    pub most_share: f64,
}

impl Default for ToolTime {
    fn default() -> ToolTime {
        ToolTime { ns: 0, most_share: 0.7 }
    }
}

impl Edits {
    /// Adds the edits of `other`; where both edit the same, the smaller time counts.
    pub fn add(&mut self, other: &Edits) {
        let smaller = |into: &mut BTreeMap<u32, u64>, from: &BTreeMap<u32, u64>| {
            for (at, ns) in from {
                into.entry(*at).and_modify(|known| *known = (*known).min(*ns)).or_insert(*ns);
            }
        };
        smaller(&mut self.work_ns, &other.work_ns);
        smaller(&mut self.call_ns, &other.call_ns);
        smaller(&mut self.host_before_ns, &other.host_before_ns);
        smaller(&mut self.return_ns, &other.return_ns);
        self.no_wait.extend(&other.no_wait);
        self.own_stream.extend(&other.own_stream);
        self.no_event.extend(&other.no_event);
        self.in_graph.extend(&other.in_graph);
        if other.tool.ns > self.tool.ns {
            self.tool = other.tool;
        }
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Edits::default()
    }
}
