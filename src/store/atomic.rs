//! The one place that writes files: to a temporary name beside the target, then rename.
//!
//! A crash leaves the old file or the new one, never half of one. What only this machine has (a
//! user's own file, a secret) is on its disk when it has its name; what a host has, too, is not
//! waited for here: [`crate::remote::Fetched`] says of which files a host may then drop its own.

use std::fs::{self, File};
use std::io::{self, IoSlice, Write};
use std::path::Path;

/// Writes `bytes` as `path` in one step, creating the folders above it.
///
/// # Errors
/// Any error of the file system; the temporary file is removed.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    unnamed(parent(path)?, bytes)?.name(path)
}

/// As [`write()`], with what `parts` are one after the other.
///
/// # Errors
/// As [`write()`].
pub fn write_parts<'p>(path: &Path, parts: impl IntoIterator<Item = &'p [u8]>) -> io::Result<()> {
    let folder = parent(path)?;
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(folder)?;
    let mut slices: Vec<IoSlice<'_>> = parts.into_iter().map(IoSlice::new).collect();
    let mut left = slices.as_mut_slice();
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match file.as_file_mut().write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    set_default_mode(file.as_file())?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// A file that is written and has no name of its own yet. It is removed unless it gets one.
#[derive(Debug)]
pub struct UnnamedFile(tempfile::TempPath);

/// Writes `bytes` into a folder, creating it where needed, under a temporary name.
///
/// # Errors
/// Any error of the file system; the temporary file is removed.
pub fn unnamed(folder: &Path, bytes: &[u8]) -> io::Result<UnnamedFile> {
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(folder)?;
    // NamedTempFile is 0600; a run folder's files are readable like any other.
    set_default_mode(file.as_file())?;
    file.write_all(bytes)?;
    Ok(UnnamedFile(file.into_temp_path()))
}

impl UnnamedFile {
    /// Gives the file its name, in the folder that it lies in; what had that name is replaced.
    ///
    /// # Errors
    /// Any error of the file system; the file is removed.
    pub fn name(self, path: &Path) -> io::Result<()> {
        self.0.persist(path).map_err(|e| e.error)
    }
}

/// Writes a new file in one step with what `fill` puts into it; one that is there stays as it is.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or any error of the file system; the temporary file is removed.
pub fn write_new(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let folder = parent(path)?;
    let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(folder)?;
    fill(file.as_file_mut())?;
    set_default_mode(file.as_file())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|e| e.error)?;
    Ok(())
}

/// Writes a file that only its owner may read (secrets, the user's remotes).
///
/// # Errors
/// As [`write()`].
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = parent(path)?;
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Waits until nobody else has the turn to read a file, change it and write it anew; whoever has it
/// gives it back by dropping this. A file system without locks lets everyone.
///
/// The folder above the file is what is locked: the file itself is another one each time.
///
/// # Errors
/// The folder cannot be made or opened.
pub fn turn(path: &Path) -> io::Result<File> {
    let folder = parent(path)?;
    fs::create_dir_all(folder)?;
    let turn = File::open(folder)?;
    let _ = turn.lock();
    Ok(turn)
}

fn parent(path: &Path) -> io::Result<&Path> {
    path.parent()
        .map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p })
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a file's path"))
}

#[cfg(unix)]
fn set_default_mode(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn set_default_mode(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.json");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn parts_are_written_one_after_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let parts: Vec<Vec<u8>> = (0..3000_u32).map(|n| n.to_string().into_bytes()).collect();
        for count in [0, 1, 3000] {
            write_parts(&path, parts[..count].iter().map(Vec::as_slice)).unwrap();
            assert_eq!(fs::read(&path).unwrap(), parts[..count].concat());
        }
        write_parts(&path, [b"".as_slice(), b"x", b""]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }

    #[test]
    #[cfg(unix)]
    fn private_files_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        write_private(&path, b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
