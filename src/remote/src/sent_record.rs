//! A local record of what was sent to a host: the agent and large bundles.
//!
//! On a long link, asking which blobs a host lacks costs a round trip. If no blob of a bundle was
//! ever sent there, all are probably missing, so the first blobs go out with the request. A wrong
//! guess costs only traffic: for bundles sent before, the host is always asked.

#![expect(clippy::disallowed_methods, reason = "the user's cache")]

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rgpu_protocol::Digest;

use super::RemoteSpec;

/// The largest record in bytes; a larger one is started anew.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// The record of one remote: one line per blob digest, and per file that ran there as the agent.
#[derive(Debug)]
pub struct SentRecord(PathBuf);

impl SentRecord {
    /// The record of a remote in the folder `cache`.
    pub fn new(cache: &Path, spec: &RemoteSpec) -> Self {
        let definition =
            serde_json::to_vec(&(&spec.url, &spec.jump, &spec.via)).unwrap_or_default();
        let name = Digest::sha256(&definition);
        Self(cache.join("sent").join(&name.as_str()[..24]))
    }

    /// Whether the record exists, which means that this machine has connected to the remote.
    pub fn exists(&self) -> bool {
        self.0.is_file()
    }

    /// Whether this local file has run there as the agent.
    pub fn has_run_agent(&self, agent: &Path) -> bool {
        let line = agent_line(agent);
        fs::read_to_string(&self.0).is_ok_and(|known| known.lines().any(|known| known == line))
    }

    /// Records that the file runs there as the agent.
    pub fn record_agent(&self, agent: &Path) {
        let line = agent_line(agent);
        if !self.has_run_agent(agent) {
            // A lost entry is only found out again.
            let _ = self.add(&HashSet::from([line.as_str()]), 0);
        }
    }

    /// Deletes the record, which is no longer reliable.
    pub(super) fn forget(&self) {
        let _ = fs::remove_file(&self.0);
    }

    /// Whether none of these blobs was ever sent there. Records them as sent; if that fails, they
    /// count as sent.
    pub(super) fn record_if_all_new(&self, digests: &HashSet<&Digest>) -> bool {
        let known = fs::read_to_string(&self.0).unwrap_or_default();
        let mut new: HashSet<&str> = digests.iter().map(|digest| digest.as_str()).collect();
        let before = new.len();
        for line in known.lines() {
            new.remove(line);
        }
        let never = new.len() == before;
        self.add(&new, known.len() as u64).is_ok() && never
    }

    fn add(&self, digests: &HashSet<&str>, known_bytes: u64) -> io::Result<()> {
        if let Some(folder) = self.0.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut options = OpenOptions::new();
        options.mode(0o600);
        let mut file = if known_bytes > MAX_RECORD_BYTES {
            options.write(true).create(true).truncate(true).open(&self.0)?
        } else {
            options.append(true).create(true).open(&self.0)?
        };
        // One write, so that two concurrent runs do not mix their lines.
        let lines: String = digests.iter().map(|digest| format!("{digest}\n")).collect();
        file.write_all(lines.as_bytes())
    }
}

/// The record's line for a file that ran as the agent.
fn agent_line(agent: &Path) -> String {
    let meta = fs::metadata(agent).ok();
    let changed = meta.as_ref().and_then(|meta| meta.modified().ok());
    let changed = changed.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let nanos = changed.map_or(0, |at| at.as_nanos());
    let bytes = meta.map_or(0, |meta| meta.len());
    format!("agent {bytes} {nanos} {}", agent.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ever_sent_to_a_remote_is_known_and_to_another_is_not() {
        let cache = tempfile::tempdir().unwrap();
        let (a, b) = (Digest::sha256(b"a"), Digest::sha256(b"b"));
        let spec = RemoteSpec::new("x", "ssh://x");
        let never = |spec: &RemoteSpec, digests: &[&Digest]| {
            SentRecord::new(cache.path(), spec)
                .record_if_all_new(&digests.iter().copied().collect())
        };
        assert!(never(&spec, &[&a]));
        assert!(!never(&spec, &[&a]));
        assert!(!never(&spec, &[&a, &b]));
        assert!(!never(&spec, &[&b]));
        assert!(never(&RemoteSpec::new("y", "ssh://y"), &[&a, &b]));
    }

    #[test]
    fn where_nothing_can_be_remembered_all_counts_as_sent() {
        let cache = tempfile::tempdir().unwrap();
        fs::write(cache.path().join("sent"), "in the way").unwrap();
        let sent = SentRecord::new(cache.path(), &RemoteSpec::new("x", "ssh://x"));
        assert!(!sent.record_if_all_new(&[&Digest::sha256(b"a")].into_iter().collect()));
    }
}
