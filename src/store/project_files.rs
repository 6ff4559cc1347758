//! Which files belong to a project: all but those that git would ignore and rgpu's own state. git
//! itself is not needed.

use std::path::Path;

use ignore::WalkBuilder;

/// A walk over the files of the project in `root`.
pub(crate) fn walk(root: &Path) -> WalkBuilder {
    let mut walk = WalkBuilder::new(root);
    walk.hidden(false).ignore(false).parents(false).require_git(false);
    walk.filter_entry(|entry| entry.file_name() != ".git" && entry.file_name() != ".rgpu");
    walk
}
