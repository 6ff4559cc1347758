//! Reader of fatbins: the container format in which compilers store GPU code for several
//! architectures.
//!
//! A section `.nv_fatbin` (or `__nv_relfatbin` of relocatable device code) holds many of them, one
//! after the other on 8-byte boundaries; a `.fatbin` file holds one. Listing reads only headers;
//! nothing is decompressed until [`Entry::unpack`] is called.
//!
//! # Layout
//! | offset | fatbin header (16 bytes) |
//! |---|---|
//! | 0 | u32 0xba55ed50 |
//! | 4 | u16 version, 1 |
//! | 6 | u16 size of this header |
//! | 8 | u64 bytes of the entries that follow |
//!
//! | offset | entry header (64 bytes and what its size adds) |
//! |---|---|
//! | 0 | u16 kind: 1 PTX, 2 cubin, 8 LTO-IR |
//! | 2 | u16 0x101 |
//! | 4 | u32 size of this header |
//! | 8 | u64 stored bytes, padding to 8 included; the next entry begins behind them |
//! | 16 | u32 compressed bytes, 0 where stored as they are |
//! | 20 | u32 offset of the options from the entry: u32 offset, u32 length, text or records |
//! | 24 | u16 minor, u16 major: 1.8 for a cubin, the PTX ISA's version for PTX |
//! | 28 | u32 SM |
//! | 32 | u32 offset and u32 length of the identifier, the source file's name (with `-lineinfo`, `-g`) |
//! | 40 | u64 flags: 0x2 debug, 0x2000 LZ4 block, 0x8000 zstd, 0x100000 `a`, 0x200000 `f` |
//! | 56 | u64 unpacked bytes, 0 where stored as they are |
//!
//! Sources: files that nvcc 13.5 writes with each of its compression modes, checked byte for byte
//! against the output of `cuobjdump -xelf all` and `-xptx all`.

mod entry;
mod read;
mod unpack;

pub use entry::{Compression, Entry, EntryKind};
pub use read::{Fatbin, find, is_fatbin, read};
pub use unpack::Unpacker;

use crate::unpack::TooLarge;
use thiserror::Error;

/// The reason why a fatbin could not be read. Offsets are in bytes from the start of the given
/// data.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum FatbinError {
    /// The magic number is missing.
    #[error("no fatbin at offset {offset}")]
    NoMagic {
        /// Offset where it was expected.
        offset: usize,
    },
    /// A version that this reader does not know.
    #[error("fatbin of version {version} at offset {offset}; known is 1")]
    UnknownVersion {
        /// Offset of the fatbin.
        offset: usize,
        /// The version in the header.
        version: u16,
    },
    /// A header or its data extends beyond the end.
    #[error("the {part} at offset {offset} runs past the end of the data")]
    Cut {
        /// The part that is cut off.
        part: &'static str,
        /// Offset of that part.
        offset: usize,
    },
    /// An entry's header states an impossible size.
    #[error("the entry at offset {offset} states a header of {bytes} bytes")]
    Header {
        /// Offset of the entry.
        offset: usize,
        /// The size that the header states for itself.
        bytes: u32,
    },
    /// An image exceeds the caller's limit, or the limit for compressed bytes.
    #[error("the entry at offset {offset}: {cause}")]
    TooLarge {
        /// Offset of the entry.
        offset: usize,
        /// The compressed size and the limit.
        cause: TooLarge,
    },
    /// The decompressor rejected the image's bytes.
    #[error("the entry at offset {offset} cannot be decompressed: {cause}")]
    Packed {
        /// Offset of the entry.
        offset: usize,
        /// The message of the decompressor.
        cause: String,
    },
}
