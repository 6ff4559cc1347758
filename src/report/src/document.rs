//! The output of a report: named files of text or bytes. The renderers of [`super::REPORTS`] return
//! them; `rgpu report` prints or writes them.

use std::io::{self, Write};

use rgpu_model::Profile;

/// The default destination of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The report is printed to stdout.
    Stdout,
    /// The report is written to a file, whose path is printed.
    File,
}

/// One file of a report.
#[derive(Clone, Debug)]
pub struct Document<'p> {
    /// The file name, such as `report.html`.
    pub name: &'static str,
    content: Content<'p>,
}

/// The content of a document; texts end with a newline.
#[derive(Clone, Debug)]
enum Content<'p> {
    /// What was rendered.
    Bytes(Vec<u8>),
    /// Becomes text while it is written, since the text may be many times as large.
    Written { profile: &'p Profile, write: WriteProfile },
}

/// Writes a profile in some format.
pub(super) type WriteProfile = fn(&Profile, &mut dyn Write) -> io::Result<()>;

impl<'p> Document<'p> {
    /// A document with this name and content.
    pub(super) fn new(name: &'static str, text: impl Into<Vec<u8>>) -> Self {
        Self { name, content: Content::Bytes(text.into()) }
    }

    /// A document that `write` makes of a profile when it is asked for.
    pub(super) fn written(name: &'static str, profile: &'p Profile, write: WriteProfile) -> Self {
        Self { name, content: Content::Written { profile, write } }
    }

    /// Writes the content, maybe in many small pieces.
    ///
    /// # Errors
    /// Those of `out`; [`io::ErrorKind::InvalidData`] if the profile has no such form.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.content {
            Content::Bytes(bytes) => out.write_all(bytes),
            Content::Written { profile, write } => write(profile, out),
        }
    }

    /// At most this many first bytes of the content.
    pub fn head(&self, max_bytes: usize) -> Vec<u8> {
        let mut head = vec![0; max_bytes];
        let mut room = head.as_mut_slice();
        // Writing ends with an error where the room does.
        let _ = self.write_to(&mut room);
        let left = room.len();
        head.truncate(max_bytes - left);
        head
    }

    /// The whole content.
    pub fn into_bytes(self) -> Vec<u8> {
        match self.content {
            Content::Bytes(bytes) => bytes,
            Content::Written { .. } => {
                let mut bytes = Vec::new();
                // Plain data can be written, and memory takes it.
                let _ = self.write_to(&mut bytes);
                bytes
            }
        }
    }

    /// The content as text; invalid UTF-8 is replaced.
    pub fn into_text(self) -> String {
        String::from_utf8(self.into_bytes())
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    }
}
