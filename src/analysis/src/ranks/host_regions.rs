//! The innermost range that the host of a rank is in, by time.

use std::collections::BinaryHeap;

use rgpu_model::rank_work::RankWork;

/// The region of the innermost range of any thread, from each time until the next one.
pub(super) struct HostRegions {
    changes: Vec<(i64, Option<u32>)>,
}

impl HostRegions {
    pub(super) fn for_rank(rank: &RankWork) -> HostRegions {
        let mut ends: Vec<i64> = rank.ranges.iter().map(|range| range.end_ns).collect();
        ends.sort_unstable();
        let mut ends = ends.into_iter().peekable();
        let mut starts = rank.ranges.iter().peekable();
        // Deepest first. A range that has ended is removed once it is the first.
        let mut open = BinaryHeap::new();
        let mut changes: Vec<(i64, Option<u32>)> = Vec::new();
        let next_time = |start: Option<i64>, end: Option<i64>| start.into_iter().chain(end).min();
        while let Some(at) =
            next_time(starts.peek().map(|range| range.start_ns), ends.peek().copied())
        {
            while let Some(range) = starts.next_if(|range| range.start_ns <= at) {
                open.push((range.depth, range.start_ns, range.end_ns, range.region));
            }
            while ends.next_if(|end| *end <= at).is_some() {}
            while open.peek().is_some_and(|(_, _, end, _)| *end <= at) {
                open.pop();
            }
            let region = open.peek().map(|(.., region)| *region);
            if changes.last().is_none_or(|(_, last)| *last != region) {
                changes.push((at, region));
            }
        }
        HostRegions { changes }
    }

    /// The region at a time. `None` outside of all ranges.
    pub(super) fn at(&self, at_ns: i64) -> Option<u32> {
        let after = self.changes.partition_point(|(from, _)| *from <= at_ns);
        self.changes[after.checked_sub(1)?].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::rank_work::HostRange;

    #[test]
    fn the_innermost_range_counts_until_it_ends() {
        let range = |start_ns, end_ns, depth, region| HostRange {
            start_ns,
            end_ns,
            name: 0,
            region,
            depth,
        };
        // A step with two layers, and a range of another thread that is as deep as a step.
        let ranges = vec![
            range(0, 100, 1, 0),
            range(10, 40, 2, 1),
            range(20, 30, 3, 2),
            range(40, 60, 2, 3),
            range(90, 120, 1, 4),
        ];
        let regions = HostRegions::for_rank(&RankWork { ranges, ..RankWork::default() });
        for (at, region) in [
            (-1, None),
            (0, Some(0)),
            (10, Some(1)),
            (25, Some(2)),
            (30, Some(1)),
            (40, Some(3)),
            (60, Some(0)),
            (95, Some(4)),
            (119, Some(4)),
            (120, None),
        ] {
            assert_eq!(regions.at(at), region, "{at}");
        }
    }
}
