//! Reads the sections of Windows programs, libraries (PE) and object files (COFF) in which nvcc
//! stores fatbins.

use super::walk::{Found, ImagePath, ReadRanges, fatbins};
use super::{ContainerError, Limits};
use object::{Object, ObjectSection};

/// Beginnings of the sections' names: a name in a program has at most 8 bytes.
const SECTIONS: &[&[u8]] = &[b".nv_fatb", b"__nv_rel", b"__nv_fat"];

/// Whether a file begins like a program, library or object file of Windows.
pub(super) fn is_windows(head: &[u8]) -> bool {
    is_pe(head) || is_coff(head)
}

fn number<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn is_pe(head: &[u8]) -> bool {
    let new_header = number(head, 0x3c).map(u32::from_le_bytes);
    let new_header = new_header.and_then(|at| usize::try_from(at).ok());
    let signature = new_header.and_then(|at| number::<4>(head, at));
    head.starts_with(b"MZ") && signature == Some(*b"PE\0\0")
}

/// An object file has no magic: the machine is x86-64, ARM64 or x86, there are sections and
/// symbols, and there is no optional header.
fn is_coff(head: &[u8]) -> bool {
    let machine = matches!(head, [0x64, 0x86 | 0xaa, ..] | [0x4c, 0x01, ..]);
    let sections = number(head, 2).map(u16::from_le_bytes);
    let symbols = number(head, 8).map(u32::from_le_bytes);
    let optional_bytes = number(head, 16).map(u16::from_le_bytes);
    machine
        && sections.is_some_and(|count| (1..=4096).contains(&count))
        && symbols.is_some_and(|at| at >= 20)
        && optional_bytes == Some(0)
}

pub(super) fn walk<'a>(
    data: &'a [u8],
    place: &ImagePath,
    limits: &Limits,
    found: &mut Found<'a, '_>,
) {
    let file = match object::File::parse(data) {
        Ok(file) => file,
        Err(error) => {
            let cause = error.to_string();
            found.push(place.clone(), Err(ContainerError::Windows { cause }));
            return;
        }
    };
    let mut ranges = ReadRanges::default();
    for (section, index) in file.sections().zip(1..) {
        if found.is_full() {
            return;
        }
        let Ok(name) = section.name_bytes() else { continue };
        if !SECTIONS.iter().any(|known| name.starts_with(known)) {
            continue;
        }
        let name = String::from_utf8_lossy(name).into_owned();
        match section.data() {
            Ok(bytes) => {
                let start = section.file_range().map_or(0, |(start, _)| start);
                let start = usize::try_from(start).unwrap_or(usize::MAX);
                if !ranges.add((start, bytes.len()), (name.as_str(), index), place, found) {
                    continue;
                }
                let place = ImagePath { section: Some((name, index)), ..place.clone() };
                fatbins(bytes, &place, limits, found);
            }
            Err(_) => {
                let cut = ContainerError::CutSection { section: name, index };
                found.push(place.clone(), Err(cut));
            }
        }
    }
}
