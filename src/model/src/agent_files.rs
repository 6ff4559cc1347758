//! Files that a command may read that a coding agent started: those of the project, of its runs and
//! of its call.
//!
//! An agent may write the project's files while such a command runs. So a name that was checked is
//! checked once more by the open itself: the file is opened from its folder's descriptor, and no
//! part of its path below that folder may be a link. Without [`confine`] every file may be read.

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use crate::beneath::{self, Folder};
use crate::regular_file;

/// The folders of this process; `None` where no agent started it.
static FOLDERS: RwLock<Option<AgentFolders>> = RwLock::new(None);

/// The folders whose files a command of an agent may read.
#[derive(Clone, Debug, Default)]
pub struct AgentFolders {
    /// The folder of the project.
    pub project: PathBuf,
    /// Further folders that the agent may have filled: no link below them is followed.
    pub own: Vec<PathBuf>,
    /// Folders that the user or rgpu filled.
    pub trusted: Vec<PathBuf>,
}

/// What an error says of a file elsewhere.
const OUTSIDE: &str = "it is outside of the project, and an agent started this command";

/// From here on only files of these folders are read by this module's functions.
pub fn confine(mut folders: AgentFolders) {
    for list in [&mut folders.own, &mut folders.trusted] {
        let real: Vec<PathBuf> = list.iter().filter_map(|path| path.canonicalize().ok()).collect();
        list.extend(real);
    }
    let real = folders.project.canonicalize();
    folders.own.extend([Some(folders.project.clone()), real.ok()].into_iter().flatten());
    *FOLDERS.write().unwrap_or_else(PoisonError::into_inner) = Some(folders);
}

/// Files of this folder may be read too, or this file: it has been made by this process or is a
/// part of rgpu.
pub fn trust(path: &Path) {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let path = without_dots(&path);
    if let Some(folders) = &mut *FOLDERS.write().unwrap_or_else(PoisonError::into_inner) {
        folders.trusted.push(path);
    }
}

/// The folders of this process, if an agent started it.
fn folders() -> Option<AgentFolders> {
    FOLDERS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The project's folder, links resolved, if an agent started this process.
pub fn project() -> Option<PathBuf> {
    let folders = folders()?;
    Some(folders.project.canonicalize().unwrap_or(folders.project))
}

/// A path below the folder that it is in, if an agent started this process. Private files are told
/// by it: a folder above may have any name.
pub fn inner(path: &Path) -> Option<PathBuf> {
    folders()?.inner(path)
}

/// Opens a regular file for reading.
///
/// # Errors
/// I/O errors; it is no regular file. For a command of an agent: it is in none of its folders, or a
/// link leads to it.
pub fn open(path: &Path) -> io::Result<File> {
    folders().map_or_else(|| regular_file::open(path), |folders| folders.open(path))
}

/// Opens a file that the command line names. Without an agent it may also be a pipe, and no link is
/// followed below a held folder of the project ([`beneath::hold`]).
///
/// # Errors
/// I/O errors; for a command of an agent as [`open`].
#[expect(clippy::disallowed_methods, reason = "a file that the user named, who may follow links")]
pub fn open_named(path: &Path) -> io::Result<File> {
    match folders() {
        Some(folders) => folders.open(path),
        None => beneath::open_held(path).unwrap_or_else(|| File::open(path)),
    }
}

/// Reads a regular file of at most `max_bytes`.
///
/// # Errors
/// As [`open`]; it is larger.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    regular_file::read_from(open(path)?, max_bytes)
}

/// As [`read`], as text.
///
/// # Errors
/// As [`read`]; it is not UTF-8.
pub fn read_to_string(path: &Path, max_bytes: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, max_bytes)?);
    text.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Checks that a file or folder, links resolved, is in one of the folders. What does not exist is.
///
/// # Errors
/// It is elsewhere.
pub fn check(path: &Path) -> io::Result<()> {
    let (Some(folders), Ok(real)) = (folders(), path.canonicalize()) else { return Ok(()) };
    if folders.has(&real) { Ok(()) } else { Err(io::Error::other(OUTSIDE)) }
}

impl AgentFolders {
    /// Whether a resolved path is in one of the folders.
    fn has(&self, real: &Path) -> bool {
        self.own.iter().chain(&self.trusted).any(|folder| real.starts_with(folder))
    }

    /// The folder of an agent that a file is in, and its path there. `None`: it is in no such
    /// folder.
    fn own_file(&self, path: &Path) -> io::Result<Option<(PathBuf, PathBuf)>> {
        let path = without_dots(&std::path::absolute(path)?);
        let found = self.own.iter().find_map(|folder| {
            let inner = path.strip_prefix(folder).ok()?;
            Some((folder.clone(), inner.to_owned()))
        });
        Ok(found)
    }

    /// A path below the folder that it is in. `None`: it is in none.
    fn inner(&self, path: &Path) -> Option<PathBuf> {
        if let Some((_, inner)) = self.own_file(path).ok()? {
            return Some(inner);
        }
        let path = without_dots(&std::path::absolute(path).ok()?);
        let found = self.trusted.iter().find_map(|folder| path.strip_prefix(folder).ok());
        found.map(Path::to_owned)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        if let Some((folder, inner)) = self.own_file(path)? {
            return Folder::open(&folder)?.open_file(inner);
        }
        let path = without_dots(&std::path::absolute(path)?);
        if self.trusted.iter().any(|folder| path.starts_with(folder)) {
            regular_file::open(&path)
        } else {
            Err(io::Error::other(OUTSIDE))
        }
    }
}

/// A path without `..`, each of which takes away the name before it.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_of_the_project_are_opened_without_links_and_others_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for folder in ["project/sub", "outer", "trusted"] {
            fs::create_dir_all(top.join(folder)).unwrap();
        }
        for file in ["project/sub/a.py", "outer/key", "trusted/k.cu"] {
            fs::write(top.join(file), "text").unwrap();
        }
        symlink(top.join("outer/key"), top.join("project/key.py")).unwrap();
        symlink(top.join("outer"), top.join("project/linked")).unwrap();
        symlink(top.join("trusted/k.cu"), top.join("trusted/link.cu")).unwrap();
        let folders = AgentFolders {
            project: top.join("project"),
            own: vec![top.join("project")],
            trusted: vec![top.join("trusted")],
        };
        for fine in ["project/sub/a.py", "project/sub/../sub/a.py", "trusted/link.cu"] {
            folders.open(&top.join(fine)).unwrap();
        }
        for wrong in [
            "outer/key",
            "project/key.py",
            "project/linked/key",
            "project/../outer/key",
            "trusted/../outer/key",
            "project/sub",
        ] {
            assert!(folders.open(&top.join(wrong)).is_err(), "{wrong}");
        }
        let below = |path: &str| folders.inner(&top.join(path));
        assert_eq!(below("project/sub/../.ssh/x"), Some(".ssh/x".into()));
        assert_eq!(below("trusted/.env"), Some(".env".into()));
        assert_eq!(below("outer/key"), None);
        assert!(folders.has(&top.join("project/sub")));
        assert!(!folders.has(&top.join("outer")));
        assert!(!folders.has(&top.join("projects")));
        // Without an agent nothing is refused.
        assert!(open(&top.join("outer/key")).is_ok());
        assert!(open_named(&top.join("outer/key")).is_ok());
        assert!(check(&top.join("outer/key")).is_ok());
        assert_eq!(inner(&top.join("project/sub/a.py")), None);
    }
}
