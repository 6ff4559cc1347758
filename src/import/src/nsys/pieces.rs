//! All GPU work of a trace, with the API call that launched it.
//!
//! GPU rows and API calls are in nearly the same order in the file, so the next id is mostly close
//! to the last one. A sorted list with a cursor is therefore several times faster than a hash table
//! and uses a third of the memory. There may be ten million pieces, so only what sums and ranks
//! need is stored: 56 bytes for each.

use std::collections::{BTreeMap, HashMap};

use super::numbers::ValueNumbers;
use super::trace::{NsysWork, NsysWorkKind, OtherWork};

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
    /// The number of the kernel's name, or [`FIRST_OTHER`] plus the number of other work.
    name: u32,
    stream: u32,
    /// The call's number in reading order, if it is known.
    call: u32,
}

/// The first number of work that is no kernel.
const FIRST_OTHER: u32 = 1 << 31;

/// A piece of work without a correlation id, whose call is therefore unknown.
#[derive(Clone, Copy, Debug)]
struct UncorrelatedPiece {
    process: u64,
    start_ns: i64,
    ns: u64,
    name: u32,
    stream: u32,
}

/// One piece, as the analysis of ranks needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankPiece {
    pub(super) process: u64,
    pub(super) correlation: Option<i64>,
    pub(super) call: Option<Call>,
    pub(super) start_ns: i64,
    pub(super) ns: u64,
    pub(super) what: PieceKind,
    pub(super) stream: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceKind {
    /// A kernel, by the number of its name.
    Kernel(u32),
    /// Other work, by its number: see [`WorkPieces::other`].
    Other(u32),
}

impl PieceKind {
    pub(super) fn from_number(name: u32) -> PieceKind {
        match name.checked_sub(FIRST_OTHER) {
            None => PieceKind::Kernel(name),
            Some(other) => PieceKind::Other(other),
        }
    }

    /// A number for each kind.
    pub(super) fn number(self) -> u32 {
        match self {
            PieceKind::Kernel(name) => name,
            PieceKind::Other(other) => FIRST_OTHER.saturating_add(other),
        }
    }
}

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
            kernel: Some(piece.name).filter(|name| *name < FIRST_OTHER),
        })
    }
}

/// All pieces. Those with the same process and correlation id are adjacent; the first has their
/// call.
#[derive(Debug, Default)]
pub(super) struct WorkPieces {
    pieces: Vec<WorkPiece>,
    uncorrelated: Vec<UncorrelatedPiece>,
    /// The kinds of other work, by number.
    others: Vec<OtherWork>,
    number_of_other: BTreeMap<OtherWork, u32>,
    /// The first GPU of each process, and the process that was recorded last.
    devices: HashMap<u64, u32>,
    last_process: Option<u64>,
    processes: ValueNumbers,
    threads: ValueNumbers,
    /// The index of the last hit.
    finger: usize,
}

impl WorkPieces {
    /// Adds a piece. Returns the number of [what it is](PieceKind::number).
    pub(super) fn add(&mut self, work: &NsysWork) -> u32 {
        let name = match work.what {
            NsysWorkKind::Kernel { name } => name.min(FIRST_OTHER - 1),
            NsysWorkKind::Copy { kind, .. } => self.number(OtherWork::Copy(kind)),
            NsysWorkKind::Set { .. } => self.number(OtherWork::Set),
            NsysWorkKind::Graph => self.number(OtherWork::Graph),
        };
        let (start_ns, ns, stream) = (work.start_ns, work.ns(), work.stream);
        match work.correlation {
            Some(correlation) => self.pieces.push(WorkPiece {
                process: self.processes.number(work.process).0,
                thread: 0,
                correlation,
                at_ns: 0,
                start_ns,
                ns,
                name,
                stream,
                call: 0,
            }),
            None => {
                let process = work.process;
                self.uncorrelated.push(UncorrelatedPiece { process, start_ns, ns, name, stream });
            }
        }
        name
    }

    /// The number of other work as a name.
    fn number(&mut self, other: OtherWork) -> u32 {
        let number = *self.number_of_other.entry(other).or_insert_with(|| {
            self.others.push(other);
            (self.others.len() - 1) as u32
        });
        PieceKind::Other(number).number()
    }

    /// Records a GPU of a process. The first one counts.
    pub(super) fn see_device(&mut self, process: u64, device: Option<u32>) {
        let Some(device) = device else { return };
        if self.last_process != Some(process) {
            self.devices.entry(process).or_insert(device);
            self.last_process = Some(process);
        }
    }

    /// The first GPU of a process, if the trace tells.
    pub(super) fn device_of(&self, process: u64) -> Option<u32> {
        self.devices.get(&process).copied()
    }

    /// The kind of other work with a number.
    pub(super) fn other(&self, number: u32) -> Option<OtherWork> {
        self.others.get(number as usize).copied()
    }

    /// Call this once, after the last piece and before the first call.
    pub(super) fn sort(&mut self) {
        let key = |piece: &WorkPiece| (piece.process, piece.correlation);
        if !self.pieces.is_sorted_by_key(key) {
            self.pieces.sort_by_key(key);
        }
    }

    /// Records a call and its number in reading order. A later call with the same id replaces an
    /// earlier one.
    pub(super) fn call(&mut self, call: Call, correlation: i64, number: u32) {
        let Some(process) = self.processes.known(call.process) else { return };
        let Some(first) = self.find((process, correlation)) else { return };
        let piece = &mut self.pieces[first];
        piece.thread = self.threads.number(call.thread).0.saturating_add(1);
        piece.at_ns = call.at_ns;
        piece.call = number;
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

    pub(super) fn len(&self) -> usize {
        self.pieces.len() + self.uncorrelated.len()
    }

    /// The pieces of each correlation id.
    fn by_call(&self) -> impl Iterator<Item = &[WorkPiece]> + '_ {
        self.pieces.chunk_by(|a, b| (a.process, a.correlation) == (b.process, b.correlation))
    }

    /// All work whose call is known, by correlation id.
    pub(super) fn launched(&self) -> impl Iterator<Item = LaunchedWork<'_>> + '_ {
        self.by_call().filter_map(|pieces| {
            let first = pieces.first()?;
            let call = self.call_of(first)?;
            Some(LaunchedWork { call, correlation: first.correlation, pieces })
        })
    }

    /// All work: by correlation id, then the work that has none.
    pub(super) fn rank_pieces(&self) -> impl Iterator<Item = RankPiece> + '_ {
        let correlated = self.by_call().flat_map(|pieces| {
            let call = pieces.first().and_then(|first| self.call_of(first));
            let process = pieces.first().and_then(|first| self.processes.get(first.process));
            pieces.iter().map(move |piece| RankPiece {
                process: process.unwrap_or(0),
                correlation: Some(piece.correlation),
                call,
                start_ns: piece.start_ns,
                ns: piece.ns,
                what: PieceKind::from_number(piece.name),
                stream: piece.stream,
            })
        });
        let uncorrelated = self.uncorrelated.iter().map(|piece| RankPiece {
            process: piece.process,
            correlation: None,
            call: None,
            start_ns: piece.start_ns,
            ns: piece.ns,
            what: PieceKind::from_number(piece.name),
            stream: piece.stream,
        });
        correlated.chain(uncorrelated)
    }

    fn call_of(&self, piece: &WorkPiece) -> Option<Call> {
        let thread = self.threads.get(piece.thread.checked_sub(1)?)?;
        let process = self.processes.get(piece.process)?;
        Some(Call { process, thread, at_ns: piece.at_ns })
    }

    /// The call with a process and correlation id, and its number in reading order. `finger` is the
    /// index of the last hit.
    pub(super) fn call_for(
        &self,
        process: u64,
        correlation: i64,
        finger: &mut usize,
    ) -> Option<(Call, u32)> {
        let wanted = (self.processes.known(process)?, correlation);
        let piece = self.pieces.get(self.find_near(wanted, finger)?)?;
        Some((self.call_of(piece)?, piece.call))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(process: u64, correlation: i64, ns: i64) -> NsysWork {
        let what = NsysWorkKind::Kernel { name: ns as u32 };
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
            shape: None,
        }
    }

    #[test]
    fn calls_find_their_work_in_any_order_and_the_last_call_of_an_id_counts() {
        let mut pieces = WorkPieces::default();
        let ids = [(2, 5), (1, 9), (1, 3), (2, 5), (1, 4), (1, 40), (3, 1), (1, -7)];
        for ((process, id), ns) in ids.into_iter().zip(1..) {
            pieces.add(&work(process, id, ns));
        }
        pieces.sort();
        for round in 0..2 {
            for (process, id) in ids.into_iter().rev().chain([(0, 0), (1, 5), (2, 4), (9, 9)]) {
                let call = Call { process, thread: process + 70, at_ns: id + round };
                pieces.call(call, id, round as u32);
            }
        }
        let mut seen = 0;
        for (process, id) in ids {
            let call = Call { process, thread: process + 70, at_ns: id + 1 };
            for mut finger in [0, 5, 99] {
                assert_eq!(pieces.call_for(process, id, &mut finger), Some((call, 1)));
            }
        }
        for launched in pieces.launched() {
            seen += launched.spent().count();
            if launched.correlation == 5 {
                let ns: Vec<_> = launched.spent().map(|spent| (spent.ns, spent.kernel)).collect();
                assert_eq!(ns, [(1, Some(1)), (4, Some(4))]);
            }
        }
        assert_eq!(seen, ids.len());
        assert_eq!(pieces.call_for(1, 5, &mut 0), None);
    }

    #[test]
    fn work_without_a_call_is_not_launched() {
        let mut pieces = WorkPieces::default();
        pieces.add(&work(1, 1, 1));
        pieces.sort();
        assert_eq!(pieces.launched().count(), 0);
        assert_eq!(pieces.call_for(1, 1, &mut 0), None);
        assert!(WorkPieces::default().launched().next().is_none());
    }

    #[test]
    fn ranks_get_all_work_with_what_it_is_and_the_call_if_it_is_known() {
        let mut pieces = WorkPieces::default();
        let graph = NsysWork { what: NsysWorkKind::Graph, correlation: None, ..work(2, 0, 9) };
        let set = NsysWork { what: NsysWorkKind::Set { bytes: 8 }, ..work(1, 6, 3) };
        for work in [graph, set, NsysWork { stream: 13, ..work(1, 5, 2) }] {
            pieces.add(&work);
        }
        pieces.see_device(1, None);
        pieces.see_device(1, Some(4));
        pieces.see_device(2, Some(0));
        pieces.see_device(1, Some(7));
        pieces.sort();
        pieces.call(Call { process: 1, thread: 70, at_ns: 11 }, 5, 0);
        let got = pieces.rank_pieces().map(|piece| {
            let other = match piece.what {
                PieceKind::Kernel(_) => None,
                PieceKind::Other(number) => pieces.other(number),
            };
            (piece.process, piece.correlation, piece.call.is_some(), piece.ns, piece.stream, other)
        });
        let expected = [
            (1, Some(5), true, 2, 13, None),
            (1, Some(6), false, 3, 0, Some(OtherWork::Set)),
            (2, None, false, 9, 0, Some(OtherWork::Graph)),
        ];
        assert_eq!(got.collect::<Vec<_>>(), expected);
        assert_eq!(pieces.len(), 3);
        assert_eq!([1, 2, 3].map(|process| pieces.device_of(process)), [Some(4), Some(0), None]);
        assert_eq!(pieces.launched().flat_map(|all| all.spent().next()?.kernel).next(), Some(2));
    }
}
