//! Reads one table, whichever columns its version has.

use super::NsysSqliteError;
use crate::nsys_row::NO_TIME;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, ffi};
use std::collections::HashSet;
use std::ops::RangeInclusive;

/// Names of the ordinary tables; views and virtual tables are left out.
pub(super) fn names(connection: &Connection) -> rusqlite::Result<HashSet<String>> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0";
    let mut statement = connection.prepare(sql)?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    names.collect()
}

/// Bytes of a file that each row takes at least, in any table.
const MIN_ROW_BYTES: u64 = 4;

/// The most rows that a table of a file of this length has.
pub(super) fn max_rows(file_bytes: u64) -> u64 {
    (file_bytes / MIN_ROW_BYTES).min(i64::MAX as u64 - 1)
}

/// The bytes that the rows of one table may take together. They lie in different parts of the file.
pub(super) struct RowBudget(u64);

impl RowBudget {
    /// For a file of this length. A file in UTF-16 has shorter texts than we count.
    pub(super) fn for_file(file_bytes: u64) -> Self {
        Self(file_bytes.saturating_mul(2))
    }

    /// Counts rows with these bytes of text.
    ///
    /// # Errors
    /// The rows take more than the file has, so some are in it only once.
    pub(super) fn take(&mut self, rows: u64, text_bytes: u64) -> rusqlite::Result<()> {
        let taken = (rows.saturating_mul(MIN_ROW_BYTES)).saturating_add(text_bytes);
        self.0 = self.0.checked_sub(taken).ok_or_else(|| {
            let corrupt = ffi::Error::new(ffi::SQLITE_CORRUPT);
            let why = "its rows take more bytes than the file has".to_owned();
            rusqlite::Error::SqliteFailure(corrupt, Some(why))
        })?;
        Ok(())
    }
}

/// Reads the rows that `sql` selects from `table` of a file with this many bytes, and returns their
/// number.
pub(super) fn stream(
    (connection, file_bytes): (&Connection, u64),
    table: &'static str,
    sql: &str,
    mut each: impl FnMut(&Fields<'_, '_>),
) -> Result<u64, NsysSqliteError> {
    let mut rows = 0;
    let mut budget = RowBudget::for_file(file_bytes);
    let mut run = || -> rusqlite::Result<()> {
        let mut statement = connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut cursor = statement.query([])?;
        while let Some(row) = cursor.next()? {
            let fields = Fields::new(row);
            budget.take(1, fields.text_bytes(columns))?;
            each(&fields);
            rows += 1;
        }
        Ok(())
    };
    let outcome = run();
    match outcome {
        Ok(()) => Ok(rows),
        Err(cause) => Err(NsysSqliteError::Table { table, rows, cause }),
    }
}

/// The statement that selects `columns` of a table in file order. `table` has our name of it and
/// its name in the file. A column that the table lacks
/// reads as `None`.
pub(super) fn select(
    connection: &Connection,
    (table, stored): (&'static str, &str),
    columns: &[&str],
) -> Result<String, NsysSqliteError> {
    let present = columns_of(connection, stored).map_err(|cause| NsysSqliteError::Table {
        table,
        rows: 0,
        cause,
    })?;
    let selected: Vec<String> = columns
        .iter()
        .map(|c| if present.contains(*c) { format!("\"{c}\"") } else { "NULL".to_owned() })
        .collect();
    // An index that covers all selected columns would change the order.
    Ok(format!("SELECT {} FROM \"{stored}\" NOT INDEXED", selected.join(", ")))
}

/// The name of the row id in a condition.
pub(super) const ROW_ID: &str = "_rowid_";

/// The smallest and the largest row id; `None` if the table has no rows, no row ids, or a column of
/// that name.
pub(super) fn row_ids(connection: &Connection, table: &str) -> Option<RangeInclusive<i64>> {
    let columns = columns_of(connection, table).ok()?;
    if columns.iter().any(|column| column.eq_ignore_ascii_case(ROW_ID)) {
        return None;
    }
    // Two queries, one for each end of the tree: for both at once, SQLite scans the whole tree.
    let end = |which: &str| {
        let sql = format!("SELECT {which}({ROW_ID}) FROM \"{table}\"");
        connection.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0)).ok().flatten()
    };
    Some(end("min")?..=end("max")?)
}

/// The table that has all of `columns`, of those in `tables`; of several, the first by name.
pub(super) fn with_columns(
    connection: &Connection,
    tables: &HashSet<String>,
    columns: &[&str],
) -> Option<String> {
    let has_all = |table: &&String| {
        let is_plain = table.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let present = || columns_of(connection, table).unwrap_or_default();
        is_plain && {
            let present = present();
            columns.iter().all(|column| present.contains(*column))
        }
    };
    tables.iter().filter(has_all).min().cloned()
}

/// The stored columns; this pragma does not list computed ones.
fn columns_of(connection: &Connection, table: &str) -> rusqlite::Result<HashSet<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA table_info(\"{table}\")"))?;
    let names = statement.query_map([], |row| row.get::<_, String>(1))?;
    names.collect()
}

/// One row. SQLite's columns are untyped, so every getter accepts whatever it can convert.
pub(super) struct Fields<'r, 's> {
    row: &'r Row<'s>,
}

impl<'r, 's> Fields<'r, 's> {
    pub(super) fn new(row: &'r Row<'s>) -> Self {
        Fields { row }
    }

    fn value(&self, column: usize) -> ValueRef<'_> {
        self.row.get_ref(column).unwrap_or(ValueRef::Null)
    }

    /// Bytes of the texts in these many columns.
    fn text_bytes(&self, columns: usize) -> u64 {
        let bytes = |column| match self.value(column) {
            ValueRef::Text(text) => text.len() as u64,
            _ => 0,
        };
        (0..columns).map(bytes).sum()
    }

    /// A whole number: an integer, a finite float without its fraction, or text that is one.
    pub(super) fn int(&self, column: usize) -> Option<i64> {
        match self.value(column) {
            ValueRef::Integer(n) => Some(n),
            ValueRef::Real(x) if x.is_finite() => Some(x as i64),
            ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
            _ => None,
        }
    }

    /// A time; [`NO_TIME`] if there is none.
    pub(super) fn time(&self, column: usize) -> i64 {
        self.int(column).unwrap_or(NO_TIME)
    }

    /// A whole number that is not negative.
    pub(super) fn unsigned(&self, column: usize) -> Option<u64> {
        self.int(column).and_then(|n| u64::try_from(n).ok())
    }

    /// A small whole number.
    pub(super) fn small(&self, column: usize) -> Option<u32> {
        self.int(column).and_then(|n| u32::try_from(n).ok())
    }

    /// Three small numbers in neighbouring columns.
    pub(super) fn triple(&self, first: usize) -> Option<[u32; 3]> {
        Some([self.small(first)?, self.small(first + 1)?, self.small(first + 2)?])
    }

    /// A text; numbers are converted to text.
    pub(super) fn text(&self, column: usize) -> Option<String> {
        match self.value(column) {
            ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Integer(n) => Some(n.to_string()),
            ValueRef::Real(x) => Some(x.to_string()),
            _ => None,
        }
    }
}
