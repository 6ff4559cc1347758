//! The file that an importer is given.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::ncu::RequestedCounters;

/// One artifact on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Where it lies.
    pub path: &'a Path,
    /// Its path in the run folder, for `from` fields and messages.
    pub from: &'a str,
    /// What was asked of the tool, as far as the artifact must answer it.
    pub asked: RequestedCounters<'a>,
    /// Whether the tool was told to trace the GPU at all.
    pub traced: TracedActivity,
    /// Larger files are refused.
    pub max_bytes: u64,
    /// Whether the file stands for itself. In a run folder it does not: what the same step left
    /// beside it is read with one of the two.
    pub alone: bool,
    /// Who is told how far the reader of a large file has come.
    pub watch: Option<&'a dyn ReadProgress>,
}

/// Watches a large file being read.
pub trait ReadProgress: std::fmt::Debug {
    /// `done` rows of about `all` are read.
    fn read(&self, done: u64, all: u64);
}

/// What a trace was told to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TracedActivity {
    /// Work on the GPU too: a trace without any is refused.
    #[default]
    Gpu,
    /// The host's ranges alone.
    HostOnly,
}

/// Larger files are refused unless the user raises it.
pub const DEFAULT_MAX_BYTES: u64 = 4 << 30;

/// Bytes by which kinds of files are told.
const SNIFF_BYTES: u64 = 4096;

impl<'a> Source<'a> {
    /// A file of which nothing in particular was asked.
    pub fn new(path: &'a Path, from: &'a str) -> Source<'a> {
        Source {
            path,
            from,
            asked: RequestedCounters::default(),
            traced: TracedActivity::Gpu,
            max_bytes: DEFAULT_MAX_BYTES,
            alone: false,
            watch: None,
        }
    }

    /// The same file, whatever lies beside it.
    pub fn alone(self) -> Source<'a> {
        Source { alone: true, ..self }
    }

    /// The same file, read while `watch` looks on.
    pub fn watched(self, watch: &'a dyn ReadProgress) -> Source<'a> {
        Source { watch: Some(watch), ..self }
    }

    /// The whole file.
    ///
    /// # Errors
    /// [`ImportError::Read`] or [`ImportError::TooLarge`].
    pub fn bytes(&self) -> Result<Vec<u8>, ImportError> {
        self.size()?;
        std::fs::read(self.path).map_err(|cause| self.unreadable(cause))
    }

    /// The first bytes of the file, which say what kind it is.
    ///
    /// # Errors
    /// [`ImportError::Read`] or [`ImportError::TooLarge`].
    pub fn head(&self) -> Result<Vec<u8>, ImportError> {
        self.size()?;
        let mut head = Vec::new();
        File::open(self.path)
            .and_then(|file| file.take(SNIFF_BYTES).read_to_end(&mut head))
            .map_err(|cause| self.unreadable(cause))?;
        Ok(head)
    }

    /// The file's size, within the limit.
    ///
    /// # Errors
    /// [`ImportError::Read`] or [`ImportError::TooLarge`].
    pub fn size(&self) -> Result<u64, ImportError> {
        let bytes = std::fs::metadata(self.path).map_err(|cause| self.unreadable(cause))?.len();
        if bytes > self.max_bytes {
            let from = self.from.to_owned();
            return Err(ImportError::TooLarge { from, bytes, limit: self.max_bytes });
        }
        Ok(bytes)
    }

    /// The error for a file whose reader gave up.
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
        /// What the system says.
        #[source]
        cause: std::io::Error,
    },
    /// The file is larger than allowed.
    #[error("`{from}` has {bytes} bytes; the limit is {limit}")]
    TooLarge {
        /// Path in the run folder.
        from: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The bytes are not what the kind promises.
    #[error("cannot understand `{from}`")]
    Format {
        /// Path in the run folder.
        from: String,
        /// What its reader says, with the offset.
        #[source]
        cause: Box<dyn Error + Send + Sync>,
    },
}
