//! Reader of PTX text: its version, its target and its kernels. Of the instructions it only checks
//! that the text is complete, which means that every opened brace is closed.

use std::iter::Enumerate;
use std::str::Lines;

use serde::Serialize;

/// The header and kernels of a PTX module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Ptx {
    /// The PTX version of `.version`, e.g. `9.5`.
    pub version: String,
    /// The architecture of `.target`, e.g. `sm_100a`.
    pub target: String,
    /// Mangled names of the `.entry` functions, in order.
    pub entries: Vec<String>,
}

/// The reason why a text is not a valid PTX module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PtxError {
    /// There is no `.version` directive.
    #[error("not PTX: there is no `.version`")]
    NoVersion,
    /// The version is missing or not a number.
    #[error("broken PTX: line {line} has `.version` without a version")]
    Version {
        /// The line, from 1.
        line: usize,
    },
    /// There is no `.target` directive.
    #[error("broken PTX: there is no `.target sm_…`")]
    NoTarget,
    /// The text ends before a brace is closed.
    #[error("broken PTX: it ends within the braces opened in line {line}")]
    Open {
        /// The line of the outermost brace, from 1.
        line: usize,
    },
    /// The text ends before a comment is closed.
    #[error("broken PTX: it ends within the comment opened in line {line}")]
    OpenComment {
        /// The line of the comment's `/*`, from 1.
        line: usize,
    },
    /// A closing brace has no opening one.
    #[error("broken PTX: line {line} closes a brace that nothing opened")]
    Closed {
        /// The line, from 1.
        line: usize,
    },
}

/// Whether these bytes look like PTX: a `.version` directive before anything except comments.
pub fn is_ptx(data: &[u8]) -> bool {
    let head = &data[..data.len().min(4096)];
    let head = String::from_utf8_lossy(head);
    directives(&head).next().is_some_and(|(_, l)| l.starts_with(".version"))
}

/// Lines without comments and surrounding blanks, with their numbers from 1. A `/* */` comment may
/// span several lines.
struct Directives<'a> {
    lines: Enumerate<Lines<'a>>,
    /// The line in which the comment began that is open after the lines so far.
    comment: Option<usize>,
}

fn directives(text: &str) -> Directives<'_> {
    Directives { lines: text.lines().enumerate(), comment: None }
}

impl Directives<'_> {
    /// The line without its comments. Each byte is looked at once.
    fn without_comments(&mut self, number: usize, line: &str) -> String {
        let mut left = String::new();
        let mut rest = line;
        loop {
            if self.comment.is_some() {
                let Some(end) = rest.find("*/") else { break };
                rest = &rest[end + 2..];
                self.comment = None;
            }
            let is_comment = |at: &usize| {
                let from = &rest[*at..];
                from.starts_with("//") || from.starts_with("/*")
            };
            let mut slashes = rest.match_indices('/').map(|(at, _)| at);
            let (code, comment) = rest.split_at(slashes.find(is_comment).unwrap_or(rest.len()));
            left.push_str(code);
            let Some(inner) = comment.strip_prefix("/*") else { break };
            rest = inner;
            self.comment = Some(number);
        }
        left
    }
}

impl Iterator for Directives<'_> {
    type Item = (usize, String);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (at, line) = self.lines.next()?;
            let left = self.without_comments(at + 1, line);
            let left = left.trim_matches(|c: char| c.is_whitespace() || c == '\0');
            if !left.is_empty() {
                return Some((at + 1, left.to_owned()));
            }
        }
    }
}

/// Reads PTX.
///
/// # Errors
/// [`PtxError`] if it is not PTX or not complete.
pub fn read(text: &str) -> Result<Ptx, PtxError> {
    let mut ptx = Ptx::default();
    let mut open: Vec<usize> = Vec::new();
    let mut lines = directives(text);
    for (number, line) in lines.by_ref() {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                ".version" if ptx.version.is_empty() => {
                    let version = words.next().unwrap_or_default();
                    let numbers = version.split_once('.').is_some_and(|(major, minor)| {
                        [major, minor].iter().all(|n| n.parse::<u32>().is_ok())
                    });
                    if !numbers {
                        return Err(PtxError::Version { line: number });
                    }
                    ptx.version = version.to_owned();
                }
                ".target" if ptx.target.is_empty() => {
                    let target = words.next().unwrap_or_default();
                    ptx.target = target.split(',').next().unwrap_or_default().to_owned();
                }
                ".entry" => {
                    let name = words.next().unwrap_or_default();
                    let name = name.split(['(', '{']).next().unwrap_or_default();
                    if !name.is_empty() {
                        ptx.entries.push(name.to_owned());
                    }
                }
                _ => {}
            }
        }
        // File names are in quotes, and end on the same line.
        for (at, part) in line.split('"').enumerate() {
            for brace in part.chars().filter(|_| at % 2 == 0) {
                match brace {
                    '{' => open.push(number),
                    '}' if open.pop().is_none() => return Err(PtxError::Closed { line: number }),
                    _ => {}
                }
            }
        }
    }
    match (lines.comment, open.first()) {
        _ if ptx.version.is_empty() => Err(PtxError::NoVersion),
        (Some(line), _) => Err(PtxError::OpenComment { line }),
        _ if !ptx.target.starts_with("sm_") => Err(PtxError::NoTarget),
        (None, Some(&line)) => Err(PtxError::Open { line }),
        (None, None) => Ok(ptx),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_target_and_entries_are_read_past_comments() {
        let text = "//\n/* .version 1.0\n */ \n.version 8.8\n.target sm_90a, debug\n\
                    .visible .entry _Z1av(\n)\n{ }\n// .entry no\n.entry b { ret; }\n";
        let ptx = read(text).unwrap();
        assert_eq!((ptx.version.as_str(), ptx.target.as_str()), ("8.8", "sm_90a"));
        assert_eq!(ptx.entries, ["_Z1av", "b"]);
        assert!(is_ptx(text.as_bytes()) && !is_ptx(b"int main() {}") && !is_ptx(b""));
    }

    #[test]
    fn a_text_that_is_not_whole_says_where() {
        let head = ".version 8.8\n.target sm_90\n";
        let read = |text: &str| read(text).map(|ptx| ptx.entries.len());
        let with = |body: &str| read(&format!("{head}{body}"));
        assert_eq!(with(".file 1 \"a{b.cu\"\n.entry a() { ret; }\n"), Ok(1));
        assert_eq!(with("\n.entry a()\n{\n{ ret; }\n"), Err(PtxError::Open { line: 5 }));
        assert_eq!(with("// {\n}\n"), Err(PtxError::Closed { line: 4 }));
        assert_eq!(read(".version 8.8\n"), Err(PtxError::NoTarget));
        assert_eq!(read(".version 8.8\n.target nonsense\n"), Err(PtxError::NoTarget));
        assert_eq!(read(".version what\n"), Err(PtxError::Version { line: 1 }));
        assert_eq!(read("int main() {}"), Err(PtxError::NoVersion));
        assert_eq!(with("/* a */ /* b\n.entry a() {\n"), Err(PtxError::OpenComment { line: 3 }));
    }

    #[test]
    fn many_comments_take_time_in_proportion_to_their_bytes() {
        // Quadratic time would be minutes for these.
        let head = ".version 8.8\n.target sm_90\n";
        for comment in ["/* */", "/*", "/**/a/"] {
            let text = format!("{head}{}", comment.repeat((8 << 20) / comment.len()));
            assert_eq!(read(&text).is_err(), comment == "/*", "{comment}");
        }
    }
}
