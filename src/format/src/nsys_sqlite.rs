//! Reader of the SQLite file that `nsys export --type sqlite` writes.
//!
//! | table | what we take |
//! |---|---|
//! | `CUPTI_ACTIVITY_KIND_KERNEL` | kernels: times, grid, block, resources, names as string ids |
//! | `CUPTI_ACTIVITY_KIND_MEMCPY`, `…_MEMSET` | copies and fills |
//! | `CUPTI_ACTIVITY_KIND_RUNTIME` | API calls, the driver's too; joined to GPU rows by correlation id and process |
//! | `CUDA_CALLCHAINS` | native frames of calls, by `callchainId` of rows of class 67 among the calls |
//! | `CUPTI_ACTIVITY_KIND_GRAPH_TRACE` | whole graph launches, where kernels inside are not traced |
//! | `NVTX_EVENTS` | ranges (59 push/pop, 60 start/end), marks (34), domain names (75) |
//! | `StringIds` | all names |
//! | `TARGET_INFO_GPU` | the GPUs and their peaks |
//! | `TARGET_INFO_SESSION_START_TIME`, `TARGET_INFO_SYSTEM_ENV` | when the capture began, the host's name |
//! | `DIAGNOSTIC_EVENT` | what nsys itself complains about |
//! | `META_DATA_EXPORT`, before 2023 `EXPORT_META_DATA` | schema version |
//!
//! A table without rows is missing altogether, and columns differ between versions (seen: schemas
//! 2.9 to 3.24, nsys 2022.2 to 2025.6). So the reader queries each table's columns, and a missing
//! column reads as `None`. Rows are streamed; only `StringIds` is held in memory.
//! `META_DATA_CAPTURE` holds the target's whole environment and is never read.
//!
//! SQLite opens the path itself, read-only and immutable, without touching a journal. Views,
//! virtual tables and computed columns of a hostile file are not followed, and the declarations of its
//! tables are counted first.

mod connection;
mod rows;
mod schema;
mod shares;
mod table;

pub use connection::NsysSqlite;

use crate::memory::OverBudget;
use thiserror::Error;

/// The reason why an nsys sqlite export could not be read.
#[derive(Debug, Error)]
pub enum NsysSqliteError {
    /// SQLite cannot open the file.
    #[error("cannot open as an SQLite database")]
    Open(#[source] rusqlite::Error),
    /// The database was not written by nsys.
    #[error(
        "an SQLite database with {tables} tables, but none of nsys's (`StringIds`, `META_DATA_EXPORT`)"
    )]
    NotNsys {
        /// Number of tables in the database.
        tables: usize,
    },
    /// A table is broken or cut off.
    #[error("table `{table}` is damaged after {rows} rows")]
    Table {
        /// Name of the table.
        table: &'static str,
        /// Number of rows read before the error.
        rows: u64,
        /// The error of SQLite.
        #[source]
        cause: rusqlite::Error,
    },
    /// The statements that declare the tables are too long.
    #[error("the declarations of its tables take more than the {} KiB that nsys needs", .limit >> 10)]
    Schema {
        /// The limit in bytes.
        limit: u64,
    },
    /// A table has more small rows than a file of its size may have.
    #[error("row {row} of the table `{table}` does not fit: {cause}")]
    OverBudget {
        /// Name of the table.
        table: &'static str,
        /// Number of the row, from 1.
        row: u64,
        /// The limit.
        cause: OverBudget,
    },
}
