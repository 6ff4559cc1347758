//! Which API calls are listed one by one, out of any number of them.
//!
//! Kept are the calls that put listed work on the GPU, and of the rest the first ones: waits for
//! themselves, since they say why the GPU stood idle, and everything else.

use std::collections::BinaryHeap;

use rgpu_format::nsys_row::{ApiCall, Strings};

use super::correlated::{ByCorrelation, Key, LastHit};
use super::numbers::ValueNumbers;
use super::trace::process;

/// Calls kept beside those that put listed work on the GPU: this many waits, and as many others.
const MAX_CALLS: usize = 20_000;

/// A call: start, end, thread, and the name's number. The order of the fields is the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListedCall {
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) thread: u64,
    pub(super) name: Option<i64>,
    /// Process and correlation id.
    pub(super) key: Option<(u64, i64)>,
}

/// Calls listed one by one, by start.
#[derive(Debug, Default)]
pub(super) struct ListedCalls {
    pub(super) calls: Vec<ListedCall>,
    /// How many more there are.
    pub(super) cut: u64,
}

/// Gathers them in one pass.
pub(super) struct CallCollector {
    launching: ByCorrelation<ListedCall>,
    finger: LastHit,
    waits: BinaryHeap<ListedCall>,
    others: BinaryHeap<ListedCall>,
    /// Which names are those of waits.
    names: ValueNumbers,
    waiting: Vec<bool>,
    seen: u64,
}

impl CallCollector {
    /// `wanted` are the calls of listed work.
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
            && let Some(place) = self.launching.place(key, &mut self.finger)
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
