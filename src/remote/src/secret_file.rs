//! Files in which a user keeps secrets: who may read them, and how they define variables.

#![expect(clippy::disallowed_methods, reason = "a file with a secret of the user")]

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rgpu_model::error::shell_word;

/// The reason why a secret could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialError {
    /// The reason, as the end of a message.
    pub why: String,
    /// The remedy, if it is not to store the secret there.
    pub hint: Option<String>,
}

/// Reads a file that only its user can read.
pub fn read_private(path: &Path) -> Result<String, CredentialError> {
    let shown = path.display();
    let read_error = |e: std::io::Error| CredentialError {
        why: format!("`{shown}` cannot be read: {e}"),
        hint: None,
    };
    let mode = std::fs::metadata(path).map_err(read_error)?.mode();
    if mode & 0o077 != 0 {
        let word = shell_word(&shown);
        return Err(CredentialError {
            why: format!("`{shown}` can be read by others (mode {:o})", mode & 0o7777),
            hint: Some(format!("`chmod 600 {word}`, and take a new token if others saw it")),
        });
    }
    std::fs::read_to_string(path).map_err(read_error)
}

/// The variables of lines `NAME=VALUE`, as in shells and `.env` files. Quotes around a value are
/// removed; the last line of a name counts.
pub(super) fn variables(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
            let value = value.trim().trim_matches(['"', '\'']);
            Some((name.trim().to_owned(), value.to_owned()))
        })
        .collect()
}
