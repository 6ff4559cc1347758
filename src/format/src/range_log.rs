//! Reader of the range log that rgpu's runner writes where no tool records its NVTX ranges.
//!
//! JSON lines. The first is `{"rgpu_ranges":1,"clock":"unix_ns","pid":…}`; each other one is a
//! range that has ended: `{"domain":"rgpu","path":["timed","n=1024"],"start_ns":…,"end_ns":…}` in
//! nanoseconds since 1970, with `"domains":["rgpu",…]` beside the path if a name has another
//! domain. Inner ranges come before the outer ones that contain them, so in a log that was cut off
//! the outermost ranges may be missing.

use crate::memory::{MemoryBudget, OverBudget};
use serde::Deserialize;
use thiserror::Error;

/// The contents of one log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeLog {
    /// Process id of the runner.
    pub pid: u32,
    /// All ranges, inner ones first.
    pub ranges: Vec<LoggedRange>,
    /// Number of lines that are not a range. The last line may be cut short.
    pub broken_lines: u64,
}

/// A range that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LoggedRange {
    /// The NVTX domain of the range.
    pub domain: String,
    /// Names of the range and of those around it, outermost first.
    pub path: Vec<String>,
    /// The domain of each name, if they are not all in [`LoggedRange::domain`].
    #[serde(default)]
    pub domains: Vec<String>,
    /// Start, Unix time in nanoseconds.
    pub start_ns: u64,
    /// End, on the same clock.
    pub end_ns: u64,
}

/// The reason why a log could not be read.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum RangeLogError {
    /// The file was not written by the runner.
    #[error("not a range log of the runner: it starts with `{start}`")]
    NotALog {
        /// At most 60 first bytes of the line, escaped.
        start: String,
    },
    /// The log was written by a newer runner.
    #[error("range log of format {format}; this reader knows format 1")]
    UnsupportedFormat {
        /// Format version in the file.
        format: u32,
    },
    /// The ranges take too much memory.
    #[error("line {line}: {over}")]
    TooMuchMemory {
        /// Number of the line, from 1, without empty lines.
        line: u64,
        /// The limit.
        over: OverBudget,
    },
}

/// Memory of a range and of one of the names in its path, in bytes, with all that a profile makes
/// of them.
const RANGE_BYTES: usize = 2 << 10;
const NAME_BYTES: usize = 320;
/// How often a text of a range is kept.
const TEXT_COPIES: usize = 4;

#[derive(Deserialize)]
struct Header {
    rgpu_ranges: u32,
    #[serde(default)]
    pid: u32,
}

/// Reads a log. Broken lines are counted and not fatal.
///
/// # Errors
/// [`RangeLogError`] if it is another kind of file, or of a newer format.
pub fn read(data: &[u8]) -> Result<RangeLog, RangeLogError> {
    let mut lines = data.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let first = lines.next().unwrap_or_default();
    let header: Header = serde_json::from_slice(first).map_err(|_| {
        let start = first[..first.len().min(60)].escape_ascii().to_string();
        RangeLogError::NotALog { start }
    })?;
    if header.rgpu_ranges != 1 {
        return Err(RangeLogError::UnsupportedFormat { format: header.rgpu_ranges });
    }
    let mut log = RangeLog { pid: header.pid, ..RangeLog::default() };
    let mut budget = MemoryBudget::for_file(data.len());
    for (line, number) in lines.zip(2..) {
        match serde_json::from_slice::<LoggedRange>(line) {
            Ok(range) => {
                let names = range.path.len() + range.domains.len();
                let bytes = RANGE_BYTES + names * NAME_BYTES + TEXT_COPIES * line.len();
                let taken = budget.take(bytes);
                taken.map_err(|over| RangeLogError::TooMuchMemory { line: number, over })?;
                log.ranges.push(range);
            }
            Err(_) => log.broken_lines += 1,
        }
    }
    Ok(log)
}
