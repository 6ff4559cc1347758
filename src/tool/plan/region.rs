//! NVTX regions as users write them (`A`, `A::A1`, `dom@A`; a literal `::` is `\::`), and the forms
//! that ncu and nsys want.

use super::draft::PlanError;

/// The domain of the ranges that our own harness pushes.
pub const OUR_DOMAIN: &str = "rgpu";

/// A path of nested ranges, perhaps in a named domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionPath {
    /// The domain; `None`: the default one.
    pub domain: Option<String>,
    /// Names from the outermost to the innermost, at least one, none empty.
    pub names: Vec<String>,
}

impl RegionPath {
    /// Reads what a user wrote.
    ///
    /// # Errors
    /// [`PlanError::Option`] when a name or the domain is empty.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let error = |problem: &str| PlanError::Option {
            flag: "--nvtx-include",
            value: text.to_owned(),
            problem: problem.to_owned(),
            near: Vec::new(),
        };
        // A domain ends at the first `@` that no backslash hides.
        let (domain, path) = match split_once_unescaped(text, "@") {
            Some((domain, path)) => (Some(unescape(domain)), path),
            None => (None, text),
        };
        if domain.as_deref() == Some("") {
            return Err(error("the domain before `@` is empty"));
        }
        let mut names = Vec::new();
        let mut rest = path;
        while let Some((name, after)) = split_once_unescaped(rest, "::") {
            names.push(unescape(name));
            rest = after;
        }
        names.push(unescape(rest));
        match names.iter().any(String::is_empty) {
            true => Err(error("a region's name is empty")),
            false => Ok(Self { domain, names }),
        }
    }

    /// ncu's filter expressions that together mean this region: the push/pop form, and for a
    /// single name the start/end form as well (one alone would silently miss the other kind).
    pub fn for_ncu(&self) -> Vec<String> {
        let names: Vec<String> = self.names.iter().map(|name| escape(name)).collect();
        let domain = self.domain.as_ref().map(|d| format!("{}@", escape(d))).unwrap_or_default();
        match names.as_slice() {
            [name] => vec![format!("{domain}{name}/"), format!("{domain}{name}")],
            names => vec![format!("{domain}{}", names.join("/"))],
        }
    }

    /// nsys's `--nvtx-capture`, where the domain comes last. It knows no nesting: the innermost
    /// name decides.
    pub fn for_nsys(&self) -> String {
        let name = self.names.last().map(String::as_str).unwrap_or_default();
        match &self.domain {
            Some(domain) => format!("{name}@{domain}"),
            None => name.to_owned(),
        }
    }
}

/// The first `separator` that no backslash stands before.
fn split_once_unescaped<'a>(text: &'a str, separator: &str) -> Option<(&'a str, &'a str)> {
    let mut from = 0;
    while let Some(found) = text[from..].find(separator) {
        let at = from + found;
        if !text[..at].ends_with('\\') {
            return Some((&text[..at], &text[at + separator.len()..]));
        }
        from = at + separator.len();
    }
    None
}

fn unescape(text: &str) -> String {
    text.replace("\\::", "::").replace("\\@", "@")
}

/// ncu's operators are taken as they are with a backslash before them.
fn escape(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if "@,[]/*+\\".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ncu(text: &str) -> Vec<String> {
        RegionPath::parse(text).unwrap().for_ncu()
    }

    #[test]
    fn both_forms_are_made_so_that_neither_kind_of_range_is_missed() {
        assert_eq!(ncu("A"), ["A/", "A"]);
        assert_eq!(ncu("A::A1"), ["A/A1"]);
        assert_eq!(ncu("dom@A"), ["dom@A/", "dom@A"]);
        assert_eq!(ncu(r"std\::sort"), ["std::sort/", "std::sort"]);
        assert_eq!(ncu("a/b[0]"), [r"a\/b\[0\]/", r"a\/b\[0\]"]);
    }

    #[test]
    fn nsys_takes_the_name_first() {
        let nsys = |text| RegionPath::parse(text).unwrap().for_nsys();
        assert_eq!(nsys("dom@A"), "A@dom");
        assert_eq!(nsys("A::A1"), "A1");
    }

    #[test]
    fn empty_parts_are_refused() {
        for text in ["", "@A", "A::", "::A", "dom@"] {
            assert!(RegionPath::parse(text).is_err(), "{text}");
        }
    }
}
