//! What a report renders: named files, text or bytes.

/// Where a report goes unless the user says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To stdout.
    Printed,
    /// Into a file, whose path is printed.
    Filed,
}

/// One file of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its file name: `report.html`.
    pub name: &'static str,
    /// What it holds; texts end with a newline.
    pub bytes: Vec<u8>,
}

impl Document {
    /// A document of text.
    pub fn new(name: &'static str, text: impl Into<Vec<u8>>) -> Self {
        Self { name, bytes: text.into() }
    }

    /// Its text.
    pub fn into_text(self) -> String {
        String::from_utf8(self.bytes)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    }
}
