//! Decides which files a report may overwrite: an earlier report of the same kind, or any with
//! `--force`.

#![expect(
    clippy::disallowed_methods,
    reason = "the head of the file that the user named for output"
)]

use std::io::Read;
use std::path::Path;

use rgpu_model::error::{Exit, Failure, Result};

/// Bytes read from an existing file.
pub(in crate::cli) const SNIFF_BYTES: usize = 4096;

/// The kind of a file, judged by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileContent {
    /// The file is empty.
    Empty,
    /// An HTML page of rgpu.
    Page,
    /// A JSON document of rgpu.
    Document,
    /// A Perfetto trace: a `TracePacket`, field 1 of `Trace`.
    Trace,
    /// Text of no other kind.
    Text,
    /// Any other content, which is not overwritten without `--force`.
    Foreign,
}

/// Refuses to overwrite a file that holds something else.
pub(in crate::cli) fn check(path: &Path, new: &[u8]) -> Result<()> {
    // A missing file is no loss, and an unreadable one fails when it is written.
    let Some(old) = head(path) else { return Ok(()) };
    let head = &new[..new.len().min(SNIFF_BYTES)];
    let is_same = match (content(&old), content(head)) {
        (FileContent::Empty, _) => true,
        // A text does not say who wrote it. One that begins as the new one does is an earlier
        // report of the same subject.
        (FileContent::Text, FileContent::Text) => first_words(&old) == first_words(head),
        (old, new) => old == new,
    };
    if is_same {
        return Ok(());
    }
    Err(refused(path, "the existing file is not a report of this kind"))
}

/// The first bytes of a file. `None` if it cannot be read.
pub(in crate::cli) fn head(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::with_capacity(SNIFF_BYTES);
    std::fs::File::open(path)
        .and_then(|f| f.take(SNIFF_BYTES as u64).read_to_end(&mut head))
        .ok()?;
    Some(head)
}

/// The error for a file that must not be overwritten.
pub(in crate::cli) fn refused(path: &Path, message: &str) -> Failure {
    Failure::new(Exit::Usage, "foreign_file", message)
        .file(path.display())
        .hint("write to another path, or overwrite it with `--force`")
}

/// The first two words of a text.
fn first_words(head: &[u8]) -> Vec<&[u8]> {
    head.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).take(2).collect()
}

fn content(head: &[u8]) -> FileContent {
    // The first bytes may end within a character.
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(e) if e.error_len().is_none() => {
            std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or_default()
        }
        Err(_) if head.first() == Some(&0x0a) => return FileContent::Trace,
        Err(_) => return FileContent::Foreign,
    };
    let first_chars = text.trim_start().get(..9).unwrap_or_default().to_ascii_lowercase();
    match text {
        "" => FileContent::Empty,
        // Protobuf with short names may look like text, but our texts never begin with an empty
        // line.
        text if text.starts_with('\n') && text.contains('\0') => FileContent::Trace,
        text if first_chars == "<!doctype" || first_chars.starts_with("<html") => {
            if text.contains("name=\"generator\" content=\"rgpu ") {
                FileContent::Page
            } else {
                FileContent::Foreign
            }
        }
        text if first_chars.starts_with(['{', '[']) => {
            if text.contains("\"schema\": \"rgpu.") {
                FileContent::Document
            } else {
                FileContent::Foreign
            }
        }
        text if text.contains('\0') || first_chars.starts_with("#!") => FileContent::Foreign,
        _ => FileContent::Text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_takes_the_place_of_its_own_kind_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        let page = b"<!doctype html>\n<meta name=\"generator\" content=\"rgpu 1.2\">".as_slice();
        let allowed = |old: &[u8], new: &[u8]| {
            std::fs::write(&path, old).unwrap();
            check(&path, new).is_ok()
        };
        assert!(check(&path, page).is_ok(), "there is nothing yet");
        assert!(allowed(b"", page) && allowed(page, page));
        assert!(!allowed(b"<!doctype html>\n<title>coverage</title>", page));
        assert!(!allowed(b"\x7fELF\0\0\xff", page) && !allowed(b"a note", page));
        assert!(!allowed(page, b"vecadd  ncu on H200"));
        assert!(allowed(b"vecadd  ncu on H100", b"vecadd  ncu on H200"));
        assert!(!allowed(b"# My notes\n", b"# vecadd\n"));
        let document = b"{\n  \"schema\": \"rgpu.profile/1\"".as_slice();
        assert!(allowed(document, document) && !allowed(b"{\"mine\": 1}", document));
        let trace = b"\x0a\x10\x50\x01\x00\xff\xfe".as_slice();
        assert!(allowed(trace, trace) && !allowed(b"PK\x03\x04\xff", trace));
    }
}
