//! Quotes untrusted text in messages to users. Servers, provider platforms and programs on hosts
//! send it, so it may have any length and content, such as the HTML error page of a proxy.

/// Longest excerpt.
const MAX_EXCERPT_CHARS: usize = 200;

/// The start of a text on one line, without control characters; of an HTML page, the start of its
/// first text, which is usually the title.
pub(super) fn excerpt(text: &str) -> String {
    // Bounds the work on a long text.
    let text: String = text.chars().take(16 * MAX_EXCERPT_CHARS).collect();
    let text = if is_html(&text) { first_html_text(&text) } else { text };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().filter(|c| !c.is_control()).take(MAX_EXCERPT_CHARS).collect()
}

fn is_html(text: &str) -> bool {
    let head: String = text.trim_start().chars().take(64).collect();
    let head = head.to_ascii_lowercase();
    ["<!doctype html", "<html", "<head", "<body"].iter().any(|tag| head.starts_with(tag))
}

/// The first text between two tags of a page. Skips scripts, styles and comments; empty if there is
/// no text.
fn first_html_text(page: &str) -> String {
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
    fn an_excerpt_is_bounded_and_on_one_line() {
        let text = excerpt(&format!(" a\u{1b}[31m\n\tb {}", "é".repeat(10_000)));
        assert!(text.starts_with("a[31m b é"), "{text}");
        assert_eq!(text.chars().count(), MAX_EXCERPT_CHARS);
        assert_eq!(excerpt(""), "");
    }

    #[test]
    fn the_excerpt_of_an_html_page_is_its_first_text() {
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
