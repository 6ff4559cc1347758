//! The critical path, walked backwards: each moment has one cause.

use rgpu_model::account::AccountPart;

use crate::graph::{Graph, Label};

/// A piece of the critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Start in nanoseconds since the first event.
    pub start_ns: u64,
    /// End in nanoseconds since the first event.
    pub end_ns: u64,
    /// What the time was spent on.
    pub label: Label,
}

/// The path that ends with the start of `work` (an index into the trace's work; with its end, if
/// `to_end`), back to `from_ns`. The segments follow each other without holes, earliest first.
pub fn walk(_graph: &Graph<'_>, _work: u32, _to_end: bool, _from_ns: u64) -> Vec<Segment> {
    Vec::new()
}

/// The parts of an account: `segments` by cause, divided by `steps`, most time first.
pub fn parts(_graph: &Graph<'_>, _segments: &[Segment], _steps: f64) -> Vec<AccountPart> {
    Vec::new()
}
