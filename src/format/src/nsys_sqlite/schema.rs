//! The size of an export's schema, before SQLite reads it.
//!
//! SQLite keeps the parsed statements of all tables in memory, in each connection, and an expression
//! takes up to 70 times its text there. So their texts are counted in the file itself. The table of
//! tables is a B-tree whose root is page 1. A page begins with its kind (5: it lists pages below it,
//! 13: it lists rows), behind the 100 bytes of the file's header on page 1.
//!
//! Source: "Database File Format" of SQLite (fileformat2.html).

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The text of a schema may take this many bytes: eight times the largest of nsys that was seen.
pub(super) const MAX_SCHEMA_BYTES: u64 = 256 << 10;

/// What each page counts at least, so that pages which list each other come to an end.
const PAGE_COST: u64 = 64;

const FILE_HEADER_BYTES: usize = 100;
const INTERIOR: u8 = 5;
const LEAF: u8 = 13;

/// The bytes of the rows of the table of tables; more than [`MAX_SCHEMA_BYTES`] if there are more.
/// What cannot be read is left to SQLite, which refuses it.
pub(super) fn bytes(file: &File) -> u64 {
    let mut header = [0; FILE_HEADER_BYTES];
    if file.read_exact_at(&mut header, 0).is_err() {
        return 0;
    }
    let page_bytes = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 1 << 16,
        bytes => usize::from(bytes),
    };
    let (mut total, mut open) = (0, vec![1]);
    let mut page = vec![0; page_bytes];
    while let Some(number) = open.pop()
        && total <= MAX_SCHEMA_BYTES
    {
        let start = (u64::from(number) - 1) * page_bytes as u64;
        if file.read_exact_at(&mut page, start).is_ok() {
            let head = if number == 1 { FILE_HEADER_BYTES } else { 0 };
            total += add_page(&page, head, &mut open).unwrap_or(0);
        }
    }
    total
}

/// Adds the pages that a page lists to `open`, and returns the bytes of its rows. `None` if the page
/// is damaged.
fn add_page(page: &[u8], head: usize, open: &mut Vec<u32>) -> Option<u64> {
    let kind = *page.get(head)?;
    let cells = usize::from(u16::from_be_bytes(number(page, head + 3)?));
    let list = head + if kind == INTERIOR { 12 } else { 8 };
    let mut total = PAGE_COST;
    if kind == INTERIOR {
        add_child(u32::from_be_bytes(number(page, head + 8)?), open);
    }
    for cell in 0..cells {
        let at = usize::from(u16::from_be_bytes(number(page, list + 2 * cell)?));
        match kind {
            INTERIOR => add_child(u32::from_be_bytes(number(page, at)?), open),
            LEAF => total = total.saturating_add(varint(page.get(at..)?)),
            _ => return None,
        }
        if total > MAX_SCHEMA_BYTES || open.len() as u64 * PAGE_COST > MAX_SCHEMA_BYTES {
            return Some(MAX_SCHEMA_BYTES + 1);
        }
    }
    Some(total)
}

/// Adds a page. No page has the number 0.
fn add_child(number: u32, open: &mut Vec<u32>) {
    if number > 0 {
        open.push(number);
    }
}

fn number<const N: usize>(page: &[u8], at: usize) -> Option<[u8; N]> {
    page.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// A number of one to nine bytes: seven bits of each, eight of the ninth.
fn varint(bytes: &[u8]) -> u64 {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().take(9).enumerate() {
        if at == 8 {
            return value << 8 | u64::from(*byte);
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}
