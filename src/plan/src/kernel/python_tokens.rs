//! The words of a Python source, without running or checking it.
//!
//! A mistake in the text hides at most what stands on the same line or in the same string.

/// A word of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token<'t> {
    /// An identifier or keyword.
    Name(&'t str),
    /// A string without escapes and without parts that are computed.
    Text(&'t str),
    /// The text between the quotes of a string with escapes, before they are replaced.
    EscapedText(&'t str),
    /// The text between the quotes of a string of bytes, escapes and all.
    Bytes(&'t str),
    /// The text between the quotes of a string with parts that are computed.
    Computed(&'t str),
    /// A number; `usize::MAX` if it is none that fits.
    Number(usize),
    /// Any other character.
    Sign(char),
    /// The end of a statement.
    End,
}

/// Divides a text into words. A bracket that is never closed ends where a line begins with a word
/// that only begins statements.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    tokens_with_places(text).into_iter().map(|(_, token)| token).collect()
}

/// The same words, each with the byte at which it begins.
pub(crate) fn tokens_with_places(text: &str) -> Vec<(usize, Token<'_>)> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let place = text.len() - rest.len();
        let after = &rest[c.len_utf8()..];
        match c {
            '\n' => {
                let starts = ["import ", "from ", "def ", "class "];
                if depth == 0 || starts.iter().any(|word| after.starts_with(word)) {
                    depth = 0;
                    found.push((place, Token::End));
                }
                rest = after;
            }
            '#' => rest = after.find('\n').map_or("", |end| &after[end..]),
            '\\' => {
                let line_end = after.strip_prefix("\r\n").or_else(|| after.strip_prefix('\n'));
                rest = line_end.unwrap_or(after);
            }
            '"' | '\'' => rest = string(rest, "", place, &mut found),
            c if c.is_whitespace() => rest = after,
            c if c.is_alphabetic() || c == '_' => {
                let is_part = |c: char| c.is_alphanumeric() || c == '_';
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                let (name, behind) = rest.split_at(end);
                let is_prefix = name.len() <= 2 && name.chars().all(|c| "rRbBuUfFtT".contains(c));
                if is_prefix && behind.starts_with(['"', '\'']) {
                    rest = string(behind, name, place, &mut found);
                } else {
                    found.push((place, Token::Name(name)));
                    rest = behind;
                }
            }
            c if c.is_ascii_digit() => {
                let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
                let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                let (number, behind) = rest.split_at(end);
                found.push((place, Token::Number(number.parse().unwrap_or(usize::MAX))));
                rest = behind;
            }
            ';' => {
                found.push((place, Token::End));
                rest = after;
            }
            sign => {
                match sign {
                    '(' | '[' | '{' => depth += 1,
                    ')' | ']' | '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                found.push((place, Token::Sign(sign)));
                rest = after;
            }
        }
    }
    found.push((text.len(), Token::End));
    found
}

/// Reads the string at the beginning of `text`, and returns what comes behind it. A string in one
/// pair of quotes ends at the end of its line at the latest.
fn string<'t>(
    text: &'t str,
    prefix: &str,
    place: usize,
    found: &mut Vec<(usize, Token<'t>)>,
) -> &'t str {
    let quote = if text.starts_with('"') { "\"" } else { "'" };
    let triple = if text.starts_with('"') { "\"\"\"" } else { "'''" };
    let (mark, is_long) = if text.starts_with(triple) { (triple, true) } else { (quote, false) };
    let inner = text.strip_prefix(mark).unwrap_or_default();
    let mut end = inner.len();
    let mut behind = "";
    let mut skip = false;
    for (at, c) in inner.char_indices() {
        if skip {
            skip = false;
        } else if c == '\\' {
            skip = true;
        } else if inner[at..].starts_with(mark) {
            (end, behind) = (at, &inner[at + mark.len()..]);
            break;
        } else if c == '\n' && !is_long {
            (end, behind) = (at, &inner[at..]);
            break;
        }
    }
    let value = &inner[..end];
    let is_raw = prefix.contains(['r', 'R']);
    let is_computed = prefix.contains(['f', 'F', 't', 'T']) && value.contains('{');
    let is_bytes = prefix.contains(['b', 'B']);
    let token = if is_bytes {
        Token::Bytes(value)
    } else if is_computed {
        Token::Computed(value)
    } else if !is_raw && value.contains('\\') {
        Token::EscapedText(value)
    } else {
        Token::Text(value)
    };
    found.push((place, token));
    behind
}

/// The text of a string with escapes. An escape that is not known stays as it is, as in Python.
pub(crate) fn unescaped(text: &str) -> String {
    let mut found = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        found.push_str(&rest[..at]);
        let mut behind = rest[at + 1..].chars();
        match behind.next() {
            Some('\n') => {}
            Some('n') => found.push('\n'),
            Some('t') => found.push('\t'),
            Some('r') => found.push('\r'),
            Some('0') => found.push('\0'),
            Some(c @ ('\\' | '\'' | '"')) => found.push(c),
            Some(c) => found.extend(['\\', c]),
            None => found.push('\\'),
        }
        rest = behind.as_str();
    }
    found.push_str(rest);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_told_apart_by_what_is_known_of_them() {
        let text = "x = r'''a\\n''' + 'b\\n' + f'{c}' + f'd' + b'e'";
        let strings: Vec<Token<'_>> = tokens(text)
            .into_iter()
            .filter(|token| !matches!(token, Token::Name(_) | Token::Sign(_) | Token::End))
            .collect();
        let expected = [
            Token::Text("a\\n"),
            Token::EscapedText("b\\n"),
            Token::Computed("{c}"),
            Token::Text("d"),
            Token::Bytes("e"),
        ];
        assert_eq!(strings, expected);
    }

    #[test]
    fn words_have_the_place_at_which_they_begin() {
        let text = "é = 1\n  @x\n'y'";
        for (place, token) in tokens_with_places(text) {
            if let Token::Name(name) | Token::Text(name) = token {
                assert!(text[place..].trim_start_matches('\'').starts_with(name), "{name}");
            }
        }
    }

    #[test]
    fn escapes_become_what_they_stand_for() {
        assert_eq!(unescaped(r#"a\n\"b\\ \d\"#), "a\n\"b\\ \\d\\");
        assert_eq!(unescaped("a\\\nb"), "ab");
    }
}
