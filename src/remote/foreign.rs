//! Words of others: servers, platforms, programs. They may be of any length and hold anything.

/// Characters of them that are shown.
const SHOWN: usize = 200;

/// The beginning of foreign words, on one line and without control characters.
pub(super) fn shown(words: &str) -> String {
    // No more is looked at than could be shown of it.
    let words: String = words.chars().take(16 * SHOWN).collect();
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_bounded_and_stand_on_one_line() {
        let text = shown(&format!(" a\u{1b}[31m\n\tb {}", "é".repeat(10_000)));
        assert!(text.starts_with("a[31m b é"), "{text}");
        assert_eq!(text.chars().count(), SHOWN);
        assert_eq!(shown(""), "");
    }
}
