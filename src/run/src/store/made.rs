//! Which run folders rgpu has made for this user on this machine. A project can bring run folders
//! with it, and their records say what their author likes. So rgpu removes by itself only a folder
//! whose mark is in this list, which lies with the user's own data, outside of all projects.
//!
//! A mark is the folder's inode and time of birth, so a copy of a made folder is not a made one. A
//! folder that moves within its file system stays known. Where a file system keeps no time of
//! birth, the inode and the name decide.

#![expect(clippy::disallowed_methods, reason = "rgpu's own data folder")]

use std::collections::HashSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rgpu_protocol::Digest;

use super::atomic;
use rgpu_model::beneath::Folder;

/// The hexadecimal digits of a mark.
const MARK_DIGITS: usize = 32;

/// The list of the folders that rgpu made for this user on this machine.
#[derive(Clone, Debug)]
pub struct MadeFolders {
    file: PathBuf,
}

impl MadeFolders {
    /// The list in the user's data folder.
    pub fn in_data(data: &Path) -> Self {
        Self { file: data.join("made-folders") }
    }

    /// Adds a folder that was just made.
    pub(super) fn add(&self, folder: &Folder) -> io::Result<()> {
        atomic::make_private_folder(self.file.parent().unwrap_or(Path::new(".")))?;
        let mut options = fs::File::options();
        let mut file = options.append(true).create(true).mode(0o600).open(&self.file)?;
        file.write_all(format!("{}\n", mark(folder)?).as_bytes())
    }

    /// The marks of all folders of the list; none if it cannot be read.
    pub(super) fn marks(&self) -> HashSet<String> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The mark of a folder.
pub(super) fn mark(folder: &Folder) -> io::Result<String> {
    let (inode, born) = folder.identity()?;
    let name = match born {
        Some(_) => "",
        None => folder.path().file_name().and_then(|name| name.to_str()).unwrap_or_default(),
    };
    let digest = Digest::sha256(format!("{inode} {born:?} {name}").as_bytes());
    Ok(digest.as_str().chars().take(MARK_DIGITS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_known_where_it_was_made_and_its_copy_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let list = MadeFolders::in_data(&dir.path().join("data"));
        let root = Folder::open(dir.path()).unwrap();
        let made = root.new_folder("one").unwrap();
        let is_known =
            |name: &str| list.marks().contains(&mark(&root.folder(name).unwrap()).unwrap());
        assert!(!is_known("one"));
        list.add(&made).unwrap();
        assert!(is_known("one"));
        root.new_folder("two").unwrap();
        assert!(!is_known("two"));
        // What comes with a repository has the name, and not the folder.
        root.rename("one", "moved").unwrap();
        root.new_folder("one").unwrap();
        assert!(!is_known("one"));
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&list.file).unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }
}
