//! The graph of a run: points in time, and what had to happen before each.

use rgpu_model::Trace;

use crate::edits::Edits;

/// What the time along an edge was spent on. Numbers are indexes into the trace's `work` or `calls`.
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

/// A graph over consecutive launches of one process.
pub struct Graph<'t> {
    /// The trace that it is made of.
    pub trace: &'t Trace,
}

impl<'t> Graph<'t> {
    /// The graph of `work` (indexes into the trace's work, in the order of the launches) with all
    /// calls of the process from the first launch among them to the last.
    pub fn new(trace: &'t Trace, _work: &[u32]) -> Graph<'t> {
        Graph { trace }
    }

    /// The times after `edits`.
    pub fn replay(&self, _edits: &Edits) -> Replayed {
        Replayed::default()
    }
}

/// Times of a replay, in nanoseconds since the first event of the trace.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    /// Start of each work of the graph, by its position in the list that the graph was made of.
    pub work_start_ns: Vec<i64>,
}
