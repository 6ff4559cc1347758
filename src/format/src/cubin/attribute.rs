//! The records of `.nv.info`, `.nv.info.K` and `.nv.compat`.
//!
//! | bytes | meaning |
//! |---|---|
//! | u8 | format: 1 none (2 bytes of padding), 2 one byte (1 byte of padding), 3 u16, 4 u16 length and bytes |
//! | u8 | code |
//! | .. | payload |

use super::CubinError;

/// Codes that this crate uses, by the names of `cuobjdump -elf` (`EIATTR_…`).
pub(super) mod code {
    pub(in crate::cubin) const MAX_THREADS: u8 = 0x05;
    pub(in crate::cubin) const PARAM_CBANK: u8 = 0x0a;
    pub(in crate::cubin) const REQNTID: u8 = 0x10;
    pub(in crate::cubin) const FRAME_SIZE: u8 = 0x11;
    pub(in crate::cubin) const MIN_STACK_SIZE: u8 = 0x12;
    pub(in crate::cubin) const KPARAM_INFO: u8 = 0x17;
    pub(in crate::cubin) const MAXREG_COUNT: u8 = 0x1b;
    pub(in crate::cubin) const EXIT_INSTR_OFFSETS: u8 = 0x1c;
    pub(in crate::cubin) const REGCOUNT: u8 = 0x2f;
    pub(in crate::cubin) const NUM_MBARRIERS: u8 = 0x38;
    pub(in crate::cubin) const CTA_PER_CLUSTER: u8 = 0x3d;
    pub(in crate::cubin) const MAX_CLUSTER_RANK: u8 = 0x3f;
    pub(in crate::cubin) const KPARAM_INFO_V2: u8 = 0x45;
    pub(in crate::cubin) const NUM_BARRIERS: u8 = 0x4c;
    pub(in crate::cubin) const TCGEN05_1CTA_USED: u8 = 0x51;
    pub(in crate::cubin) const TCGEN05_2CTA_USED: u8 = 0x52;
    pub(in crate::cubin) const ANNOTATIONS: u8 = 0x55;
    /// In `.nv.compat`: 1 for an accelerated (`a`) target.
    pub(in crate::cubin) const COMPAT_ACCELERATOR_TARGET: u8 = 0x09;
}

/// One attribute record of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// The number of the attribute: one of NVIDIA's `EIATTR_…`.
    pub code: u8,
    /// The payload that follows it.
    pub payload: Payload<'a>,
}

/// The payload of an [`Attribute`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    /// No payload: the presence of the attribute is the information.
    None,
    /// One byte, followed by one of padding.
    Byte(u8),
    /// One 16-bit number without a length.
    Short(u16),
    /// Sized bytes, mostly a list of little-endian u32.
    Bytes(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// The payload as one number: of sized bytes the first u32. `None` if there is none.
    pub fn number(&self) -> Option<u32> {
        match self {
            Payload::None => None,
            Payload::Byte(n) => Some(u32::from(*n)),
            Payload::Short(n) => Some(u32::from(*n)),
            Payload::Bytes(_) => self.words().next(),
        }
    }

    /// The payload's little-endian u32 words; incomplete trailing bytes are ignored.
    pub fn words(&self) -> impl Iterator<Item = u32> + use<'a> {
        let bytes: &'a [u8] = match self {
            Payload::Bytes(bytes) => bytes,
            _ => &[],
        };
        bytes.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]))
    }

    /// Three words: a grid or block shape.
    pub(super) fn triple(&self) -> Option<[u32; 3]> {
        let mut words = self.words();
        Some([words.next()?, words.next()?, words.next()?])
    }
}

/// Reads all records of one section. `offset` is the section's offset in the file.
pub(super) fn read<'a>(
    bytes: &'a [u8],
    offset: u64,
    section: &[u8],
) -> Result<Vec<Attribute<'a>>, CubinError> {
    let mut records = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let cut = || CubinError::CutAttribute {
            section: String::from_utf8_lossy(section).into_owned(),
            offset: offset + at as u64,
        };
        let head = bytes.get(at..at + 4).ok_or_else(cut)?;
        let short = u16::from_le_bytes([head[2], head[3]]);
        let mut next = at + 4;
        let payload = match head[0] {
            2 => Payload::Byte(head[2]),
            3 => Payload::Short(short),
            4 => {
                next += usize::from(short);
                Payload::Bytes(bytes.get(at + 4..next).ok_or_else(cut)?)
            }
            // 1 has no payload. Unknown formats are treated the same way, so that one new record
            // does not hide the rest.
            _ => Payload::None,
        };
        records.push(Attribute { code: head[1], payload });
        at = next;
    }
    Ok(records)
}
