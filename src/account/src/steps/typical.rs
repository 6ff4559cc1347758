//! The times of the steps, and the typical ones among them.

use std::ops::Range;

use rgpu_model::Trace;
use rgpu_model::account::StepTime;

use super::cuts::{Cuts, percentile};
use super::launches::Launches;
use super::outliers;
use super::{Step, Steps};

/// The most steps in a window.
const MOST: usize = 8;
/// The fewest steps in a window, if there are as many.
const FEW: usize = 3;
/// The most pieces of work in a window.
const MOST_WORK: usize = 60_000;

/// The steps between the cuts, with their times; `None` without work.
pub(super) fn steps(trace: &Trace, launches: &Launches, cuts: Cuts) -> Option<Steps> {
    let all = timed(trace, launches, &cuts);
    // The last step's end is not known; the first ones run on cold clocks and caches.
    let ended = all.len().checked_sub(1).filter(|count| *count > 0)?;
    let first = all.len().div_ceil(10).min(ended - 1);
    let mut times: Vec<u64> = all.get(first..ended)?.iter().map(Step::duration_ns).collect();
    times.sort_unstable();
    let mut works: Vec<usize> = all.iter().map(|step| step.work.len()).collect();
    works.sort_unstable();
    let limits = Limits {
        low_ns: percentile(&times, 10),
        median_ns: percentile(&times, 50),
        high_ns: percentile(&times, 90),
        work: percentile(&works, 50),
    };
    let window = window(all.get(..ended)?, first, &limits);
    let inside = all.get(window.clone())?;
    let shown = inside.iter().min_by_key(|s| s.duration_ns().abs_diff(limits.median_ns))?;
    let time = StepTime {
        match_share: cuts.equal_share(&launches.plain),
        found_by: cuts.source,
        name: cuts.name,
        count: all.len() as u64,
        median_ns: limits.median_ns,
        low_ns: limits.low_ns,
        high_ns: limits.high_ns,
        work: limits.work as u64,
        first_start_ns: all.first()?.start_ns,
        shown_start_ns: shown.start_ns,
        shown_ns: shown.duration_ns(),
        outliers: outliers::find(trace, all.get(..ended)?, shown, &limits),
    };
    Some(Steps { time, all, window })
}

impl Step {
    /// From its start to the next step's, in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// What a typical step is like.
pub(super) struct Limits {
    pub(super) low_ns: u64,
    pub(super) median_ns: u64,
    pub(super) high_ns: u64,
    /// The median number of launches.
    pub(super) work: usize,
}

impl Limits {
    /// Whether a step of this time takes much longer than the median.
    pub(super) fn is_outlier(&self, ns: u64) -> bool {
        let spread = self.high_ns.saturating_sub(self.median_ns);
        ns > self.median_ns.saturating_add(self.median_ns / 2)
            && ns > self.median_ns.saturating_add(spread.saturating_mul(3))
    }

    fn has_usual_work(&self, step: &Step) -> bool {
        step.work.len().abs_diff(self.work) <= self.work / 5
    }
}

/// The steps with their times. Starts never fall, so that no step has a negative time.
fn timed(trace: &Trace, launches: &Launches, cuts: &Cuts) -> Vec<Step> {
    let mut all: Vec<Step> = Vec::with_capacity(cuts.count());
    let mut latest = 0;
    for (from, to) in cuts.units() {
        let work = launches.order.get(from..to).unwrap_or_default().to_vec();
        let first = work.first().and_then(|at| trace.work.get(*at as usize));
        latest = first.map_or(0, |work| work.start_ns).max(latest);
        if let Some(before) = all.last_mut() {
            before.end_ns = latest;
        }
        all.push(Step { work, start_ns: latest, end_ns: latest });
    }
    if let Some(last) = all.last_mut() {
        let work = last.work.iter().filter_map(|at| trace.work.get(*at as usize));
        last.end_ns = work.map(|work| work.end_ns()).max().unwrap_or(0).max(last.start_ns);
    }
    all
}

/// The longest window of typical steps from `first` on: all between the 10th and the 90th
/// percentile; else all of the usual number of launches and no outlier; else any. Of windows of one
/// length the one whose mean is nearest to the median.
fn window(steps: &[Step], first: usize, limits: &Limits) -> Range<usize> {
    let inner: Vec<bool> = steps.iter().map(|s| is_inner(s, limits)).collect();
    let usual: Vec<bool> = steps.iter().map(|s| is_usual(s, limits)).collect();
    let any = vec![true; steps.len()];
    for lengths in [FEW..MOST + 1, 1..FEW] {
        for fits in [&inner, &usual, &any] {
            for length in lengths.clone().rev() {
                if let Some(window) = nearest(steps, fits, first, length, limits.median_ns) {
                    return window;
                }
            }
        }
    }
    first..(first + 1).min(steps.len())
}

fn is_inner(step: &Step, limits: &Limits) -> bool {
    let is_between = (limits.low_ns..=limits.high_ns).contains(&step.duration_ns());
    is_between && is_usual(step, limits)
}

fn is_usual(step: &Step, limits: &Limits) -> bool {
    limits.has_usual_work(step) && !limits.is_outlier(step.duration_ns())
}

/// The window of `length` fitting steps whose mean time is nearest to the median.
fn nearest(
    steps: &[Step],
    fits: &[bool],
    first: usize,
    length: usize,
    median_ns: u64,
) -> Option<Range<usize>> {
    let mut best: Option<(u64, usize)> = None;
    for from in first..(steps.len() + 1).saturating_sub(length) {
        let to = from + length;
        let inside = steps.get(from..to)?;
        let work: usize = inside.iter().map(|step| step.work.len()).sum();
        if work > MOST_WORK || !fits.get(from..to)?.iter().all(|fits| *fits) {
            continue;
        }
        let ends = inside.first()?.start_ns..inside.last()?.end_ns;
        let mean = ends.end.saturating_sub(ends.start) / length as u64;
        let distance = mean.abs_diff(median_ns);
        if best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, from));
        }
    }
    best.map(|(_, from)| from..from + length)
}
