//! A machine with host threads, streams and fixed costs, which plays calls and work to a trace.

use std::collections::BTreeMap;

use rgpu_model::Trace;
use rgpu_model::trace::{CallEvent, TraceWork, TraceWorkKind};

use crate::edits::Edits;
use crate::graph::{Graph, Label};
use crate::path::walk;

/// From the start of a launch call to the start of its work on an idle stream.
pub(crate) const LATENCY_NS: u64 = 6_000;
/// Between two queued works of a stream.
pub(crate) const GAP_NS: u64 = 1_000;
/// From the end of work to the return of a wait.
pub(crate) const RETURN_NS: u64 = 2_000;
/// A launch call.
pub(crate) const CALL_NS: u64 = 4_000;

/// The machine, and what it has recorded.
#[derive(Default)]
pub(crate) struct Machine {
    pub(crate) trace: Trace,
    /// Time of each thread.
    now_ns: BTreeMap<u64, u64>,
    /// End of the last work of each stream.
    free_ns: BTreeMap<u64, u64>,
}

impl Machine {
    pub(crate) fn name(&mut self, name: &str) -> u32 {
        let known = self.trace.names.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| {
            self.trace.names.push(name.to_owned());
            self.trace.names.len() - 1
        });
        at as u32
    }

    pub(crate) fn now_ns(&self, thread: u64) -> u64 {
        self.now_ns.get(&thread).copied().unwrap_or(0)
    }

    /// The host works.
    pub(crate) fn host(&mut self, thread: u64, ns: u64) {
        *self.now_ns.entry(thread).or_default() += ns;
    }

    /// The thread waits until this time.
    pub(crate) fn wait_until(&mut self, thread: u64, ns: u64) {
        let now = self.now_ns.entry(thread).or_default();
        *now = (*now).max(ns);
    }

    /// A call, which moves the time of its thread.
    pub(crate) fn call(&mut self, thread: u64, name: &str, ns: u64, waits: bool) -> u32 {
        let start_ns = self.now_ns(thread);
        self.host(thread, ns);
        self.add_call(thread, name, start_ns, ns, waits)
    }

    pub(crate) fn add_call(
        &mut self,
        thread: u64,
        name: &str,
        start_ns: u64,
        duration_ns: u64,
        waits: bool,
    ) -> u32 {
        let name = self.name(name);
        let call = CallEvent { name, start_ns, duration_ns, thread, waits, rank: None };
        self.trace.calls.push(call);
        self.trace.calls.len() as u32 - 1
    }

    /// Work that starts when its launch and its stream let it, and not before `not_before_ns`.
    pub(crate) fn work(
        &mut self,
        (name, kind, pageable): (&str, TraceWorkKind, Option<bool>),
        stream: u64,
        ns: u64,
        call: u32,
        not_before_ns: u64,
    ) -> u32 {
        let launch_ns = self.trace.calls[call as usize].start_ns + LATENCY_NS;
        let free_ns = self.free_ns.get(&stream).map_or(0, |end_ns| end_ns + GAP_NS);
        let start_ns = launch_ns.max(free_ns).max(not_before_ns);
        self.free_ns.insert(stream, start_ns + ns);
        self.add_work((name, kind, pageable), stream, start_ns, ns, Some(call))
    }

    pub(crate) fn add_work(
        &mut self,
        (name, kind, pageable): (&str, TraceWorkKind, Option<bool>),
        stream: u64,
        start_ns: u64,
        duration_ns: u64,
        call: Option<u32>,
    ) -> u32 {
        let name = self.name(name);
        self.trace.work.push(TraceWork {
            kind,
            name,
            start_ns,
            duration_ns,
            stream,
            pageable,
            call,
            ..TraceWork::default()
        });
        self.trace.work.len() as u32 - 1
    }

    /// A launch of a kernel.
    pub(crate) fn launch(&mut self, thread: u64, stream: u64, ns: u64) -> u32 {
        let call = self.call(thread, "cudaLaunchKernel", CALL_NS, false);
        self.work(("kernel", TraceWorkKind::Kernel, None), stream, ns, call, 0)
    }

    /// A call that waits for all work of a stream.
    pub(crate) fn synchronize(&mut self, thread: u64, stream: u64) -> u32 {
        let end_ns = self.end_ns(stream);
        let now_ns = self.now_ns(thread);
        let ns = (end_ns + RETURN_NS).saturating_sub(now_ns).max(RETURN_NS);
        self.call(thread, "cudaStreamSynchronize", ns, true)
    }

    pub(crate) fn end_ns(&self, stream: u64) -> u64 {
        self.free_ns.get(&stream).copied().unwrap_or(0)
    }

    /// All work in the order of the launches.
    pub(crate) fn order(&self) -> Vec<u32> {
        (0..self.trace.work.len() as u32).collect()
    }
}

/// The time of a step after edits; each step starts with every `per_step`th work.
pub(crate) fn step_ns(graph: &Graph<'_>, per_step: u32, works: u32, edits: &Edits) -> f64 {
    let boundaries: Vec<u32> = (0..works).step_by(per_step as usize).collect();
    graph.replay(edits).step_ns(&boundaries).unwrap()
}

/// Nanoseconds on the path from the start of work `first` to the start of work `last`, by the kind
/// of the label.
pub(crate) fn path_ns(graph: &Graph<'_>, first: u32, last: u32) -> BTreeMap<&'static str, u64> {
    let from_ns = graph.trace.work[first as usize].start_ns;
    let segments = walk(graph, last, false, from_ns);
    let mut sums = BTreeMap::new();
    for segment in &segments {
        let kind = match segment.label {
            Label::Work(_) => "work",
            Label::LaunchLatency(_) => "latency",
            Label::Turnaround(_) => "turnaround",
            Label::Event(_) => "event",
            Label::Call(_) => "call",
            Label::HostBefore(_) => "host",
            Label::WaitReturn(_) => "return",
        };
        *sums.entry(kind).or_default() += segment.end_ns - segment.start_ns;
    }
    let sum: u64 = sums.values().sum();
    assert_eq!(sum, graph.trace.work[last as usize].start_ns - from_ns);
    sums
}

/// That the unchanged replay gives the recording.
pub(crate) fn assert_replays(graph: &Graph<'_>) {
    let replayed = graph.replay(&Edits::default());
    for (at, work) in graph.trace.work.iter().enumerate() {
        assert_eq!(replayed.work_start_ns[at], work.start_ns as i64);
        assert_eq!(replayed.work_end_ns[at], work.end_ns() as i64);
    }
}
