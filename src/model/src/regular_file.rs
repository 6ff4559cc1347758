//! Opens files at paths that somebody else chose: files of a run folder, of a project, of a
//! profile.
//!
//! Such a path may be a pipe, which blocks, or a device, which never ends. So only regular files
//! are opened, without blocking, and at most a given number of bytes is read. Files to be written
//! are opened by [`beneath`](crate::beneath), which follows no link.

#![expect(
    clippy::disallowed_methods,
    reason = "it opens files that the user named, and checks what they are"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Larger files are not read into memory, where nothing else limits them.
pub const MAX_FILE_BYTES: u64 = 2 << 30;

/// The largest source that is parsed: of a kernel, a program or a script.
pub const MAX_SOURCE_BYTES: u64 = 16 << 20;

/// The largest TOML file and the largest block of TOML in a script. A document takes many times the
/// memory of its text.
pub const MAX_TOML_BYTES: u64 = 128 << 10;

/// Opens a regular file for reading. Links are followed.
///
/// # Errors
/// I/O errors; it is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// Reads a regular file of at most `max_bytes`. Links are followed.
///
/// # Errors
/// As [`open`]; it is larger.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_from(open(path)?, max_bytes)
}

/// Reads an open file of at most `max_bytes`.
///
/// # Errors
/// I/O errors; it is larger.
pub fn read_from(file: File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // A growing file may be longer than it was.
    let is_too_large = file.metadata()?.len() > max_bytes
        || file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)? as u64 > max_bytes;
    if is_too_large { Err(too_large(max_bytes)) } else { Ok(bytes) }
}

/// Checks the size of a text of TOML that was read with something else.
pub fn check_toml_size(text: &str) -> io::Result<()> {
    if text.len() as u64 > MAX_TOML_BYTES { Err(too_large(MAX_TOML_BYTES)) } else { Ok(()) }
}

fn too_large(max_bytes: u64) -> io::Error {
    io::Error::other(match max_bytes {
        bytes if bytes % (1 << 20) == 0 => format!("it is larger than {} MiB", bytes >> 20),
        bytes if bytes % (1 << 10) == 0 => format!("it is larger than {} KiB", bytes >> 10),
        bytes => format!("it is larger than {bytes} bytes"),
    })
}

/// As [`read`], as text.
///
/// # Errors
/// As [`read`]; it is not UTF-8.
pub fn read_to_string(path: &Path, max_bytes: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, max_bytes)?);
    text.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_error_says_the_largest_size() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.toml");
        let text = " ".repeat(128 << 10);
        fs::write(&file, &text).unwrap();
        assert_eq!(read_to_string(&file, MAX_TOML_BYTES).unwrap(), text);
        check_toml_size(&text).unwrap();
        fs::write(&file, format!("{text} ")).unwrap();
        let error = read_to_string(&file, MAX_TOML_BYTES).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 128 KiB");
        let error = check_toml_size(&format!("{text} ")).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 128 KiB");
        assert_eq!(read(&file, 3).unwrap_err().to_string(), "it is larger than 3 bytes");
    }

    #[test]
    fn pipes_devices_and_large_files_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "text").unwrap();
        symlink(path("file"), path("link")).unwrap();
        symlink("/dev/zero", path("zero")).unwrap();
        symlink(path("missing"), path("dangling")).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), mode).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read_to_string(&path(name), 4).unwrap(), "text");
            assert!(read(&path(name), 3).is_err());
        }
        for name in ["zero", "pipe", "dangling", "."] {
            assert!(read(&path(name), MAX_FILE_BYTES).is_err(), "{name}");
        }
    }
}
