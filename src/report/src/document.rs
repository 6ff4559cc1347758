//! The output of a report: named files of text or bytes. The renderers of [`super::REPORTS`] return
//! them; `rgpu report` prints or writes them.

/// The default destination of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The report is printed to stdout.
    Stdout,
    /// The report is written to a file, whose path is printed.
    File,
}

/// One file of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The file name, such as `report.html`.
    pub name: &'static str,
    /// The content; texts end with a newline.
    pub bytes: Vec<u8>,
}

impl Document {
    /// A document with this name and content.
    pub fn new(name: &'static str, text: impl Into<Vec<u8>>) -> Self {
        Self { name, bytes: text.into() }
    }

    /// The content as text; invalid UTF-8 is replaced.
    pub fn into_text(self) -> String {
        String::from_utf8(self.bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    }
}
