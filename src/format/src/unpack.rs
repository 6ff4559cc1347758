//! How large compressed bytes may become: one rule for all readers.

use thiserror::Error;

/// Compressed bytes unpack to at most this many times their size. Reports and machine code shrink to
/// a twentieth; what shrinks further is made to fill memory.
pub const MAX_UNPACK_RATIO: u64 = 128;

/// Compressed bytes may always unpack to this much, which any machine can hold.
const SMALL_BYTES: u64 = 64 << 20;

/// Compressed bytes that would become too large.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error(
    "{stored} compressed bytes would unpack to more than {limit}, which is refused; if you trust \
     the file, unpack it with another tool and read what comes out"
)]
pub struct TooLarge {
    /// The compressed bytes.
    pub stored: u64,
    /// Bytes that they may unpack to.
    pub limit: u64,
}

impl TooLarge {
    /// For compressed bytes, where the caller takes no more than `most` bytes of anything.
    pub(crate) fn new(stored: usize, most: u64) -> Self {
        let stored = stored as u64;
        let limit = stored.saturating_mul(MAX_UNPACK_RATIO).max(SMALL_BYTES).min(most);
        Self { stored, limit }
    }

    /// Itself as an error, where `bytes` are more than the limit.
    pub(crate) fn check(self, bytes: u64) -> Result<(), Self> {
        if bytes > self.limit { Err(self) } else { Ok(()) }
    }
}
