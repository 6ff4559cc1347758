//! Fatal errors, and problems of reports that can still be read in part.

use super::wire::WireError;
use crate::unpack::TooLarge;

/// The reason why nothing could be read from a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is empty: the tool was stopped before it wrote, or the copy failed.
    #[error("file is empty")]
    Empty,
    /// The file is neither a report nor a zstd frame around one.
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
        /// Offset of the damage.
        offset: usize,
        /// Description of the damage.
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
    /// Nothing could be decompressed from the zstd frame.
    #[error("the zstd frame around the report is damaged")]
    Compression {
        /// The message of the decompressor.
        #[source]
        source: std::io::Error,
    },
}

/// Damage in a report whose other parts were read.
///
/// Offsets refer to the uncompressed file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file ends inside an element.
    #[error(
        "file ends at offset {end} inside {what} that begins at {offset} and needs {needed} bytes"
    )]
    Cut {
        /// Offset of the incomplete element.
        offset: usize,
        /// Name of the element.
        what: &'static str,
        /// Number of bytes the element needs.
        needed: u64,
        /// Length of the file.
        end: usize,
    },
    /// A message in the file is damaged; the rest of it is lost.
    #[error("{what} at offset {offset} is damaged")]
    Damaged {
        /// Offset of the message.
        offset: usize,
        /// Name of the message.
        what: &'static str,
        /// The damage with its exact offset.
        #[source]
        source: WireError,
    },
    /// A block's payload is longer than its entries.
    #[error("{bytes} bytes at offset {offset} belong to no entry of their block")]
    Slack {
        /// Offset of the extra bytes.
        offset: usize,
        /// Number of extra bytes.
        bytes: usize,
    },
    /// A block's entries are longer than its payload.
    #[error("block at offset {offset} promises more entries than its payload holds")]
    Entries {
        /// Offset of the block.
        offset: usize,
    },
    /// The name of a metric is not in the string table. The metric is skipped.
    #[error("metric at offset {offset} has no name: {}", unnamed(.id, .count))]
    Name {
        /// Offset of the metric.
        offset: usize,
        /// The string number of the metric; `None` if it has none.
        id: Option<u64>,
        /// Number of strings in the table.
        count: usize,
    },
    /// The zstd frame is cut or damaged. The part decompressed before that was read.
    #[error("the zstd frame breaks after {bytes} uncompressed bytes")]
    Compression {
        /// Number of decompressed bytes.
        bytes: usize,
        /// The message of the decompressor.
        #[source]
        source: std::io::Error,
    },
    /// The file version is not one that this reader was tested with.
    #[error("file version {version} is newer than {known}, the newest seen: fields may be missing")]
    Version {
        /// The version in the file.
        version: u64,
        /// The newest known version.
        known: u64,
    },
    /// Further problems, which are not listed.
    #[error("{count} more problems")]
    More {
        /// Number of further problems.
        count: u64,
    },
}

/// The problems found while reading; the list is bounded, the count is not.
#[derive(Debug, Default)]
pub(super) struct Problems {
    list: Vec<Problem>,
    more: u64,
}

impl Problems {
    /// Maximum number of listed problems, so that a damaged file of gigabytes cannot fill the
    /// memory.
    const MAX_LISTED: usize = 100;

    pub(super) fn push(&mut self, problem: Problem) {
        if self.list.len() < Self::MAX_LISTED {
            self.list.push(problem);
        } else {
            self.more += 1;
        }
    }

    /// Adds the problems of a later part of the file.
    pub(super) fn append(&mut self, later: Problems) {
        later.list.into_iter().for_each(|problem| self.push(problem));
        self.more += later.more;
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
