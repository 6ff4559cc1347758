//! Checks the arguments of tools before they become words of a command line.

use std::path::{Component, Path};

use rmcp::model::JsonObject;
use serde_json::{Map, Value};

use super::McpContext;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::kernel::is_private;
use rgpu_work::own_command::check_argument;

/// A wrong argument.
pub(super) fn argument_error(what: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, "wrong_argument", what)
}

/// Reads the arguments of a tool as its type. Unknown fields are errors. `input` is their schema.
pub(super) fn read<T: serde::de::DeserializeOwned>(
    fields: Map<String, Value>,
    input: &JsonObject,
) -> Result<T> {
    serde_path_to_error::deserialize(Value::Object(fields)).map_err(|error| {
        let path = error.path().to_string();
        let why = error.into_inner().to_string();
        let missing = why.strip_prefix("missing field ").map(|name| name.trim_matches('`'));
        let failure = match (missing, path.as_str()) {
            (Some(name), ".") => argument_error(format!("`{name}` is missing")),
            (Some(name), path) => argument_error(format!("`{path}`: `{name}` is missing")),
            (None, ".") => argument_error(in_plain_words(&why)),
            (None, path) => argument_error(format!("`{path}`: {}", in_plain_words(&why))),
        };
        let values = missing.and_then(|name| values_of(input, name));
        match values {
            Some(values) => failure.hint(format!("one of {values}")),
            None => failure,
        }
    })
}

/// The values that an argument can have, if they are listed.
fn values_of(input: &JsonObject, name: &str) -> Option<String> {
    let field = input.get("properties")?.get(name)?;
    let listed = field["enum"].as_array();
    let described = || field["oneOf"].as_array()?.iter().map(|one| one.get("const")).collect();
    let values: Vec<&Value> = listed.map(|values| values.iter().collect()).or_else(described)?;
    let names: Vec<&str> = values.into_iter().filter_map(Value::as_str).collect();
    Some(names.join(", "))
}

/// A message of serde without the words of Rust.
fn in_plain_words(why: &str) -> String {
    let kinds = ["invalid type: ", "invalid value: ", "invalid length "];
    let mistake = kinds.iter().find_map(|kind| why.strip_prefix(kind)?.rsplit_once(", expected "));
    let Some((given, expected)) = mistake else {
        return why.replacen("unknown field", "there is no argument", 1).replacen(
            "unknown variant",
            "there is no value",
            1,
        );
    };
    let expected = match expected {
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        "a string" => "a text".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "u8" | "u32" | "u64" | "usize" => "a whole number from 0 on".to_owned(),
        other if other.starts_with("struct ") => "an object".to_owned(),
        other => other.replacen("an array", "a list", 1),
    };
    let given = match given.split_once(' ') {
        Some(("string", text)) => format!("the text {text}"),
        Some(("integer" | "boolean", value)) => value.to_owned(),
        Some(("floating", value)) => value.replacen("point ", "", 1),
        _ => match given {
            "sequence" => "a list".to_owned(),
            "map" => "an object".to_owned(),
            "null" => "null".to_owned(),
            length => format!("one of length {length}"),
        },
    };
    format!("{expected} is expected, not {given}")
}

/// Checks the name of a run or a file. A file must be in the project or among its runs, also where
/// a link leads, and not look private.
pub(super) fn check_inside_project(context: &McpContext, name: &str, text: &str) -> Result<()> {
    check_argument(name, text)?;
    check_inside(context, name, text)
}

/// Checks that a word names no file outside of the project, and no private one.
fn check_inside(context: &McpContext, name: &str, text: &str) -> Result<()> {
    let path = context.project.join(text);
    let Ok(real) = path.canonicalize() else {
        // No file: the id of a run, the name of a kernel, or a mistake that the command tells.
        let is_outside =
            |part: Component| !matches!(part, Component::Normal(_) | Component::CurDir);
        return if Path::new(text).components().any(is_outside) {
            Err(outside(name, text))
        } else {
            Ok(())
        };
    };
    let folders = [&context.project, &context.runs, &context.scratch];
    let inside = folders.into_iter().find_map(|folder| {
        let folder = folder.canonicalize().ok()?;
        real.strip_prefix(folder).ok()
    });
    match inside {
        None => Err(outside(name, text)),
        // The project may be a home folder.
        Some(inside) if is_private(inside) => {
            Err(argument_error(format!("`{name}`: `{text}` looks like a private file"))
                .hint("tell your user which file you need, and why"))
        }
        Some(_) => Ok(()),
    }
}

/// Checks words of a command line that a client wrote: no flag that gives consent or overwrites,
/// and no file outside of the project, neither as a word nor as a flag's value.
pub(super) fn check_words(context: &McpContext, words: &[String]) -> Result<()> {
    for word in words {
        if word.contains('\0') {
            return Err(argument_error("`arguments`: a word has a NUL"));
        }
        let flag = word.split('=').next().unwrap_or_default();
        if CONSENT_FLAGS.contains(&flag) {
            return Err(argument_error(format!(
                "`arguments`: `{flag}` is for a person at a terminal"
            ))
            .hint("tell your user which command to type, and why"));
        }
        if is_short_flags(word) && word.contains('y') {
            return Err(argument_error(format!(
                "`arguments`: `{word}` may contain -y; write long flags"
            )));
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

/// Flags by which a person agrees to something.
pub(super) const CONSENT_FLAGS: &[&str] =
    &["--yes", "--accept-new", "--host-key", "--force", "--fresh"];

fn is_short_flags(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next() == Some('-') && letters.next().is_some_and(|letter| letter.is_ascii_alphabetic())
}

fn outside(name: &str, text: &str) -> Failure {
    argument_error(format!("`{name}`: `{text}` is outside of the project"))
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
            started: rgpu_run::store::StartedRuns::in_cache(dir),
            project_folder: rgpu_model::beneath::Folder::open(&project).unwrap(),
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
    fn mistakes_are_told_in_plain_words_and_with_the_values_that_there_are() {
        #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only read")]
        struct TestInput {
            #[schemars(schema_with = "kinds")]
            kind: String,
            list: Option<Vec<String>>,
            pair: Option<[String; 2]>,
            count: Option<u32>,
        }
        fn kinds(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
            schemars::json_schema!({"type": "string", "enum": ["a", "b"]})
        }
        let input = crate::mcp::answer::input::<TestInput>();
        let told = |fields: Value| {
            let Value::Object(fields) = fields else { panic!("no object") };
            let failure = read::<TestInput>(fields, &input).unwrap_err();
            [&[failure.what][..], &failure.hints].concat().join("; ")
        };
        for (fields, expected) in [
            (serde_json::json!({}), "`kind` is missing; one of a, b"),
            (
                serde_json::json!({"kind": "a", "list": "x"}),
                "`list`: a list is expected, not the text \"x\"",
            ),
            (
                serde_json::json!({"kind": "a", "count": -1}),
                "`count`: a whole number from 0 on is expected, not `-1`",
            ),
            (
                serde_json::json!({"kind": "a", "count": "many"}),
                "`count`: a whole number from 0 on is expected, not the text \"many\"",
            ),
            (serde_json::json!({"kind": [1]}), "`kind`: a text is expected, not a list"),
            (
                serde_json::json!({"kind": "a", "pair": ["x"]}),
                "`pair`: a list of length 2 is expected, not one of length 1",
            ),
        ] {
            assert_eq!(told(fields.clone()), expected, "{fields}");
        }
        let unknown = told(serde_json::json!({"kind": "a", "knd": 1}));
        assert!(unknown.starts_with("`knd`: there is no argument `knd`, expected"), "{unknown}");
    }

    #[test]
    fn only_files_of_the_project_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let context = project(dir.path());
        for fine in ["kernels/a.cu", "vecadd", "latest~1", "20261121", "kernels/missing.cu"] {
            check_inside_project(&context, "kernel", fine).unwrap();
        }
        for wrong in ["/etc/passwd", "linked", "../x", "kernels/../../x", "--yes", "", "/none"] {
            assert!(check_inside_project(&context, "kernel", wrong).is_err(), "{wrong}");
        }
        // A home folder may be the project.
        std::fs::create_dir(context.project.join(".ssh")).unwrap();
        for private in [".env", ".ssh/id_rsa", "server.pem"] {
            std::fs::write(context.project.join(private), "").unwrap();
            assert!(check_inside_project(&context, "file", private).is_err(), "{private}");
        }
    }
}
