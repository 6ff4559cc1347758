//! What can be wrong with a report: fatal errors, and problems that leave something to read.

use super::wire::WireError;
use crate::unpack::TooLarge;

/// Why nothing could be read from a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No bytes at all: the tool was stopped before it wrote, or the copy failed.
    #[error("file is empty")]
    Empty,
    /// Neither a report nor a zstd frame around one.
    #[error(
        "not an ncu report: it begins with {found}, and a report with `NVR\\0` or a zstd frame"
    )]
    WrongKind {
        /// The first bytes, or the name of the format they belong to.
        found: String,
    },
    /// The file header is cut or damaged.
    #[error("the report's file header is damaged at offset {offset}: {reason}")]
    FileHeader {
        /// Where it breaks.
        offset: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The report is larger than the caller's limit, as it is or unpacked.
    #[error("report has more than {max} bytes, which is the limit")]
    TooLarge {
        /// The limit in bytes.
        max: u64,
    },
    /// The report is compressed and would become out of proportion to its size.
    #[error(transparent)]
    Unpacked(#[from] TooLarge),
    /// The zstd frame gives no byte of a report.
    #[error("the zstd frame around the report is damaged")]
    Compression {
        /// What the decompressor says.
        #[source]
        source: std::io::Error,
    },
}

/// Something that is wrong with a report of which the rest was read.
///
/// Offsets count in the uncompressed file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends inside something.
    #[error(
        "file ends at offset {end} inside {what} that begins at {offset} and needs {needed} bytes"
    )]
    Cut {
        /// Where the unfinished thing begins.
        offset: usize,
        /// What it is.
        what: &'static str,
        /// How many bytes it needs.
        needed: u64,
        /// Where the file ends.
        end: usize,
    },
    /// A message inside the file is damaged; what follows in it is lost.
    #[error("{what} at offset {offset} is damaged")]
    Damaged {
        /// Where the message begins.
        offset: usize,
        /// Which message.
        what: &'static str,
        /// What is wrong, with the exact offset.
        #[source]
        source: WireError,
    },
    /// A block's payload is longer than its entries.
    #[error("{bytes} bytes at offset {offset} belong to no entry of their block")]
    Slack {
        /// Where they begin.
        offset: usize,
        /// How many.
        bytes: usize,
    },
    /// A block's entries are longer than its payload.
    #[error("block at offset {offset} promises more entries than its payload holds")]
    Entries {
        /// Where the block begins.
        offset: usize,
    },
    /// A metric's name is not in the string table; the metric cannot be named and is left out.
    #[error("metric at offset {offset} has no name: {}", unnamed(.id, .count))]
    Name {
        /// Where the metric begins.
        offset: usize,
        /// The number it gives; nothing where it gives none.
        id: Option<u64>,
        /// How many strings there are.
        count: usize,
    },
    /// The zstd frame breaks off or is damaged; what came out before that was read.
    #[error("the zstd frame breaks after {bytes} uncompressed bytes")]
    Compression {
        /// How many bytes came out.
        bytes: usize,
        /// What the decompressor says.
        #[source]
        source: std::io::Error,
    },
    /// A file version that this reader has not seen.
    #[error("file version {version} is newer than {known}, the newest seen: fields may be missing")]
    Version {
        /// The version in the file.
        version: u64,
        /// The newest version known here.
        known: u64,
    },
    /// More problems of the same kinds, not listed.
    #[error("{count} more problems")]
    More {
        /// How many.
        count: u64,
    },
}

/// The problems of one reading; the list is bounded, the count is not.
#[derive(Debug, Default)]
pub(super) struct Problems {
    list: Vec<Problem>,
    more: u64,
}

impl Problems {
    /// As many as anybody reads; a damaged file of gigabytes must not fill the memory with them.
    const LISTED: usize = 100;

    pub(super) fn push(&mut self, problem: Problem) {
        if self.list.len() < Self::LISTED {
            self.list.push(problem);
        } else {
            self.more += 1;
        }
    }

    pub(super) fn finish(mut self) -> Vec<Problem> {
        if self.more > 0 {
            self.list.push(Problem::More { count: self.more });
        }
        self.list
    }
}

fn unnamed(id: &Option<u64>, count: &usize) -> String {
    match id {
        Some(id) => format!("it is number {id} of {count} strings"),
        None => "it gives no number".to_owned(),
    }
}
