//! Source code to execute instead of a command: a file, the text of `--code`, or standard input.

use std::path::{Path, PathBuf};

use super::language::{Language, by_name, by_text, by_word};
use super::{ExecError, ScriptEnv};
use crate::kernel::is_private;
use rgpu_model::agent_files;
use rgpu_model::error::shell_word;
use rgpu_model::regular_file::{self, MAX_SOURCE_BYTES};

/// The source of a snippet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnippetInput {
    /// A file on this machine, as typed.
    File(PathBuf),
    /// The text of `--code`.
    Code(String),
    /// The content of standard input.
    Stdin(Vec<u8>),
}

/// Source code in a known language.
#[derive(Clone)]
pub struct Snippet {
    /// The file's name, or a generated one; compilers print it.
    pub name: String,
    /// The source code, not necessarily UTF-8.
    pub source: Vec<u8>,
    /// The file's path as typed, if it is a file.
    pub typed_path: Option<PathBuf>,
    /// The file's absolute path, if it is a file.
    pub absolute_path: Option<PathBuf>,
    /// The language of the source code.
    pub language: &'static dyn Language,
    /// The environment of a Python script.
    pub script_env: ScriptEnv,
}

impl std::fmt::Debug for Snippet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snippet({}, {})", self.name, self.language.name())
    }
}

impl Snippet {
    /// Reads a snippet. Its language is `lang` if given, else detected from its name or text.
    pub fn read(input: SnippetInput, lang: Option<&str>, cwd: &Path) -> Result<Self, ExecError> {
        let (text, path, what) = match input {
            SnippetInput::File(path) => {
                let full = cwd.join(&path);
                let text = read_file(&full)
                    .map_err(|source| ExecError::Unreadable { path: path.clone(), source })?;
                (text, Some(path), "")
            }
            SnippetInput::Code(code) => (code.into_bytes(), None, "the text of `--code`"),
            SnippetInput::Stdin(text) => (text, None, "standard input"),
        };
        if text.iter().all(u8::is_ascii_whitespace) {
            let name = path.map_or_else(|| what.to_owned(), |p| format!("`{}`", p.display()));
            return Err(ExecError::Empty { what: name });
        }
        let language = match (lang, &path) {
            (Some(word), _) => by_word(word)?,
            (None, Some(path)) => {
                by_name(path).or_else(|| by_text(&text)).ok_or_else(|| ExecError::NoLanguage {
                    name: path.display().to_string(),
                    binary: text.starts_with(b"\x7fELF"),
                })?
            }
            (None, None) => by_text(&text).ok_or(ExecError::UnknownSnippetLanguage { what })?,
        };
        let name = match path.as_ref().and_then(|p| p.file_name()).and_then(|n| n.to_str()) {
            Some(name) => name.to_owned(),
            None => format!("snippet.{}", language.names()[0]),
        };
        let absolute_path = path.as_ref().map(|p| cwd.join(p));
        let script_env = if language.name() == "Python" {
            let utf8 = String::from_utf8_lossy(&text);
            ScriptEnv::find(&utf8, path.as_deref(), cwd)
                .map_err(|source| ExecError::Script { name: name.clone(), source })?
        } else {
            ScriptEnv::default()
        };
        Ok(Self { name, source: text, typed_path: path, absolute_path, language, script_env })
    }

    /// The source as text, for languages that require UTF-8.
    pub fn utf8(&self) -> Result<&str, ExecError> {
        std::str::from_utf8(&self.source).map_err(|error| ExecError::NotText {
            name: self.name.clone(),
            language: self.language.name(),
            at: error.valid_up_to(),
        })
    }

    /// The snippet as the user typed it, quoted for a shell; `FILE` if it is not a file.
    pub fn typed_argument(&self) -> String {
        self.typed_path
            .as_ref()
            .map_or_else(|| "FILE".to_owned(), |path| shell_word(path.display()))
    }

    /// The name without its extension.
    pub fn stem(&self) -> &str {
        self.name.rsplit_once('.').map_or(self.name.as_str(), |(stem, _)| stem)
    }
}

/// The text of a file that the user named: a regular one, or one of `/dev`, as a shell's `<(…)` is.
/// One that an agent named is opened without following a link, and is no private one.
pub(super) fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    if path.starts_with("/dev") {
        return regular_file::read_from(agent_files::open_named(path)?, MAX_SOURCE_BYTES);
    }
    if agent_files::inner(path).is_some_and(|inner| is_private(&inner)) {
        return Err(std::io::Error::other("it looks like a private file"));
    }
    agent_files::read(path, MAX_SOURCE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected_language(text: &str) -> Option<&'static str> {
        let read = Snippet::read(SnippetInput::Stdin(text.into()), None, Path::new("/"));
        read.ok().map(|snippet| snippet.language.name())
    }

    #[test]
    fn a_command_line_names_a_snippet_as_it_was_typed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("my kern.cu"), "int main() {}").unwrap();
        let read =
            |input| Snippet::read(input, Some("cu"), folder.path()).unwrap().typed_argument();
        assert_eq!(read(SnippetInput::File("./my kern.cu".into())), "'./my kern.cu'");
        assert_eq!(read(SnippetInput::Code("int main() {}".to_owned())), "FILE");
    }

    #[test]
    fn what_comes_through_a_pipe_tells_its_language_by_its_text() {
        assert_eq!(detected_language("import torch\nprint(torch.__version__)\n"), Some("Python"));
        assert_eq!(detected_language("#!/usr/bin/env python3\nx = 1\n"), Some("Python"));
        assert_eq!(detected_language("#!/bin/sh\nls\n"), Some("shell"));
        assert_eq!(detected_language("#include <cstdio>\nint main() {}\n"), Some("CUDA C++"));
        assert_eq!(detected_language("__global__ void k() {}\n"), Some("CUDA C++"));
        assert_eq!(detected_language("use std::fs;\nfn main() {}\n"), Some("Rust"));
        assert_eq!(
            detected_language("#!/usr/bin/env cargo\n---\n---\nfn main() {}\n"),
            Some("Rust")
        );
        assert_eq!(detected_language("hello there\n"), None);
    }

    #[test]
    fn a_device_that_a_project_leads_to_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("zero.py")).unwrap();
        let read = Snippet::read(SnippetInput::File("zero.py".into()), None, dir.path());
        assert!(matches!(read, Err(ExecError::Unreadable { .. })));
    }

    #[test]
    fn a_file_of_no_language_a_program_and_an_empty_file_are_refused_each_in_its_words() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str, text: &[u8], lang| {
            std::fs::write(dir.path().join(name), text).unwrap();
            Snippet::read(SnippetInput::File(name.into()), lang, dir.path())
        };
        let failure_text = |result: Result<Snippet, ExecError>| {
            rgpu_model::error::Failure::from(result.unwrap_err()).to_string()
        };
        assert!(failure_text(read("a.txt", b"hello", None)).contains("`--lang rs`"));
        assert!(failure_text(read("app", b"\x7fELF\x02", None)).contains("compiled program"));
        assert!(failure_text(read("a.py", b" \n", None)).contains("`a.py` is empty"));
        assert!(
            failure_text(read("a.py", b"x", Some("pyhton"))).contains("did you mean `python`?")
        );
        assert_eq!(read("a.txt", b"x = 1", Some("py")).unwrap().language.name(), "Python");
    }
}
