//! Reads known_hosts files as OpenSSH does: plain and hashed names, wildcards, negation,
//! `[host]:port`, tabs, `@revoked` and `@cert-authority`. russh's own reader supports no wildcards,
//! markers or tabs.
//!
//! One rule is stricter than OpenSSH's: if a host is known only by keys of other types than the one
//! it shows, it counts as changed. Known types are requested first, so an honest host shows one of
//! them.

#![expect(clippy::disallowed_methods, reason = "the user's ssh settings and keys")]

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use russh::keys::ssh_key::known_hosts::HostPatterns;
use russh::keys::{Algorithm, HashAlg, PublicKey};
use sha1::Sha1;

/// All entries of the files.
#[derive(Debug, Default)]
pub(super) struct KnownHosts {
    entries: Vec<Entry>,
    /// `file:line` of lines that could not be parsed.
    pub(super) skipped: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    marker: Marker,
    names: Names,
    key: PublicKey,
    place: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    None,
    CertAuthority,
    Revoked,
}

#[derive(Debug)]
enum Names {
    Patterns(Vec<String>),
    Hashed { salt: Vec<u8>, hash: [u8; 20] },
}

/// The name of a host in known_hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostName {
    /// `HostKeyAlias`, or the host's name in lower case.
    pub(super) host: String,
    /// The port; 22 for an alias, which is written without one.
    pub(super) port: u16,
}

impl HostName {
    /// The form in the file: `host`, or `[host]:port`.
    pub(super) fn written(&self) -> String {
        match self.port {
            22 => self.host.clone(),
            port => format!("[{}]:{port}", self.host),
        }
    }
}

/// The result of checking a host's key against the files.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyVerdict {
    /// The key is known for the host.
    Known,
    /// No key is known for the host.
    Unknown,
    /// Other keys are known: their fingerprints with `file:line`.
    Changed(Vec<String>),
    /// The key is revoked at `file:line`.
    Revoked(String),
}

impl KnownHosts {
    /// Reads those of the files that exist.
    pub(super) fn read(files: &[PathBuf]) -> Self {
        let mut known = Self::default();
        for file in files {
            let mut text = Vec::new();
            if std::fs::File::open(file).and_then(|mut f| f.read_to_end(&mut text)).is_ok() {
                known.add(&String::from_utf8_lossy(&text), file);
            }
        }
        known
    }

    fn add(&mut self, text: &str, file: &Path) {
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = format!("{}:{number}", file.display());
            match Entry::read(line, &place) {
                Some(entry) => self.entries.push(entry),
                None => self.skipped.push(place),
            }
        }
    }

    /// Checks `key` for `host`.
    pub(super) fn check_key(&self, host: &HostName, key: &PublicKey) -> KeyVerdict {
        if let Some(place) = self.revoked(host, key) {
            return KeyVerdict::Revoked(place);
        }
        let written = host.written();
        let known: Vec<&Entry> = self.entries_for(&written, Marker::None).collect();
        if known.iter().any(|entry| entry.key.key_data() == key.key_data()) {
            return KeyVerdict::Known;
        }
        // As in OpenSSH: an entry for the name without the port may confirm the key, but not
        // contradict it.
        if known.is_empty()
            && host.port != 22
            && self
                .entries_for(&host.host, Marker::None)
                .any(|e| e.key.key_data() == key.key_data())
        {
            return KeyVerdict::Known;
        }
        if known.is_empty() {
            return KeyVerdict::Unknown;
        }
        let line = |entry: &&Entry| {
            let print = fingerprint(&entry.key);
            format!("{} {print} ({})", entry.key.algorithm(), entry.place)
        };
        KeyVerdict::Changed(known.iter().map(line).collect())
    }

    /// The position of the entry that revokes `key` for `host`, if there is one.
    pub(super) fn revoked(&self, host: &HostName, key: &PublicKey) -> Option<String> {
        let written = host.written();
        self.entries_for(&written, Marker::Revoked)
            .chain(self.entries_for(&host.host, Marker::Revoked))
            .find(|entry| entry.key.key_data() == key.key_data())
            .map(|entry| entry.place.clone())
    }

    /// The authorities whose certificates are valid for `host`.
    pub(super) fn authorities(&self, host: &HostName) -> Vec<PublicKey> {
        let written = host.written();
        let mut keys: Vec<_> = self
            .entries_for(&written, Marker::CertAuthority)
            .map(|entry| entry.key.clone())
            .collect();
        if written != host.host {
            keys.extend(self.entries_for(&host.host, Marker::CertAuthority).map(|e| e.key.clone()));
        }
        keys
    }

    /// The types of the known keys of `host`.
    pub(super) fn known_algorithms(&self, host: &HostName) -> Vec<Algorithm> {
        let written = host.written();
        self.entries_for(&written, Marker::None).map(|entry| entry.key.algorithm()).collect()
    }

    fn entries_for<'a>(&'a self, name: &'a str, marker: Marker) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |e| e.marker == marker && e.names.matches(name))
    }
}

impl Entry {
    /// Parses `[@marker] names type base64 [comment]`, separated by blanks or tabs.
    fn read(line: &str, place: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let mut names = words.next()?;
        let marker = match names {
            "@cert-authority" => Marker::CertAuthority,
            "@revoked" => Marker::Revoked,
            other if other.starts_with('@') => return None,
            _ => Marker::None,
        };
        if marker != Marker::None {
            names = words.next()?;
        }
        let (kind, data) = (words.next()?, words.next()?);
        let key = PublicKey::from_openssh(&format!("{kind} {data}")).ok()?;
        let names = if names.starts_with('|') {
            match names.parse().ok()? {
                HostPatterns::HashedName { salt, hash } => Names::Hashed { salt, hash },
                HostPatterns::Patterns(_) => return None,
            }
        } else {
            Names::Patterns(names.split(',').map(str::to_ascii_lowercase).collect())
        };
        Some(Self { marker, names, key, place: place.to_owned() })
    }
}

impl Names {
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Hashed { salt, hash } => hashed(salt, name) == Some(*hash),
            Self::Patterns(patterns) => {
                let matches_any = |negated: bool| {
                    patterns.iter().any(|pattern| match pattern.strip_prefix('!') {
                        Some(pattern) => negated && glob(pattern, name),
                        None => !negated && glob(pattern, name),
                    })
                };
                matches_any(false) && !matches_any(true)
            }
        }
    }
}

fn hashed(salt: &[u8], name: &str) -> Option<[u8; 20]> {
    let mut mac = Hmac::<Sha1>::new_from_slice(salt).ok()?;
    mac.update(name.as_bytes());
    Some(mac.finalize().into_bytes().into())
}

/// Matches `*` to any characters and `?` to one; brackets are plain, as in `[host]:port`.
pub(super) fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, n));
                p += 1;
            }
            Some(&b) if b == b'?' || b == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                // Let the last star match one more character.
                Some((after, taken)) => {
                    star = Some((after, taken + 1));
                    p = after;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// The fingerprint in ssh's form: `SHA256:…`.
pub(super) fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

/// The form of host names in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NameForm {
    /// The name is readable, not hashed.
    #[default]
    Plain,
    /// Hashed with a salt (`HashKnownHosts`).
    Hashed,
}

/// Appends a line for `host` to `file`; creates the file and its folder if missing.
pub(super) fn remember(
    file: &Path,
    host: &HostName,
    key: &PublicKey,
    written: NameForm,
) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
    if let Some(folder) = file.parent().filter(|folder| !folder.exists()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let name = match written {
        NameForm::Plain => host.written(),
        NameForm::Hashed => {
            let mut salt = vec![0; 20];
            std::fs::File::open("/dev/urandom")?.read_exact(&mut salt)?;
            let hash = hashed(&salt, &host.written()).ok_or(io::ErrorKind::InvalidInput)?;
            HostPatterns::HashedName { salt, hash }.to_string()
        }
    };
    let mut without_comment = key.clone();
    without_comment.set_comment("");
    let key = without_comment.to_openssh().map_err(io::Error::other)?;
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(file)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let newline = if text.last().is_some_and(|&b| b != b'\n') { "\n" } else { "" };
    file.write_all(format!("{newline}{name} {}\n", key.trim()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Keys that ssh-keygen made for these tests; their private halves were deleted.
    const A: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMEw7Nb8Lz+EkUk8hfyjp5scu9AdRyA4vpIY+j4mWXbE";
    const B: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGtbxYNKiPimR7MIgRUXAhcKqcfUCo2Kpb/m+tUQRwlT";

    fn files(text: &str) -> KnownHosts {
        let mut known = KnownHosts::default();
        known.add(text, Path::new("known_hosts"));
        known
    }

    fn host(host: &str, port: u16) -> HostName {
        HostName { host: host.to_owned(), port }
    }

    fn key(text: &str) -> PublicKey {
        PublicKey::from_openssh(text).unwrap()
    }

    #[test]
    fn plain_names_ports_wildcards_and_tabs_are_read() {
        let known = files(&format!(
            "# a comment\n\nbox,10.0.0.1 {A} me@laptop\n[box]:2222\t{}\n*.lab,!bad.lab {A}\n[127.0.0.*]:22?2 {A}",
            B.replace(' ', "\t")
        ));
        assert!(known.skipped.is_empty());
        assert_eq!(known.check_key(&host("box", 22), &key(A)), KeyVerdict::Known);
        assert_eq!(known.check_key(&host("10.0.0.1", 22), &key(A)), KeyVerdict::Known);
        assert_eq!(known.check_key(&host("box", 2222), &key(B)), KeyVerdict::Known);
        assert!(matches!(known.check_key(&host("box", 2222), &key(A)), KeyVerdict::Changed(_)));
        assert_eq!(known.check_key(&host("a.lab", 22), &key(A)), KeyVerdict::Known);
        assert_eq!(known.check_key(&host("bad.lab", 22), &key(A)), KeyVerdict::Unknown);
        assert_eq!(known.check_key(&host("127.0.0.9", 2222), &key(A)), KeyVerdict::Known);
        assert_eq!(known.check_key(&host("127.0.0.9", 2223), &key(A)), KeyVerdict::Unknown);
    }

    #[test]
    fn a_changed_key_names_what_is_known_and_where() {
        let known = files(&format!("box {A}\n"));
        let KeyVerdict::Changed(lines) = known.check_key(&host("box", 22), &key(B)) else {
            panic!()
        };
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with("(known_hosts:1)"), "{lines:?}");
        assert!(lines[0].contains("SHA256:"), "{lines:?}");
    }

    #[test]
    fn the_name_without_its_port_may_vouch_but_not_accuse() {
        let known = files(&format!("box {A}\n"));
        assert_eq!(known.check_key(&host("box", 2222), &key(A)), KeyVerdict::Known);
        assert_eq!(known.check_key(&host("box", 2222), &key(B)), KeyVerdict::Unknown);
    }

    #[test]
    fn hashed_names_are_recognized() {
        // Output of `ssh-keygen -H` for a line for [gpu-box]:2222.
        let known =
            files(&format!("|1|W06nE6we+V2XVbLFPlKV2e0hHAc=|pBbjZtz6ChHwHQe6D7j5ZtHUEi4= {A}\n"));
        assert_eq!(known.check_key(&host("gpu-box", 2222), &key(A)), KeyVerdict::Known);
        assert_eq!(known.check_key(&host("gpu-box", 2223), &key(A)), KeyVerdict::Unknown);
    }

    #[test]
    fn a_revoked_key_is_refused_even_when_it_is_also_known() {
        let known = files(&format!("box {A}\n@revoked * {A}\n"));
        assert_eq!(
            known.check_key(&host("box", 22), &key(A)),
            KeyVerdict::Revoked("known_hosts:2".to_owned())
        );
    }

    #[test]
    fn an_authority_is_no_host_key() {
        let known = files(&format!("@cert-authority *.lab {A}\n"));
        assert_eq!(known.check_key(&host("a.lab", 22), &key(A)), KeyVerdict::Unknown);
        assert_eq!(known.authorities(&host("a.lab", 2222)).len(), 1);
        assert!(known.authorities(&host("a.home", 22)).is_empty());
    }

    #[test]
    fn lines_that_make_no_sense_are_counted_and_skipped() {
        let known = files("box\n@later box ssh-ed25519 AAAA\nbox ssh-ed25519 !!!!\n");
        assert_eq!(known.skipped.len(), 3);
    }

    #[test]
    fn a_remembered_key_is_known_afterwards() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/known_hosts");
        let (a, b) = (host("box", 22), host("box", 2222));
        remember(&file, &a, &key(A), NameForm::Plain).unwrap();
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap().trim_end()).unwrap();
        remember(&file, &b, &key(B), NameForm::Hashed).unwrap();
        assert!(std::fs::read_to_string(&file).unwrap().contains("|1|"));
        let known = KnownHosts::read(&[file]);
        assert_eq!(known.check_key(&a, &key(A)), KeyVerdict::Known);
        assert_eq!(known.check_key(&b, &key(B)), KeyVerdict::Known);
    }
}
