//! Reads the notes that name the compiler of a cubin and its command line.
//!
//! `.note.nv.tkinfo` (type 2000): u32 version, then u32 offsets of NUL-ended strings (object, tool,
//! release, build, command line), relative to the first byte behind the offsets. The version is 2
//! in 13.5; 12.9 has the toolkit (129) in its place.
//! `.note.nv.cuinfo` (type 1000): u16 version 2, u16 virtual SM, u32 toolkit (135 is 13.5). 12.9
//! calls it `.note.nv.cuver`, version 1, without a toolkit.

/// The compiler's identification in `.note.nv.tkinfo`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Producer {
    /// Name of the tool, `ptxas`.
    pub tool: String,
    /// Its release, such as `Cuda compilation tools, release 13.5, V13.5.37`.
    pub release: String,
    /// Build of the tool.
    pub build: String,
    /// Full command line without the tool's name.
    pub command_line: String,
}

/// The description of the first note of `kind` in a note section.
fn description(section: &[u8], kind: u32) -> Option<&[u8]> {
    let mut rest = section;
    while rest.len() >= 12 {
        let name_len = word(rest, 0)? as usize;
        let desc_len = word(rest, 4)? as usize;
        let desc_at = 12usize.checked_add(name_len.checked_next_multiple_of(4)?)?;
        let desc = rest.get(desc_at..desc_at.checked_add(desc_len)?)?;
        if word(rest, 8)? == kind {
            return Some(desc);
        }
        rest = rest.get(desc_at.checked_add(desc_len.checked_next_multiple_of(4)?)?..)?;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let b = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

/// Reads `.note.nv.tkinfo`. Returns `None` for an unknown layout, since the note is optional.
pub(super) fn producer(section: &[u8]) -> Option<Producer> {
    const STRINGS: usize = 5;
    let desc = description(section, 2000)?;
    let base = 4 + 4 * STRINGS;
    let text = |n: usize| -> Option<String> {
        let at = base.checked_add(word(desc, 4 + 4 * n)? as usize)?;
        let bytes = desc.get(at..)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]).trim().to_owned())
    };
    Some(Producer { tool: text(1)?, release: text(2)?, build: text(3)?, command_line: text(4)? })
}

/// The toolkit's number in `.note.nv.tkinfo`, as 12.9 writes it.
pub(super) fn toolkit(section: &[u8]) -> Option<u32> {
    word(description(section, 2000)?, 0).filter(|n| *n >= LEAST_TOOLKIT)
}

/// Toolkits are numbered `10 * major + minor`, and none before 10.0 writes notes. A smaller number
/// is the version of a note.
const LEAST_TOOLKIT: u32 = 100;

/// Reads `.note.nv.cuinfo` or `.note.nv.cuver`: virtual SM, and the toolkit's number if present.
pub(super) fn cuda_info(section: &[u8]) -> Option<(u16, Option<u32>)> {
    let desc = description(section, 1000)?;
    let toolkit = word(desc, 4).filter(|n| *n >= LEAST_TOOLKIT);
    Some(((word(desc, 0)? >> 16) as u16, toolkit))
}
