//! The message for a missing file that the user named, the same in every command, with suggestions.

#![expect(clippy::disallowed_methods, reason = "names beside a path that the user typed")]

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use regex::Regex;

use rgpu_model::error::{Exit, Failure, nearest, no_such_file, shell_word};
use rgpu_model::regular_file::{self, MAX_FILE_BYTES};

/// Files that match a pattern: how many the message names.
const MAX_NAMED_FILES: usize = 3;

/// The failure for a missing file.
pub(in crate::cli) fn file(path: &str) -> Failure {
    hinted(no_such_file(path), path)
}

/// The failure for a named file that cannot be opened or read: `unreadable`, unless there is none.
pub(in crate::cli) fn file_or(path: &Path, error: &Error, unreadable: Failure) -> Failure {
    if error.kind() == ErrorKind::NotFound {
        return file(&path.display().to_string());
    }
    unreadable.file(path.display()).cause(error)
}

/// The failure for a name that is neither a run nor a file.
pub(in crate::cli) fn run_or_file(name: &str) -> Failure {
    let message = format!("there is neither a run nor a file `{name}`");
    let failure = hinted(Failure::new(Exit::Usage, "unknown_run", message), name);
    // A name with an extension is surely a file.
    match Path::new(name).extension() {
        Some(_) => failure,
        None => failure.hint("`rgpu runs list` shows the runs here"),
    }
}

/// The failure for a source file, where a compiled one or a report is needed. `None` for other
/// files.
pub(in crate::cli) fn compiled_code(path: &str) -> Option<Failure> {
    let extension = Path::new(path).extension()?.to_str()?;
    if !["cu", "py"].contains(&extension) || !Path::new(path).is_file() {
        return None;
    }
    let what = format!("`{path}` is source code, and nothing is compiled or measured of it yet");
    let word = shell_word(path);
    let is_program = extension == "py"
        && !regular_file::read_to_string(Path::new(path), MAX_FILE_BYTES)
            .is_ok_and(|text| text.contains("def custom_kernel"));
    let profile = if is_program { "rgpu profile -- python3" } else { "rgpu profile" };
    Some(
        Failure::new(Exit::Usage, "usage", what)
            .hint(format!("rgpu build {word}"))
            .hint(format!("{profile} {word}")),
    )
}

/// Adds the names of similar files as a hint.
pub(in crate::cli) fn hinted(failure: Failure, what: &str) -> Failure {
    let path = Path::new(what);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let siblings = siblings(path);
    if what.contains(['*', '?']) {
        let matching: Vec<String> = siblings
            .iter()
            .filter(|(sibling, _)| matches_pattern(&name, sibling))
            .map(|(_, path)| format!("`{}`", path.display()))
            .collect();
        return match matching.as_slice() {
            [] => failure.hint("no file matches this pattern either"),
            [one] => failure.hint(format!(
                "a pattern in quotes is not expanded: leave the quotes out, or name {one}"
            )),
            all => failure.hint(format!(
                "a pattern in quotes is not expanded; it matches {} files: name one, such as {}",
                all.len(),
                all[..all.len().min(MAX_NAMED_FILES)].join(", ")
            )),
        };
    }
    let similar = nearest(&name, siblings.iter().map(|(sibling, _)| sibling.as_str()));
    let similar: Vec<String> = similar
        .iter()
        .filter_map(|similar| siblings.iter().find(|(sibling, _)| sibling == similar))
        .map(|(_, path)| format!("`{}`", path.display()))
        .collect();
    if similar.is_empty() {
        failure
    } else {
        failure.hint(format!("did you mean {}?", similar.join(", ")))
    }
}

/// The files beside `path`, as name and path, sorted.
fn siblings(path: &Path) -> Vec<(String, PathBuf)> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let listed_folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(listed_folder).into_iter().flatten().flatten();
    let mut all: Vec<(String, PathBuf)> = entries
        .filter(|entry| entry.path().is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| (name.clone(), folder.join(name)))
        .collect();
    all.sort();
    all
}

/// Whether a name matches a shell pattern of `*` and `?`.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    let pattern = regex::escape(pattern).replace("\\*", ".*").replace("\\?", ".");
    Regex::new(&format!("^{pattern}$")).is_ok_and(|pattern| pattern.is_match(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_pattern_is_told_what_it_fits() {
        assert!(matches_pattern("*.ncu-rep", "a.ncu-rep") && matches_pattern("a?c", "abc"));
        assert!(!matches_pattern("*.ncu-rep", "a.ncu-repz") && !matches_pattern("a.c", "abc"));
        let folder = tempfile::tempdir().unwrap();
        let typed = |name: &str| folder.path().join(name).display().to_string();
        for name in ["a.ncu-rep", "b.ncu-rep", "one.cubin"] {
            std::fs::write(typed(name), "x").unwrap();
        }
        let several = file(&typed("*.ncu-rep")).hints.concat();
        assert!(several.contains("matches 2 files") && several.contains("b.ncu-rep"), "{several}");
        let one = file(&typed("*.cubin")).hints.concat();
        assert!(one.contains("leave the quotes out, or name") && one.contains("one.cubin"));
        assert!(file(&typed("*.xml")).hints.concat().contains("no file matches"));
        assert!(file(&typed("a.ncu-re")).hints.concat().contains("did you mean"));
    }
}
