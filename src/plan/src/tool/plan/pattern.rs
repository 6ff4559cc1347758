//! Region patterns of `--regions`: names, globs and regular expressions. They are matched on the
//! laptop against the regions that a first pass recorded, since ncu's own filters have no globs.
//!
//! | pattern | matches |
//! |---|---|
//! | `A` | every region of that name, wherever it is nested |
//! | `A::A1` | `A1` directly inside `A`, wherever `A` is nested |
//! | `decode*`, `step?` | `*` is any text within one name, `?` one character |
//! | `dom@A` | the same in that domain alone; without a domain, in any |
//! | `regex:RE` | a regular expression, anywhere in the whole path (`A::A1`) |
//!
//! `\::`, `\@`, `\*`, `\?` and `\,` are the characters themselves.

use regex::Regex;

use super::draft::PlanError;
use super::region::{RGPU_DOMAIN, RecordedRegion, split_once_unescaped};

const FLAG: &str = "--regions";

/// One pattern of `--regions`, in one of the forms above.
#[derive(Clone, Debug)]
pub struct RegionPattern {
    text: String,
    form: PatternForm,
}

#[derive(Clone, Debug)]
enum PatternForm {
    /// Anchored expressions for the domain and for each name, outermost first.
    Names { domain: Option<Regex>, names: Vec<Regex>, exact: bool },
    /// Searched for in the path as displayed.
    Whole(Regex),
}

impl RegionPattern {
    /// Parses one value of `--regions`: patterns separated by commas, or one `regex:` pattern,
    /// which may contain commas.
    pub fn list(value: &str) -> Result<Vec<Self>, PlanError> {
        if value.starts_with("regex:") {
            return Ok(vec![Self::parse(value)?]);
        }
        let mut patterns = Vec::new();
        let mut rest = value;
        while let Some((one, after)) = split_once_unescaped(rest, ",") {
            patterns.push(Self::parse(one.trim())?);
            rest = after;
        }
        patterns.push(Self::parse(rest.trim())?);
        Ok(patterns)
    }

    /// Parses one pattern.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let error = |problem: String| PlanError::Option {
            flag: FLAG,
            value: text.to_owned(),
            problem,
            near: Vec::new(),
        };
        let form = match text.strip_prefix("regex:") {
            Some(expression) => PatternForm::Whole(
                Regex::new(expression)
                    .map_err(|e| error(format!("the regular expression is broken: {e}")))?,
            ),
            None => {
                let (domain, path) = match split_once_unescaped(text, "@") {
                    Some((domain, path)) => (Some(domain), path),
                    None => (None, text),
                };
                let mut parts = Vec::new();
                let mut rest = path;
                while let Some((name, after)) = split_once_unescaped(rest, "::") {
                    parts.push(name);
                    rest = after;
                }
                parts.push(rest);
                if parts.iter().chain(&domain).any(|part| part.is_empty()) {
                    return Err(error("a region's name is empty".to_owned()));
                }
                let glob = |part: &str| glob(part).map_err(|e| error(e.to_string()));
                PatternForm::Names {
                    domain: domain.map(glob).transpose()?,
                    names: parts.iter().map(|part| glob(part)).collect::<Result<_, _>>()?,
                    exact: !has_wildcard(text),
                }
            }
        };
        Ok(Self { text: text.to_owned(), form })
    }

    /// The pattern as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it names exactly one path, so that a tool can select it without a first pass.
    pub fn is_exact(&self) -> bool {
        matches!(self.form, PatternForm::Names { exact: true, .. })
    }

    /// Whether the pattern matches a region.
    pub fn matches(&self, region: &RecordedRegion) -> bool {
        match &self.form {
            PatternForm::Whole(regex) => regex.is_match(&region.display()),
            PatternForm::Names { domain, names, .. } => {
                let Some(first) = region.path.len().checked_sub(names.len()) else { return false };
                let own = &region.path[first..];
                own.iter().zip(names).all(|(part, name)| {
                    let (of, bare) = domain_and_name(part);
                    name.is_match(bare) && domain.as_ref().is_none_or(|domain| domain.is_match(of))
                })
            }
        }
    }
}

/// The domain (empty: the default one) and the name of a path part.
pub fn domain_and_name(part: &str) -> (&str, &str) {
    part.split_once('@').unwrap_or(("", part))
}

/// Whether a path part is a range of our own harness.
pub(super) fn is_ours(part: &str) -> bool {
    domain_and_name(part).0 == RGPU_DOMAIN
}

fn has_wildcard(text: &str) -> bool {
    let mut escaped = false;
    text.chars().any(|c| {
        let wild = !escaped && (c == '*' || c == '?');
        escaped = !escaped && c == '\\';
        wild
    })
}

/// A glob as an anchored regular expression.
fn glob(text: &str) -> Result<Regex, regex::Error> {
    let mut expression = String::from("(?s)^");
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            // A backslash before any other character is a literal backslash.
            '\\' if chars.peek().is_some_and(|next| "*?@:,\\".contains(*next)) => {
                let literal = chars.next().unwrap_or('\\');
                expression.push_str(&regex::escape(literal.encode_utf8(&mut [0; 4])));
            }
            c => expression.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    expression.push('$');
    Regex::new(&expression)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &[&str]) -> RecordedRegion {
        RecordedRegion::push_pop(path.iter().map(|part| (*part).to_owned()).collect())
    }

    fn matched(pattern: &str) -> Vec<String> {
        let regions = [
            seen(&["A"]),
            seen(&["A", "A1"]),
            seen(&["B"]),
            seen(&["step", "decode_0"]),
            seen(&["dom@A"]),
            seen(&["std::sort"]),
            seen(&["x*y"]),
        ];
        let pattern = RegionPattern::parse(pattern).unwrap();
        regions
            .iter()
            .filter(|region| pattern.matches(region))
            .map(RecordedRegion::display)
            .collect()
    }

    #[test]
    fn names_globs_and_expressions_match_wherever_the_region_is_nested() {
        assert_eq!(matched("B"), ["B"]);
        assert_eq!(matched("A1"), ["A::A1"]);
        assert_eq!(matched("A::A1"), ["A::A1"]);
        assert_eq!(matched("A"), ["A", "dom@A"]);
        assert_eq!(matched("dom@A"), ["dom@A"]);
        assert_eq!(matched("A*"), ["A", "A::A1", "dom@A"]);
        assert_eq!(matched("A::*"), ["A::A1"]);
        assert_eq!(matched("decode*"), ["step::decode_0"]);
        assert_eq!(matched("decode_?"), ["step::decode_0"]);
        assert_eq!(matched("regex:^(B|step)"), ["B", "step::decode_0"]);
        assert_eq!(matched(r"std\::sort"), [r"std\::sort"]);
        assert_eq!(matched(r"x\*y"), ["x*y"]);
        assert!(matched("a").is_empty());
        assert!(matched("A::A1::x").is_empty());
    }

    #[test]
    fn a_list_is_split_at_commas_but_not_inside_an_expression() {
        let texts = |value: &str| {
            let list = RegionPattern::list(value).unwrap();
            list.iter().map(|p| p.text().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(texts("A, A::A1,B"), ["A", "A::A1", "B"]);
        assert_eq!(texts(r"a\,b"), [r"a\,b"]);
        assert_eq!(texts("regex:x{1,2}"), ["regex:x{1,2}"]);
        assert!(RegionPattern::list("A,").is_err());
        assert!(RegionPattern::list("regex:(").is_err());
    }

    #[test]
    fn only_patterns_without_wildcards_are_exact() {
        let exact = |text: &str| RegionPattern::parse(text).unwrap().is_exact();
        assert!(exact("A::A1") && exact(r"x\*y"));
        assert!(!exact("A*") && !exact("regex:A"));
    }
}
