//! The limit on the unpacked size of compressed bytes, shared by all readers, and files that are
//! packed as a whole: gzip with any number of members, and zstd.
//!
//! vLLM, TensorBoard's plug-in and JAX write their traces as `*.trace.json.gz`.

use std::borrow::Cow;
use std::io::Read;

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

/// Why a packed file could not be unpacked.
#[derive(Debug, Error)]
pub enum UnpackError {
    /// It would become too large.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The packed bytes are broken.
    #[error("broken {format} file")]
    Broken {
        /// `gzip` or `zstd`.
        format: &'static str,
        /// The error of the library.
        #[source]
        cause: std::io::Error,
    },
}

/// How a whole file is packed, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// One or several members of gzip.
    Gzip,
    /// One or several frames of zstd.
    Zstd,
}

impl Packing {
    /// The packing of a file that begins with `head`. `None` if it is not packed.
    pub fn from_head(head: &[u8]) -> Option<Packing> {
        match head {
            [0x1f, 0x8b, 8, ..] => Some(Packing::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packing::Zstd),
            _ => None,
        }
    }

    fn reader<'a>(self, packed: &'a [u8]) -> std::io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(packed)),
            Packing::Zstd => Box::new(zstd::stream::read::Decoder::new(packed)?),
        })
    }

    fn broken(self, cause: std::io::Error) -> UnpackError {
        let format = if self == Packing::Gzip { "gzip" } else { "zstd" };
        UnpackError::Broken { format, cause }
    }
}

/// Whole bytes of a file, unpacked if it is packed, with what is wrong at their end.
#[derive(Debug)]
pub struct UnpackedFile<'a> {
    /// The bytes; borrowed if the file is not packed.
    pub bytes: Cow<'a, [u8]>,
    /// Why the bytes end early: the packed file was cut off or is broken.
    pub cut: Option<UnpackError>,
}

/// Unpacks a whole file to at most `max_bytes` and within the limit on the ratio.
///
/// # Errors
/// [`UnpackError`]. A file that breaks off gives the bytes before.
pub fn whole(file: &[u8], max_bytes: u64) -> Result<UnpackedFile<'_>, UnpackError> {
    let Some(packing) = Packing::from_head(file) else {
        return Ok(UnpackedFile { bytes: Cow::Borrowed(file), cut: None });
    };
    let bound = TooLarge::new(file.len(), max_bytes);
    let reader = packing.reader(file).map_err(|cause| packing.broken(cause))?;
    let mut bytes = Vec::new();
    let read = reader.take(bound.limit.saturating_add(1)).read_to_end(&mut bytes);
    bound.check(bytes.len() as u64)?;
    let cut = match read {
        Ok(_) => None,
        Err(cause) if bytes.is_empty() => return Err(packing.broken(cause)),
        Err(cause) => Some(packing.broken(cause)),
    };
    Ok(UnpackedFile { bytes: Cow::Owned(bytes), cut })
}

/// The first bytes of a file, unpacked as far as `head` goes, and at most `most` of them.
pub fn head(head: &[u8], most: usize) -> Cow<'_, [u8]> {
    let Some(packing) = Packing::from_head(head) else { return Cow::Borrowed(head) };
    let mut bytes = Vec::new();
    if let Ok(reader) = packing.reader(head) {
        // `head` ends in the middle of the packed bytes; what came out before is enough.
        let _ = reader.take(most as u64).read_to_end(&mut bytes);
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(text).unwrap();
        packer.finish().unwrap()
    }

    #[test]
    fn all_members_are_unpacked_and_plain_bytes_are_left_alone() {
        let two = [gzip(b"one "), gzip(b"two")].concat();
        assert_eq!(&*whole(&two, 100).unwrap().bytes, b"one two");
        assert_eq!(&*whole(b"plain", 1).unwrap().bytes, b"plain");
        let zstd = zstd::encode_all(&b"three"[..], 3).unwrap();
        assert_eq!(&*whole(&zstd, 100).unwrap().bytes, b"three");
    }

    #[test]
    fn a_file_that_unpacks_to_too_much_is_refused() {
        let bomb = gzip(&vec![b' '; 80 << 20]);
        assert!(matches!(whole(&bomb, u64::MAX), Err(UnpackError::TooLarge(_))));
        assert!(matches!(whole(&gzip(&[b'x'; 11]), 10), Err(UnpackError::TooLarge(_))));
    }

    #[test]
    fn a_file_cut_anywhere_gives_the_bytes_before() {
        let text: Vec<u8> = (0..5000u32).flat_map(|n| n.to_string().into_bytes()).collect();
        let packed = gzip(&text);
        for end in 0..packed.len() {
            if let Ok(unpacked) = whole(&packed[..end], 1 << 20) {
                assert!(unpacked.cut.is_some() || end < 3);
                assert!(end < 3 || text.starts_with(&unpacked.bytes));
            }
        }
        assert!(text.starts_with(&head(&packed[..packed.len() / 2], 1000)));
        assert_eq!(head(&packed, 1000).len(), 1000);
    }
}
