//! Cuts and wraps texts for reports.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use rgpu_model::error::is_line_break;

/// A text in at most `room` columns, cut in the middle: both ends of a name distinguish it.
pub(super) fn cut_middle(text: &str, room: usize) -> String {
    let columns = text.chars().count();
    if columns <= room {
        return text.to_owned();
    }
    let end = room / 3;
    let start: String = text.chars().take(room.saturating_sub(end + 1)).collect();
    let end: String = text.chars().skip(columns - end).collect();
    format!("{start}…{end}")
}

/// The beginning of a text in at most `columns` columns of a terminal; `…` says that it was cut.
pub fn cut_end(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let Some(mut room) = columns.checked_sub(1) else { return String::new() };
    let fits = |c: &char| {
        let left = room.checked_sub(c.width().unwrap_or(0));
        room = left.unwrap_or(room);
        left.is_some()
    };
    let start: String = text.chars().take_while(fits).collect();
    format!("{start}…")
}

/// A foreign text without control characters, so that it stays on one line.
pub fn one_line(text: &str) -> String {
    let is_break = |c: char| c.is_control() || is_line_break(c);
    text.chars().map(|c| if is_break(c) { ' ' } else { c }).collect()
}

/// Wraps a text at blanks into lines of at most `room` columns, not counting colours. Longer words
/// stay whole.
pub fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let width = visible_width(word);
        let last = lines.len() - 1;
        if used > 0 && used + 1 + width > room {
            lines.push(word.to_owned());
            used = width;
        } else {
            if used > 0 || !lines[last].is_empty() || word.is_empty() {
                lines[last].push(' ');
                used += 1;
            }
            lines[last].push_str(word);
            used += width;
        }
    }
    lines
}

fn visible_width(text: &str) -> usize {
    rgpu_protocol::pattern::strip_ansi(text).width()
}

/// A text with a capital first letter.
pub(super) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_both_ends() {
        assert_eq!(cut_middle("abcdefghij", 10), "abcdefghij");
        assert_eq!(cut_middle("abcdefghijk", 7), "abcd…jk");
        assert_eq!(cut_middle("abc", 0), "…");
    }

    #[test]
    fn a_text_that_is_cut_at_its_end_says_so() {
        assert_eq!(cut_end("abcdef", 6), "abcdef");
        assert_eq!(cut_end("abcdef", 5), "abcd…");
        assert_eq!(cut_end("äöü", 3), "äöü");
        // Wide characters take two columns.
        assert_eq!(cut_end("漢字漢字", 6), "漢字…");
        assert_eq!((cut_end("ab", 1), cut_end("ab", 0)), ("…".to_owned(), String::new()));
    }

    #[test]
    fn long_texts_wrap_at_blanks() {
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("\u{1b}[1maa\u{1b}[0m bb", 5).len(), 1);
        assert_eq!(wrap("abcdefghij", 4), ["abcdefghij"]);
    }
}
