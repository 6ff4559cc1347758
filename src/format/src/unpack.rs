//! The limit on the unpacked size of compressed bytes, shared by all readers.

use thiserror::Error;

/// Compressed bytes may unpack to at most this many times their size. Reports and machine code
/// shrink to a twentieth; data that shrinks further is made to fill memory.
pub const MAX_UNPACK_RATIO: u64 = 128;

/// Compressed bytes may always unpack to this many bytes, which any machine can hold.
const SMALL_BYTES: u64 = 64 << 20;

/// Compressed bytes that would unpack to more than the limit.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error(
    "{stored} compressed bytes would unpack to more than {limit}, which is refused; if you trust \
     the file, unpack it with another tool and read what comes out"
)]
pub struct TooLarge {
    /// Number of compressed bytes.
    pub stored: u64,
    /// Maximum number of unpacked bytes.
    pub limit: u64,
}

impl TooLarge {
    /// The limit for `stored` compressed bytes, if the caller accepts at most `max_bytes` bytes.
    pub(crate) fn new(stored: usize, max_bytes: u64) -> Self {
        let stored = stored as u64;
        let limit = stored.saturating_mul(MAX_UNPACK_RATIO).max(SMALL_BYTES).min(max_bytes);
        Self { stored, limit }
    }

    /// Fails if `bytes` exceed the limit.
    pub(crate) fn check(self, bytes: u64) -> Result<(), Self> {
        if bytes > self.limit { Err(self) } else { Ok(()) }
    }
}
