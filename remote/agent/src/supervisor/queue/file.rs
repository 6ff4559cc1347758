//! Opens files of the lock folder, where other users put what they like: no link is followed, no
//! call blocks, and no more is read than a limit.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// The longest description of a lock's holder that is written or shown, in characters.
pub(super) const MAX_HOLDER_CHARS: usize = 200;

/// Opens a file that all users read and write, and makes it where it is missing.
pub(super) fn open_shared(path: &Path) -> io::Result<File> {
    // Kernels with `protected_regular` refuse O_CREAT for others' files, hence two ways.
    match open(path, true) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        other => return other,
    }
    match create_private(path) {
        Ok(file) => {
            file.set_permissions(fs::Permissions::from_mode(0o666))?;
            Ok(file)
        }
        // Somebody was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => open(path, true),
        Err(e) => Err(e),
    }
}

/// Makes a file that nobody else can open yet.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
}

/// Opens a regular file with a single name. Never waits, also not for a FIFO or a lease.
pub(super) fn open(path: &Path, write: bool) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32;
    let file = OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    // A second name would be a way to have somebody else's file written to.
    if !meta.is_file() || meta.nlink() > 1 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file of its own"));
    }
    Ok(file)
}

/// Whether `path` still leads to `file`. A lock on a file that was removed locks nothing.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let there = fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    there.is_some() && there == file.metadata().map(|meta| (meta.dev(), meta.ino())).ok()
}

/// The whole text of a file of at most `limit` bytes; `None` for any other.
pub(super) fn read_text(file: &File, limit: usize) -> Option<String> {
    let bytes = read_start(file, limit + 1);
    (bytes.len() <= limit).then(|| String::from_utf8(bytes).ok()).flatten()
}

/// Who holds a lock, as the holder wrote it: one short line.
pub(super) fn read_holder(file: &File) -> String {
    one_line(&String::from_utf8_lossy(&read_start(file, 4 * MAX_HOLDER_CHARS)))
}

/// Without control characters, and not too long.
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
