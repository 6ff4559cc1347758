//! Reads GPU code that is written as arrays of numbers in a C source, such as `*.cubin.cpp` of
//! TensorRT-LLM: `unsigned char name[] = {0x7f, 0x45, …}`, or in words of 4 or 8 bytes.

use super::Limits;
use super::walk::{ContainerKind, ImageEntry, ImagePath, Room, inside, kind};

/// The beginning of an array with a cubin or a fatbin, without spaces, in lower case.
const BEGINNINGS: &[&[u8]] = &[
    b"{0x7f,0x45,0x4c,0x46,",
    b"{127,69,76,70,",
    b"{0x464c457f",
    b"{0x33010102464c457f",
    b"{0x41010102464c457f",
    b"{0x50,0xed,0x55,0xba,",
    b"{0xba55ed50",
    b"{0x00100001ba55ed50",
    b"{0x100001ba55ed50",
];

/// Whether a file begins like a source with such an array.
pub(super) fn is_source(head: &[u8]) -> bool {
    if head.contains(&0) || !head.contains(&b'{') {
        return false;
    }
    let plain: Vec<u8> = head
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(u8::to_ascii_lowercase)
        .collect();
    BEGINNINGS.iter().any(|start| plain.windows(start.len()).any(|part| part == *start))
}

/// Passes the images of each array to `visit`. An array has fewer bytes than its text.
pub(super) fn walk(data: &[u8], limits: &Limits, visit: &mut dyn FnMut(Vec<ImageEntry<'_>>)) {
    let mut rest = data;
    let mut before = 0;
    let mut room = Room::for_file(data.len());
    while let Some(open) = rest.iter().position(|byte| *byte == b'{') {
        let name = name(&data[before..before + open]);
        let body = &rest[open + 1..];
        let (bytes, used) = numbers(body);
        before += open + 1 + used;
        rest = &body[used..];
        let found = kind(&bytes[..bytes.len().min(4096)]);
        if let Some(found @ (ContainerKind::Cubin | ContainerKind::Fatbin)) = found {
            visit(inside(&bytes, found, &ImagePath::default().member(&name), limits, &mut room));
            if room.is_full {
                return;
            }
        }
    }
}

/// The name of the array that is declared at the end of `text`.
fn name(text: &[u8]) -> String {
    let text = &text[text.len().saturating_sub(512)..];
    let text = String::from_utf8_lossy(text);
    let declared = text.rsplit_once('[').map_or("", |(declared, _)| declared).trim_end();
    let start = declared.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let name = start.map_or(declared, |at| &declared[at + 1..]);
    if name.is_empty() { "array".to_owned() } else { name.to_owned() }
}

/// The numbers of a list up to its end or to what is no number, as bytes, and the length of its
/// text. The first number tells how many bytes each has.
fn numbers(text: &[u8]) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    let mut width = None;
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let spaces = rest.iter().take_while(|b| b.is_ascii_whitespace() || **b == b',').count();
        let rest = &rest[spaces..];
        let length = rest.iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        let word = std::str::from_utf8(&rest[..length]).unwrap_or_default();
        let Some(number) = number(word) else { break };
        at += spaces + length;
        let width = *width.get_or_insert(match number {
            0..=0xff => 1,
            0x100..=0xffff_ffff => 4,
            _ => 8,
        });
        bytes.extend_from_slice(&number.to_le_bytes()[..width]);
    }
    (bytes, at)
}

/// A number in C, with its suffix.
fn number(word: &str) -> Option<u64> {
    let word = word.trim_end_matches(['u', 'U', 'l', 'L']);
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}
