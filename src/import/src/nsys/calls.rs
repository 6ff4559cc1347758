//! Selects the API calls to list one by one.
//!
//! Listed are all calls that launched listed work, and the first of the others. Waits have a quota
//! of their own, because they explain why the GPU was idle.

use std::collections::BinaryHeap;

use rgpu_format::nsys_row::{ApiCall, Strings};

use super::correlated::{ByCorrelation, Key, LastHit};
use super::numbers::ValueNumbers;
use super::trace::process;

/// Most waits that are listed, and most other calls, besides those that launched listed work.
const MAX_CALLS: usize = 20_000;

/// A call. The order of the fields makes calls sort by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListedCall {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) thread: u64,
    pub(super) name: Option<i64>,
    /// Process and correlation id.
    pub(super) key: Option<(u64, i64)>,
}

/// The listed calls, sorted by start.
#[derive(Debug, Default)]
pub(super) struct ListedCalls {
    pub(super) calls: Vec<ListedCall>,
    /// Number of calls left out.
    pub(super) cut: u64,
}

/// Collects the calls in one pass over the rows.
pub(super) struct CallCollector {
    launching: ByCorrelation<ListedCall>,
    finger: LastHit,
    waits: BinaryHeap<ListedCall>,
    others: BinaryHeap<ListedCall>,
    /// Numbers of the names that are waits.
    names: ValueNumbers,
    waiting: Vec<bool>,
    seen: u64,
}

impl CallCollector {
    /// `wanted` are the calls that launched listed work.
    pub(super) fn new(wanted: impl Iterator<Item = Key>) -> CallCollector {
        CallCollector {
            launching: ByCorrelation::new(wanted),
            finger: LastHit::default(),
            waits: BinaryHeap::new(),
            others: BinaryHeap::new(),
            names: ValueNumbers::default(),
            waiting: Vec::new(),
            seen: 0,
        }
    }

    pub(super) fn see(&mut self, call: &ApiCall, strings: &Strings) {
        self.seen += 1;
        let process = process(call.global_tid);
        let listed = ListedCall {
            start_ns: call.start_ns,
            end_ns: call.end_ns,
            thread: call.global_tid.unwrap_or(0).cast_unsigned(),
            name: call.name,
            key: call.correlation.map(|id| (process, id)),
        };
        if let Some(key) = listed.key
            && let Some(place) = self.launching.slot(key, &mut self.finger)
        {
            *place = Some(listed);
            return;
        }
        let waits = call.name.is_some_and(|id| {
            let (number, new) = self.names.number(id.cast_unsigned());
            if new {
                self.waiting.push(strings.get(id).is_some_and(super::events::waits));
            }
            self.waiting[number as usize]
        });
        let heap = if waits { &mut self.waits } else { &mut self.others };
        if heap.len() < MAX_CALLS {
            heap.push(listed);
        } else if let Some(mut last) = heap.peek_mut()
            && listed < *last
        {
            *last = listed;
        }
    }

    pub(super) fn finish(self) -> ListedCalls {
        let launching = self.launching.into_values();
        let mut calls: Vec<_> = launching.chain(self.waits).chain(self.others).collect();
        calls.sort_unstable();
        let cut = self.seen.saturating_sub(calls.len() as u64);
        ListedCalls { calls, cut }
    }
}
