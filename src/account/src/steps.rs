//! The unit that a program repeats.

use rgpu_model::Trace;
use rgpu_model::account::StepTime;

/// The steps of one process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// The time of a step, and how it was found.
    pub time: StepTime,
    /// All steps, in order.
    pub all: Vec<Step>,
    /// The steps to look at: consecutive, typical, as a range of indexes into `all`. A step after
    /// the range follows, so that the last one has an end.
    pub window: std::ops::Range<usize>,
}

/// One step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Its GPU work, as indexes into the trace's `work`, in the order of the launches.
    pub work: Vec<u32>,
    /// The start of its first work, in nanoseconds since the first event.
    pub start_ns: u64,
    /// The start of the next step's first work.
    pub end_ns: u64,
}

/// The steps among `order`: the GPU work of one process in the order of the launches. `None` if
/// nothing repeats.
pub fn find(_trace: &Trace, _order: &[u32]) -> Option<Steps> {
    None
}
