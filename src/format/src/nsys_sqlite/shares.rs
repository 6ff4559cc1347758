//! Reads one large table on several threads and returns its rows in file order.
//!
//! The row ids are divided into segments, and each reader thread handles every n-th segment: it
//! selects the rows on its own connection, decodes them and sends them in batches. The caller's
//! thread receives the segments in order. A reader that is ahead waits, so memory stays bounded
//! whatever the table's size.

use super::NsysSqliteError;
use super::connection::connect;
use super::rows::TableRow;
use super::table::{Fields, RowBudget};
use std::ops::RangeInclusive;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Rows that are handed to another thread at once.
const BATCH_ROWS: usize = 1024;
/// A batch is also full when its texts reach this many bytes.
const MAX_BATCH_TEXT_BYTES: usize = 1 << 16;
/// Minimum row ids per segment, and maximum segments per table: a hostile table may have few rows
/// that are arbitrarily far apart.
const MIN_SEGMENT_IDS: u64 = 1 << 13;
const MAX_SEGMENTS: u64 = 1 << 12;
/// How many batches a reader may be ahead: two segments.
const MAX_BATCHES_AHEAD: usize = 2 * MIN_SEGMENT_IDS as usize / BATCH_ROWS;
/// Further readers would only wait for the thread that receives the rows.
const MAX_READERS: usize = 8;

/// A message from a reader.
enum ReaderMessage<T> {
    Rows(Vec<T>),
    SegmentEnds,
    Failed(rusqlite::Error),
}

/// A table that several threads read.
pub(super) struct SharedTable<'a> {
    /// URI of the file, for further connections.
    pub(super) uri: &'a str,
    /// Length of the file.
    pub(super) bytes: u64,
    pub(super) table: &'static str,
    /// Selects the rows between the row ids `?1` and `?2`.
    pub(super) sql: &'a str,
    pub(super) ids: RangeInclusive<i64>,
}

/// Number of readers suitable for this machine.
pub(super) fn readers() -> usize {
    std::thread::available_parallelism().map_or(1, |many| many.get().min(MAX_READERS))
}

impl SharedTable<'_> {
    /// Streams the rows to `row`. Returns `None`, before any row, if no thread could be started.
    pub(super) fn stream<T: TableRow>(
        &self,
        readers: usize,
        mut row: impl FnMut(T),
    ) -> Option<Result<u64, NsysSqliteError>> {
        let segments = self.segments();
        std::thread::scope(|scope| {
            // Dropped before the scope ends, which stops the readers after an early return.
            let mut streams: Vec<Receiver<ReaderMessage<T>>> = Vec::with_capacity(readers);
            for reader in 0..readers {
                let (to, from) = sync_channel(MAX_BATCHES_AHEAD);
                let own = segments.iter().skip(reader).step_by(readers);
                let work = move || {
                    if let Err(cause) = self.read_segments(own, &to) {
                        // The receiver is gone if an earlier segment failed.
                        let _ = to.send(ReaderMessage::Failed(cause));
                    }
                };
                std::thread::Builder::new().spawn_scoped(scope, work).ok()?;
                streams.push(from);
            }
            let mut rows = 0;
            let mut budget = RowBudget::of(self.bytes);
            for (_, stream) in segments.iter().zip(streams.iter().cycle()) {
                for handed in stream {
                    match handed {
                        ReaderMessage::Rows(batch) => {
                            let texts = batch.iter().map(|row| row.texts() as u64).sum();
                            if let Err(cause) = budget.take(batch.len() as u64, texts) {
                                let table = self.table;
                                return Some(Err(NsysSqliteError::Table { table, rows, cause }));
                            }
                            rows += batch.len() as u64;
                            batch.into_iter().for_each(&mut row);
                        }
                        ReaderMessage::SegmentEnds => break,
                        ReaderMessage::Failed(cause) => {
                            let table = self.table;
                            return Some(Err(NsysSqliteError::Table { table, rows, cause }));
                        }
                    }
                }
            }
            Some(Ok(rows))
        })
    }

    /// The segments, contiguous and in order.
    fn segments(&self) -> Vec<(i64, i64)> {
        let (first, last) = (*self.ids.start(), *self.ids.end());
        let step = MIN_SEGMENT_IDS.max(first.abs_diff(last) / MAX_SEGMENTS + 1);
        let mut segments = Vec::new();
        let mut from = first;
        loop {
            // Ids are signed 64-bit numbers, so the last segment may end at the maximum.
            let to = from.saturating_add_unsigned(step - 1).min(last);
            segments.push((from, to));
            match to.checked_add(1) {
                Some(next) if next <= last => from = next,
                _ => return segments,
            }
        }
    }

    fn read_segments<'s, T: TableRow>(
        &self,
        segments: impl Iterator<Item = &'s (i64, i64)>,
        to: &SyncSender<ReaderMessage<T>>,
    ) -> rusqlite::Result<()> {
        let connection = connect(self.uri, self.bytes)?;
        let mut statement = connection.prepare(self.sql)?;
        for segment in segments {
            let mut cursor = statement.query([segment.0, segment.1])?;
            let (mut batch, mut texts) = (Vec::with_capacity(BATCH_ROWS), 0);
            while let Some(row) = cursor.next()? {
                let value = T::read(&Fields::new(row));
                texts += value.texts();
                batch.push(value);
                if batch.len() == BATCH_ROWS || texts >= MAX_BATCH_TEXT_BYTES {
                    texts = 0;
                    let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH_ROWS));
                    if to.send(ReaderMessage::Rows(full)).is_err() {
                        return Ok(());
                    }
                }
            }
            let ended = to
                .send(ReaderMessage::Rows(batch))
                .and_then(|()| to.send(ReaderMessage::SegmentEnds));
            if ended.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(ids: RangeInclusive<i64>) -> Vec<(i64, i64)> {
        SharedTable { uri: "", bytes: 0, table: "t", sql: "", ids }.segments()
    }

    #[test]
    fn segments_cover_every_id_once_whatever_the_ids() {
        for ids in [1..=1, 1..=8192, 1..=8193, -5..=100_000, i64::MIN..=i64::MAX] {
            let all = segments(ids.clone());
            assert!(all.len() as u64 <= MAX_SEGMENTS + 1);
            assert_eq!((all[0].0, all[all.len() - 1].1), (*ids.start(), *ids.end()));
            assert!(all.windows(2).all(|pair| pair[0].1.checked_add(1) == Some(pair[1].0)));
            assert!(all.iter().all(|(from, to)| from <= to));
        }
    }
}
