//! What is said of a file that a user named and that is not there: the same by every command, with
//! what may have been meant.

use std::path::{Path, PathBuf};

use regex::Regex;

use crate::error::{Exit, Failure, nearest};

/// Files that fit a pattern and are named at most.
const MAX_NAMED_FILES: usize = 3;

/// The failure for a file `what` that is not there.
pub(super) fn file(what: &str) -> Failure {
    hinted(Failure::new(Exit::Usage, "no_such_file", format!("there is no file `{what}`")), what)
}

/// The failure for `what`, which is neither a run nor a file.
pub(super) fn run_or_file(what: &str) -> Failure {
    let words = format!("there is neither a run nor a file `{what}`");
    let failure = hinted(Failure::new(Exit::Usage, "unknown_run", words), what);
    // A name with an ending is a file's.
    match Path::new(what).extension() {
        Some(_) => failure,
        None => failure.hint("`rgpu runs list` shows the runs here"),
    }
}

/// With the files that may have been meant.
pub(super) fn hinted(failure: Failure, what: &str) -> Failure {
    let path = Path::new(what);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let siblings = siblings(path);
    if what.contains(['*', '?']) {
        let fitting: Vec<String> = siblings
            .iter()
            .filter(|(sibling, _)| fits(&name, sibling))
            .map(|(_, path)| format!("`{}`", path.display()))
            .collect();
        return match fitting.as_slice() {
            [] => failure.hint("no file fits this pattern either"),
            [one] => failure.hint(format!(
                "a pattern in quotes is not expanded: leave the quotes out, or name {one}"
            )),
            all => failure.hint(format!(
                "a pattern in quotes is not expanded; it fits {} files: name one, such as {}",
                all.len(),
                all[..all.len().min(MAX_NAMED_FILES)].join(", ")
            )),
        };
    }
    let near = nearest(&name, siblings.iter().map(|(sibling, _)| sibling.as_str()));
    let near: Vec<String> = near
        .iter()
        .filter_map(|near| siblings.iter().find(|(sibling, _)| sibling == near))
        .map(|(_, path)| format!("`{}`", path.display()))
        .collect();
    match near.is_empty() {
        true => failure,
        false => failure.hint(format!("did you mean {}?", near.join(", "))),
    }
}

/// The files beside `path`, by name and as they would be typed, sorted.
fn siblings(path: &Path) -> Vec<(String, PathBuf)> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(listed).into_iter().flatten().flatten();
    let mut all: Vec<(String, PathBuf)> = entries
        .filter(|entry| entry.path().is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| (name.clone(), folder.join(name)))
        .collect();
    all.sort();
    all
}

/// Whether a file's name fits a shell's pattern of `*` and `?`.
fn fits(pattern: &str, name: &str) -> bool {
    let pattern = regex::escape(pattern).replace("\\*", ".*").replace("\\?", ".");
    Regex::new(&format!("^{pattern}$")).is_ok_and(|pattern| pattern.is_match(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_pattern_is_told_what_it_fits() {
        assert!(fits("*.ncu-rep", "a.ncu-rep") && fits("a?c", "abc"));
        assert!(!fits("*.ncu-rep", "a.ncu-repz") && !fits("a.c", "abc"));
        let folder = tempfile::tempdir().unwrap();
        let typed = |name: &str| folder.path().join(name).display().to_string();
        for name in ["a.ncu-rep", "b.ncu-rep", "one.cubin"] {
            std::fs::write(typed(name), "x").unwrap();
        }
        let several = file(&typed("*.ncu-rep")).hints.concat();
        assert!(several.contains("fits 2 files") && several.contains("b.ncu-rep"), "{several}");
        let one = file(&typed("*.cubin")).hints.concat();
        assert!(one.contains("leave the quotes out, or name") && one.contains("one.cubin"));
        assert!(file(&typed("*.xml")).hints.concat().contains("no file fits"));
        assert!(file(&typed("a.ncu-re")).hints.concat().contains("did you mean"));
    }
}
