//! The file to which the collector writes the events of one process. It is opened at the first
//! write, and only complete lines are appended.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The file, and whether a write has failed.
pub(crate) struct Sink {
    path: PathBuf,
    file: Option<(File, Identity)>,
    broken: bool,
}

/// Device and inode, to check that a descriptor still refers to our file.
type Identity = (u64, u64);

impl Sink {
    /// A sink that opens `path` at its first write.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: None, broken: false }
    }

    /// Whether the file has been opened.
    pub(crate) fn is_open(&self) -> bool {
        self.file.is_some()
    }

    /// Appends complete lines. After the first failure nothing more is written, and one line on
    /// stderr gives the reason.
    pub(crate) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("the log was abandoned after an earlier error"));
        }
        let written = self.file().and_then(|mut file| file.write_all(lines));
        if let Err(error) = &written {
            self.broken = true;
            let path = self.path.display();
            print_warning(&format!("cannot write `{path}`: {error}; NVTX ranges are lost"));
        }
        written
    }

    /// The open file. A program may close descriptors it does not know (daemons do) and reuse the
    /// number for its own file, so the descriptor must still refer to our file.
    fn file(&mut self) -> io::Result<&File> {
        let ours = self.file.as_ref().is_some_and(|(file, was)| identity(file).ok() == Some(*was));
        if !ours {
            if let Some((foreign_file, _)) = self.file.take() {
                std::mem::forget(foreign_file); // it belongs to the program
            }
            let file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            let identity = identity(&file)?;
            self.file = Some((file, identity));
        }
        match &self.file {
            Some((file, _)) => Ok(file),
            None => Err(io::Error::other("the log is not open")),
        }
    }
}

fn identity(file: &File) -> io::Result<Identity> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Prints one line on stderr and ignores errors.
pub(crate) fn print_warning(text: &str) {
    // Not `eprintln!`, which panics when stderr is closed.
    let _ = writeln!(io::stderr(), "rgpu-collector: {text}");
}
