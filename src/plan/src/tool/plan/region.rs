//! NVTX regions as users write them (`A`, `A::A1`, `dom@A`; a literal `::` is `\::`), and as filter
//! expressions of ncu and nsys.

use super::draft::PlanError;
use super::pattern::{domain_and_name, is_ours};

/// The NVTX domain of the ranges of rgpu's harness.
pub const RGPU_DOMAIN: &str = "rgpu";

/// A path of nested ranges, optionally in a named domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionPath {
    /// The domain; `None`: the default one.
    pub domain: Option<String>,
    /// Names from the outermost to the innermost; at least one, none empty.
    pub names: Vec<String>,
}

impl RegionPath {
    /// Parses a region as the user wrote it.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let error = |problem: &str| PlanError::Option {
            flag: "--nvtx-include",
            value: text.to_owned(),
            problem: problem.to_owned(),
            near: Vec::new(),
        };
        // A domain ends at the first `@` without a backslash before it.
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
        if names.iter().any(String::is_empty) {
            Err(error("a region's name is empty"))
        } else {
            Ok(Self { domain, names })
        }
    }

    /// ncu's filter expressions for this region: the push/pop form and, for a single name, also the
    /// start/end form. Either one alone would silently miss the ranges of the other kind.
    pub fn for_ncu(&self) -> Vec<String> {
        let names: Vec<String> = self.names.iter().map(|name| escape(name)).collect();
        let domain = self.domain.as_ref().map(|d| format!("{}@", escape(d))).unwrap_or_default();
        match names.as_slice() {
            [name] => vec![format!("{domain}{name}/"), format!("{domain}{name}")],
            names => vec![format!("{domain}{}", names.join("/"))],
        }
    }

    /// The value of nsys's `--nvtx-capture`, in which the domain comes last. nsys does not match
    /// nested paths, so only the innermost name counts.
    pub fn for_nsys(&self) -> String {
        let name = self.names.last().map(String::as_str).unwrap_or_default();
        match &self.domain {
            Some(domain) => format!("{name}@{domain}"),
            None => name.to_owned(),
        }
    }
}

/// A region that a first pass recorded: its exact path, and how its ranges are opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordedRegion {
    /// Path parts, outermost first, without the ranges of our own runner; `domain@name` for domains
    /// other than the default.
    pub path: Vec<String>,
    /// How its ranges are opened, which decides the form of ncu's filter.
    pub kind: RangeKind,
}

/// How a range is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RangeKind {
    /// `nvtxRangePush`: nests within a thread.
    PushPop,
    /// `nvtxRangeStart`: may overlap others.
    StartEnd,
    /// Unknown, since no first pass could be made.
    Either,
}

impl RecordedRegion {
    /// A region of push/pop ranges.
    pub fn push_pop(path: Vec<String>) -> Self {
        Self { path, kind: RangeKind::PushPop }
    }

    /// A region from its full path in a profile. Leading ranges of our own runner are removed if
    /// `ours` says that there are any; `None` if nothing else is left.
    pub fn from_path(full: &[String], kind: RangeKind, ours: RunnerRanges) -> Option<Self> {
        let first = match ours {
            RunnerRanges::Present => full.iter().take_while(|part| is_ours(part)).count(),
            RunnerRanges::Absent => 0,
        };
        (first < full.len()).then(|| Self { path: full[first..].to_vec(), kind })
    }

    /// The path as users write it: `A::A1`, `dom@A`.
    pub fn display(&self) -> String {
        let mut domain = "";
        let mut parts = Vec::with_capacity(self.path.len());
        for part in &self.path {
            let (part_domain, name) = domain_and_name(part);
            parts.push(if part_domain == domain { name } else { part }.replace("::", "\\::"));
            domain = part_domain;
        }
        parts.join("::")
    }

    /// ncu's filter expressions for exactly this path. For ncu, ranges of different domains nest
    /// separately, so only the names in the domain of the innermost range count.
    pub fn for_ncu(&self) -> Vec<String> {
        let domain = self.path.last().map_or("", |part| domain_and_name(part).0);
        let parts = self.path.iter().map(|part| domain_and_name(part));
        let names: Vec<String> =
            parts.filter(|(of, _)| *of == domain).map(|(_, name)| escape(name)).collect();
        let prefix = if domain.is_empty() { String::new() } else { format!("{}@", escape(domain)) };
        let path = names.join("/");
        match (names.len(), self.kind) {
            (1, RangeKind::PushPop) => vec![format!("{prefix}{path}/")],
            (1, RangeKind::Either) => vec![format!("{prefix}{path}/"), format!("{prefix}{path}")],
            _ => vec![format!("{prefix}{path}")],
        }
    }

    /// Whether `other` is nested inside this one.
    pub fn contains(&self, other: &Self) -> bool {
        other.path.len() > self.path.len() && other.path.starts_with(&self.path)
    }
}

/// Whether our own runner adds ranges around those of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerRanges {
    /// The runner's ranges enclose the user's.
    Present,
    /// The program runs without our runner.
    Absent,
}

/// Splits at the first `separator` without a backslash before it.
pub(super) fn split_once_unescaped<'a>(
    text: &'a str,
    separator: &str,
) -> Option<(&'a str, &'a str)> {
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

/// Puts a backslash before ncu's operators, so that they are taken literally.
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
    fn a_recorded_region_becomes_the_one_ncu_filter_that_fits() {
        let filters = |path: &[&str], kind| {
            RecordedRegion { path: path.iter().map(|p| (*p).to_owned()).collect(), kind }.for_ncu()
        };
        assert_eq!(filters(&["A"], RangeKind::PushPop), ["A/"]);
        assert_eq!(filters(&["A"], RangeKind::StartEnd), ["A"]);
        assert_eq!(filters(&["A"], RangeKind::Either), ["A/", "A"]);
        assert_eq!(filters(&["A", "A1"], RangeKind::PushPop), ["A/A1"]);
        assert_eq!(filters(&["A", "d@B", "C", "d@D"], RangeKind::PushPop), ["d@B/D"]);
        assert_eq!(filters(&["a/b[0]"], RangeKind::PushPop), [r"a\/b\[0\]/"]);
    }

    #[test]
    fn ranges_of_our_own_runner_are_taken_off_a_path() {
        let full = ["rgpu@timed", "rgpu@n=1", "A", "A1"].map(str::to_owned);
        let of = |full: &[String], ours| RecordedRegion::from_path(full, RangeKind::PushPop, ours);
        assert_eq!(of(&full, RunnerRanges::Present).unwrap().display(), "A::A1");
        assert_eq!(of(&full, RunnerRanges::Absent).unwrap().display(), "rgpu@timed::n=1::A::A1");
        assert_eq!(of(&full[..2], RunnerRanges::Present), None);
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
