//! Reads the output of `ncu --csv --page raw`, `--page details` and `--page source`.
//!
//! | page | rows |
//! |---|---|
//! | raw | header; units; one row for each launch, one column for each metric |
//! | details | header; one row for each metric or rule of a launch, with section, label, unit and value |
//! | source | for each launch its kernel's name, a header, and one row for each instruction |
//!
//! The first two begin with `ID`, process, kernel, context, stream, block, grid, device and compute
//! capability; with NVTX, two more columns have the ranges (`domain:name:` and six attributes of
//! the event, in quotes). The page is lossy: one unit per column, two decimals for some values,
//! commas between thousands. Units are scaled (`us`, `Mbyte`) unless `--print-units base` was
//! given, so the unit of each cell is kept and [`scale`] converts it to NVIDIA's base unit.
//!
//! Tested with pages of ncu 2025.3: the raw page with base units, the details page with scaled
//! ones, and the source page as SASS.

mod launch;
mod read;
mod source;
mod unit;

pub use launch::{Cell, CellValue, CsvLaunch, CsvRule, RangeName};
pub use read::{NcuCsv, Page};
pub use source::{SourceLaunch, SourcePage, SourceRow};
pub use unit::scale;

use crate::csv::CsvError;
use thiserror::Error;

/// The reason why a page could not be read.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum NcuCsvError {
    /// The text is not valid CSV.
    #[error(transparent)]
    Rows(#[from] CsvError),
    /// There is no header of a raw or details page.
    #[error("no page of ncu in CSV: no row has the columns `ID` and `Kernel Name`")]
    NoHeader,
    /// A raw page lacks the row of units.
    #[error("the raw page ends before its row of units")]
    NoUnits,
    /// A source page has no instruction.
    #[error("the source page has no instruction")]
    NoInstructions,
    /// A source page has source lines instead of instructions.
    #[error(
        "the source page has lines of source code; rgpu reads it as SASS: print it with `--print-source sass`"
    )]
    SourceLines,
}
