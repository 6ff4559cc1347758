//! Text from others: servers, platforms, programs. It may have any length and content.

/// The most characters shown of it.
const MAX_SHOWN_CHARS: usize = 200;

/// The start of a foreign text on one line, without control characters. Of an HTML page, its first
/// words.
pub(super) fn excerpt(words: &str) -> String {
    // Bounds the work on a long text.
    let words: String = words.chars().take(16 * MAX_SHOWN_CHARS).collect();
    let words = if is_html(&words) { first_words(&words) } else { words };
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect()
}

fn is_html(words: &str) -> bool {
    let head: String = words.trim_start().chars().take(64).collect();
    let head = head.to_ascii_lowercase();
    ["<!doctype html", "<html", "<head", "<body"].iter().any(|tag| head.starts_with(tag))
}

/// The first text between two tags of a page, usually its title. Skips scripts, styles and
/// comments; empty if there is no text.
fn first_words(page: &str) -> String {
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        let text = rest[..at].trim();
        if !text.is_empty() {
            return text.to_owned();
        }
        let tag = rest[at..].to_ascii_lowercase();
        let end = match ["script", "style"].iter().find(|name| tag[1..].starts_with(**name)) {
            Some(name) => tag.find(&format!("</{name}")).filter(|end| *end > 0),
            None if tag.starts_with("<!--") => tag.find("-->").map(|end| end + 2),
            None => tag.find('>'),
        };
        let Some(end) = end else { return String::new() };
        rest = rest[at + end..].trim_start_matches('>');
    }
    rest.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_bounded_and_stand_on_one_line() {
        let text = excerpt(&format!(" a\u{1b}[31m\n\tb {}", "é".repeat(10_000)));
        assert!(text.starts_with("a[31m b é"), "{text}");
        assert_eq!(text.chars().count(), MAX_SHOWN_CHARS);
        assert_eq!(excerpt(""), "");
    }

    #[test]
    fn of_a_page_its_first_words_are_shown() {
        let page = "<!DOCTYPE HTML>\n<html lang=\"en\">\n<head>\n<style>a>b {}</style>\n<!-- <b>x</b> -->\n\
                    <title>Error\n response</title><script>if (1<2) x()</script></head><body>404</body>";
        assert_eq!(excerpt(page), "Error response");
        assert_eq!(excerpt("<html><body>plain"), "plain");
        assert_eq!(excerpt("<html><script>x"), "");
        assert_eq!(excerpt("<html"), "");
        assert_eq!(excerpt("a < b"), "a < b");
        assert_eq!(excerpt("<Ä><İ>"), "<Ä><İ>");
        assert_eq!(excerpt("<html>İİ<b>x</b>"), "İİ");
    }
}
