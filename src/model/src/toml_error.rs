//! Errors of TOML as text for people.
//!
//! The reader's own text repeats the whole line in which an error is. That line may be as long as
//! the file.

/// Characters that are shown before and after the place of an error.
const SHOWN_CHARS: usize = 120;

/// Characters of any other line, such as the message, which may list all known keys.
const MAX_LINE_CHARS: usize = 2000;

/// The text of an error of TOML, with its long lines cut: the line of the file around the error's
/// place, all others at their end.
pub fn short(error: &str) -> String {
    let is_long = |line: &&str| line.chars().count() > 2 * SHOWN_CHARS;
    if !error.lines().any(|line| is_long(&line)) {
        return error.to_owned();
    }
    let lines: Vec<&str> = error.lines().collect();
    // The line below the one of the file, such as `  |      ^^^`.
    let is_marker =
        |line: &str| line.contains('^') && line.chars().all(|c| matches!(c, ' ' | '|' | '^'));
    let marker = lines.iter().position(|line| is_marker(line)).filter(|at| *at > 0);
    let mut out: Vec<String> = lines.iter().map(|line| cut(line, 0, 0, MAX_LINE_CHARS)).collect();
    if let Some(at) = marker
        && lines[at - 1..=at].iter().any(is_long)
    {
        let gutter = lines[at].find('|').map_or(0, |bar| bar + 2);
        let column = lines[at].find('^').unwrap_or_default().saturating_sub(gutter);
        let from = column.saturating_sub(SHOWN_CHARS);
        for line in [at - 1, at] {
            out[line] = cut(lines[line], gutter, from, 2 * SHOWN_CHARS);
        }
    }
    out.join("\n")
}

/// The first `gutter` characters of a line, and at most `count` of the rest, without the first
/// `from` of it.
fn cut(line: &str, gutter: usize, from: usize, count: usize) -> String {
    let head: String = line.chars().take(gutter).collect();
    let mut rest = line.chars().skip(gutter).skip(from);
    let shown: String = rest.by_ref().take(count).collect();
    let before = if from > 0 { "…" } else { "" };
    let after = if rest.next().is_some() { "…" } else { "" };
    format!("{head}{before}{shown}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_shown_around_the_place_of_its_error() {
        let ordinary = "TOML parse error at line 1, column 3\n  |\n1 | a b\n  |   ^\nwrong\n";
        assert_eq!(short(ordinary), ordinary);
        let text = format!("{}?{}", "a".repeat(100_000), "b".repeat(100_000));
        let place = format!("{}^", " ".repeat(100_000));
        let error = format!("TOML parse error\n  |\n1 | {text}\n  | {place}\nwrong `{text}`\n");
        let shown = short(&error);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[..2], ["TOML parse error", "  |"]);
        let (a, b) = ("a".repeat(SHOWN_CHARS), "b".repeat(SHOWN_CHARS - 1));
        assert_eq!(lines[2], format!("1 | …{a}?{b}…"));
        assert_eq!(lines[3], format!("  | …{}^", " ".repeat(SHOWN_CHARS)));
        assert!(lines[4].starts_with("wrong `aaa") && lines[4].ends_with('…'));
        assert!(shown.len() < 3 * MAX_LINE_CHARS);
    }
}
