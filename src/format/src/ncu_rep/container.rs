//! The outer layer: recognises a report and decompresses it if needed.
//!
//! `.ncu-repz` is one zstd frame around a complete `.ncu-rep`. NVIDIA's reader relies on the file's
//! extension and shows an empty report when that is wrong; this reader relies on the first bytes.

use std::borrow::Cow;
use std::io::Read;

use super::error::{Error, Problem, Problems};
use crate::unpack::TooLarge;

/// First bytes of an uncompressed report.
pub(super) const MAGIC: [u8; 4] = *b"NVR\0";
/// First bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// First bytes of files that are often passed by mistake, with the name of their format.
const OTHER_FORMATS: &[(&[u8], &str)] = &[
    (b"NVIDIA Tegra Profiler Report", "the header of an nsys report"),
    (b"SQLite format 3\0", "the header of an sqlite database"),
    (b"\x7fELF", "the header of an ELF file (a cubin or a program)"),
    (b"\x1f\x8b", "the header of a gzip file"),
    (b"PK\x03\x04", "the header of a zip archive"),
    (b"<?xml", "XML"),
    (b"==PROF==", "ncu's log"),
    (b"\"ID\",", "ncu's CSV"),
];

/// Whether `head`, the first bytes of a file, may begin a report, compressed or not. A file that is
/// cut inside its magic counts as a cut report.
pub fn begins(head: &[u8]) -> bool {
    let like = |magic: &[u8]| head.starts_with(magic) || magic.starts_with(head);
    like(&MAGIC) || like(&ZSTD_MAGIC)
}

/// The uncompressed bytes of the report, borrowed when the file is not compressed.
pub(super) fn open<'a>(
    file: &'a [u8],
    max_size: u64,
    problems: &mut Problems,
) -> Result<Cow<'a, [u8]>, Error> {
    if file.is_empty() {
        return Err(Error::Empty);
    }
    if file.starts_with(&ZSTD_MAGIC) {
        return inflate(file, max_size, problems).map(Cow::Owned);
    }
    if !begins(file) {
        return Err(Error::WrongKind { found: describe(file) });
    }
    if file.len() as u64 > max_size {
        return Err(Error::TooLarge { max: max_size });
    }
    Ok(Cow::Borrowed(file))
}

fn inflate(file: &[u8], max_size: u64, problems: &mut Problems) -> Result<Vec<u8>, Error> {
    let decoder = zstd::stream::read::Decoder::new(file);
    let decoder = decoder.map_err(|source| Error::Compression { source })?;
    let bound = TooLarge::new(file.len(), max_size);
    let mut bytes = Vec::new();
    // Doubling the buffer would take three times the report's size.
    if let Ok(Some(size)) = zstd::zstd_safe::get_frame_content_size(file) {
        within(bound, size, max_size)?;
        // If the reservation fails, the vector grows as needed.
        let _ = usize::try_from(size).map(|size| bytes.try_reserve_exact(size.saturating_add(1)));
    }
    // Reading one byte more than allowed distinguishes a report of exactly the limit from a larger
    // one.
    let result = decoder.take(bound.limit.saturating_add(1)).read_to_end(&mut bytes);
    within(bound, bytes.len() as u64, max_size)?;
    match result {
        Err(source) if bytes.is_empty() => return Err(Error::Compression { source }),
        Err(source) => problems.push(Problem::Compression { bytes: bytes.len(), source }),
        Ok(_) if bytes.is_empty() => return Err(Error::Empty),
        Ok(_) => {}
    }
    if !bytes.starts_with(&MAGIC) && !MAGIC.starts_with(&bytes) {
        return Err(Error::WrongKind {
            found: format!("a zstd frame around {}", describe(&bytes)),
        });
    }
    Ok(bytes)
}

/// Refuses more bytes than the caller's limit, and more than `bound` allows for the compressed
/// size.
fn within(bound: TooLarge, bytes: u64, max_size: u64) -> Result<(), Error> {
    if bytes > max_size {
        return Err(Error::TooLarge { max: max_size });
    }
    Ok(bound.check(bytes)?)
}

fn describe(file: &[u8]) -> String {
    if let Some((_, name)) = OTHER_FORMATS.iter().find(|(magic, _)| file.starts_with(magic)) {
        return (*name).to_owned();
    }
    let first = file.get(..file.len().min(16)).unwrap_or_default();
    if first.iter().all(|byte| (0x20..0x7f).contains(byte) || b"\t\r\n".contains(byte)) {
        return format!("`{}`", String::from_utf8_lossy(first).escape_default());
    }
    let hex: Vec<_> = first.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("the bytes {}", hex.join(" "))
}
