//! Lists the entries of a fatbin and finds the fatbins of a section.

use super::FatbinError;
use super::entry::{self, Entry};

const MAGIC: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
const HEADER: usize = 16;

/// One fatbin: its entries' headers in file order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fatbin<'a> {
    /// Offset in the data.
    pub offset: usize,
    /// Size including the header.
    pub bytes: usize,
    /// The images, in file order.
    pub entries: Vec<Entry<'a>>,
}

/// Whether these bytes begin with a fatbin; used to choose a reader.
pub fn is_fatbin(data: &[u8]) -> bool {
    data.starts_with(&MAGIC)
}

/// Reads the fatbin that begins at `offset` of `data`, without decompressing anything.
///
/// # Errors
/// [`FatbinError`] names the damaged part and its offset.
pub fn read(data: &[u8], offset: usize) -> Result<Fatbin<'_>, FatbinError> {
    let head = data.get(offset..).filter(|d| is_fatbin(d));
    let head = head.ok_or(FatbinError::NoMagic { offset })?;
    let header = head.get(..HEADER).ok_or(FatbinError::Cut { part: "fatbin header", offset })?;
    let version = u16::from_le_bytes([header[4], header[5]]);
    if version != 1 {
        return Err(FatbinError::UnknownVersion { offset, version });
    }
    let start = usize::from(u16::from_le_bytes([header[6], header[7]])).max(HEADER);
    let payload = header[8..16].iter().rev().fold(0_u64, |n, b| n << 8 | u64::from(*b));
    let end = usize::try_from(payload).ok().and_then(|n| n.checked_add(start));
    let cut = FatbinError::Cut { part: "fatbin", offset };
    let body = end.and_then(|end| head.get(..end)).ok_or(cut)?;
    let mut entries = Vec::new();
    let mut at = start;
    // Anything too short for another entry is padding.
    while body.len() - at >= entry::HEADER {
        let (entry, bytes) = entry::read(&body[at..], offset + at)?;
        entries.push(entry);
        at += bytes;
    }
    Ok(Fatbin { offset, bytes: body.len(), entries })
}

/// Finds all fatbins of a section by their magic number on 8-byte boundaries. A damaged one gives
/// an error, and the search continues after its magic.
pub fn find(section: &[u8]) -> impl Iterator<Item = Result<Fatbin<'_>, FatbinError>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < section.len() {
            if !is_fatbin(&section[at..]) {
                at += 8;
                continue;
            }
            let found = read(section, at);
            at += match &found {
                Ok(fatbin) => fatbin.bytes.next_multiple_of(8),
                Err(_) => 8,
            };
            return Some(found);
        }
        None
    })
}
