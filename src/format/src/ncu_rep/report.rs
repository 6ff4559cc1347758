//! Reads a whole report of Nsight Compute (`.ncu-rep`) and gives access to its results and sources.

use std::borrow::Cow;
use std::collections::HashMap;

use super::block::{Entry, EntryKind, Index};
use super::container;
use super::error::{Error, Problem, Problems};
use super::metric::MetricPosition;
use super::notes::{Notes, UnknownFields};
use super::result::{NcuResult, ResultKind};
use super::session::{Process, Session};
use super::source::Source;
use super::strings::Strings;

/// Limits on the resources that reading may use.
#[derive(Debug, Clone, Copy)]
pub struct NcuReadLimits {
    /// Maximum bytes of an uncompressed report.
    pub max_size: u64,
}

impl Default for NcuReadLimits {
    /// 2 GiB: reports of hundreds of full launches are smaller, and it fits in a laptop's memory.
    fn default() -> Self {
        NcuReadLimits { max_size: 2 << 30 }
    }
}

/// A smaller report is read in less time than threads take to start.
const MIN_PARALLEL_BYTES: usize = 1 << 20;
/// Most threads that read one report.
const MAX_THREADS: usize = 8;

/// A report of Nsight Compute.
#[derive(Debug)]
pub struct NcuReport<'a> {
    bytes: Cow<'a, [u8]>,
    index: Index,
    session: Session,
    unknown: UnknownFields,
    /// The metrics of each entry of the index; none of a source.
    metrics: Vec<Vec<MetricPosition>>,
}

impl<'a> NcuReport<'a> {
    /// Reads a report from the bytes of a file, compressed or not.
    ///
    /// The problems describe damage in a report that could be read in part. A file cut in the
    /// middle gives the results before the cut and one problem.
    pub fn read(file: &'a [u8], limits: &NcuReadLimits) -> Result<(Self, Vec<Problem>), Error> {
        let mut problems = Problems::default();
        let bytes = container::open(file, limits.max_size, &mut problems)?;
        let mut notes = Notes { problems, unknown: UnknownFields::default() };
        let index = Index::read(&bytes, &mut notes)?;
        let mut session = Session::default();
        for &(offset, length) in &index.sessions {
            let end = offset.saturating_add(length);
            let message = bytes.get(offset..end).unwrap_or_default();
            session.merge(super::wire::Message::new(message, offset), &mut notes);
        }
        let (unknown, metrics) = (UnknownFields::default(), Vec::new());
        let mut report = NcuReport { bytes, index, session, unknown, metrics };
        report.check(&mut notes);
        report.unknown = notes.unknown;
        Ok((report, notes.problems.finish()))
    }

    /// How many threads are worth starting to read this report.
    pub fn threads(&self) -> usize {
        if self.bytes.len() >= MIN_PARALLEL_BYTES {
            std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
        } else {
            1
        }
    }

    /// Notes the problems of all results and sources, and finds the metrics of the results.
    fn check(&mut self, notes: &mut Notes) {
        let report = &*self;
        let entries = &report.index.entries;
        let per_thread = entries.len().div_ceil(report.threads()).max(1);
        let (own, others) = entries.split_at(per_thread.min(entries.len()));
        let metrics = std::thread::scope(|scope| {
            let check = |part| {
                scope.spawn(move || {
                    let mut notes = Notes::default();
                    let metrics = report.check_entries(part, &mut notes);
                    (metrics, notes)
                })
            };
            let running: Vec<_> = others.chunks(per_thread).map(check).collect();
            let mut metrics = report.check_entries(own, notes);
            for thread in running {
                match thread.join() {
                    Ok((of_part, later)) => {
                        metrics.extend(of_part);
                        notes.append(later);
                    }
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            metrics
        });
        self.metrics = metrics;
    }

    /// Returns the metrics of each entry.
    fn check_entries(&self, entries: &[Entry], notes: &mut Notes) -> Vec<Vec<MetricPosition>> {
        let check = |entry: &Entry| {
            let message = entry.message(&self.bytes);
            match ResultKind::from_entry(entry.kind) {
                Some(kind) => {
                    let result = NcuResult::read(kind, message, self.strings(), notes);
                    // A file may have a result in every 20 bytes, so the list takes what it needs:
                    // a copy, since a list that is cut shorter leaves holes.
                    Vec::from(result.check(notes).as_slice())
                }
                None => {
                    Source::read(message, notes);
                    Vec::new()
                }
            }
        };
        entries.iter().map(check).collect()
    }

    /// The version of the file format, not of ncu.
    pub fn version(&self) -> u64 {
        self.index.version
    }

    /// Number of blocks found.
    pub fn blocks(&self) -> usize {
        self.index.blocks
    }

    /// Uncompressed size of the report in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The session, merged over all blocks.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The processes of the profiled program.
    pub fn processes(&self) -> &[Process] {
        &self.index.processes
    }

    /// Fields of the file that this reader does not know.
    pub fn unknown_fields(&self) -> &UnknownFields {
        &self.unknown
    }

    /// The results in file order: kernels in launch order.
    pub fn results(&self) -> impl Iterator<Item = NcuResult<'_>> + '_ {
        self.index.entries.iter().zip(&self.metrics).filter_map(|(entry, metrics)| {
            let kind = ResultKind::from_entry(entry.kind)?;
            let message = entry.message(&self.bytes);
            let result = NcuResult::read(kind, message, self.strings(), &mut Notes::default());
            Some(result.with_metrics(metrics))
        })
    }

    /// The sources; messages with the same reference are merged.
    pub fn sources(&self) -> Vec<Source<'_>> {
        let mut sources: Vec<Source<'_>> = Vec::new();
        let mut places = HashMap::new();
        for entry in self.index.entries.iter().filter(|entry| entry.kind == EntryKind::Source) {
            let source = Source::read(entry.message(&self.bytes), &mut Notes::default());
            let place = *places.entry(source.reference).or_insert(sources.len());
            match sources.get_mut(place) {
                Some(known) => known.merge(source),
                None => sources.push(source),
            }
        }
        sources
    }

    fn strings(&self) -> Strings<'_> {
        Strings::new(&self.bytes, &self.index.strings)
    }
}
