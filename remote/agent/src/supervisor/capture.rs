//! Output of programs: masks secrets, writes it to the step's log up to a limit, and keeps its
//! beginning and end in memory for diagnosis.

use std::collections::VecDeque;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use crate::host_fault::{HostFault, IoContext};

/// Bytes kept for diagnosis of each end of a rung's output.
const EXCERPT_BYTES: usize = 1 << 20;

/// Shorter values are not masked.
const MIN_SECRET_BYTES: usize = 6;

/// Replacement for a secret.
const MASK: &[u8] = b"***";

/// Masks secrets in a stream that arrives in pieces.
#[derive(Clone, Debug, Default)]
pub(crate) struct Masker {
    /// Longest first, so that a secret that contains another is masked whole.
    secrets: Vec<Vec<u8>>,
    /// The end of the input, held back while it may be the start of a secret.
    held: Vec<u8>,
}

impl Masker {
    /// Masks these values. Each line of a multi-line value is masked too, because programs print
    /// line by line.
    pub(crate) fn new<'a>(values: impl Iterator<Item = &'a str>) -> Self {
        let mut secrets: Vec<Vec<u8>> = Vec::new();
        for value in values {
            // A flag or a number is no secret, and masking it would hide much of the output.
            if value.len() >= MIN_SECRET_BYTES {
                secrets.push(value.into());
            }
            secrets.extend(value.lines().map(str::trim).filter(|l| l.len() >= 8).map(Into::into));
        }
        secrets.sort_by_key(|s| std::cmp::Reverse(s.len()));
        secrets.dedup();
        Self { secrets, held: Vec::new() }
    }

    /// Takes the next bytes. Returns those that can be passed on.
    pub(crate) fn mask(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.secrets.is_empty() {
            return bytes.to_vec();
        }
        self.held.extend_from_slice(bytes);
        self.mask_held(false)
    }

    /// Ends the stream. Returns the remaining bytes.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        self.mask_held(true)
    }

    fn mask_held(&mut self, ended: bool) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.held);
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let may_grow = |s: &Vec<u8>| !ended && rest.len() < s.len() && s.starts_with(rest);
            if self.secrets.iter().any(may_grow) {
                self.held = rest.to_vec();
                break;
            }
            match self.secrets.iter().find(|s| rest.starts_with(s)) {
                Some(secret) => {
                    out.extend_from_slice(MASK);
                    at += secret.len();
                }
                None => {
                    out.push(rest[0]);
                    at += 1;
                }
            }
        }
        out
    }
}

/// The log of one output stream of one step. All rungs of the step append to it.
#[derive(Debug)]
pub(crate) struct StreamLog {
    path: PathBuf,
    file: File,
    limit: u64,
    len: u64,
    dropped: u64,
}

/// The result of appending to a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoggedBytes {
    /// Offset in the log.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Whether these bytes were the first to be dropped.
    pub(crate) overflowed: bool,
}

impl StreamLog {
    /// Creates a log of at most `limit` bytes, and its folder if that is missing.
    pub(crate) fn create(path: &Path, limit: u64) -> Result<Self, HostFault> {
        let open = || OpenOptions::new().write(true).create(true).truncate(true).open(path);
        let file = match (open(), path.parent()) {
            (Err(e), Some(folder)) if e.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new()
                    .mode(0o700)
                    .recursive(true)
                    .create(folder)
                    .context("make", folder)?;
                open()
            }
            (opened, _) => opened,
        };
        let file = file.context("make", path)?;
        Ok(Self { path: path.to_owned(), file, limit, len: 0, dropped: 0 })
    }

    /// Appends up to the limit and counts the rest as dropped.
    ///
    /// # Errors
    /// The write fails; the log is unchanged.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<LoggedBytes, HostFault> {
        let room = usize::try_from(self.limit - self.len).unwrap_or(usize::MAX);
        let (keep, drop) = bytes.split_at(bytes.len().min(room));
        if let Err(e) = self.file.write_all_at(keep, self.len) {
            // Remove a partial write.
            let _ = self.file.set_len(self.len);
            return Err(e).context("write", &self.path);
        }
        let offset = self.len;
        self.len += keep.len() as u64;
        let overflowed = self.dropped == 0 && !drop.is_empty();
        self.dropped += drop.len() as u64;
        Ok(LoggedBytes { offset, len: keep.len() as u64, overflowed })
    }

    /// Returns the number of bytes that were printed so far, dropped ones included.
    pub(crate) fn printed(&self) -> u64 {
        self.len.saturating_add(self.dropped)
    }

    /// Returns the number of bytes dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// The beginning and end of one rung's output on one stream.
#[derive(Debug, Default)]
pub(crate) struct Excerpt {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: bool,
}

impl Excerpt {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let room = EXCERPT_BYTES - self.head.len();
        let (head, rest) = bytes.split_at(bytes.len().min(room));
        self.head.extend_from_slice(head);
        // Only the end of a large piece can stay.
        let skipped = rest.len().saturating_sub(EXCERPT_BYTES);
        let rest = &rest[skipped..];
        let over = (self.tail.len() + rest.len()).saturating_sub(EXCERPT_BYTES);
        self.left_out |= skipped > 0 || over > 0;
        self.tail.drain(..over.min(self.tail.len()));
        self.tail.extend(rest);
    }

    /// Returns both ends as text without control sequences. A line break marks omitted bytes.
    pub(crate) fn text(&self) -> String {
        let mut bytes = self.head.clone();
        if self.left_out {
            bytes.push(b'\n');
        }
        bytes.extend(self.tail.iter());
        rgpu_protocol::pattern::strip_ansi(&String::from_utf8_lossy(&bytes))
    }
}

/// Returns the last `limit` bytes of a text without control characters, cut at a character.
pub(crate) fn tail_of(text: &str, limit: usize) -> String {
    let clean: String =
        text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    let mut start = clean.len().saturating_sub(limit);
    while !clean.is_char_boundary(start) {
        start += 1;
    }
    clean[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_however_the_stream_is_cut() {
        let text = b"key=hunter2-long; hunter2 hunte";
        for cut in 0..=text.len() {
            let mut masker = Masker::new(["hunter2", "hunter2-long"].into_iter());
            let mut out = masker.mask(&text[..cut]);
            out.extend(masker.mask(&text[cut..]));
            out.extend(masker.finish());
            assert_eq!(String::from_utf8_lossy(&out), "key=***; *** hunte");
        }
    }

    #[test]
    fn each_line_of_a_long_secret_is_a_secret() {
        let mut masker = Masker::new(["BEGIN\nabcdefghijk\nEND"].into_iter());
        let mut out = masker.mask(b"> abcdefghijk <");
        out.extend(masker.finish());
        assert_eq!(out, b"> *** <");
    }

    #[test]
    fn a_full_log_counts_what_it_drops() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = StreamLog::create(&dir.path().join("log/l"), 5).unwrap();
        assert_eq!(
            log.append(b"abc").unwrap(),
            LoggedBytes { offset: 0, len: 3, overflowed: false }
        );
        assert_eq!(
            log.append(b"defg").unwrap(),
            LoggedBytes { offset: 3, len: 2, overflowed: true }
        );
        assert_eq!(log.append(b"h").unwrap(), LoggedBytes { offset: 5, len: 0, overflowed: false });
        assert_eq!(log.dropped(), 3);
        assert_eq!(std::fs::read(dir.path().join("log/l")).unwrap(), b"abcde");
    }

    #[test]
    fn both_ends_of_long_output_are_kept() {
        let mut excerpt = Excerpt::default();
        excerpt.add(b"first\n");
        excerpt.add(&vec![b'.'; 5 << 20]);
        excerpt.add(b"\x1b[1mlast\x1b[0m\n");
        let text = excerpt.text();
        assert!(text.starts_with("first\n") && text.ends_with("last\n"));
        assert!(text.len() <= 2 * EXCERPT_BYTES + 1);
    }

    #[test]
    fn a_tail_is_cut_at_a_character() {
        assert_eq!(tail_of("aé\u{7}é", 3), "é");
    }
}
