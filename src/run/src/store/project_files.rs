//! Which files belong to a project: all but rgpu's own state and those that git would ignore if the
//! project's folder were a repository of its own. A `.gitignore` above it does not count. Works
//! without git.

use std::iter;
use std::path::Path;

use ignore::{DirEntry, WalkBuilder};
use rgpu_model::ignore_files::EnteredFolders;

/// Walks the files of the project in `root`. The last item is an error if a folder was left out
/// because one of its ignore files is no file that can be read.
pub fn walk(root: &Path) -> impl Iterator<Item = Result<DirEntry, ignore::Error>> {
    let folders = EnteredFolders::default();
    let entered = folders.clone();
    let mut walker = WalkBuilder::new(root);
    walker.hidden(false).ignore(false).parents(false).require_git(false);
    walker.filter_entry(move |entry| {
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        entry.file_name() != ".git"
            && entry.file_name() != ".rgpu"
            && (!is_folder || entered.may_enter(entry.path()))
    });
    // The filter is not asked about the root.
    let found = folders.may_enter(root).then(|| walker.build());
    let end = iter::once_with(move || folders.finish());
    let refused = end.filter_map(|end| end.err().map(|e| Err(ignore::Error::from(e))));
    found.into_iter().flatten().chain(refused)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_folder_whose_ignore_file_has_no_end_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("a"), "x").unwrap();
        let walked = || -> Result<usize, String> {
            let entries: Result<Vec<_>, _> = walk(dir.path()).collect();
            entries.map(|entries| entries.len()).map_err(|e| e.to_string())
        };
        assert_eq!(walked(), Ok(3));
        for folder in [inner.as_path(), dir.path()] {
            symlink("/dev/zero", folder.join(".gitignore")).unwrap();
            let error = walked().unwrap_err();
            assert!(error.contains("it is not a regular file"), "{error}");
        }
    }
}
