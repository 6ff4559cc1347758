//! Writes a host's files into a folder of the user's. Each folder on the way is opened separately
//! without following symbolic links, so no file lands outside, even if folders change meanwhile.

#![expect(
    clippy::disallowed_methods,
    reason = "files that a command names, written through descriptors"
)]

use std::fs::File;
use std::io;
use std::path::Path;

use rgpu_protocol::plan::valid_relative_path;
use rustix::fs::Stat;

use rgpu_model::beneath::{self, Folder, NewFile};

/// Why a file cannot be written below a folder.
#[derive(Debug, thiserror::Error)]
pub enum DestinationError {
    /// A folder above the file is a symbolic link; its path below the root.
    #[error("`{0}` is a symbolic link")]
    Link(String),
    /// An error of the file system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A folder of the user's that receives a host's files. Clones share one handle.
#[derive(Clone, Debug)]
pub struct DestinationRoot(Folder);

/// The destination of one file: its folder, opened, and its name.
#[derive(Debug)]
pub struct Destination {
    folder: Folder,
    name: String,
}

impl DestinationRoot {
    /// Opens the folder `path`. Symbolic links above it are followed, since the user chose them.
    pub fn open(path: &Path) -> io::Result<Self> {
        Folder::open(path).map(Self)
    }

    /// The destination of the file `path` below this folder; creates the folders on the way.
    pub fn destination(&self, path: &str) -> Result<Destination, DestinationError> {
        if !valid_relative_path(path) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = self.0.make_folder(above).map_err(|error| match beneath::link_of(&error) {
            Some(link) => {
                let link = link.strip_prefix(self.0.path()).unwrap_or(link);
                DestinationError::Link(link.display().to_string())
            }
            None => error.into(),
        })?;
        Ok(Destination { folder, name: name.to_owned() })
    }
}

impl Destination {
    /// Metadata of the existing file, without following a link; `None` if there is none.
    pub fn metadata(&self) -> io::Result<Option<Stat>> {
        self.folder.stat(&self.name)
    }

    /// Opens the existing regular file for reading.
    pub fn read(&self) -> io::Result<File> {
        self.folder.open_file(&self.name)
    }

    /// Starts a file that replaces this destination once it is finished.
    pub fn begin(self) -> io::Result<(File, NewFile)> {
        self.folder.begin(&self.name)
    }

    /// Replaces the destination by a copy of the file `from`, without holding it in memory.
    ///
    /// # Errors
    /// I/O errors; the temporary file is removed.
    pub fn copy_from(self, from: &Path) -> io::Result<()> {
        let (mut file, new) = self.begin()?;
        io::copy(&mut File::open(from)?, &mut file)?;
        new.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_takes_its_place_whole_and_nothing_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let root = DestinationRoot::open(dir.path()).unwrap();
        let destination = || root.destination("a/b/c").unwrap();
        assert!(destination().metadata().unwrap().is_none());
        let (mut file, partial) = destination().begin().unwrap();
        file.write_all(b"one").unwrap();
        assert!(destination().metadata().unwrap().is_none());
        partial.finish().unwrap();
        assert_eq!(fs::read(dir.path().join("a/b/c")).unwrap(), b"one");
        drop(destination().begin().unwrap());
        destination().copy_from(&dir.path().join("absent")).unwrap_err();
        assert_eq!(fs::read_dir(dir.path().join("a/b")).unwrap().count(), 1);
    }

    #[test]
    fn no_file_goes_through_a_link_even_one_that_came_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, outer) = (dir.path().join("inner"), dir.path().join("outer"));
        fs::create_dir_all(inner.join("out")).unwrap();
        fs::create_dir(&outer).unwrap();
        let root = DestinationRoot::open(&inner).unwrap();
        symlink("../outer", inner.join("link")).unwrap();
        let refused = root.destination("link/deep/x").unwrap_err();
        assert!(matches!(refused, DestinationError::Link(link) if link == "link"));
        for bad in ["../outer/x", "/tmp/x", "a//b", ""] {
            assert!(root.destination(bad).is_err(), "{bad}");
        }
        // The folder is replaced by a link after it was opened.
        let destination = root.destination("out/x").unwrap();
        fs::rename(inner.join("out"), inner.join("moved")).unwrap();
        symlink("../outer", inner.join("out")).unwrap();
        let (_, partial) = destination.begin().unwrap();
        partial.finish().unwrap();
        assert!(inner.join("moved/x").is_file());
        assert_eq!(fs::read_dir(&outer).unwrap().count(), 0);
    }

    #[test]
    fn a_link_in_the_files_own_place_is_replaced_and_never_read() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        fs::write(&secret, "ours").unwrap();
        symlink("secret", dir.path().join("x")).unwrap();
        let root = DestinationRoot::open(dir.path()).unwrap();
        assert!(root.destination("x").unwrap().read().is_err());
        let (mut file, partial) = root.destination("x").unwrap().begin().unwrap();
        file.write_all(b"theirs").unwrap();
        partial.finish().unwrap();
        assert_eq!(fs::read(&secret).unwrap(), b"ours");
        assert!(!dir.path().join("x").is_symlink());
    }
}
