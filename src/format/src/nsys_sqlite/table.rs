//! Access to one table whatever columns its version has.

use super::NsysSqliteError;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use std::collections::HashSet;

/// Names of the ordinary tables; views and virtual tables are left out.
pub(super) fn names(connection: &Connection) -> rusqlite::Result<HashSet<String>> {
    let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0";
    let mut statement = connection.prepare(sql)?;
    let names = statement.query_map([], |row| row.get::<_, String>(0))?;
    names.collect()
}

/// Reads `columns` of `table` row by row, in the file's order, `most` rows at most. A column that
/// the table lacks reads as `None`.
pub(super) fn stream(
    connection: &Connection,
    table: &'static str,
    columns: &[&str],
    most: Option<u64>,
    mut each: impl FnMut(&Fields<'_, '_>),
) -> Result<u64, NsysSqliteError> {
    let mut rows = 0;
    let mut run = || -> rusqlite::Result<()> {
        let present = columns_of(connection, table)?;
        let wanted: Vec<String> = columns
            .iter()
            .map(|c| if present.contains(*c) { format!("\"{c}\"") } else { "NULL".to_owned() })
            .collect();
        // An index that holds all that is wanted would give another order.
        let mut sql = format!("SELECT {} FROM \"{table}\" NOT INDEXED", wanted.join(", "));
        if let Some(most) = most {
            sql += &format!(" LIMIT {}", i64::try_from(most).unwrap_or(i64::MAX));
        }
        let mut statement = connection.prepare(&sql)?;
        let mut cursor = statement.query([])?;
        while let Some(row) = cursor.next()? {
            each(&Fields { row });
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

/// About how many rows a table has: its greatest row id, which is found without a look at the
/// rows. 0 where it has none.
pub(super) fn about(connection: &Connection, table: &str) -> u64 {
    let sql = format!("SELECT max(rowid) FROM \"{table}\"");
    let greatest = connection.query_row(&sql, [], |row| row.get::<_, Option<i64>>(0));
    greatest.ok().flatten().and_then(|rows| u64::try_from(rows).ok()).unwrap_or(0)
}

/// The stored columns; computed ones are not listed by this pragma.
fn columns_of(connection: &Connection, table: &str) -> rusqlite::Result<HashSet<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA table_info(\"{table}\")"))?;
    let names = statement.query_map([], |row| row.get::<_, String>(1))?;
    names.collect()
}

/// One row. SQLite's columns are not typed, so every getter takes what can be taken.
pub(super) struct Fields<'r, 's> {
    row: &'r Row<'s>,
}

impl Fields<'_, '_> {
    fn value(&self, column: usize) -> ValueRef<'_> {
        self.row.get_ref(column).unwrap_or(ValueRef::Null)
    }

    /// A whole number.
    pub(super) fn int(&self, column: usize) -> Option<i64> {
        match self.value(column) {
            ValueRef::Integer(n) => Some(n),
            ValueRef::Real(x) if x.is_finite() => Some(x as i64),
            ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
            _ => None,
        }
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

    /// A text; numbers are spelled out.
    pub(super) fn text(&self, column: usize) -> Option<String> {
        match self.value(column) {
            ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            ValueRef::Integer(n) => Some(n.to_string()),
            ValueRef::Real(x) => Some(x.to_string()),
            _ => None,
        }
    }
}
