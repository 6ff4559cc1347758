//! The files with ignore rules that a walk of a folder reads by itself.
//!
//! The walk opens them as they are: a pipe would block it, and a device would never end. So each
//! folder's are looked at before the walk enters it. A link counts as the file that it leads to;
//! an empty one is refused there, since files of `/proc` say that they are empty.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FileType, Stat, lstat, stat};

use crate::regular_file;

/// The most bytes of a file with ignore rules: rules take a thousand times their bytes of memory.
pub const MAX_RULES_BYTES: u64 = 128 << 10;

/// The most bytes of all such files of a walk.
const MAX_WALK_BYTES: u64 = 2 << 20;

/// The files of a folder that walks read.
const NAMES: [&str; 3] = [".gitignore", ".rgpuignore", ".git/info/exclude"];

/// Checks the folders that a walk enters, and keeps the first error: a walk can only leave a
/// folder out.
#[derive(Clone, Debug, Default)]
pub struct EnteredFolders {
    refused: Arc<Mutex<Option<io::Error>>>,
    /// The bytes of rules in the folders so far.
    bytes: Arc<AtomicU64>,
}

impl EnteredFolders {
    /// Whether a walk may read the ignore files of this folder. If not, [`Self::finish`] says why.
    pub fn may_enter(&self, folder: &Path) -> bool {
        match check_folder(folder).and_then(|bytes| self.count(bytes, folder)) {
            Ok(()) => true,
            Err(e) => {
                self.refused.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                false
            }
        }
    }

    /// Counts the rules of a folder.
    fn count(&self, bytes: u64, folder: &Path) -> io::Result<()> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= MAX_WALK_BYTES {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "the ignore files up to those of `{}` are larger than {} MiB together",
            folder.display(),
            MAX_WALK_BYTES >> 20
        )))
    }

    /// Ends the walk.
    ///
    /// # Errors
    /// A folder was left out, since one of its ignore files cannot be read.
    pub fn finish(&self) -> io::Result<()> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
        refused.map_or(Ok(()), Err)
    }
}

/// Checks the ignore files of a folder. Returns their bytes.
fn check_folder(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0_u64;
    for name in NAMES {
        bytes = bytes.saturating_add(check(&folder.join(name))?);
    }
    // In a further work tree, `.git` is a file, and rules are where it leads.
    let pointer = folder.join(".git");
    let is_file = |stat: Stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !stat(&pointer).is_ok_and(is_file) {
        return Ok(bytes);
    }
    let Some(git_dir) = first_line(&pointer)? else { return Ok(bytes) };
    let Some(git_dir) = git_dir.strip_prefix("gitdir: ").map(PathBuf::from) else {
        return Ok(bytes);
    };
    let Some(common_dir) = first_line(&git_dir.join("commondir"))? else { return Ok(bytes) };
    // As the walk takes it: only a path that begins with `.` is relative to `git_dir`.
    let common_dir =
        if common_dir.starts_with('.') { git_dir.join(common_dir) } else { common_dir.into() };
    Ok(bytes.saturating_add(check(&common_dir.join("info/exclude"))?))
}

/// The first line of a small file; `None` without one.
fn first_line(path: &Path) -> io::Result<Option<String>> {
    check(path)?;
    // A walk stops at this line, whatever comes after it.
    let Ok(bytes) = regular_file::read(path, MAX_RULES_BYTES) else { return Ok(None) };
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
    Ok(Some(line.into_owned()))
}

/// Checks that a file with ignore rules, if there is one, is a regular file of at most
/// [`MAX_RULES_BYTES`]. Returns its bytes.
///
/// # Errors
/// It is not.
pub fn check(path: &Path) -> io::Result<u64> {
    // What cannot be looked at cannot be read either.
    let (Ok(entry), Ok(file)) = (lstat(path), stat(path)) else { return Ok(0) };
    let is_link = FileType::from_raw_mode(entry.st_mode) == FileType::Symlink;
    let bytes = u64::try_from(file.st_size).unwrap_or(u64::MAX);
    let why = if FileType::from_raw_mode(file.st_mode) != FileType::RegularFile {
        "it is not a regular file"
    } else if bytes > MAX_RULES_BYTES {
        "it is larger than 128 KiB"
    } else if is_link && file.st_size == 0 {
        "it is a link to an empty file"
    } else {
        return Ok(bytes);
    };
    Err(io::Error::other(format!("rgpu does not read `{}`: {why}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_ignore_files_of_a_walk_have_a_limit_together() {
        let dir = tempfile::tempdir().unwrap();
        let folders = EnteredFolders::default();
        let rules = "x\n".repeat(64 << 10);
        for number in 0..17 {
            let folder = dir.path().join(number.to_string());
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(".gitignore"), &rules).unwrap();
            assert_eq!(folders.may_enter(&folder), number < 16);
        }
        let error = folders.finish().unwrap_err().to_string();
        assert!(error.ends_with("16` are larger than 2 MiB together"), "{error}");
    }

    #[test]
    fn a_folder_is_entered_only_if_its_ignore_files_end() {
        let dir = tempfile::tempdir().unwrap();
        let entered = |folder: &Path| {
            let folders = EnteredFolders::default();
            let may_enter = folders.may_enter(folder);
            let end = folders.finish().map_err(|e| e.to_string());
            assert_eq!(may_enter, end.is_ok());
            end
        };
        let folder = dir.path();
        assert_eq!(entered(folder), Ok(()));
        fs::write(folder.join("rules"), "target\n").unwrap();
        symlink("rules", folder.join(".gitignore")).unwrap();
        symlink("nowhere", folder.join(".rgpuignore")).unwrap();
        assert_eq!(entered(folder), Ok(()));
        fs::write(folder.join("rules"), "").unwrap();
        assert!(entered(folder).unwrap_err().contains("a link to an empty file"));
        fs::remove_file(folder.join(".gitignore")).unwrap();
        symlink("/dev/zero", folder.join(".gitignore")).unwrap();
        assert!(entered(folder).unwrap_err().contains("not a regular file"));
        fs::remove_file(folder.join(".gitignore")).unwrap();
        fs::write(folder.join(".gitignore"), "x".repeat((128 << 10) + 1)).unwrap();
        assert!(entered(folder).unwrap_err().contains("larger than 128 KiB"));
        fs::write(folder.join(".gitignore"), "").unwrap();
        assert_eq!(entered(folder), Ok(()));
        // A further work tree.
        let git_dir = folder.join("elsewhere");
        fs::create_dir_all(git_dir.join("info")).unwrap();
        fs::write(folder.join(".git"), format!("gitdir: {}\n", git_dir.display())).unwrap();
        assert_eq!(entered(folder), Ok(()));
        fs::write(git_dir.join("commondir"), b".\n\xff").unwrap();
        symlink("/dev/zero", git_dir.join("info/exclude")).unwrap();
        assert!(entered(folder).unwrap_err().contains("info/exclude"));
    }
}
