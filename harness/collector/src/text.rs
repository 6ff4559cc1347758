//! Converts the program's C strings to UTF-8 with a bound on their length. The pointer may be null,
//! and the bytes may be no text.

use crate::abi::{CChar, WideChar};
use std::borrow::Cow;

/// Maximum length of a text in bytes of UTF-8. Longer texts are cut and marked.
pub(crate) const MAX_BYTES: usize = 4096;
const CUT: char = '…';

/// A `char` string as UTF-8.
///
/// # Safety
/// `text` is null or points to a string that ends in NUL and lives as long as the result is used.
pub(crate) unsafe fn narrow<'a>(text: *const CChar) -> Option<Cow<'a, str>> {
    if text.is_null() {
        return None;
    }
    // SAFETY: strnlen stops at the NUL that the caller guarantees, or at the bound.
    let length = unsafe { libc::strnlen(text, MAX_BYTES + 1) };
    // SAFETY: strnlen has seen these bytes.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length.min(MAX_BYTES)) };
    let read = String::from_utf8_lossy(bytes);
    if length <= MAX_BYTES {
        return Some(read);
    }
    // The bound may have split a character, which then reads as U+FFFD.
    let mut cut = read.trim_end_matches(char::REPLACEMENT_CHARACTER).to_owned();
    cut.push(CUT);
    Some(Cow::Owned(cut))
}

/// A `wchar_t` string as UTF-8.
///
/// # Safety
/// `text` is null or points to an aligned string that ends in a zero unit.
pub(crate) unsafe fn wide(text: *const WideChar) -> Option<String> {
    if text.is_null() || !text.is_aligned() {
        return None;
    }
    let mut read = String::new();
    for index in 0.. {
        // SAFETY: no zero unit was found before `index`.
        let unit = unsafe { *text.add(index) };
        if unit == 0 {
            break;
        }
        if read.len() >= MAX_BYTES {
            read.push(CUT);
            break;
        }
        let point = u32::try_from(unit).ok().and_then(char::from_u32);
        read.push(point.unwrap_or(char::REPLACEMENT_CHARACTER));
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_narrow(bytes: &[u8]) -> Option<String> {
        unsafe { narrow(bytes.as_ptr().cast()) }.map(Cow::into_owned)
    }

    #[test]
    fn null_is_no_text() {
        assert_eq!(unsafe { narrow(std::ptr::null()) }, None);
        assert_eq!(unsafe { wide(std::ptr::null()) }, None);
    }

    #[test]
    fn bytes_that_are_no_utf8_are_replaced() {
        assert_eq!(read_narrow(b"a\xffb\0").as_deref(), Some("a\u{fffd}b"));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let mut bytes = "é".repeat(MAX_BYTES).into_bytes();
        bytes.insert(0, b'x');
        bytes.push(0);
        let read = read_narrow(&bytes).expect("not null");
        assert!(read.ends_with("é…") && read.len() <= MAX_BYTES + CUT.len_utf8(), "{}", read.len());
    }

    #[test]
    fn wide_text_outside_the_basic_plane_is_kept() {
        let units: Vec<WideChar> = "añ🚀".chars().map(|c| c as WideChar).chain([0]).collect();
        assert_eq!(unsafe { wide(units.as_ptr()) }.as_deref(), Some("añ🚀"));
        let wild = [-5, 0xd800, 0];
        assert_eq!(unsafe { wide(wild.as_ptr()) }.as_deref(), Some("\u{fffd}\u{fffd}"));
    }
}
