//! Patterns for the output of tools: a substring, or several joined with `*`, matched after ANSI
//! sequences were removed.
//!
//! Tools' exit statuses mean little (ncu exits 0 on "No kernels were profiled"), so rungs carry
//! tables of [`DiagnosisRule`] rows. The agent uses them to choose the next rung, and the laptop to
//! explain it, so the code is here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The text in which a pattern is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Standard output and standard error.
    #[default]
    Output,
    /// Standard output only.
    Stdout,
    /// Standard error only.
    Stderr,
}

/// Substrings that must occur in this order on one line, written with `*` between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Pattern(pub String);

impl Pattern {
    /// Creates a pattern from its text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the first line of `text` that matches, trimmed; `None` if no line does.
    pub fn find<'a>(&self, text: &'a str) -> Option<&'a str> {
        text.lines().find(|line| self.matches_line(line)).map(str::trim)
    }

    fn matches_line(&self, line: &str) -> bool {
        let mut rest = line;
        self.0.split('*').all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    }
}

/// One row of a diagnosis table: a known message of a tool and its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiagnosisRule {
    /// The text to search.
    #[serde(default)]
    pub source: Source,
    /// The pattern to search for.
    pub pattern: Pattern,
    /// The reason code, e.g. `counters_refused`.
    pub code: String,
    /// When the row applies.
    #[serde(default)]
    pub when: Condition,
    /// The action on the rung.
    #[serde(default)]
    pub then: LadderAction,
}

/// When a diagnosis row applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Always, whatever the exit status.
    #[default]
    Always,
    /// Only if the rung failed by its success rule: for text that a working tool may print as well,
    /// such as a source line with `error:` in it.
    Failed,
}

/// The action of a diagnosis on the rung.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LadderAction {
    /// The rung failed; the next one is tried.
    #[default]
    Next,
    /// The rung failed; the named rung (further down the list) is tried.
    Rung(String),
    /// The step failed, and no lower rung can help: the program itself is wrong, for example.
    Stop,
    /// Not a failure: recorded as a warning, and the rung may still succeed.
    Note,
}

/// Removes ANSI escape sequences (CSI, OSC and two-byte forms) and carriage returns.
pub fn strip_ansi(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.next() {
                Some('[') => while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                Some(']') => {
                    while let Some(c) = chars.next() {
                        if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            '\r' => {}
            c => out.push(c),
        }
    }
    out
}

/// Returns the first row of `table` that matches, and the line that matched. The caller has removed
/// ANSI sequences from the texts.
pub fn diagnose<'t, 's>(
    table: &'t [DiagnosisRule],
    stdout: &'s str,
    stderr: &'s str,
) -> Option<(&'t DiagnosisRule, &'s str)> {
    table.iter().find_map(|row| {
        let line = match row.source {
            Source::Stdout => row.pattern.find(stdout),
            Source::Stderr => row.pattern.find(stderr),
            Source::Output => row.pattern.find(stderr).or_else(|| row.pattern.find(stdout)),
        };
        line.map(|l| (row, l))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_joins_substrings_of_one_line() {
        let p = Pattern::new("Failed to find metric*dram");
        assert_eq!(
            p.find("x\n  Failed to find metric `dram__foo`\n"),
            Some("Failed to find metric `dram__foo`")
        );
        assert_eq!(p.find("Failed to find metric\ndram"), None);
    }

    #[test]
    fn the_first_matching_row_wins_and_names_the_tools_own_words() {
        let row = |p: &str, code: &str| DiagnosisRule {
            source: Source::Output,
            pattern: Pattern::new(p),
            code: code.into(),
            when: Condition::Always,
            then: LadderAction::Next,
        };
        let table = [row("ERR_NVGPUCTRPERM", "counters_refused"), row("==ERROR==", "tool_error")];
        let (hit, line) = diagnose(&table, "==ERROR== ERR_NVGPUCTRPERM - The user", "").unwrap();
        assert_eq!(hit.code, "counters_refused");
        assert!(line.contains("The user"));
        assert!(diagnose(&table, "fine", "fine").is_none());
    }

    #[test]
    fn colours_titles_and_carriage_returns_are_removed() {
        assert_eq!(
            strip_ansi("\u{1b}[31mred\u{1b}[0m\r\n\u{1b}]0;title\u{7}x\u{1b}]8;;u\u{1b}\\y"),
            "red\nxy"
        );
        assert_eq!(strip_ansi("cut \u{1b}["), "cut ");
    }
}
