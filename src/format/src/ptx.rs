//! Reader of PTX text: its version, its target and the kernels it defines. Instructions are not
//! looked at.

use serde::Serialize;

/// What a PTX module says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Ptx {
    /// `.version`, e.g. `9.5`.
    pub version: String,
    /// `.target`, e.g. `sm_100a`.
    pub target: String,
    /// Names after `.entry`, mangled, in order.
    pub entries: Vec<String>,
}

/// Whether these bytes look like PTX: a `.version` directive before anything else but comments.
pub fn is_ptx(data: &[u8]) -> bool {
    let head = &data[..data.len().min(4096)];
    directives(&String::from_utf8_lossy(head)).next().is_some_and(|l| l.starts_with(".version"))
}

/// Lines without comments and blanks. A comment of `/* */` is taken out where it begins and ends.
fn directives(text: &str) -> impl Iterator<Item = String> {
    let mut inside = false;
    text.lines().filter_map(move |line| {
        let mut left = String::new();
        let mut rest = line;
        loop {
            if inside {
                let Some(end) = rest.find("*/") else { break };
                rest = &rest[end + 2..];
                inside = false;
            }
            let line_comment = rest.find("//").unwrap_or(rest.len());
            match rest.find("/*").filter(|at| *at < line_comment) {
                Some(at) => {
                    left.push_str(&rest[..at]);
                    rest = &rest[at + 2..];
                    inside = true;
                }
                None => {
                    left.push_str(&rest[..line_comment]);
                    break;
                }
            }
        }
        let left = left.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned();
        (!left.is_empty()).then_some(left)
    })
}

/// Reads PTX; a module without a `.version` gives `None`.
pub fn read(text: &str) -> Option<Ptx> {
    let mut ptx = Ptx::default();
    for line in directives(text) {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                ".version" if ptx.version.is_empty() => {
                    ptx.version = words.next().unwrap_or_default().to_owned();
                }
                ".target" if ptx.target.is_empty() => {
                    let target = words.next().unwrap_or_default();
                    ptx.target = target.trim_end_matches(',').to_owned();
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
    }
    (!ptx.version.is_empty()).then_some(ptx)
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
}
