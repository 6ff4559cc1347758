//! Sets of times.

/// Intervals that do not touch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Intervals {
    all: Vec<(i64, i64)>,
    /// The length of all intervals before each [`STRIDE`]th. A rank may have millions of intervals,
    /// so not every one has this sum.
    before: Vec<u64>,
    total: u64,
}

/// Intervals from one sum to the next.
const STRIDE: usize = 32;

impl Intervals {
    /// The union of intervals in order of start.
    pub(super) fn union(sorted: impl Iterator<Item = (i64, i64)>) -> Intervals {
        let mut all: Vec<(i64, i64)> = Vec::new();
        for (start, end) in sorted.filter(|(start, end)| start < end) {
            match all.last_mut() {
                Some((_, reached)) if start <= *reached => *reached = end.max(*reached),
                _ => all.push((start, end)),
            }
        }
        Intervals::new(all)
    }

    fn new(all: Vec<(i64, i64)>) -> Intervals {
        let mut total = 0;
        let before = all.chunks(STRIDE).map(|part| {
            let earlier = total;
            total += length(part);
            earlier
        });
        let before = before.collect();
        Intervals { all, before, total }
    }

    /// The length of all intervals.
    pub(super) fn ns(&self) -> u64 {
        self.total
    }

    /// The start of the first and the end of the last.
    pub(super) fn span(&self) -> Option<(i64, i64)> {
        Some((self.all.first()?.0, self.all.last()?.1))
    }

    /// The length of the parts between two times.
    pub(super) fn ns_within(&self, from: i64, until: i64) -> u64 {
        self.ns_until(until).saturating_sub(self.ns_until(from))
    }

    /// The length of the parts before a time.
    fn ns_until(&self, at: i64) -> u64 {
        let after = self.all.partition_point(|(start, _)| *start < at);
        let Some(index) = after.checked_sub(1) else { return 0 };
        let (start, end) = self.all[index];
        let summed = index / STRIDE;
        let earlier = length(&self.all[summed * STRIDE..index]);
        self.before[summed] + earlier + end.min(at).abs_diff(start)
    }

    /// The times in both.
    pub(super) fn and(&self, other: &Intervals) -> Intervals {
        let (mut a, mut b) = (self.all.iter().peekable(), other.all.iter().peekable());
        let mut both = Vec::new();
        while let (Some((a0, a1)), Some((b0, b1))) = (a.peek(), b.peek()) {
            let (start, end) = (*a0.max(b0), *a1.min(b1));
            if start < end {
                both.push((start, end));
            }
            if a1 < b1 {
                a.next()
            } else {
                b.next()
            };
        }
        Intervals::new(both)
    }

    /// The times between the intervals.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.all.windows(2).map(|pair| (pair[0].1, pair[1].0))
    }

    /// The longest gap between two times, those before the first and after the last interval
    /// included.
    pub(super) fn longest_gap_within(&self, from: i64, until: i64) -> Option<(i64, i64)> {
        let first = self.all.partition_point(|(_, end)| *end <= from);
        let mut reached = from;
        let mut longest: Option<(i64, i64)> = None;
        let mut take = |start: i64, end: i64| {
            let length = |(a, b): (i64, i64)| b.saturating_sub(a);
            if start < end && longest.is_none_or(|known| length(known) < length((start, end))) {
                longest = Some((start, end));
            }
        };
        for (start, end) in self.all[first..].iter().take_while(|(start, _)| *start < until) {
            take(reached, *start);
            reached = reached.max(*end);
        }
        take(reached, until);
        longest
    }
}

fn length(intervals: &[(i64, i64)]) -> u64 {
    intervals.iter().map(|(start, end)| end.abs_diff(*start)).sum()
}

/// The length of a union of intervals that come in order of start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnionLength {
    /// The latest end so far.
    reached: Option<i64>,
    ns: u64,
}

impl UnionLength {
    pub(super) fn add(&mut self, start: i64, end: i64) {
        let from = self.reached.map_or(start, |reached| reached.max(start));
        self.ns += u64::try_from(end.saturating_sub(from)).unwrap_or(0);
        self.reached = self.reached.max(Some(end));
    }

    pub(super) fn ns(self) -> u64 {
        self.ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_union_is_that_of_its_intervals() {
        let all = [(-5, 2), (0, 10), (5, 20), (6, 7), (20, 25), (40, 50)];
        let mut length = UnionLength::default();
        all.iter().for_each(|(start, end)| length.add(*start, *end));
        assert_eq!(length.ns(), Intervals::union(all.into_iter()).ns());
    }

    #[test]
    fn the_length_between_two_times_is_summed_over_any_number_of_intervals() {
        let all = Intervals::union((0..100).map(|n| (n * 10, n * 10 + 4)));
        for (from, until) in [(0, 1_000), (5, 320), (311, 322), (319, 640), (637, 643), (2, 995)] {
            let inside = (from..until).filter(|at| at % 10 < 4).count() as u64;
            assert_eq!(all.ns_within(from, until), inside, "{from} to {until}");
        }
    }

    #[test]
    fn overlapping_intervals_count_once_and_windows_cut_them() {
        let all = Intervals::union([(0, 10), (5, 20), (20, 25), (40, 50)].into_iter());
        assert_eq!((all.ns(), all.span()), (35, Some((0, 50))));
        assert_eq!(all.ns_within(10, 45), 20);
        assert_eq!(all.ns_within(30, 35), 0);
        assert_eq!(all.gaps().collect::<Vec<_>>(), [(25, 40)]);
        let other = Intervals::union([(-5, 2), (24, 41), (49, 60)].into_iter());
        assert_eq!(all.and(&other), other.and(&all));
        assert_eq!(all.and(&other).ns(), 2 + 1 + 1 + 1);
        assert_eq!(all.longest_gap_within(0, 100), Some((50, 100)));
        assert_eq!(all.longest_gap_within(22, 45), Some((25, 40)));
        assert_eq!(all.longest_gap_within(3, 9), None);
    }
}
