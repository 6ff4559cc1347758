//! The first pieces of work in time order, from rows in any order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::trace::NsysWork;

/// Keeps the earliest rows of those passed to [`EarliestRows::see`].
#[derive(Debug)]
pub(super) struct EarliestRows {
    most: usize,
    earliest: BinaryHeap<ByStart>,
}

/// Orders by start, then by arrival.
#[derive(Debug)]
struct ByStart(NsysWork);

impl ByStart {
    fn key(&self) -> (i64, u64) {
        (self.0.start_ns, self.0.number)
    }
}

impl Ord for ByStart {
    fn cmp(&self, other: &ByStart) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for ByStart {
    fn partial_cmp(&self, other: &ByStart) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByStart {
    fn eq(&self, other: &ByStart) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ByStart {}

impl EarliestRows {
    pub(super) fn new(most: usize) -> EarliestRows {
        EarliestRows { most, earliest: BinaryHeap::new() }
    }

    /// Adds a row if it is early enough.
    pub(super) fn see(&mut self, work: &NsysWork) {
        if self.earliest.len() < self.most {
            self.earliest.push(ByStart(*work));
        } else if let Some(mut last) = self.earliest.peek_mut()
            && (work.start_ns, work.number) < last.key()
        {
            last.0 = *work;
        }
    }

    /// The earliest rows in time order.
    pub(super) fn finish(self) -> Vec<NsysWork> {
        self.earliest.into_sorted_vec().into_iter().map(|by_start| by_start.0).collect()
    }
}
