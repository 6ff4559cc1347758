//! Checks the arguments of tools before they become words of a command line.

use std::path::{Component, Path};

use serde_json::{Map, Value};

use super::McpContext;
use crate::error::{Exit, Failure, Result};
use crate::own_command::check_word;

/// A wrong argument.
pub(super) fn wrong(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, "wrong_argument", what)
}

/// Reads the arguments of a tool as its type. Unknown fields are errors.
pub(super) fn read<T: serde::de::DeserializeOwned>(fields: Map<String, Value>) -> Result<T> {
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
        let path = error.path().to_string();
        let why = error.into_inner();
        match path.as_str() {
            "." => wrong(why.to_string()),
            path => wrong(format!("`{path}`: {why}")),
        }
    })
}

/// Checks the name of a run or a file. A file must be in the project or among its runs, also where
/// a link leads.
pub(super) fn check_place(context: &McpContext, name: &str, text: &str) -> Result<()> {
    check_word(name, text)?;
    check_inside(context, name, text)
}

/// Checks that a word names no file outside of the project.
fn check_inside(context: &McpContext, name: &str, text: &str) -> Result<()> {
    let path = context.project.join(text);
    let Ok(real) = path.canonicalize() else {
        // No file: the id of a run, the name of a kernel, or a mistake that the command tells.
        let is_outside =
            |part: Component| !matches!(part, Component::Normal(_) | Component::CurDir);
        return match Path::new(text).components().any(is_outside) {
            true => Err(outside(name, text)),
            false => Ok(()),
        };
    };
    let is_inside = |folder: &Path| folder.canonicalize().is_ok_and(|f| real.starts_with(f));
    match [&context.project, &context.runs, &context.scratch].into_iter().any(|f| is_inside(f)) {
        true => Ok(()),
        false => Err(outside(name, text)),
    }
}

/// Checks words of a command line that a client wrote: no flag that gives consent or overwrites, and
/// no file outside of the project, neither as a word nor as a flag's value.
pub(super) fn check_words(context: &McpContext, words: &[String]) -> Result<()> {
    for word in words {
        if word.contains('\0') {
            return Err(wrong("`arguments`: a word has a NUL"));
        }
        let flag = word.split('=').next().unwrap_or_default();
        if REFUSED_FLAGS.contains(&flag) {
            return Err(wrong(format!("`arguments`: `{flag}` is for a person at a terminal"))
                .hint("tell your user which command to type, and why"));
        }
        if is_short_flags(word) && word.contains('y') {
            return Err(wrong(format!("`arguments`: `{word}` may contain -y; write long flags")));
        }
        let values = word.match_indices('=').map(|(at, _)| &word[at + 1..]);
        let whole = (!word.starts_with('-')).then_some(&**word);
        for value in values.chain(whole) {
            if !value.is_empty() && !value.starts_with('-') {
                check_inside(context, "arguments", value)?;
            }
        }
    }
    Ok(())
}

/// Flags that stand for a person's word.
const REFUSED_FLAGS: &[&str] = &["--yes", "--accept-new", "--force", "--fresh"];

fn is_short_flags(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next() == Some('-') && letters.next().is_some_and(|letter| letter.is_ascii_alphabetic())
}

fn outside(name: &str, text: &str) -> Failure {
    wrong(format!("`{name}`: `{text}` is outside of the project"))
        .hint("start `rgpu mcp` in the folder with the file, or copy the file into the project")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(dir: &Path) -> McpContext {
        let project = dir.join("project");
        std::fs::create_dir_all(project.join("kernels")).unwrap();
        std::fs::write(project.join("kernels/a.cu"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", project.join("linked")).unwrap();
        McpContext {
            program: "rgpu".into(),
            runs: project.join("artifacts/runs"),
            scratch: dir.join("scratch"),
            project,
        }
    }

    #[test]
    fn words_give_no_consent_and_name_no_file_outside() {
        let dir = tempfile::tempdir().unwrap();
        let context = project(dir.path());
        let check = |word: &str| check_words(&context, &[word.to_owned()]);
        for fine in
            ["run", "--target=suite:*", "(4,8):(8,1)", "--concurrency=1..256:x2", "-n", "--"]
        {
            check(fine).unwrap();
        }
        for wrong in [
            "--yes",
            "-y",
            "-qy",
            "--accept-new",
            "--force",
            "--force=true",
            "/etc/passwd",
            "--file=/etc/passwd",
            "--file=linked",
            "key=../../x",
            "a\0b",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_files_of_the_project_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let context = project(dir.path());
        for fine in ["kernels/a.cu", "vecadd", "latest~1", "20261121", "kernels/missing.cu"] {
            check_place(&context, "kernel", fine).unwrap();
        }
        for wrong in ["/etc/passwd", "linked", "../x", "kernels/../../x", "--yes", "", "/none"] {
            assert!(check_place(&context, "kernel", wrong).is_err(), "{wrong}");
        }
    }
}
