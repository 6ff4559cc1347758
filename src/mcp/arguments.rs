//! Checks the arguments of tools before they become words of a command line.

use std::path::Path;

use serde_json::{Map, Value};

use super::McpContext;
use crate::error::{Exit, Failure, Result};

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

/// Checks a word that stands alone on a command line: a flag in its place would be another command.
pub(super) fn check_word(name: &str, word: &str) -> Result<()> {
    match word.starts_with('-') || word.is_empty() || word.contains('\0') {
        true => Err(wrong(format!("`{name}`: `{word}` is no value"))),
        false => Ok(()),
    }
}

/// Checks the name of a run or a file. A file must be in the project or among its runs, also where
/// a link leads.
pub(super) fn check_place(context: &McpContext, name: &str, text: &str) -> Result<()> {
    check_word(name, text)?;
    let path = context.project.join(text);
    let Ok(real) = path.canonicalize() else {
        // No file: the id of a run, the name of a kernel, or a mistake that the command tells.
        return match text.contains("..") || Path::new(text).is_absolute() {
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

fn outside(name: &str, text: &str) -> Failure {
    wrong(format!("`{name}`: `{text}` is outside of the project"))
        .hint("start `rgpu mcp` in the folder with the file, or copy the file into the project")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_project_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        std::fs::create_dir_all(project.join("kernels")).unwrap();
        std::fs::write(project.join("kernels/a.cu"), "").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", project.join("linked")).unwrap();
        let context = McpContext {
            program: "rgpu".into(),
            runs: project.join("artifacts/runs"),
            scratch: dir.path().join("scratch"),
            project,
        };
        for fine in ["kernels/a.cu", "vecadd", "latest~1", "20261121", "kernels/missing.cu"] {
            check_place(&context, "kernel", fine).unwrap();
        }
        for wrong in ["/etc/passwd", "linked", "../x", "kernels/../../x", "--yes", "", "/none"] {
            assert!(check_place(&context, "kernel", wrong).is_err(), "{wrong}");
        }
    }
}
