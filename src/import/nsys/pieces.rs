//! All GPU work of a trace that has a correlation id, with the API call that launched it.
//!
//! GPU rows and API calls are in nearly the same order in the file, so the next id is mostly close
//! to the last one. A sorted list with a cursor is therefore several times faster than a hash table
//! and uses a third of the memory. There may be ten million pieces, so only what the sums need is
//! stored: 48 bytes for each.

use super::numbers::ValueNumbers;
use super::trace::NsysWork;

/// An API call that launched work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) process: u64,
    pub(super) thread: u64,
    pub(super) at_ns: i64,
}

/// One piece of GPU work: a kernel, copy, fill or graph.
#[derive(Clone, Copy, Debug)]
struct WorkPiece {
    process: u32,
    /// The thread's number plus one; 0 while the call is unknown.
    thread: u32,
    correlation: i64,
    at_ns: i64,
    start_ns: i64,
    ns: u64,
    /// The number of the kernel's name, or [`NO_KERNEL`].
    kernel: u32,
}

/// The kernel number of other work.
const NO_KERNEL: u32 = u32::MAX;

/// The part of a piece that the sums need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceTime {
    pub(super) start_ns: i64,
    pub(super) ns: u64,
    pub(super) kernel: Option<u32>,
}

/// All work of one correlation id whose call is known.
#[derive(Debug)]
pub(super) struct LaunchedWork<'p> {
    pub(super) call: Call,
    pub(super) correlation: i64,
    pieces: &'p [WorkPiece],
}

impl LaunchedWork<'_> {
    /// The times of its pieces.
    pub(super) fn spent(&self) -> impl ExactSizeIterator<Item = PieceTime> + '_ {
        self.pieces.iter().map(|piece| PieceTime {
            start_ns: piece.start_ns,
            ns: piece.ns,
            kernel: Some(piece.kernel).filter(|kernel| *kernel != NO_KERNEL),
        })
    }
}

/// All pieces. Those with the same process and correlation id are adjacent; the first has their
/// call.
#[derive(Debug, Default)]
pub(super) struct WorkPieces {
    pieces: Vec<WorkPiece>,
    processes: ValueNumbers,
    threads: ValueNumbers,
    /// The index of the last hit.
    finger: usize,
}

impl WorkPieces {
    /// Adds a piece. Work without a correlation id is ignored.
    pub(super) fn add(&mut self, work: &NsysWork, kernel: Option<u32>) {
        let Some(correlation) = work.correlation else { return };
        self.pieces.push(WorkPiece {
            process: self.processes.number(work.process).0,
            thread: 0,
            correlation,
            at_ns: 0,
            start_ns: work.start_ns,
            ns: work.ns(),
            kernel: kernel.unwrap_or(NO_KERNEL),
        });
    }

    /// Call this once, after the last piece and before the first call.
    pub(super) fn sort(&mut self) {
        let key = |piece: &WorkPiece| (piece.process, piece.correlation);
        if !self.pieces.is_sorted_by_key(key) {
            self.pieces.sort_by_key(key);
        }
    }

    /// Records a call. A later call with the same id replaces an earlier one.
    pub(super) fn call(&mut self, call: Call, correlation: i64) {
        let Some(process) = self.processes.known(call.process) else { return };
        let Some(first) = self.find((process, correlation)) else { return };
        self.pieces[first].thread = self.threads.number(call.thread).0.saturating_add(1);
        self.pieces[first].at_ns = call.at_ns;
    }

    /// The first piece with a process and correlation id.
    fn find(&mut self, wanted: (u32, i64)) -> Option<usize> {
        let mut finger = self.finger;
        let found = self.find_near(wanted, &mut finger);
        self.finger = finger;
        found
    }

    /// The same; `finger` is the index of the last hit.
    fn find_near(&self, wanted: (u32, i64), finger: &mut usize) -> Option<usize> {
        let key = |piece: &WorkPiece| (piece.process, piece.correlation);
        // The cursor is always on the first piece of an id, so the next id's first piece is close.
        let near = self.pieces[(*finger).min(self.pieces.len())..].iter().take(4);
        let found = match near.enumerate().find(|(_, piece)| key(piece) == wanted) {
            Some((steps, _)) => *finger + steps,
            None if self.pieces.last().is_none_or(|last| key(last) < wanted) => return None,
            None => self.pieces.partition_point(|piece| key(piece) < wanted),
        };
        *finger = found;
        self.pieces.get(found).is_some_and(|piece| key(piece) == wanted).then_some(found)
    }

    /// Number of processes with work.
    pub(super) fn process_count(&self) -> usize {
        self.processes.len()
    }

    /// All work whose call is known, by correlation id.
    pub(super) fn launched(&self) -> impl Iterator<Item = LaunchedWork<'_>> + '_ {
        let same =
            |a: &WorkPiece, b: &WorkPiece| (a.process, a.correlation) == (b.process, b.correlation);
        self.pieces.chunk_by(same).filter_map(|pieces| {
            let first = pieces.first()?;
            let call = self.call_of(first)?;
            Some(LaunchedWork { call, correlation: first.correlation, pieces })
        })
    }

    fn call_of(&self, piece: &WorkPiece) -> Option<Call> {
        let thread = self.threads.get(piece.thread.checked_sub(1)?)?;
        let process = self.processes.get(piece.process)?;
        Some(Call { process, thread, at_ns: piece.at_ns })
    }

    /// The call with a process and correlation id.
    pub(super) fn call_for(&self, process: u64, correlation: i64) -> Option<Call> {
        self.call_near(process, correlation, &mut 0)
    }

    /// The same for one id after another; `finger` is 0 first, and then kept by the caller.
    pub(super) fn call_near(
        &self,
        process: u64,
        correlation: i64,
        finger: &mut usize,
    ) -> Option<Call> {
        let wanted = (self.processes.known(process)?, correlation);
        self.call_of(&self.pieces[self.find_near(wanted, finger)?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::nsys::trace::NsysWorkKind;

    fn work(process: u64, correlation: i64, ns: i64) -> NsysWork {
        let what = NsysWorkKind::Graph;
        let correlation = Some(correlation);
        NsysWork {
            what,
            number: 0,
            start_ns: 0,
            end_ns: ns,
            process,
            correlation,
            device: 0,
            stream: 0,
        }
    }

    #[test]
    fn calls_find_their_work_in_any_order_and_the_last_call_of_an_id_counts() {
        let mut pieces = WorkPieces::default();
        let ids = [(2, 5), (1, 9), (1, 3), (2, 5), (1, 4), (1, 40), (3, 1), (1, -7)];
        for ((process, id), ns) in ids.into_iter().zip(1..) {
            pieces.add(&work(process, id, ns), Some(ns as u32));
        }
        pieces.sort();
        for round in 0..2 {
            for (process, id) in ids.into_iter().rev().chain([(0, 0), (1, 5), (2, 4), (9, 9)]) {
                pieces.call(Call { process, thread: process + 70, at_ns: id + round }, id);
            }
        }
        let mut seen = 0;
        for (process, id) in ids {
            let call = Call { process, thread: process + 70, at_ns: id + 1 };
            assert_eq!(pieces.call_for(process, id), Some(call));
        }
        for launched in pieces.launched() {
            seen += launched.spent().count();
            if launched.correlation == 5 {
                let ns: Vec<_> = launched.spent().map(|spent| (spent.ns, spent.kernel)).collect();
                assert_eq!(ns, [(1, Some(1)), (4, Some(4))]);
            }
        }
        assert_eq!(seen, ids.len());
        assert_eq!(pieces.call_for(1, 5), None);
    }

    #[test]
    fn work_without_a_call_is_not_launched() {
        let mut pieces = WorkPieces::default();
        pieces.add(&work(1, 1, 1), None);
        pieces.sort();
        assert_eq!(pieces.launched().count(), 0);
        assert_eq!(pieces.call_for(1, 1), None);
        assert!(WorkPieces::default().launched().next().is_none());
    }
}
