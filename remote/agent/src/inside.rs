//! Opens files below a folder without following links out of it. Programs of the job write to that
//! folder, so nothing in it is trusted.

use std::fs::File;
use std::io;
use std::path::Path;

use rgpu_protocol::plan::valid_relative_path;
use rustix::fs::{Mode, OFlags, openat};

/// Opens the regular file `path` below `folder` for reading. Refuses symbolic links anywhere in the
/// path.
pub(crate) fn open_regular(folder: &Path, path: &str) -> io::Result<File> {
    let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why.to_owned()));
    if !valid_relative_path(path) {
        return refuse("it is not a valid relative path");
    }
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut at = rustix::fs::open(folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    for part in folders.split('/').filter(|p| !p.is_empty()) {
        at = openat(&at, part, flags | OFlags::DIRECTORY, Mode::empty())?;
    }
    // A FIFO in the place of a file must not block the agent.
    let file = File::from(openat(&at, name, flags | OFlags::NONBLOCK, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return refuse("it is not a regular file");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_pipes_and_ways_out_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("work");
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        std::fs::write(folder.join("sub/good"), "g").unwrap();
        std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
        std::os::unix::fs::symlink("..", folder.join("up")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join("pipe"),
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(open_regular(&folder, "sub/good").is_ok());
        for bad in
            ["link", "up/secret", "../secret", "/etc/passwd", "pipe", "sub", "sub/../sub/good"]
        {
            assert!(open_regular(&folder, bad).is_err(), "{bad}");
        }
    }
}
