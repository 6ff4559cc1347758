//! Reads the sections of CPU ELF files in which compilers store fatbins.

use super::walk::{Found, ImagePath, ReadRanges, fatbins};
use super::{ContainerError, Limits};
use goblin::container::{Container, Ctx};
use goblin::elf::section_header::{SHN_XINDEX, SHT_NOBITS};
use goblin::elf::{Elf, SectionHeader};

/// `__nv_relfatbin` holds relocatable device code; the last is the spelling of clang and hipcc.
const SECTIONS: &[&[u8]] = &[b".nv_fatbin", b"__nv_relfatbin", b"__nv_fatbin"];

pub(super) fn walk<'a>(
    data: &'a [u8],
    place: &ImagePath,
    limits: &Limits,
    found: &mut Found<'a, '_>,
) {
    match sections(data) {
        Ok(sections) => {
            let mut ranges = ReadRanges::default();
            for (index, header) in sections.headers.iter().enumerate() {
                if found.is_full() {
                    return;
                }
                let name = sections.name(data, header);
                if !SECTIONS.contains(&name) || header.sh_type == SHT_NOBITS {
                    continue;
                }
                let name = String::from_utf8_lossy(name).into_owned();
                let Some(bytes) = bytes(data, header) else {
                    let cut = ContainerError::CutSection { section: name, index };
                    found.push(place.clone(), Err(cut));
                    continue;
                };
                // `bytes` has checked that the offset fits.
                let start = usize::try_from(header.sh_offset).unwrap_or(usize::MAX);
                if !ranges.add((start, bytes.len()), (name.as_str(), index), place, found) {
                    continue;
                }
                let place = ImagePath { section: Some((name, index)), ..place.clone() };
                fatbins(bytes, &place, limits, found);
            }
        }
        Err(error) => found.push(place.clone(), Err(error)),
    }
}

struct Sections {
    headers: Vec<SectionHeader>,
    names: Option<SectionHeader>,
}

impl Sections {
    /// Looks a name up in the file: a string table in memory would grow with a hostile file's
    /// claims.
    fn name<'a>(&self, data: &'a [u8], header: &SectionHeader) -> &'a [u8] {
        let table = self.names.as_ref().and_then(|names| bytes(data, names)).unwrap_or_default();
        let rest = table.get(header.sh_name..).unwrap_or_default();
        // No section name of interest is longer.
        let rest = &rest[..rest.len().min(64)];
        &rest[..rest.iter().position(|b| *b == 0).unwrap_or(rest.len())]
    }
}

fn bytes<'a>(data: &'a [u8], header: &SectionHeader) -> Option<&'a [u8]> {
    let start = usize::try_from(header.sh_offset).ok()?;
    let end = start.checked_add(usize::try_from(header.sh_size).ok()?)?;
    data.get(start..end)
}

fn sections(data: &[u8]) -> Result<Sections, ContainerError> {
    let broken = |cause: goblin::error::Error| ContainerError::HostElf { cause: cause.to_string() };
    let header = Elf::parse_header(data).map_err(broken)?;
    let container = if header.container().map_err(broken)? == Container::Big {
        Container::Big
    } else {
        Container::Little
    };
    let ctx = Ctx::new(container, header.endianness().map_err(broken)?);
    let start = usize::try_from(header.e_shoff).unwrap_or(usize::MAX);
    let mut headers = Vec::new();
    let mut names = usize::from(header.e_shstrndx);
    if start != 0 {
        // Files with more than 65 279 sections keep the count and the index in section 0.
        let mut count = usize::from(header.e_shnum);
        if count == 0 || names == SHN_XINDEX as usize {
            let first = SectionHeader::parse_from(data, start, 1, ctx).map_err(broken)?;
            if let Some(first) = first.first() {
                count = if count == 0 { first.sh_size as usize } else { count };
                names = if names == SHN_XINDEX as usize { first.sh_link as usize } else { names };
            }
        }
        let max_count = data.len().saturating_sub(start) / SectionHeader::size(ctx).max(1);
        if count > max_count {
            let cause = format!("{count} section headers at offset {start}, room for {max_count}");
            return Err(ContainerError::HostElf { cause });
        }
        headers = SectionHeader::parse_from(data, start, count, ctx).map_err(broken)?;
    }
    let names = headers.get(names).cloned();
    Ok(Sections { headers, names })
}
