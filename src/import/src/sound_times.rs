//! Times that cannot be: the one rule for all importers.
//!
//! Tools write rows without a time (CUPTI states 0 for the start and the end of work that it lost),
//! with an end before the start, with a start in 1970 among rows of today, or with an end after the
//! starts of all later kernels of the stream. Such a row would stretch the whole trace. It is left
//! out, or its end is set to the next start, and a gap tells how many there are.

mod stream_order;

use std::ops::RangeInclusive;

use rgpu_format::nsys_row::NO_TIME;

use rgpu_model::launch::Launch;
use rgpu_model::profile::Gap;

pub(super) use stream_order::{Overlong, StreamKey, StreamOrder, StreamRow, is_forbidden};

/// The kind of a row with a start and an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowKind {
    Kernel,
    Copy,
    Fill,
    Graph,
    Call,
    Range,
}

impl RowKind {
    /// Number of kinds.
    pub(super) const COUNT: usize = 6;

    const ALL: [RowKind; RowKind::COUNT] = [
        RowKind::Kernel,
        RowKind::Copy,
        RowKind::Fill,
        RowKind::Graph,
        RowKind::Call,
        RowKind::Range,
    ];

    fn is_gpu_work(self) -> bool {
        !matches!(self, RowKind::Call | RowKind::Range)
    }

    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            RowKind::Kernel => ("kernel", "kernels"),
            RowKind::Copy => ("copy", "copies"),
            RowKind::Fill => ("memset", "memsets"),
            RowKind::Graph => ("graph launch", "graph launches"),
            RowKind::Call => ("call", "calls"),
            RowKind::Range => ("range", "ranges"),
        }
    }
}

/// No trace has a day without an event. Rows that lie further from all others have another clock.
const LONGEST_SILENCE_NS: i64 = 86_400_000_000_000;

/// Which times can be.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeRule {
    first_ns: i64,
    last_ns: i64,
}

impl Default for TimeRule {
    fn default() -> TimeRule {
        TimeRule { first_ns: i64::MIN, last_ns: i64::MAX }
    }
}

impl TimeRule {
    /// The rule for a trace whose rows lie in this window.
    pub(super) fn within(window: &RangeInclusive<i64>) -> TimeRule {
        TimeRule { first_ns: *window.start(), last_ns: *window.end() }
    }

    /// Whether a row of that kind can have these times. Without an end, it was open at the end of
    /// the trace.
    pub(super) fn allows(&self, kind: RowKind, start_ns: i64, end_ns: Option<i64>) -> bool {
        let is_inside = |at_ns: i64| (self.first_ns..=self.last_ns).contains(&at_ns);
        let end_is_sound = |end_ns: i64| {
            let was_lost = kind.is_gpu_work() && start_ns == 0 && end_ns == 0;
            end_ns >= start_ns && is_inside(end_ns) && !was_lost
        };
        start_ns != NO_TIME && is_inside(start_ns) && end_ns.is_none_or(end_is_sound)
    }
}

/// A sample of the times of a trace, evenly spread over its rows, with the extremes of all.
#[derive(Clone, Debug)]
pub(super) struct TimeSample {
    every: u64,
    seen: u64,
    /// Starts, and whether each is of GPU work.
    kept: Vec<(i64, bool)>,
    least_ns: i64,
    most_ns: i64,
}

impl Default for TimeSample {
    fn default() -> TimeSample {
        TimeSample { every: 1, seen: 0, kept: Vec::new(), least_ns: i64::MAX, most_ns: i64::MIN }
    }
}

impl TimeSample {
    const MAX_KEPT: usize = 1 << 13;
    /// From so many rows of GPU work on, they tell the time of the trace. Fewer may all be wrong.
    const FEW: usize = 3;

    pub(super) fn see(&mut self, kind: RowKind, start_ns: i64, end_ns: Option<i64>) {
        self.least_ns = self.least_ns.min(start_ns);
        self.most_ns = self.most_ns.max(end_ns.unwrap_or(start_ns));
        if self.seen.is_multiple_of(self.every) {
            if self.kept.len() == TimeSample::MAX_KEPT {
                let mut at = 0;
                self.kept.retain(|_| {
                    at += 1;
                    at % 2 == 1
                });
                self.every *= 2;
            }
            self.kept.push((start_ns, kind.is_gpu_work()));
        }
        self.seen += 1;
    }

    /// The window of most rows. `None` if it has all of them.
    pub(super) fn window(mut self) -> Option<RangeInclusive<i64>> {
        self.kept.sort_unstable();
        let is_next = |a: &(i64, bool), b: &(i64, bool)| {
            b.0.checked_sub(a.0).is_some_and(|ns| ns <= LONGEST_SILENCE_NS)
        };
        let of_gpu = |rows: &[(i64, bool)]| rows.iter().filter(|(_, of_gpu)| *of_gpu).count();
        let rank = |rows: &[(i64, bool)]| {
            let gpu = of_gpu(rows);
            (if gpu >= TimeSample::FEW { gpu } else { 0 }, rows.len())
        };
        let most = self.kept.chunk_by(is_next).max_by_key(|rows| rank(rows))?;
        let first_ns = most.first()?.0.saturating_sub(LONGEST_SILENCE_NS);
        let last_ns = most.last()?.0.saturating_add(LONGEST_SILENCE_NS);
        let has_all = first_ns <= self.least_ns && self.most_ns <= last_ns;
        (!has_all).then_some(first_ns..=last_ns)
    }
}

/// How many rows were left out or clipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    by_kind: [u64; RowKind::ALL.len()],
    clipped: u64,
}

impl LeftOut {
    pub(super) fn add(&mut self, kind: RowKind) {
        self.by_kind[kind as usize] += 1;
    }

    pub(super) fn set(&mut self, kind: RowKind, count: u64) {
        self.by_kind[kind as usize] = count;
    }

    pub(super) fn count(&self, kind: RowKind) -> u64 {
        self.by_kind[kind as usize]
    }

    pub(super) fn clip(&mut self, count: u64) {
        self.clipped += count;
    }

    /// Number of rows of GPU work that were left out.
    pub(super) fn gpu_work(&self) -> u64 {
        let kinds = RowKind::ALL.into_iter().filter(|kind| kind.is_gpu_work());
        kinds.map(|kind| self.by_kind[kind as usize]).sum()
    }

    /// The gaps that tell of them.
    pub(super) fn gaps(&self, from: &str) -> Vec<Gap> {
        let counted = RowKind::ALL.into_iter().map(|kind| (self.by_kind[kind as usize], kind));
        let counted: Vec<String> = counted
            .filter(|(count, _)| *count > 0)
            .map(|(count, kind)| {
                let (one, many) = kind.words();
                format!("{count} {}", if count == 1 { one } else { many })
            })
            .collect();
        let rows: u64 = self.by_kind.iter().sum();
        let left_out = (rows > 0).then(|| {
            let (have, they_are) = if rows == 1 { ("has", "it is") } else { ("have", "they are") };
            format!(
                "{from}: {} {have} times that cannot be (none, an end before the start, or more \
                 than a day away from the other events); {they_are} left out of all times",
                counted.join(", ")
            )
        });
        let clipped = (self.clipped > 0).then(|| {
            let (rows, have) = if self.clipped == 1 { ("row", "has") } else { ("rows", "have") };
            format!(
                "{from}: {} {rows} of GPU work {have} an end after later work of the same stream \
                 had ended, which the stream's order forbids; the time is counted until the next \
                 start",
                self.clipped
            )
        });
        let texts = [("impossible_times", left_out), ("stream_overlap", clipped)];
        let texts = texts.into_iter().filter_map(|(code, text)| Some((code, text?)));
        texts.map(|(code, text)| Gap { code: code.to_owned(), text }).collect()
    }
}

/// Takes durations that cannot be from launches, and tells how many there were.
pub(super) fn check_launches(launches: &mut [Launch], from: &str) -> Option<Gap> {
    let mut left_out = LeftOut::default();
    for launch in launches {
        let is_sound = |ns: &f64| (0.0..=LONGEST_SILENCE_NS as f64).contains(ns);
        if launch.duration_ns.is_some_and(|ns| !is_sound(&ns)) {
            launch.duration_ns = None;
            left_out.add(RowKind::Kernel);
        }
    }
    left_out.gaps(from).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: i64 = 1_700_000_000_000_000_000;

    fn window(rows: &[(RowKind, i64)]) -> Option<RangeInclusive<i64>> {
        let mut sample = TimeSample::default();
        rows.iter().for_each(|(kind, ns)| sample.see(*kind, *ns, Some(*ns + 5)));
        sample.window()
    }

    #[test]
    fn rows_of_another_clock_are_outside_of_the_window() {
        let good = [TODAY, TODAY + 1_000_000, TODAY + 3_600_000_000_000];
        let good = good.map(|ns| (RowKind::Kernel, ns));
        assert_eq!(window(&good), None);
        for other in [5, -9, TODAY / 1000, i64::MAX - 9] {
            let rows = [&good[..], &[(RowKind::Kernel, other), (RowKind::Call, other)]].concat();
            let rule = TimeRule::within(&window(&rows).unwrap());
            assert!(!rule.allows(RowKind::Kernel, other, Some(other + 1)));
            assert!(good.iter().all(|(kind, ns)| rule.allows(*kind, *ns, Some(ns + 5))));
        }
    }

    #[test]
    fn one_row_of_a_gpu_does_not_outweigh_the_host() {
        let mut rows = vec![(RowKind::Call, TODAY); 9];
        rows.push((RowKind::Kernel, 7));
        assert!(window(&rows).unwrap().contains(&TODAY));
        rows.extend([(RowKind::Kernel, 8), (RowKind::Kernel, 9)]);
        assert!(window(&rows).unwrap().contains(&7));
    }

    #[test]
    fn a_large_trace_is_sampled_to_its_end() {
        let mut sample = TimeSample::default();
        let step = LONGEST_SILENCE_NS / 1000;
        (0..100_000).for_each(|n| sample.see(RowKind::Kernel, n * step, Some(n * step)));
        assert!(sample.kept.len() <= TimeSample::MAX_KEPT);
        assert_eq!(sample.window(), None);
    }

    #[test]
    fn a_row_without_times_or_with_an_end_before_its_start_is_not_allowed() {
        let rule = TimeRule::default();
        assert!(!rule.allows(RowKind::Kernel, 0, Some(0)));
        assert!(rule.allows(RowKind::Call, 0, Some(0)));
        assert!(!rule.allows(RowKind::Call, 5, Some(4)));
        assert!(!rule.allows(RowKind::Range, NO_TIME, None));
        assert!(rule.allows(RowKind::Range, 0, None));
    }

    #[test]
    fn launches_lose_durations_that_cannot_be() {
        let durations = [Some(5.0), Some(-1.0), Some(f64::NAN), Some(1e30), None];
        let of = |duration_ns| Launch { duration_ns, ..Launch::default() };
        let mut launches = durations.map(of);
        let gap = check_launches(&mut launches, "a.csv").unwrap();
        assert!(gap.text.contains("3 kernels have times that cannot be"), "{}", gap.text);
        assert_eq!(launches.map(|launch| launch.duration_ns), [Some(5.0), None, None, None, None]);
    }
}
