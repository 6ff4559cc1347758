//! The unit that a program repeats.
//!
//! Ranges of the program mark it where they stand (`ranges`). Else the sequence of launches is
//! compared with itself: the distance at which it repeats is the period (`period`). Loops that
//! repeat with changes (other shapes, other lengths) are cut where something happens once in a
//! step (`aligned`). What was found becomes times, outliers and a window of typical steps
//! (`typical`).

mod aligned;
mod cuts;
mod launches;
mod lift;
mod outliers;
mod period;
mod ranges;
#[cfg(test)]
mod tests;
mod typical;

use rgpu_model::Trace;
use rgpu_model::account::StepTime;

use cuts::Cuts;
use launches::Launches;

/// The fewest units that are a repetition.
const FEWEST: usize = 3;

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
pub fn find(trace: &Trace, order: &[u32]) -> Option<Steps> {
    let launches = Launches::new(trace, order);
    let cuts = lift::groups(trace, &launches, choose(trace, &launches)?);
    typical::steps(trace, &launches, cuts)
}

/// Where the steps begin. A range wins over the period, unless it marks parts of a period: more
/// than one lies in a period, its name does not say that it is a step, and nothing happens in it
/// that happens once in a step.
fn choose(trace: &Trace, launches: &Launches) -> Option<Cuts> {
    let marked = ranges::find(trace, launches);
    let Some(marked) = marked else { return repeated(launches) };
    if marked.says_step || marked.has_event {
        return Some(marked.cuts);
    }
    match repeated(launches) {
        Some(period) if period.unit_len() * 2 >= marked.cuts.unit_len() * 3 => Some(period),
        _ => Some(marked.cuts),
    }
}

/// The steps by what is launched: a period that repeats without breaks for most of the GPU's time;
/// else a loop that changes, if its units are longer than the period that breaks, which then is a
/// layer; else the period, if it covers enough.
fn repeated(launches: &Launches) -> Option<Cuts> {
    let total = launches.gpu_between(0, launches.len());
    let period = period::find(launches);
    let period = match period {
        Some(found) if found.unbroken_ns >= total / 2 => return Some(found.cuts),
        other => other.filter(|found| found.repeats_ns >= total / 5),
    };
    let aligned = aligned::find(launches);
    match (period, aligned) {
        (Some(period), Some(aligned)) => {
            let is_longer = aligned.unit_len() > period.cuts.unit_len();
            Some(if is_longer { aligned } else { period.cuts })
        }
        (period, aligned) => period.map(|period| period.cuts).or(aligned),
    }
}
