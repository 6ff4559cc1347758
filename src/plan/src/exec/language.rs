//! The languages of `rgpu exec`: one file each, and their table.
//!
//! A language has names, recognizes its source text, and makes a program of a snippet. A language
//! that is compiled on this machine makes a [`Package`] first.

use std::path::{Path, PathBuf};

use rgpu_protocol::HostFacts;

use super::{ExecError, Package, Snapshot, Snippet};
use crate::tool::Program;
use rgpu_model::error::nearest;

mod cuda;
mod python;
mod rust;
mod shell;

/// The inputs for making a program of a snippet.
#[derive(Debug)]
pub struct BuildTools<'a> {
    /// The host's facts; set for languages whose [`Language::needs_facts`] is true.
    pub facts: Option<&'a HostFacts>,
    /// The program that was compiled on this machine, or why there is none.
    pub built: Result<PathBuf, String>,
    /// The files of the mounts.
    pub mounts: &'a Snapshot,
    /// The arguments of the program itself.
    pub args: &'a [String],
    /// Time limit of each preparation step in seconds.
    pub timeout_s: u64,
    /// Whether the user agreed to fetch nvcc's wheels to the host.
    pub may_fetch_nvcc: bool,
}

/// A language that `rgpu exec` can run.
pub trait Language: Sync {
    /// The name shown to users.
    fn name(&self) -> &'static str;

    /// The values of `--lang`, the file extension first; all are accepted as file extensions
    /// too.
    fn names(&self) -> &'static [&'static str];

    /// Whether a text looks like this language.
    fn fits(&self, text: &str) -> bool;

    /// Whether the snippet has nothing to run: only kernels, which can be compiled.
    fn is_library(&self, _snippet: &Snippet) -> bool {
        false
    }

    /// Whether the host's facts are needed.
    fn needs_facts(&self) -> bool {
        false
    }

    /// The package to compile on this machine, if any.
    fn package(&self, _snippet: &Snippet) -> Result<Option<Package>, ExecError> {
        Ok(None)
    }

    /// Makes the program for the host.
    fn program(&self, snippet: &Snippet, tools: &BuildTools<'_>) -> Result<Program, ExecError>;
}

/// All languages, in the order in which a text is matched.
pub static LANGUAGES: &[&dyn Language] =
    &[&rust::Rust, &cuda::Cuda, &shell::Shell, &python::Python];

/// The language for a word of `--lang`.
pub(super) fn by_word(word: &str) -> Result<&'static dyn Language, ExecError> {
    let lower = word.to_lowercase();
    let found = LANGUAGES.iter().find(|l| l.names().contains(&lower.as_str()));
    found.copied().ok_or_else(|| {
        let words = LANGUAGES.iter().flat_map(|l| l.names().iter().copied());
        let near = nearest(&lower, words).into_iter().map(str::to_owned).collect();
        ExecError::UnknownLanguage { word: word.to_owned(), near }
    })
}

/// The language of a file's extension.
pub(super) fn by_name(path: &Path) -> Option<&'static dyn Language> {
    let extension = path.extension()?.to_str()?.to_lowercase();
    LANGUAGES.iter().copied().find(|l| l.names().contains(&extension.as_str()))
}

/// The first language that the text looks like.
pub(super) fn by_text(text: &[u8]) -> Option<&'static dyn Language> {
    let text = std::str::from_utf8(text).ok()?;
    LANGUAGES.iter().copied().find(|l| l.fits(text))
}

/// The program of the first line: `#!/usr/bin/env python3 -u` → `python3`.
fn interpreter(text: &str) -> Option<&str> {
    let mut words = text.lines().next()?.strip_prefix("#!")?.split_whitespace();
    let base = |word: &'_ str| word.rfind('/').map_or(0, |at| at + 1);
    let first = words.next()?;
    let program = &first[base(first)..];
    if program != "env" {
        return Some(program);
    }
    words.find(|word| !word.starts_with('-') && !word.contains('='))
}

/// Whether a line of the text begins with one of these words.
fn has_line(text: &str, starts: &[&str]) -> bool {
    text.lines().any(|line| starts.iter().any(|start| line.starts_with(start)))
}
