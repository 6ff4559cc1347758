//! Shortens names and wraps sentences for reports.

/// A kernel's name without parameter list and return type, cut to 44 characters.
pub(super) fn short_name(name: &str) -> String {
    let cut = match parameters(name) {
        Some(at) => &name[..at],
        None => name,
    };
    let cut = cut.strip_prefix("void ").unwrap_or(cut);
    if cut.chars().count() <= 44 {
        cut.to_owned()
    } else {
        format!("{}…", cut.chars().take(43).collect::<String>())
    }
}

/// A foreign text without control characters, so that it stays on one line.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// The offset of the parameter list: the first parenthesis after a name that is not inside template
/// arguments, as in `tile<float, (int)4>`.
fn parameters(name: &str) -> Option<usize> {
    let mut depth = 0_i32;
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' if depth == 0 && at > 0 && !name[..at].ends_with([':', ' ']) => return Some(at),
            _ => {}
        }
    }
    None
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
    unicode_width::UnicodeWidthStr::width(rgpu_protocol::pattern::strip_ansi(text).as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_parameters_and_long_ones_are_cut() {
        assert_eq!(short_name("void add<float>(float*, int)"), "add<float>");
        assert_eq!(short_name("(anonymous namespace)::k(int)"), "(anonymous namespace)::k");
        assert_eq!(short_name("void tile<float, (int)4>(T1 *)"), "tile<float, (int)4>");
        assert_eq!(short_name(&"x".repeat(60)).chars().count(), 44);
    }

    #[test]
    fn long_texts_wrap_at_blanks() {
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("\u{1b}[1maa\u{1b}[0m bb", 5).len(), 1);
        assert_eq!(wrap("abcdefghij", 4), ["abcdefghij"]);
    }
}
