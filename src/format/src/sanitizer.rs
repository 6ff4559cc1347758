//! Readers of compute-sanitizer's output: the log of the four tools, and the XML file of `--xml`.
//!
//! | line of the log | meaning |
//! |---|---|
//! | `========= COMPUTE-SANITIZER` | banner, first line |
//! | `========= HEAD` | starts a record, a summary or a note |
//! | `=========     DETAIL` | belongs to the record above |
//! | `========= ` | ends a record (not always printed) |
//! | anything else | the program's own output |
//!
//! Only the log has a summary, and a verdict needs it. The XML has full paths and complete host
//! stacks but no summary, so an aborted run and a clean one look the same there.
//!
//! Sources: our own runs of 2025.3 on an H200 (`tests/fixtures/sanitizer`), NVIDIA's documentation
//! for kinds that we have not seen, public logs for the older spellings (`Address 0x…`, `at 0x70 in
//! file.cu:17:kern()`, `WARN:(…)`).

mod cause;
mod details;
mod heads;
mod record;
mod text;
mod verdict;
mod xml;

pub use cause::{Cause, group};
pub use record::{
    Access, Allocation, ApiError, Direction, Frame, Hazard, InstructionLocation, Leak, Position,
    RaceSide, Record, RecordKind, Severity,
};
pub use text::{Abort, AbortKind, Log, Summary, read_log};
pub use verdict::{Tool, UnknownReason, Verdict, verdict};
pub use xml::{XmlError, XmlReport, read_xml};
