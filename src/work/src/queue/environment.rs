//! The environment of an entry's command: an allow-list, recorded when the entry is added.
//!
//! Of the shell's variables the command gets those of the lists below, so that no secret gets into
//! the database. The user names further ones: `NAME=VALUE` is recorded, `NAME` alone comes from the
//! runner. `attempt` adds its own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::own_command::AGENT_VARIABLE;

/// Variables that are recorded.
const RECORDED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "RGPU_CONFIG",
    "RGPU_REMOTE",
    "RGPU_RUNS_DIR",
    "RGPU_LIBEXEC",
    "RGPU_AGENT_HOME",
    "RGPU_LOCK_DIR",
    AGENT_VARIABLE,
];

/// Beginnings of the names of further recorded variables.
const RECORDED_PREFIXES: &[&str] = &["LC_", "XDG_"];

/// Variables that come from the runner: they name a socket and a folder of a login session, which
/// may end before the entry's turn.
pub(super) const FROM_RUNNER: &[&str] = &["SSH_AUTH_SOCK", "XDG_RUNTIME_DIR"];

/// The variables of `environment` to record.
pub fn recorded(
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    environment.filter(|(name, _)| is_recorded(name)).collect()
}

fn is_recorded(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let has_prefix = RECORDED_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    (RECORDED.contains(&name) || has_prefix) && !FROM_RUNNER.contains(&name)
}

/// Words as bytes: each is ended by a NUL, which no argument and no variable contains.
pub(super) fn to_bytes<'w>(words: impl IntoIterator<Item = &'w OsStr>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in words {
        bytes.extend_from_slice(word.as_encoded_bytes());
        bytes.push(0);
    }
    bytes
}

/// The words of [`to_bytes`].
pub(super) fn from_bytes(bytes: &[u8]) -> Vec<OsString> {
    use std::os::unix::ffi::OsStrExt;
    let Some(words) = bytes.strip_suffix(b"\0") else { return Vec::new() };
    words.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

/// A variable as a word.
pub(super) fn assignment(name: &OsStr, value: &OsStr) -> OsString {
    let mut word = name.to_owned();
    word.push("=");
    word.push(value);
    word
}

/// The variable of an [`assignment`].
pub(super) fn split_assignment(word: &OsStr) -> Option<(&OsStr, &OsStr)> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=')?;
    Some((OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn secrets_of_the_shell_are_not_recorded() {
        let environment =
            ["PATH=/bin", "LC_ALL=C", "HF_TOKEN=x", "SSH_AUTH_SOCK=/s", "XDG_RUNTIME_DIR=/r"];
        let pairs = environment.iter().map(|word| word.split_once('=').unwrap());
        let recorded = recorded(pairs.map(|(name, value)| (name.into(), value.into())));
        let names: Vec<&str> = recorded.keys().filter_map(|name| name.to_str()).collect();
        assert_eq!(names, ["LC_ALL", "PATH"]);
    }

    #[test]
    fn words_of_any_bytes_come_back() {
        let words: Vec<OsString> = [&b""[..], b"a b\n", b"\xff\xfe", b"", b"x=y="]
            .map(|word| OsString::from_vec(word.to_vec()))
            .into();
        for count in 0..=words.len() {
            let bytes = to_bytes(words[..count].iter().map(OsString::as_os_str));
            assert_eq!(from_bytes(&bytes), words[..count]);
        }
        let word = assignment(OsStr::new("A"), OsStr::new("b=c"));
        assert_eq!(split_assignment(&word), Some((OsStr::new("A"), OsStr::new("b=c"))));
    }
}
