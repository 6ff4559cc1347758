//! Reader of the SQLite file that `nsys export --type sqlite` writes.
//!
//! | table | what we take |
//! |---|---|
//! | `CUPTI_ACTIVITY_KIND_KERNEL` | kernels: times, grid, block, resources, names as string ids |
//! | `CUPTI_ACTIVITY_KIND_MEMCPY`, `…_MEMSET` | copies and fills |
//! | `CUPTI_ACTIVITY_KIND_RUNTIME` | API calls, the driver's too; joined to GPU rows by correlation id and process |
//! | `CUPTI_ACTIVITY_KIND_GRAPH_TRACE` | whole graph launches, where kernels inside are not traced |
//! | `NVTX_EVENTS` | ranges (59 push/pop, 60 start/end), marks (34), domain names (75) |
//! | `StringIds` | all names |
//! | `TARGET_INFO_GPU` | the GPUs and their peaks |
//! | `DIAGNOSTIC_EVENT` | what nsys itself complains about |
//! | `META_DATA_EXPORT`, before 2023 `EXPORT_META_DATA` | schema version |
//!
//! A table that has no rows is not there at all, and columns come and go with the version
//! (seen: schemas 2.9 to 3.24, nsys 2022.2 to 2025.6): each table is asked for its columns, and a
//! column that is missing reads as `None`. Rows are streamed; only `StringIds` is held in memory.
//! `META_DATA_CAPTURE` holds the target's whole environment and is never read.
//!
//! SQLite opens the path itself: read-only and immutable, without touching a journal. Views,
//! virtual tables and computed columns of a hostile file are not followed.

mod connection;
mod rows;
mod shares;
mod table;

pub use connection::NsysSqlite;

use thiserror::Error;

/// Why an nsys sqlite could not be read.
#[derive(Debug, Error)]
pub enum NsysSqliteError {
    /// SQLite cannot open the file.
    #[error("cannot open as an SQLite database")]
    Open(#[source] rusqlite::Error),
    /// A database, but not one that nsys wrote.
    #[error(
        "an SQLite database with {tables} tables, but none of nsys's (`StringIds`, `META_DATA_EXPORT`)"
    )]
    NotNsys {
        /// How many tables it has.
        tables: usize,
    },
    /// A table is broken or cut off.
    #[error("table `{table}` is damaged after {rows} rows")]
    Table {
        /// The table.
        table: &'static str,
        /// Rows that were read before.
        rows: u64,
        /// What SQLite says.
        #[source]
        cause: rusqlite::Error,
    },
}
