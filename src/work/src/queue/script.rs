//! Chooses the program that runs a script.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Interpreters by the words for `--lang` and by file extensions.
const INTERPRETERS: &[(&str, &str)] = &[
    ("sh", "sh"),
    ("bash", "bash"),
    ("zsh", "zsh"),
    ("shell", "sh"),
    ("py", "python3"),
    ("python", "python3"),
];

/// The interpreter of a script with its arguments: the word of `lang`, or the line `#!` as the
/// kernel reads it, or the extension of its file. `None` if nothing tells.
pub fn interpreter_of(
    bytes: &[u8],
    lang: Option<&str>,
    extension: Option<&str>,
) -> Option<Vec<OsString>> {
    let by_word = |word: &str| {
        let word = word.to_lowercase();
        let found = INTERPRETERS.iter().find(|(known, _)| *known == word);
        found.map(|(_, program)| vec![OsString::from(program)])
    };
    match lang {
        Some(lang) => by_word(lang),
        None => shebang(bytes).or_else(|| by_word(extension?)),
    }
}

/// The program of the first line, and at most one argument: all that follows.
fn shebang(bytes: &[u8]) -> Option<Vec<OsString>> {
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = line.trim_ascii();
    let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let (program, argument) = (&line[..end], line[end..].trim_ascii());
    if program.is_empty() || line.contains(&0) {
        return None;
    }
    let words = [program, argument].into_iter().filter(|word| !word.is_empty());
    Some(words.map(|word| OsString::from_vec(word.to_vec())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_first_line_and_that_over_the_name() {
        let words = |bytes: &[u8], lang, extension| interpreter_of(bytes, lang, extension);
        let python = Some(vec![OsString::from("python3")]);
        assert_eq!(words(b"#!/bin/sh\n", Some("py"), None), python);
        assert_eq!(words(b"echo\n", None, Some("PY")), python);
        let line = b"#! /usr/bin/env  -S python3 -u \nprint()";
        let want = ["/usr/bin/env", "-S python3 -u"].map(OsString::from);
        assert_eq!(words(line, None, Some("sh")), Some(want.into()));
        assert_eq!(words(b"#!\n", None, None), None);
        assert_eq!(words(b"echo\n", None, Some("txt")), None);
        assert_eq!(words(b"", Some("cobol"), None), None);
    }
}
