//! One image of a fatbin: its header, and how to find its bytes.

use super::FatbinError;
use crate::cubin::{Sm, SmVariant};

/// One image. The header is decoded; the image itself is as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Offset of the entry in the data.
    pub offset: usize,
    /// Kind of the image.
    pub kind: EntryKind,
    /// The target architecture; virtual for PTX.
    pub sm: Sm,
    /// Major and minor version. For PTX it is the version of the PTX ISA.
    pub version: (u16, u16),
    /// The flags as stored.
    pub flags: u64,
    /// Name of the source file, if the compiler kept it.
    pub identifier: Option<String>,
    /// ptxas options that belong to PTX.
    pub options: Option<String>,
    /// How the image is compressed.
    pub compression: Compression,
    /// Unpacked size of the image in bytes.
    pub unpacked_bytes: u64,
    /// The stored image, without padding if its size is known.
    pub stored: &'a [u8],
}

/// Kind of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// The text of a PTX module.
    Ptx,
    /// Machine code: a cubin.
    Cubin,
    /// Intermediate code for link-time optimisation; its format is not public.
    LtoIr,
    /// Any other number of the header.
    Other(u16),
}

/// How an image is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// The bytes are the image.
    None,
    /// One LZ4 block, without a frame.
    Lz4,
    /// One frame of Zstandard.
    Zstd,
}

pub(super) const HEADER: usize = 64;

const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
const ACCELERATED: u64 = 0x10_0000;
const FAMILY: u64 = 0x20_0000;

pub(super) fn short(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(short(bytes, at)) | u32::from(short(bytes, at + 2)) << 16
}

pub(super) fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// `length` bytes at `offset` of an entry's header, as text.
fn text(header: &[u8], offset: u32, length: u32) -> Option<String> {
    let start = offset as usize;
    let bytes = header.get(start..start.checked_add(length as usize)?)?;
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Reads the entry at the start of `rest`, whose offset in the data is `offset`. Also returns the
/// offset after it.
pub(super) fn read(rest: &[u8], offset: usize) -> Result<(Entry<'_>, usize), FatbinError> {
    let fixed = rest.get(..HEADER).ok_or(FatbinError::Cut { part: "entry header", offset })?;
    let header_bytes = word(fixed, 4);
    if (header_bytes as usize) < HEADER {
        return Err(FatbinError::Header { offset, bytes: header_bytes });
    }
    let header = rest
        .get(..header_bytes as usize)
        .ok_or(FatbinError::Cut { part: "entry header", offset })?;
    let stored_bytes = usize::try_from(long(fixed, 8)).unwrap_or(usize::MAX);
    let end = header.len().checked_add(stored_bytes);
    let stored = end
        .and_then(|end| rest.get(header.len()..end))
        .ok_or(FatbinError::Cut { part: "image", offset: offset + header.len() })?;
    let flags = long(fixed, 40);
    let compression = match (flags & LZ4 != 0, flags & ZSTD != 0) {
        (true, _) => Compression::Lz4,
        (_, true) => Compression::Zstd,
        _ => Compression::None,
    };
    let compressed = word(fixed, 16) as usize;
    let stored = match compression {
        Compression::None => stored,
        _ => stored.get(..compressed).filter(|s| !s.is_empty()).unwrap_or(stored),
    };
    let kind = match short(fixed, 0) {
        1 => EntryKind::Ptx,
        2 => EntryKind::Cubin,
        8 => EntryKind::LtoIr,
        other => EntryKind::Other(other),
    };
    let variant = match (flags & ACCELERATED != 0, flags & FAMILY != 0) {
        (true, _) => SmVariant::Accelerated,
        (_, true) => SmVariant::Family,
        _ => SmVariant::Base,
    };
    let options = word(fixed, 20);
    let options = (options != 0 && kind == EntryKind::Ptx)
        .then(|| text(header, word(header, options as usize), word(header, options as usize + 4)))
        .flatten();
    let mut entry = Entry {
        offset,
        kind,
        sm: Sm { number: word(fixed, 28), variant },
        version: (short(fixed, 26), short(fixed, 24)),
        flags,
        identifier: text(header, word(fixed, 32), word(fixed, 36)),
        options,
        compression,
        unpacked_bytes: long(fixed, 56),
        stored,
    };
    if compression == Compression::None {
        entry.stored = entry.without_padding(stored);
        entry.unpacked_bytes = entry.stored.len() as u64;
    }
    Ok((entry, header.len() + stored_bytes))
}
