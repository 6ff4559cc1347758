//! The innermost push/pop range of each thread over time, stored as the times at which it changes.

use std::collections::HashMap;

/// A range that is open at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenRange {
    /// The index of its region in the tree.
    pub(crate) node: usize,
    /// Its index among the ranges of the trace.
    pub(crate) range: usize,
}

/// The ranges around a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RangeAround {
    /// The innermost range that is open at the call.
    pub(crate) innermost: OpenRange,
    /// Whether it is of another thread than the call.
    pub(crate) is_inferred: bool,
}

/// Threads of one process that are searched for an open range.
const MAX_THREADS: usize = 16;

/// The changes of one thread by time; each holds until the next. `None` is outside all ranges.
#[derive(Debug, Default)]
pub(super) struct RegionChanges {
    by_time: Vec<(i64, Option<OpenRange>)>,
    /// Whether a range of the thread is neither NCCL's nor torch's own around a collective.
    has_own_ranges: bool,
}

/// Prefixes of the ranges that NCCL and torch open around collectives, on whichever thread starts
/// them. In a backward pass with DistributedDataParallel or FSDP it is autograd's.
const COLLECTIVE_RANGES: &[&str] = &["NCCL@", "nccl:", "FSDP::", "FullyShardedDataParallel."];

/// Whether a range, as a part of a path, is around a collective.
pub(crate) fn is_around_collective(part: &str) -> bool {
    COLLECTIVE_RANGES.iter().any(|prefix| part.starts_with(prefix))
}

impl RegionChanges {
    /// Sets the innermost range from `at_ns` on. Must be called in time order; an earlier time is
    /// moved to the last one.
    pub(super) fn change(&mut self, at_ns: i64, range: Option<OpenRange>) {
        match self.by_time.last_mut() {
            Some((last, known)) if at_ns <= *last => *known = range,
            _ => self.by_time.push((at_ns, range)),
        }
    }

    /// Notes that the thread opens this range.
    pub(super) fn add_range(&mut self, part: &str) {
        self.has_own_ranges |= !is_around_collective(part);
    }

    fn at(&self, at_ns: i64, finger: &mut usize) -> Option<OpenRange> {
        let changes = &self.by_time;
        let after = |index: usize| changes.get(index).is_none_or(|(start, _)| at_ns < *start);
        let holds = |index: usize| changes.get(index).is_some_and(|(start, _)| *start <= at_ns);
        if !(holds(*finger) && after(*finger + 1)) {
            *finger = if holds(*finger + 1) && after(*finger + 2) {
                *finger + 1
            } else {
                changes.partition_point(|(start, _)| *start <= at_ns).checked_sub(1)?
            };
        }
        changes.get(*finger)?.1
    }
}

/// The changes of all threads, by process and thread.
pub(super) type ThreadChanges = HashMap<(u64, u64), RegionChanges>;

/// Looks up times. Consecutive lookups are mostly close in time and on one thread, so it starts at
/// the last position.
#[derive(Debug)]
pub(crate) struct InnermostLookup<'t> {
    lanes: &'t ThreadChanges,
    last: Option<((u64, u64), Option<&'t RegionChanges>)>,
    finger: usize,
    /// Threads with ranges of their own by process, each with the last position. Made when first
    /// needed.
    of_process: HashMap<u64, Vec<(&'t RegionChanges, usize)>>,
}

impl<'t> InnermostLookup<'t> {
    pub(super) fn new(lanes: &'t ThreadChanges) -> InnermostLookup<'t> {
        InnermostLookup { lanes, last: None, finger: 0, of_process: HashMap::new() }
    }

    /// The innermost range around a call of a thread. A thread that opens no range at all, or only
    /// ranges around collectives, works for another one, as autograd's does: its calls lie in the
    /// range of the only other thread of the process that has one open.
    pub(crate) fn around(&mut self, process: u64, thread: u64, at_ns: i64) -> Option<RangeAround> {
        let lane = (process, thread);
        let changes = match self.last {
            Some((last, changes)) if last == lane => changes,
            _ => self.lanes.get(&lane),
        };
        if let Some(changes) = changes {
            let own = self.at(process, thread, at_ns);
            if own.is_some() || changes.has_own_ranges {
                return own.map(|innermost| RangeAround { innermost, is_inferred: false });
            }
        }
        let lanes = self.lanes;
        let threads = self.of_process.entry(process).or_insert_with(|| {
            let own =
                lanes.iter().filter(|((of, _), changes)| *of == process && changes.has_own_ranges);
            own.map(|(_, changes)| (changes, 0)).collect()
        });
        if threads.len() > MAX_THREADS {
            return None;
        }
        let mut open = threads.iter_mut().filter_map(|(changes, at)| changes.at(at_ns, at));
        let innermost = open.next()?;
        open.next().is_none().then_some(RangeAround { innermost, is_inferred: true })
    }

    /// The innermost range of a thread at a time.
    fn at(&mut self, process: u64, thread: u64, at_ns: i64) -> Option<OpenRange> {
        let lane = (process, thread);
        let steps = match self.last {
            Some((last, steps)) if last == lane => steps,
            _ => {
                let steps = self.lanes.get(&lane);
                self.last = Some((lane, steps));
                self.finger = 0;
                steps
            }
        };
        steps?.at(at_ns, &mut self.finger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_moment_finds_its_step_in_whatever_order_it_is_asked() {
        let mut steps = RegionChanges::default();
        let open = |node| OpenRange { node, range: 10 * node };
        for (at_ns, node) in
            [(10, Some(1)), (20, Some(2)), (20, Some(3)), (15, None), (40, Some(4))]
        {
            steps.change(at_ns, node.map(open));
        }
        let of = |at_ns: i64| match at_ns {
            ..10 => None,
            10..20 => Some(1),
            20..40 => None,
            _ => Some(4),
        };
        for finger in 0..5 {
            for at_ns in 0..60 {
                let expected = of(at_ns).map(open);
                assert_eq!(steps.at(at_ns, &mut finger.clone()), expected, "{at_ns}");
            }
        }
        assert_eq!(RegionChanges::default().at(5, &mut 0), None);
    }

    #[test]
    fn a_thread_without_ranges_works_for_the_only_other_thread_that_has_one_open() {
        let open = |node| Some(OpenRange { node, range: node });
        let mut lanes = ThreadChanges::default();
        for (thread, node) in [(1, 1), (2, 2)] {
            let mut changes = RegionChanges::default();
            changes.add_range("step");
            changes.change(10 * thread, open(node));
            changes.change(10 * thread + 15, None);
            lanes.insert((7, thread as u64), changes);
        }
        let mut lookup = InnermostLookup::new(&lanes);
        let mut at = |thread, at_ns| {
            let around = lookup.around(7, thread, at_ns);
            around.map(|a| (a.innermost.node, a.is_inferred))
        };
        // Thread 1 is in its range from 10 to 25, thread 2 from 20 to 35.
        assert_eq!(
            [5, 15, 22, 30].map(|ns| at(1, ns)),
            [None, Some((1, false)), Some((1, false)), None]
        );
        assert_eq!(
            [5, 15, 22, 30].map(|ns| at(3, ns)),
            [None, Some((1, true)), None, Some((2, true))]
        );
        assert_eq!(InnermostLookup::new(&lanes).around(8, 3, 15), None, "another process");
    }

    /// DistributedDataParallel: autograd's thread starts collectives between the kernels of a
    /// backward pass, and torch opens a range around each.
    #[test]
    fn a_thread_with_ranges_around_collectives_alone_works_for_another_thread() {
        let open = |node| Some(OpenRange { node, range: node });
        let around = |range: &str, at_ns| {
            let mut lanes = ThreadChanges::default();
            for (thread, node, part, from_ns, to_ns) in
                [(1, 1, "torch@step", 10, 50), (2, 2, range, 20, 30)]
            {
                let mut changes = RegionChanges::default();
                changes.add_range(part);
                changes.change(from_ns, open(node));
                changes.change(to_ns, None);
                lanes.insert((7, thread), changes);
            }
            let around = InnermostLookup::new(&lanes).around(7, 2, at_ns);
            around.map(|a| (a.innermost.node, a.is_inferred))
        };
        assert_eq!(
            [5, 15, 25, 40, 55].map(|ns| around("nccl:all_reduce", ns)),
            [None, Some((1, true)), Some((2, false)), Some((1, true)), None]
        );
        assert_eq!(around("NCCL@ncclAllReduce", 40), Some((1, true)));
        assert_eq!(around("load", 40), None);
    }
}
