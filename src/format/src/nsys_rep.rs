//! Reader of Nsight Systems reports (`.nsys-rep`) that does not need nsys.
//!
//! The format is not published. This description was derived from reports and compared, value by
//! value, with the sqlite that nsys itself exports from them.
//!
//! | bytes | meaning |
//! |---|---|
//! | `NVIDIA Tegra Profiler Report `, build, `.` | magic; the build names the nsys that wrote it: `1`, `36398880`, `2025@6@1@190-…` |
//! | .. | sections |
//! | at the end: u64 LE, `U3w[END]` | offset of the table of contents, which lies between the sections and these 16 bytes |
//!
//! The table of contents is a protobuf message: repeated 1 {1 name, 2 offset, 3 size}. We need two
//! sections:
//!
//! - `Raw Sampling Data`: `QDTEXT00`; varint length and the session (GPUs); varint length and the
//!   counts {1 events, 3 strings, 9 codec `lz4`}; then chunks, each varint compressed length,
//!   varint raw length, one LZ4 block that holds varint length and repeated 1 {event}.
//! - `Sampling Data Offsets` {1 codec, 2 offset}: the chunk at 8 + offset is the last; it holds the
//!   strings instead of events, repeated 1, numbered from 0.
//!
//! | event field | content |
//! |---|---|
//! | 1 | type |
//! | 102 NVTX | 1 eventType, 2 start, 4 range id, 7 text, 9 globalTid, 10 end, 12 text id, 13 domain; 8.9.2: frames of Python, in marks of the domain `Python Backtrace on CUDA` |
//! | 107 GPU work | 1 start, 2 end, 3 correlation, 4 device, 5 context, 6 stream, 7 kind, 8 globalPid, and one of the next three |
//! | 107.101 kernel | 1 demangled, 2 short, 3 mangled, 10-12 grid, 13-15 block, 16 static, 17 dynamic shared memory, 18 local memory per thread, 21 registers, 27 graph node |
//! | 107.102 copy | 1 bytes, 2 kind |
//! | 107.103 fill | 1 bytes, 2 value |
//! | 107.107 graph | 1 graph, 2 executable graph |
//! | 108 API call | 1 start, 2 end, 3 correlation, 6 class (0 and 1: runtime and driver), 7 name, 8 result, 13 globalTid; class 67 holds the frames of the call with the same 3: repeated 15 {1 symbol, 2 module, 6 unresolved} |
//! | 110 diagnostic | 1 {1 time}, 3 severity, 4 text |
//!
//! Other events and fields are skipped; events of unknown types are counted. The report also holds
//! command lines and environments of the target's processes, which are never read.
//!
//! Tested with nsys 2025.3. Earlier studies of the same layout: 2022.2, 2025.1, 2025.6.

mod container;
mod event;
mod session;

pub use container::{EventIndex, NsysReport};
pub use event::{EventTable, NsysEvent};

use crate::wire::WireError;
use thiserror::Error;

/// The reason why a report could not be read. Offsets are in bytes from the start of the file,
/// unless stated otherwise.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum NsysRepError {
    /// The file is of another kind.
    #[error("not a report of Nsight Systems: it starts with `{start}`")]
    NotAReport {
        /// At most 40 first bytes, escaped.
        start: String,
    },
    /// The end marker is missing: the file was cut off.
    #[error("the report was cut off: its end marker is missing at offset {length}")]
    Cut {
        /// The file's length in bytes.
        length: u64,
    },
    /// The table of contents is broken.
    #[error("broken table of contents")]
    Contents(#[source] WireError),
    /// A section is missing or extends beyond the file.
    #[error("report of build `{build}` without a readable section `{section}`")]
    Section {
        /// The name of the section that is needed.
        section: &'static str,
        /// The build of the nsys version that wrote the report.
        build: String,
    },
    /// The event section has an unknown form.
    #[error(
        "report of build `{build}` in a form that this reader does not know: {what} at offset {offset}; `nsys export --type sqlite` of that version can still be read"
    )]
    Form {
        /// The build of the nsys version that wrote the report.
        build: String,
        /// Description of the unexpected part.
        what: &'static str,
        /// Offset of that part.
        offset: u64,
    },
    /// A chunk of events is broken.
    #[error("broken chunk of events at offset {offset}: {cause}")]
    Chunk {
        /// Offset of the chunk.
        offset: u64,
        /// Description of the damage.
        cause: String,
    },
}
