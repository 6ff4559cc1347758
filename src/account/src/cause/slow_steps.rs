//! Steps that take much longer than the others.
//!
//! Signature: at least three times, apart from each other, one or more steps take more than 1.5
//! times the median, and together they add at least 3 % to the mean (the reference's causes 3, 40,
//! 50, 51): a garbage collection, a log, a retry of the allocator. The first tenth may be warming
//! up, and the last steps end with what follows the loop. A step that launches other work than
//! usual, and those next to it, are a change of phase (an evaluation, the end of an epoch) and not
//! slow steps. The window holds typical steps, so no replay shows the gain: it is the mean less the
//! median, and the finding has no edits.

use super::{Found, words};
use crate::host_calls::Framework;
use crate::steps::Step;
use crate::view::View;

/// Steps from which on a mean and a median say something.
const LEAST_STEPS: usize = 10;

/// Times that it must happen.
const LEAST_TIMES: usize = 3;

/// The part of the median that the slow steps must add to the mean.
const LEAST_SHARE: f64 = 0.03;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let all = &view.steps.all;
    let inner = all.len().div_ceil(10)..all.len().saturating_sub(2);
    let times: Vec<u64> = all.get(inner.clone())?.iter().map(Step::duration_ns).collect();
    if times.len() < LEAST_STEPS {
        return None;
    }
    let median_ns = crate::host_calls::median(times.clone());
    let limit_ns = median_ns.saturating_add(median_ns / 2);
    // If a third is slow, there are two kinds of steps, and neither is an exception.
    if times.iter().filter(|ns| **ns > limit_ns).count() * 3 > times.len() {
        return None;
    }
    let is_usual = usual_work(all);
    let (mut slow, mut happened, mut was_slow) = (Vec::new(), 0_usize, false);
    for (at, ns) in inner.zip(&times) {
        let around = is_usual.get(at.saturating_sub(1)..=at + 1).unwrap_or_default();
        let is_slow = *ns > limit_ns && around.iter().all(|is_usual| *is_usual);
        if is_slow {
            slow.push(*ns);
            happened += usize::from(!was_slow);
        }
        was_slow = is_slow;
    }
    let excess = slow.iter().map(|ns| ns - median_ns).fold(0, u64::saturating_add);
    let lost = excess as f64 / times.len() as f64;
    if happened < LEAST_TIMES || lost < LEAST_SHARE * median_ns as f64 {
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
        hint: if view.host().framework == Framework::Cuda {
            "look at these steps in the timeline; if nothing is called in them, the host was held \
             up: a page fault, a log, another process on its core"
        } else {
            "look at these steps in the timeline; if nothing is called in them, Python's garbage \
             collection is likely: `gc.freeze()` after start-up, `gc.disable()` and \
             `gc.collect()` every 1000 steps"
        }
        .to_owned(),
        ..Found::default()
    })
}

/// By step: whether it launches about as much as usual, a fifth more or less.
fn usual_work(steps: &[Step]) -> Vec<bool> {
    let mut counts: Vec<usize> = steps.iter().map(|step| step.work.len()).collect();
    counts.sort_unstable();
    let usual = counts.get(counts.len() / 2).copied().unwrap_or(0);
    steps.iter().map(|step| step.work.len().abs_diff(usual) <= usual / 5).collect()
}

#[cfg(test)]
mod tests;
