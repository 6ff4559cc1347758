//! The innermost push/pop region of each thread over time, stored as the times at which it changes.

use std::collections::HashMap;

/// The changes of one thread by time; each holds until the next. `None` is outside all ranges.
#[derive(Debug, Default)]
pub(super) struct RegionChanges(Vec<(i64, Option<usize>)>);

impl RegionChanges {
    /// Sets the innermost region from `at_ns` on. Must be called in time order; an earlier time is
    /// moved to the last one.
    pub(super) fn change(&mut self, at_ns: i64, node: Option<usize>) {
        match self.0.last_mut() {
            Some((last, known)) if at_ns <= *last => *known = node,
            _ => self.0.push((at_ns, node)),
        }
    }

    fn at(&self, at_ns: i64, finger: &mut usize) -> Option<usize> {
        let after = |index: usize| self.0.get(index).is_none_or(|(start, _)| at_ns < *start);
        let holds = |index: usize| self.0.get(index).is_some_and(|(start, _)| *start <= at_ns);
        if !(holds(*finger) && after(*finger + 1)) {
            *finger = match holds(*finger + 1) && after(*finger + 2) {
                true => *finger + 1,
                false => self.0.partition_point(|(start, _)| *start <= at_ns).checked_sub(1)?,
            };
        }
        self.0.get(*finger)?.1
    }
}

/// The changes of all threads, by process and thread.
pub(super) type ThreadChanges = HashMap<(u64, u64), RegionChanges>;

/// Looks up times. Consecutive lookups are mostly close in time and on one thread, so it starts at
/// the last position.
#[derive(Debug)]
pub(in crate::import) struct InnermostLookup<'t> {
    lanes: &'t ThreadChanges,
    last: Option<((u64, u64), Option<&'t RegionChanges>)>,
    finger: usize,
}

impl<'t> InnermostLookup<'t> {
    pub(super) fn new(lanes: &'t ThreadChanges) -> InnermostLookup<'t> {
        InnermostLookup { lanes, last: None, finger: 0 }
    }

    /// The innermost region of a thread at a time.
    pub(in crate::import) fn at(&mut self, process: u64, thread: u64, at_ns: i64) -> Option<usize> {
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
        for (at_ns, node) in
            [(10, Some(1)), (20, Some(2)), (20, Some(3)), (15, None), (40, Some(4))]
        {
            steps.change(at_ns, node);
        }
        let of = |at_ns: i64| match at_ns {
            ..10 => None,
            10..20 => Some(1),
            20..40 => None,
            _ => Some(4),
        };
        for finger in 0..5 {
            for at_ns in 0..60 {
                assert_eq!(steps.at(at_ns, &mut finger.clone()), of(at_ns), "{at_ns}");
            }
        }
        assert_eq!(RegionChanges::default().at(5, &mut 0), None);
    }
}
