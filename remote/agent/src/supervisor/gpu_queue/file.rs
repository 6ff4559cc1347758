//! Opens files of the lock folder, which all users can write: follows no links, never blocks, and
//! reads at most a limit.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Longest description of a lock's holder, in characters.
pub(super) const MAX_HOLDER_CHARS: usize = 200;

/// Opens a file that all users can read and write, and creates it if it is missing.
pub(super) fn open_shared(path: &Path) -> io::Result<File> {
    // Kernels with `protected_regular` refuse O_CREAT for files of other users, so try without it
    // first.
    match open(path, true) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    match create_private(path) {
        Ok(file) => {
            file.set_permissions(fs::Permissions::from_mode(0o666))?;
            Ok(file)
        }
        // Another process created it first.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => open(path, true),
        Err(e) => Err(e),
    }
}

/// Creates a file that no other user can open yet.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
}

/// Opens a regular file that has a single name. Never blocks, even on a FIFO or a lease.
pub(super) fn open(path: &Path, write: bool) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    // A second name could make us write to another file of some user.
    if !meta.is_file() || meta.nlink() > 1 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the file has other names (hard links), or is not a regular file",
        ));
    }
    Ok(file)
}

/// Returns whether `path` still names `file`. A lock on a removed file protects nothing.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let named = fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    named.is_some() && named == file.metadata().map(|meta| (meta.dev(), meta.ino())).ok()
}

/// Returns the text of a file of at most `limit` bytes; `None` for a longer one or not UTF-8.
pub(super) fn read_text(file: &File, limit: usize) -> Option<String> {
    let bytes = read_start(file, limit + 1);
    (bytes.len() <= limit).then(|| String::from_utf8(bytes).ok()).flatten()
}

/// Returns the holder's description from a lock file, as one short line.
pub(super) fn read_holder(file: &File) -> String {
    one_line(&String::from_utf8_lossy(&read_start(file, 4 * MAX_HOLDER_CHARS)))
}

/// Removes control characters and cuts to [`MAX_HOLDER_CHARS`].
pub(super) fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_HOLDER_CHARS).collect()
}

fn read_start(file: &File, limit: usize) -> Vec<u8> {
    let mut bytes = vec![0; limit];
    let mut len = 0;
    while let Ok(n @ 1..) = file.read_at(&mut bytes[len..], len as u64) {
        len += n;
    }
    bytes.truncate(len);
    bytes
}
