//! Reads one large table on several threads and returns its rows in file order: the row ids are
//! divided into segments, and each reader thread selects the rows of its segments on its own
//! connection.

use super::NsysSqliteError;
use super::connection::connect;
use super::rows::TableRow;
use super::table::{Fields, RowBudget};
use crate::in_order::{self, RowSender};
use std::ops::RangeInclusive;

/// Minimum row ids per segment, and maximum segments per table: a hostile table may have few rows
/// that are arbitrarily far apart.
const MIN_SEGMENT_IDS: u64 = 1 << 13;
const MAX_SEGMENTS: u64 = 1 << 12;

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

impl SharedTable<'_> {
    /// Streams the rows to `row`. Returns `None`, before any row, if no thread could be started.
    pub(super) fn stream<T: TableRow>(
        &self,
        readers: usize,
        mut row: impl FnMut(T),
    ) -> Option<Result<u64, NsysSqliteError>> {
        let mut rows = 0;
        let mut budget = RowBudget::for_file(self.bytes);
        let outcome = in_order::stream(
            &self.segments(),
            readers,
            |own, to| self.read_segments(own, to),
            |batch| {
                budget.take(batch.rows.len() as u64, batch.text_bytes as u64)?;
                rows += batch.rows.len() as u64;
                batch.rows.into_iter().for_each(&mut row);
                Ok(())
            },
        )?;
        let table = self.table;
        Some(match outcome {
            Ok(()) => Ok(rows),
            Err(cause) => Err(NsysSqliteError::Table { table, rows, cause }),
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

    fn read_segments<T: TableRow>(
        &self,
        segments: &mut dyn Iterator<Item = &(i64, i64)>,
        to: &mut RowSender<T, rusqlite::Error>,
    ) -> rusqlite::Result<()> {
        let connection = connect(self.uri, self.bytes)?;
        let mut statement = connection.prepare(self.sql)?;
        for segment in segments {
            let mut cursor = statement.query([segment.0, segment.1])?;
            while let Some(row) = cursor.next()? {
                let value = T::read(&Fields::new(row));
                let text_bytes = value.texts();
                if !to.row(value, text_bytes) {
                    return Ok(());
                }
            }
            if !to.part_ends() {
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
