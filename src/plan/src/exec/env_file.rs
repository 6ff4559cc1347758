//! `--env-file`: environment variables with secret values. They are sent in one unlogged message,
//! appear in no argv and no run folder, and are masked in the program's output.

#![expect(clippy::disallowed_methods, reason = "a file that the user named")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::ExecError;

/// Secrets of one program. They are sent in one frame, of at most 1 MiB.
const MAX_BYTES: u64 = 256 << 10;

/// Reads `NAME=VALUE` lines with comments, `export ` and shell quotes; nothing is substituted. The
/// last line of a name counts.
pub fn read(path: &Path) -> Result<BTreeMap<String, String>, ExecError> {
    let text = read_text(path)
        .map_err(|source| ExecError::Unreadable { path: path.to_owned(), source })?;
    let mut variables = BTreeMap::new();
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let failed = |problem| ExecError::EnvFile { path: path.to_owned(), line: at + 1, problem };
        let line = line.strip_prefix("export ").unwrap_or(line);
        let (name, value) = line.split_once('=').ok_or_else(|| failed("there is no `=`"))?;
        let name = name.trim();
        let has_valid_start = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !has_valid_start || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(failed("that is not a variable name"));
        }
        variables.insert(name.to_owned(), unquote(value.trim()).map_err(failed)?);
    }
    Ok(variables)
}

/// Reads a file or a pipe, such as `<(pass show x)`.
fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::other(format!("it is larger than {} KiB", MAX_BYTES >> 10)));
    }
    Ok(text)
}

fn unquote(value: &str) -> Result<String, &'static str> {
    let (quote, rest) = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => (quote, &value[1..]),
        // An unquoted value ends before ` #`.
        _ => {
            let end = value.find(" #").unwrap_or(value.len());
            return Ok(value[..end].trim_end().to_owned());
        }
    };
    let mut out = String::new();
    let mut chars = rest.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c == quote => {
                let after = chars.as_str().trim_start();
                return if after.is_empty() || after.starts_with('#') {
                    Ok(out)
                } else {
                    Err("something follows the closing quote")
                };
            }
            '\\' if quote == '"' => match chars.next() {
                Some('n') => out.push('\n'),
                Some('t') => out.push('\t'),
                Some(c @ ('"' | '\\' | '$' | '`')) => out.push(c),
                Some(c) => out.extend(['\\', c]),
                None => break,
            },
            c => out.push(c),
        }
    }
    Err("a quote is not closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<BTreeMap<String, String>, ExecError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".env");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn names_comments_quotes_and_exports_are_read_as_a_shell_would() {
        let env = of(
            "# a comment\nA=1\nexport B = two words # said\nC='$A #'\r\nD=\"x\\n\\\"y\"\nE=\nA=2\n",
        )
        .unwrap();
        let list: Vec<(&str, &str)> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let expected = [("A", "2"), ("B", "two words"), ("C", "$A #"), ("D", "x\n\"y"), ("E", "")];
        assert_eq!(list, expected);
    }

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert!(matches!(&error, ExecError::Unreadable { .. }), "{error}");
    }

    #[test]
    fn a_line_that_is_none_is_named_and_its_value_is_not_shown() {
        for (text, line, word) in [
            ("A=1\nhunter2\n", 2, "no `=`"),
            ("1A=hunter2\n", 1, "not a variable name"),
            ("A='hunter2\n", 1, "not closed"),
            ("A='x' hunter2\n", 1, "follows"),
        ] {
            let message = of(text).unwrap_err().to_string();
            assert!(
                message.contains(&format!("line {line} ")) && message.contains(word),
                "{message}"
            );
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
