//! The critical path, walked backwards: each moment has one cause.
//!
//! From the end the walk always follows the edge that arrived last, so that time only falls and
//! each moment belongs to one segment. The segments therefore add up to the time they cover.

mod host;
mod parts;
#[cfg(test)]
mod tests;

use crate::graph::{Graph, Label};

pub(crate) use host::HostNames;
pub use parts::parts;

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
/// Empty if the work is not in the graph or is reached before `from_ns`.
pub fn walk(graph: &Graph<'_>, work: u32, to_end: bool, from_ns: u64) -> Vec<Segment> {
    let mut segments = Vec::new();
    let Some(mut step) = graph.last_before(work, to_end) else { return segments };
    loop {
        let start_ns = step.start_ns.unwrap_or(from_ns).max(from_ns);
        let (first_end_ns, first) = step.first.unwrap_or((start_ns, step.label));
        let middle_ns = first_end_ns.clamp(start_ns, step.end_ns.max(start_ns));
        if step.end_ns > middle_ns {
            let (start_ns, end_ns, label) = (middle_ns, step.end_ns, step.label);
            segments.push(Segment { start_ns, end_ns, label });
        }
        if middle_ns > start_ns {
            segments.push(Segment { start_ns, end_ns: middle_ns, label: first });
        }
        if step.start_ns.is_none_or(|start_ns| start_ns <= from_ns) {
            break;
        }
        let Some(before) = graph.before(step.from) else { break };
        step = before;
    }
    segments.reverse();
    segments
}
