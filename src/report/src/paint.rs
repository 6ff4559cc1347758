//! Colours of reports on a terminal: what has one, and which. [`Style::color`] says whether there
//! are any.
//!
//! Names of files, kernels and hosts may hold the very sequences that rgpu writes. So the
//! parameters of rgpu's own begin with [`own_mark`], which foreign text cannot know. The code that
//! writes to the terminal removes the mark, and escapes each sequence without it.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

use super::Style;

static OWN_MARK: LazyLock<String> =
    LazyLock::new(|| format!("{};", RandomState::new().build_hasher().finish()));

/// The colour of what is wrong.
pub const BAD: &str = "1;31";

/// The colour of what is better.
const GOOD: &str = "1;32";

/// The colour of what is not certain, and of warnings.
pub const DOUBTFUL: &str = "1;33";

/// The colour of a verdict, or of a state that is a problem; `None` for other words.
pub fn verdict_color(word: &str) -> Option<&'static str> {
    match word {
        "FASTER" => Some(GOOD),
        "SLOWER" | "failed" => Some(BAD),
        "AMBIGUOUS" | "INCOMPARABLE" => Some(DOUBTFUL),
        "SAME" | "NEW" => Some("1"),
        _ => None,
    }
}

/// The first parameter of each SGR sequence of rgpu's own, with a semicolon: a number that is
/// random for each process.
pub fn own_mark() -> &'static str {
    &OWN_MARK
}

/// Marks the SGR sequences of a text that has no foreign parts, such as a help page.
pub fn mark_own_colors(text: &str) -> String {
    text.replace("\u{1b}[", &format!("\u{1b}[{}", own_mark()))
}

impl Style {
    /// The text in this colour (SGR parameters), if colours are enabled.
    pub fn paint(&self, sgr: &str, text: &str) -> String {
        if self.color {
            let mark = own_mark();
            format!("\u{1b}[{mark}{sgr}m{text}\u{1b}[{mark}0m")
        } else {
            text.to_owned()
        }
    }

    /// The text with each verdict and failed state in its colour. It takes tables that are already
    /// laid out, so that colours do not count as characters of a column.
    pub fn paint_verdicts(&self, text: &str) -> String {
        self.paint_words(text, verdict_color)
    }

    /// The text with the words in the colours that `color_of` gives. A comma or colon after a word
    /// is not part of it.
    pub fn paint_words(
        &self,
        text: &str,
        color_of: impl Fn(&str) -> Option<&'static str>,
    ) -> String {
        if !self.color {
            return text.to_owned();
        }
        let painted = |piece: &str| {
            let word = piece.trim_end_matches([' ', '\n', ',', ':']);
            match color_of(word) {
                Some(sgr) => self.paint(sgr, word) + &piece[word.len()..],
                None => piece.to_owned(),
            }
        };
        text.split_inclusive([' ', '\n']).map(painted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_painted_as_whole_words_and_only_with_colours() {
        let text = "  a:SLOWER  SLOWER 0.900×\n  FASTER, too close\n  failed: wrong_result\n";
        let style = Style { color: true, ..Style::default() };
        assert_eq!(
            style.paint_verdicts(text).replace(own_mark(), ""),
            "  a:SLOWER  \u{1b}[1;31mSLOWER\u{1b}[0m 0.900×\n  \u{1b}[1;32mFASTER\u{1b}[0m, too \
             close\n  \u{1b}[1;31mfailed\u{1b}[0m: wrong_result\n"
        );
        assert_eq!(Style::default().paint_verdicts(text), text);
    }
}
