//! Opening files below a folder without ever following a link out of it, and `*` patterns of
//! paths. Programs of a job write that folder, so nothing in it is trusted.

use std::fs::File;
use std::io;
use std::path::Path;

use rgpu_protocol::plan::valid_relative_path;
use rustix::fs::{Mode, OFlags, openat};

/// Opens the regular file `path` below `folder` for reading. Links, also on the way, are refused.
///
/// # Errors
/// When the path leaves the folder, goes through a link, or is no regular file.
pub(crate) fn open_regular(folder: &Path, path: &str) -> io::Result<File> {
    let refuse = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why.to_owned()));
    if !valid_relative_path(path) {
        return refuse("it does not stay in the folder");
    }
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut at = rustix::fs::open(folder, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    for part in folders.split('/').filter(|p| !p.is_empty()) {
        at = openat(&at, part, flags | OFlags::DIRECTORY, Mode::empty())?;
    }
    // A pipe in the place of a file must not block us.
    let file = File::from(openat(&at, name, flags | OFlags::NONBLOCK, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return refuse("it is no regular file");
    }
    Ok(file)
}

/// Whether `path` matches `pattern`: `*` stands for any characters but `/`, `**` for any.
pub(crate) fn matches(pattern: &str, path: &str) -> bool {
    match_bytes(pattern.as_bytes(), path.as_bytes(), &mut 100_000)
}

/// `fuel` bounds the work that a pattern of many stars can cause.
fn match_bytes(pattern: &[u8], path: &[u8], fuel: &mut u32) -> bool {
    if *fuel == 0 {
        return false;
    }
    *fuel -= 1;
    if let Some(rest) = pattern.strip_prefix(b"**") {
        // `**/` also stands for no folder at all.
        let bare = rest.strip_prefix(b"/").is_some_and(|rest| match_bytes(rest, path, fuel));
        return bare || (0..=path.len()).any(|n| match_bytes(rest, &path[n..], fuel));
    }
    if let Some(rest) = pattern.strip_prefix(b"*") {
        let span = path.iter().position(|b| *b == b'/').unwrap_or(path.len());
        return (0..=span).any(|n| match_bytes(rest, &path[n..], fuel));
    }
    match (pattern.split_first(), path.split_first()) {
        (None, None) => true,
        (Some((a, pattern)), Some((b, path))) => a == b && match_bytes(pattern, path, fuel),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_star_stays_in_a_folder_and_two_do_not() {
        for (pattern, path) in [
            ("raw/*.ncu-rep", "raw/a.ncu-rep"),
            ("**", "a/b"),
            ("**/*.ptx", "k.ptx"),
            ("a/**/b", "a/x/y/b"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [("raw/*", "raw/a/b"), ("*.ptx", "a.ptxx"), ("a", "b")] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        assert!(!matches(&"*a".repeat(200), &format!("{}b", "a".repeat(900))), "bounded work");
    }

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
