//! Which files belong to a project: all but rgpu's own state and those that git would ignore if the
//! project's folder were a repository of its own. A `.gitignore` above it does not count. Works
//! without git.

use std::path::Path;

use ignore::WalkBuilder;

/// A walker, configured for the files of the project in `root`.
pub fn walker(root: &Path) -> WalkBuilder {
    let mut walker = WalkBuilder::new(root);
    walker.hidden(false).ignore(false).parents(false).require_git(false);
    walker.filter_entry(|entry| entry.file_name() != ".git" && entry.file_name() != ".rgpu");
    walker
}
