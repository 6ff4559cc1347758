//! Writes a host's files into a folder of the user's. Each folder on the way is opened separately
//! without following symbolic links, so no file lands outside, even if folders change meanwhile.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use rgpu_protocol::plan::valid_relative_path;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

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
pub struct DestinationRoot(Arc<OwnedFd>);

/// The destination of one file: its folder, opened, and its name.
#[derive(Debug)]
pub struct Destination {
    folder: OwnedFd,
    name: String,
}

/// A file that is written under a temporary name, and removed unless it is finished.
#[derive(Debug)]
pub struct PartialFile {
    destination: Destination,
    /// `None` once the file has its final name.
    temporary: Option<String>,
}

impl DestinationRoot {
    /// Opens the folder `path`. Symbolic links above it are followed, since the user chose them.
    ///
    /// # Errors
    /// I/O errors.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self(Arc::new(rustix::fs::open(path, flags, Mode::empty())?)))
    }

    /// The destination of the file `path` below this folder; creates the folders on the way.
    ///
    /// # Errors
    /// [`DestinationError::Link`], a path that leaves the folder, I/O errors.
    pub fn destination(&self, path: &str) -> Result<Destination, DestinationError> {
        if !valid_relative_path(path) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        let mut folder = self.0.try_clone()?;
        let mut begin = 0;
        for (end, _) in path.match_indices('/') {
            let part = &path[begin..end];
            match rustix::fs::mkdirat(&folder, part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&folder, part, flags, Mode::empty());
            folder = opened.map_err(|error| match is_link(&folder, part) {
                true => DestinationError::Link(path[..end].to_owned()),
                false => io::Error::from(error).into(),
            })?;
            begin = end + 1;
        }
        Ok(Destination { folder, name: path[begin..].to_owned() })
    }
}

impl Destination {
    /// Metadata of the existing file, without following a link; `None` if there is none.
    ///
    /// # Errors
    /// I/O errors.
    pub fn metadata(&self) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.folder, &*self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the existing regular file for reading.
    ///
    /// # Errors
    /// I/O errors, or the path is a link or no regular file.
    pub fn read(&self) -> io::Result<File> {
        // Without NONBLOCK, opening a named pipe would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.folder, &*self.name, flags, Mode::empty())?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Starts a file that replaces this destination once it is finished.
    ///
    /// # Errors
    /// I/O errors.
    pub fn begin(self) -> io::Result<(File, PartialFile)> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        loop {
            let temporary = format!(".writing-{:016x}", RandomState::new().build_hasher().finish());
            let mode = Mode::from_raw_mode(0o666);
            match rustix::fs::openat(&self.folder, &*temporary, flags, mode) {
                Ok(file) => {
                    let partial = PartialFile { destination: self, temporary: Some(temporary) };
                    return Ok((file.into(), partial));
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Replaces the destination by a copy of the file `from`, without holding it in memory.
    ///
    /// # Errors
    /// I/O errors; the temporary file is removed.
    pub fn copy_from(self, from: &Path) -> io::Result<()> {
        let (mut file, partial) = self.begin()?;
        io::copy(&mut File::open(from)?, &mut file)?;
        partial.finish()
    }
}

impl PartialFile {
    /// Renames the file to its final name, replacing an existing file.
    ///
    /// # Errors
    /// I/O errors; the temporary file is removed.
    pub fn finish(mut self) -> io::Result<()> {
        let Destination { folder, name } = &self.destination;
        if let Some(temporary) = &self.temporary {
            rustix::fs::renameat(folder, &**temporary, folder, &**name)?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Drop for PartialFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = rustix::fs::unlinkat(&self.destination.folder, &**temporary, AtFlags::empty());
        }
    }
}

fn is_link(folder: &OwnedFd, name: &str) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
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
