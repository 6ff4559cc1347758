//! The languages that `rgpu exec` runs: one file each, and their table.
//!
//! A language says which names it goes by, how its text looks, and what program a snippet becomes
//! on a host. One that is compiled on this machine gives a [`Package`] first.

use std::path::{Path, PathBuf};

use rgpu_protocol::HostFacts;

use super::{ExecError, Package, Snapshot, Snippet};
use crate::error::nearest;
use crate::tool::Program;

mod cuda;
mod python;
mod rust;
mod shell;

/// What a language has at hand to make a program.
#[derive(Debug)]
pub struct BuildTools<'a> {
    /// What is known of the host; there for languages that [`Language::asks`].
    pub facts: Option<&'a HostFacts>,
    /// The program that was compiled on this machine, or why there is none.
    pub built: Result<PathBuf, String>,
    /// What the mounts hold.
    pub mounts: &'a Snapshot,
    /// Its arguments.
    pub args: &'a [String],
    /// Seconds that each step before it may take.
    pub timeout_s: u64,
}

/// A language.
pub trait Language: Sync {
    /// As users know it.
    fn name(&self) -> &'static str;

    /// Words for `--lang`, the file extension first; all but whole names are extensions.
    fn words(&self) -> &'static [&'static str];

    /// Whether a text without a name is written in it.
    fn fits(&self, text: &str) -> bool;

    /// Whether there is nothing in it to run: kernels alone, which can be compiled.
    fn is_library(&self, _snippet: &Snippet) -> bool {
        false
    }

    /// Whether facts of the host are needed.
    fn asks(&self) -> bool {
        false
    }

    /// What is compiled on this machine, unless it must be compiled on the host.
    ///
    /// # Errors
    /// [`ExecError`] for a snippet that is wrong in itself.
    fn package(&self, _snippet: &Snippet) -> Result<Option<Package>, ExecError> {
        Ok(None)
    }

    /// The program on the host.
    ///
    /// # Errors
    /// [`ExecError`] for a snippet that is wrong in itself, or that nothing can compile.
    fn program(&self, snippet: &Snippet, shop: &BuildTools<'_>) -> Result<Program, ExecError>;
}

/// Every language; a text is tried in this order.
pub static LANGUAGES: &[&dyn Language] =
    &[&rust::Rust, &cuda::Cuda, &shell::Shell, &python::Python];

/// The language of `--lang`.
pub(super) fn by_word(word: &str) -> Result<&'static dyn Language, ExecError> {
    let lower = word.to_lowercase();
    let found = LANGUAGES.iter().find(|l| l.words().contains(&lower.as_str()));
    found.copied().ok_or_else(|| {
        let words = LANGUAGES.iter().flat_map(|l| l.words().iter().copied());
        let near = nearest(&lower, words).into_iter().map(str::to_owned).collect();
        ExecError::UnknownLanguage { word: word.to_owned(), near }
    })
}

/// The language of a file's extension.
pub(super) fn by_name(path: &Path) -> Option<&'static dyn Language> {
    let extension = path.extension()?.to_str()?.to_lowercase();
    LANGUAGES.iter().copied().find(|l| l.words().contains(&extension.as_str()))
}

/// The language that a text looks like.
pub(super) fn by_text(text: &[u8]) -> Option<&'static dyn Language> {
    let text = std::str::from_utf8(text).ok()?;
    LANGUAGES.iter().copied().find(|l| l.fits(text))
}

/// The program of the first line, `#!/usr/bin/env python3 -u` → `python3`.
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

/// Whether a line of the text begins so.
fn has_line(text: &str, starts: &[&str]) -> bool {
    text.lines().any(|line| starts.iter().any(|start| line.starts_with(start)))
}
