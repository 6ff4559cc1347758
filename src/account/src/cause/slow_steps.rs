//! Steps that take much longer than the others.
//!
//! Signature: over the steps after the first tenth, the mean is above the median by at least 1 %, by
//! at least two steps of more than 1.5 times the median (the reference's causes 3, 40, 50, 51): a garbage collection, an
//! evaluation, a log, a retry of the allocator. The window holds typical steps, so no replay shows
//! the gain: it is the mean less the median, and the finding has no edits.

use super::{Found, words};
use crate::view::View;

/// Steps from which on a mean and a median say something.
const LEAST_STEPS: usize = 10;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    // The first tenth may still be warming up.
    let from = view.steps.all.len().div_ceil(10);
    let times: Vec<u64> = view
        .steps
        .all
        .iter()
        .skip(from)
        .map(|step| step.end_ns.saturating_sub(step.start_ns))
        .collect();
    if times.len() < LEAST_STEPS {
        return None;
    }
    let median_ns = crate::host_calls::median(times.clone());
    let is_slow = |ns: &&u64| **ns > median_ns.saturating_add(median_ns / 2);
    let slow: Vec<u64> = times.iter().filter(is_slow).copied().collect();
    let excess = slow.iter().map(|ns| ns - median_ns).fold(0, u64::saturating_add);
    let lost = excess as f64 / times.len() as f64;
    // If a third is slow, there are two kinds of steps, and neither is an exception.
    if slow.len() < 2 || slow.len() * 3 > times.len() || lost < 0.01 * median_ns as f64 {
        return None;
    }
    let longest = slow.iter().max()?;
    Some(Found {
        change: "make slow steps like the others".to_owned(),
        text: format!(
            "{} of {} steps take more than 1.5 times the median of {}, the longest {}: {} a step \
             in the mean",
            slow.len(),
            times.len(),
            words::time(median_ns as f64),
            words::time(*longest as f64),
            words::time(lost),
        ),
        hint:
            "look at these steps in the timeline; if nothing is called in them, Python's garbage \
               collection is likely: `gc.freeze()` after start-up, `gc.disable()` and \
               `gc.collect()` every 1000 steps"
                .to_owned(),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests;
