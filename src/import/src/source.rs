//! What an importer gets: the file, its path in the run folder, what the tool was asked for, and
//! limits on size, threads and detail.

#![expect(
    clippy::disallowed_methods,
    reason = "reports that the user named, or of a run folder that was checked for links"
)]

use std::borrow::Cow;
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use rgpu_format::unpack::{self, UnpackError};

use super::ncu::RequestedCounters;
use rgpu_model::agent_files;

/// One artifact on this machine, and how to import it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The file to read.
    pub path: &'a Path,
    /// Its path in the run folder, for `from` fields and messages.
    pub from: &'a str,
    /// The counters that the tool was asked for.
    pub requested: RequestedCounters<'a>,
    /// Whether the tool was asked to trace the GPU.
    pub traced: TracedActivity,
    /// A larger file is an error.
    pub max_bytes: u64,
    /// Whether to read this file only. In a run folder, two files that the same step wrote are
    /// imported together, as one of them.
    pub alone: bool,
    /// Whether it is one of several reports of a program, so that its one process is a rank.
    pub is_rank: bool,
    /// How much is imported.
    pub detail: Detail,
    /// Most threads that read it. `None`: as many as suit this machine.
    pub readers: Option<usize>,
    /// Receives the progress of reading a large file.
    pub watch: Option<&'a dyn ReadProgress>,
}

/// Receives the progress of reading a large file.
pub trait ReadProgress: std::fmt::Debug {
    /// Called after `done` of about `all` rows.
    fn read(&self, done: u64, all: u64);
}

/// The data that a trace must contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TracedActivity {
    /// GPU work: a trace without any is refused.
    #[default]
    Gpu,
    /// Ranges of the host only.
    HostOnly,
}

/// How much of a file is imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// Everything that a profile can have.
    #[default]
    Full,
    /// What a summary shows. Launches of ncu have no sections and no series, their metrics have no
    /// unit and no origin, and instructions have samples, stall reasons and executions only.
    Summary,
}

/// Default of [`Source::max_bytes`], which users can raise.
pub const DEFAULT_MAX_BYTES: u64 = 4 << 30;

/// How many bytes are read to recognise a kind of file.
const SNIFF_BYTES: u64 = 4096;

impl<'a> Source<'a> {
    /// A file for which nothing in particular was requested.
    pub fn new(path: &'a Path, from: &'a str) -> Source<'a> {
        Source {
            path,
            from,
            requested: RequestedCounters::default(),
            traced: TracedActivity::Gpu,
            max_bytes: DEFAULT_MAX_BYTES,
            alone: false,
            is_rank: false,
            detail: Detail::Full,
            readers: None,
            watch: None,
        }
    }

    /// The same file, to be read without the files beside it.
    pub fn alone(self) -> Source<'a> {
        Source { alone: true, ..self }
    }

    /// The same file, with progress reported to `watch`.
    pub fn watched(self, watch: &'a dyn ReadProgress) -> Source<'a> {
        Source { watch: Some(watch), ..self }
    }

    /// Reads the whole file, and unpacks it if it is packed with gzip or zstd. The bytes end where
    /// the packed ones are broken.
    ///
    /// # Errors
    /// [`ImportError::Read`], [`ImportError::TooLarge`], or [`ImportError::Format`] if it cannot be
    /// unpacked or would become too large.
    pub fn unpacked(&self) -> Result<(Vec<u8>, Option<UnpackError>), ImportError> {
        let file = self.bytes()?;
        let unpacked = unpack::whole(&file, self.max_bytes).map_err(|cause| self.broken(cause))?;
        let cut = unpacked.cut;
        match unpacked.bytes {
            Cow::Owned(bytes) => Ok((bytes, cut)),
            Cow::Borrowed(_) => Ok((file, cut)),
        }
    }

    /// Reads the whole file. The limit holds for what is read: a pipe has no size, and a file can
    /// become another one after a look at it.
    pub fn bytes(&self) -> Result<Vec<u8>, ImportError> {
        let mut bytes = Vec::new();
        let file = self.open()?;
        file.take(self.max_bytes.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|cause| self.unreadable(cause))?;
        self.check_size(bytes.len() as u64)?;
        Ok(bytes)
    }

    /// Opens the file, and checks its size at once.
    fn open(&self) -> Result<File, ImportError> {
        let file = agent_files::open_named(self.path);
        let opened = file.and_then(|file| Ok((file.metadata()?.len(), file)));
        let (bytes, file) = opened.map_err(|cause| self.unreadable(cause))?;
        self.check_size(bytes)?;
        Ok(file)
    }

    /// Reads the first bytes, which tell the kind of file.
    pub fn head(&self) -> Result<Vec<u8>, ImportError> {
        let mut head = Vec::new();
        let read = self.open()?.take(SNIFF_BYTES).read_to_end(&mut head);
        read.map_err(|cause| self.unreadable(cause))?;
        Ok(head)
    }

    /// The file's size in bytes, checked against the limit.
    pub fn size(&self) -> Result<u64, ImportError> {
        let bytes = std::fs::metadata(self.path).map_err(|cause| self.unreadable(cause))?.len();
        self.check_size(bytes)?;
        Ok(bytes)
    }

    fn check_size(&self, bytes: u64) -> Result<(), ImportError> {
        if bytes <= self.max_bytes {
            return Ok(());
        }
        let from = self.from.to_owned();
        Err(ImportError::TooLarge { from, bytes, limit: self.max_bytes })
    }

    /// Wraps a reader's error.
    pub fn broken(&self, cause: impl Error + Send + Sync + 'static) -> ImportError {
        ImportError::Format { from: self.from.to_owned(), cause: Box::new(cause) }
    }

    fn unreadable(&self, cause: std::io::Error) -> ImportError {
        ImportError::Read { from: self.from.to_owned(), cause }
    }
}

/// Why an artifact could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read `{from}`")]
    Read {
        /// Path in the run folder.
        from: String,
        /// The operating system's error.
        #[source]
        cause: std::io::Error,
    },
    /// The file is larger than allowed.
    #[error("`{from}` has {bytes} bytes; the limit is {limit}")]
    TooLarge {
        /// Path in the run folder.
        from: String,
        /// The file's size in bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The content does not have the format of its kind.
    #[error("cannot parse `{from}`")]
    Format {
        /// Path in the run folder.
        from: String,
        /// The reader's error, with the offset.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_size_is_read_up_to_the_limit() {
        // As a pipe, or a file that grows after a look at it.
        let endless = Path::new("/dev/zero");
        let source = Source { max_bytes: 1000, ..Source::new(endless, "zero") };
        let read = source.bytes().map(|bytes| bytes.len());
        assert!(matches!(read, Err(ImportError::TooLarge { bytes: 1001, limit: 1000, .. })));
        assert_eq!(source.head().unwrap().len(), 4096);
        let empty = Source { path: Path::new("/dev/null"), ..source };
        assert_eq!(empty.bytes().unwrap(), b"");
    }
}
