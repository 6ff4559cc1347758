//! The ELF tables of a cubin as lists of sections and symbols by index.

use super::CubinError;
use object::elf::{FileHeader64, SHT_NOBITS, SHT_SYMTAB};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use object::{LittleEndian, SectionIndex};

/// `e_machine` of every cubin.
const EM_CUDA: u16 = 190;

/// CUDA's section types that have a size but no bytes in the file: uninitialised global, local and
/// shared memory (used by older toolkits, and still by large libraries).
const WITHOUT_BYTES: [u32; 3] = [0x7000_0007, 0x7000_0009, 0x7000_000a];

/// The sections together may be at most this many times as large as the file: newer toolkits let
/// some share bytes.
const MAX_SECTION_BYTES_RATIO: usize = 4;

pub(super) struct Elf<'a> {
    pub(super) os_abi: u8,
    pub(super) abi_version: u8,
    pub(super) kind: u16,
    pub(super) version: u32,
    pub(super) flags: u32,
    pub(super) sections: Vec<Section<'a>>,
    pub(super) symbols: Vec<Symbol<'a>>,
}

pub(super) struct Section<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: u32,
    pub(super) flags: u64,
    pub(super) info: u32,
    pub(super) offset: u64,
    pub(super) size: u64,
    /// Empty for sections that have no bytes in the file.
    pub(super) data: &'a [u8],
}

pub(super) struct Symbol<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: u8,
    pub(super) other: u8,
    pub(super) section: usize,
    pub(super) value: u64,
    pub(super) size: u64,
}

pub(super) fn read(data: &[u8]) -> Result<Elf<'_>, CubinError> {
    if !data.starts_with(b"\x7fELF") {
        let start = data.iter().take(8).map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
        return Err(CubinError::NotElf { start });
    }
    let broken = |part: &'static str| {
        move |e: object::Error| CubinError::Elf { part: part.to_owned(), cause: e.to_string() }
    };
    let broken_one = |what: &'static str, index: usize| {
        move |e: object::Error| CubinError::Elf {
            part: format!("{what} {index}"),
            cause: e.to_string(),
        }
    };
    let e = LittleEndian;
    let header = FileHeader64::<LittleEndian>::parse(data).map_err(broken("file header"))?;
    let machine = header.e_machine(e).0;
    if machine != EM_CUDA {
        return Err(CubinError::NotCuda { machine });
    }
    let table = header.sections(e, data).map_err(broken("section table"))?;
    let mut sections = Vec::with_capacity(table.len());
    let mut left = data.len().saturating_mul(MAX_SECTION_BYTES_RATIO);
    for (index, section) in table.enumerate() {
        let broken = broken_one("section", index.0);
        let name = table.section_name(e, section).map_err(broken)?;
        let kind = section.sh_type(e);
        let bytes = if kind == SHT_NOBITS || WITHOUT_BYTES.contains(&kind.0) {
            &[][..]
        } else {
            section.data(e, data).map_err(broken)?
        };
        // Thousands of headers may name the same bytes, each of which would be read again.
        left = left.checked_sub(bytes.len()).ok_or_else(|| CubinError::Elf {
            part: format!("section {}", index.0),
            cause: "the sections overlap".to_owned(),
        })?;
        sections.push(Section {
            name,
            kind: kind.0,
            flags: section.sh_flags(e).0,
            info: section.sh_info(e),
            offset: section.sh_offset(e),
            size: section.sh_size(e),
            data: bytes,
        });
    }
    let table = table.symbols(e, data, SHT_SYMTAB).map_err(broken("symbol table"))?;
    let mut symbols = Vec::with_capacity(table.len());
    for (index, symbol) in table.enumerate() {
        let broken = broken_one("symbol", index.0);
        let section =
            table.symbol_section(e, symbol, index).map_err(broken)?.unwrap_or(SectionIndex(0));
        symbols.push(Symbol {
            name: table.symbol_name(e, symbol).map_err(broken)?,
            kind: symbol.st_type().0,
            other: symbol.st_other().0,
            section: section.0,
            value: symbol.st_value(e),
            size: symbol.st_size(e),
        });
    }
    let ident = header.e_ident();
    Ok(Elf {
        os_abi: ident.os_abi.0,
        abi_version: ident.abi_version,
        kind: header.e_type(e).0,
        version: header.e_version(e),
        flags: header.e_flags(e).0,
        sections,
        symbols,
    })
}
