//! Decompresses the image of a fatbin entry, within a limit on its size.

use super::FatbinError;
use super::entry::{Compression, Entry, EntryKind, long, short, word};
use crate::unpack::TooLarge;
use std::borrow::Cow;
use zstd::bulk::Decompressor;
use zstd::zstd_safe::find_frame_compressed_size;

/// A decompressor and a buffer for many images. The buffer grows to the largest one.
#[derive(Default)]
pub struct Unpacker {
    zstd: Option<Decompressor<'static>>,
    buffer: Vec<u8>,
}

impl<'a> Entry<'a> {
    /// Returns the image, without the NULs behind PTX and the padding behind an uncompressed cubin.
    ///
    /// # Errors
    /// The image claims more than `limit` bytes, or more than its compressed bytes can hold
    /// ([`TooLarge`]), or it is damaged.
    pub fn unpack(&self, limit: u64) -> Result<Cow<'a, [u8]>, FatbinError> {
        if self.compression == Compression::None {
            self.check_size(limit)?;
            return Ok(Cow::Borrowed(self.stored));
        }
        let mut unpacker = Unpacker::default();
        let end = self.unpack_into(limit, &mut unpacker)?.len();
        unpacker.buffer.truncate(end);
        Ok(Cow::Owned(unpacker.buffer))
    }

    /// Like [`Entry::unpack`], with the unpacker's buffer for compressed images.
    ///
    /// # Errors
    /// As [`Entry::unpack`].
    pub fn unpack_into<'r>(
        &self,
        limit: u64,
        unpacker: &'r mut Unpacker,
    ) -> Result<&'r [u8], FatbinError>
    where
        'a: 'r,
    {
        self.check_size(limit)?;
        let offset = self.offset;
        let packed = |cause: String| FatbinError::Packed { offset, cause };
        let bytes = self.unpacked_bytes as usize;
        let Unpacker { zstd, buffer } = unpacker;
        if self.compression != Compression::None && buffer.capacity() < bytes {
            // Unwritten pages take no memory, so a false size costs nothing with zstd. `check_size`
            // bounds it for LZ4, whose whole buffer is written.
            *buffer = Vec::new();
            buffer.try_reserve_exact(bytes).map_err(|e| packed(e.to_string()))?;
        }
        let got = match self.compression {
            Compression::None => return Ok(self.stored),
            Compression::Lz4 => {
                buffer.resize(bytes, 0);
                lz4_flex::block::decompress_into(self.stored, buffer)
                    .map_err(|e| packed(e.to_string()))?
            }
            Compression::Zstd => {
                let failed = |code| packed(zstd::zstd_safe::get_error_name(code).to_owned());
                // Padding follows the frame.
                let frame = find_frame_compressed_size(self.stored).map_err(failed)?;
                let frame = self.stored.get(..frame).unwrap_or(self.stored);
                let zstd = match zstd {
                    Some(zstd) => zstd,
                    None => zstd.insert(Decompressor::new().map_err(|e| packed(e.to_string()))?),
                };
                buffer.clear();
                zstd.decompress_to_buffer(frame, buffer).map_err(|e| packed(e.to_string()))?
            }
        };
        if got != bytes {
            return Err(packed(format!("{got} bytes came out instead of {bytes}")));
        }
        Ok(self.without_padding(buffer))
    }

    /// Refuses an image that claims to be too large.
    fn check_size(&self, limit: u64) -> Result<(), FatbinError> {
        let stored = self.stored.len();
        let max_bytes = match self.compression {
            // An LZ4 block grows at most 255 times. A larger claim is false, and its buffer would
            // be filled.
            Compression::Lz4 => limit.min((stored as u64).saturating_mul(255).saturating_add(16)),
            Compression::None | Compression::Zstd => limit,
        };
        let bound = TooLarge::new(stored, max_bytes);
        let checked = bound.check(self.unpacked_bytes);
        checked.map_err(|cause| FatbinError::TooLarge { offset: self.offset, cause })
    }

    /// The image without padding.
    pub(super) fn without_padding<'i>(&self, image: &'i [u8]) -> &'i [u8] {
        let end = match (self.kind, self.compression) {
            (EntryKind::Ptx, _) => image.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1),
            (EntryKind::Cubin, Compression::None) => elf_end(image),
            _ => image.len(),
        };
        image.get(..end).unwrap_or(image)
    }
}

/// The end of a 64-bit ELF file according to its own tables, since the header does not state it.
/// Returns the full length if more than padding would be lost.
fn elf_end(elf: &[u8]) -> usize {
    const NOBITS: u32 = 8;
    let table = |at: usize, size: usize, count: usize| {
        let bytes = u64::from(short(elf, size)) * u64::from(short(elf, count));
        long(elf, at).saturating_add(bytes)
    };
    let mut end = table(0x28, 0x3a, 0x3c).max(table(0x20, 0x36, 0x38));
    let (start, size) = (long(elf, 0x28), u64::from(short(elf, 0x3a)));
    for index in 0..u64::from(short(elf, 0x3c)) {
        let Ok(at) = usize::try_from(start.saturating_add(index * size)) else { break };
        if at >= elf.len() {
            break;
        }
        if word(elf, at + 4) != NOBITS {
            end = end.max(long(elf, at + 0x18).saturating_add(long(elf, at + 0x20)));
        }
    }
    usize::try_from(end)
        .ok()
        .filter(|end| (elf.len().saturating_sub(7)..=elf.len()).contains(end))
        .unwrap_or(elf.len())
}
