//! Writes files atomically: to a temporary name beside the target, then a rename.
//!
//! If rgpu is killed, the old or the new file is there, never half of one. [`write_new`] and
//! [`write_private`] also sync the file before the rename, so that it survives a power failure.
//! [`write()`], [`write_with`], [`write_parts`] and [`write_temporary`] do not: a command can make their files
//! again, or a host has them too. [`rgpu_remote::FetchOutcome`] says for which files the host may
//! drop its copy.

#![expect(clippy::disallowed_methods, reason = "files of the user's settings, data and cache")]

use std::fs::{self, DirBuilder, File};
use std::io::{self, BufWriter, IoSlice, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Writes `bytes` to `path` in one step, creating the folders above it.
///
/// # Errors
/// I/O errors; the temporary file is removed.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    write_temporary(parent(path)?, bytes)?.rename_to(path)
}

/// As [`write()`], with what `fill` writes in pieces.
pub fn write_with(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<()>,
) -> io::Result<()> {
    let folder = parent(path)?;
    make_folder(folder)?;
    let mut file = default_mode().tempfile_in(folder)?;
    let mut out = BufWriter::new(file.as_file_mut());
    fill(&mut out)?;
    out.flush()?;
    drop(out);
    TemporaryFile(file.into_temp_path()).rename_to(path)
}

/// As [`write()`], with the concatenation of `parts`.
pub fn write_parts<'p>(path: &Path, parts: impl IntoIterator<Item = &'p [u8]>) -> io::Result<()> {
    let folder = parent(path)?;
    make_folder(folder)?;
    let mut file = default_mode().tempfile_in(folder)?;
    let mut slices: Vec<IoSlice<'_>> = parts.into_iter().map(IoSlice::new).collect();
    let mut remaining = slices.as_mut_slice();
    IoSlice::advance_slices(&mut remaining, 0);
    while !remaining.is_empty() {
        match file.as_file_mut().write_vectored(remaining) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut remaining, written),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// A written file under a temporary name. It is removed unless it is renamed.
#[derive(Debug)]
pub struct TemporaryFile(tempfile::TempPath);

/// Writes `bytes` to a temporary file in a folder, creating the folder if needed.
///
/// # Errors
/// I/O errors; the temporary file is removed.
pub fn write_temporary(folder: &Path, bytes: &[u8]) -> io::Result<TemporaryFile> {
    make_folder(folder)?;
    let mut file = default_mode().tempfile_in(folder)?;
    file.write_all(bytes)?;
    Ok(TemporaryFile(file.into_temp_path()))
}

impl TemporaryFile {
    /// Renames the file to `path` in its folder, replacing an existing file.
    ///
    /// # Errors
    /// I/O errors; the temporary file is removed.
    pub fn rename_to(self, path: &Path) -> io::Result<()> {
        self.0.persist(path).map_err(|e| e.error)
    }
}

/// Creates a file in one step with the content that `fill` writes; never replaces an existing one.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], or other I/O errors; the temporary file is removed.
pub fn write_new(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let folder = parent(path)?;
    let mut file = default_mode().tempfile_in(folder)?;
    fill(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|e| e.error)?;
    Ok(())
}

/// Writes a file that only its owner may read (secrets, the user's remotes). So are the folders
/// above it that are missing.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = parent(path)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// Creates a folder of the user's own, and those above it that are missing, for the user alone
/// whatever the umask is. Takes other users' rights from a folder that is there.
pub fn make_private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let metadata = fs::metadata(folder)?;
    let mode = metadata.permissions().mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(folder, fs::Permissions::from_mode(mode & 0o700)),
    }
}

/// Waits for the lock under which `file` may be read, changed and rewritten; dropping the returned
/// handle releases it. On a file system without locks it does not wait.
///
/// The lock is on the file's folder, since each write replaces the file itself. A missing folder is
/// made for the user alone.
pub fn lock_parent_of(file: &Path) -> io::Result<File> {
    let folder = parent(file)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let lock = File::open(folder)?;
    let _ = lock.lock();
    Ok(lock)
}

fn parent(path: &Path) -> io::Result<&Path> {
    path.parent()
        .map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p })
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a file's path"))
}

/// Creates a folder, and those above it that are missing, so that nobody but the user can write to
/// them, whatever the umask is.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(folder)
}

/// Temporary files that others may read, if the user's umask lets them. tempfile's own mode is
/// 0600.
fn default_mode() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".writing-").permissions(fs::Permissions::from_mode(0o644));
    builder
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
    fn a_private_folder_is_for_its_owner_alone_also_if_it_was_not() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        for folder in [&open, &dir.path().join("new/inner")] {
            make_private_folder(folder).unwrap();
            assert_eq!(mode(folder), 0o700);
        }
    }

    #[test]
    fn private_files_are_for_their_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        write_private(&path, b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn folders_above_private_files_are_private_and_no_file_is_writable_by_others() {
        let dir = tempfile::tempdir().unwrap();
        let mode =
            |path: &str| fs::metadata(dir.path().join(path)).unwrap().permissions().mode() & 0o777;
        write_private(&dir.path().join("a/b/config.toml"), b"x").unwrap();
        drop(lock_parent_of(&dir.path().join("c/config.toml")).unwrap());
        assert_eq!([mode("a"), mode("a/b"), mode("c")], [0o700; 3]);
        write(&dir.path().join("d/e/file"), b"x").unwrap();
        write_parts(&dir.path().join("f/file"), [b"x".as_slice()]).unwrap();
        for path in ["d", "d/e", "d/e/file", "f", "f/file"] {
            assert_eq!(mode(path) & 0o022, 0, "{path}");
        }
    }
}
