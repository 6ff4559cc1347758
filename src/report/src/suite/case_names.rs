//! Names of the cases and times of a suite, whole and without the axes that have one value in all
//! cases of a target.

use std::collections::BTreeMap;

use crate::text::wrap;
use rgpu_model::suite::{SuiteRow, SuiteTime};

/// The axes that have one value in all cases of their target.
pub(super) struct SharedAxes<'a> {
    /// By target; each axis as in the names of cases: `n=1024`.
    targets: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> SharedAxes<'a> {
    pub(super) fn from_cases(cases: impl Iterator<Item = &'a str>) -> Self {
        let mut targets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for case in cases {
            let Some((target, ..)) = case_parts(case) else { continue };
            let axes = axes_of(case);
            targets
                .entry(target)
                .and_modify(|shared| shared.retain(|axis| axes.contains(axis)))
                .or_insert(axes);
        }
        Self { targets }
    }

    /// Whether all cases of this target have the axis `n=1024`.
    pub(super) fn has(&self, target: &str, axis: &str) -> bool {
        self.targets.get(target).is_some_and(|shared| shared.contains(&axis))
    }

    /// The name of a case without these axes.
    pub(super) fn shorten(&self, case: &str) -> String {
        let Some((target, _, remote)) = case_parts(case) else { return case.to_owned() };
        let mut axes = axes_of(case);
        axes.retain(|axis| !self.has(target, axis));
        if axes.is_empty() {
            format!("{target}{remote}")
        } else {
            format!("{target}[{}]{remote}", axes.join(","))
        }
    }

    /// Says above a table which axes its short names lack; empty if they are whole.
    pub(super) fn note(&self, width: usize) -> String {
        let shared = self.targets.iter().filter(|(_, axes)| !axes.is_empty());
        let mut note = String::new();
        for (target, axes) in shared {
            let text = format!("the same in all cases of {target}: {}", axes.join(", "));
            let lines = wrap(&text, width.saturating_sub(4));
            note += &format!("  {}\n", lines.join("\n    "));
        }
        if note.is_empty() { note } else { note + "\n" }
    }
}

/// What tells a time of a suite from the others: its case, its side and its size where the case has
/// several.
pub(super) fn time_name(row: &SuiteRow, time: &SuiteTime) -> String {
    let mut name = row.case.clone();
    if time.key.side != "kernel" {
        name += &format!(" {}", time.key.side);
    }
    // The sizes of a case without axes tell its times apart.
    if row.times.iter().filter(|other| other.key.side == time.key.side).count() > 1 {
        name += &format!(" {}", time.size);
    }
    name
}

/// Sizes, `n=1024`, with `;` between groups, without those that the case has as an axis.
pub(super) fn sizes_without_axes(sizes: &str, case: &str) -> String {
    let axes = axes_of(case);
    let group = |group: &str| {
        let words: Vec<&str> = group.split(',').filter(|word| !axes.contains(word)).collect();
        words.join(",")
    };
    let groups: Vec<String> = sizes.split(';').map(group).filter(|g| !g.is_empty()).collect();
    groups.join(";")
}

/// Target, axes and remote of `target[n=1,m=2]@remote`; `None` if it has no axes.
fn case_parts(case: &str) -> Option<(&str, &str, &str)> {
    let (target, rest) = case.split_once('[')?;
    let (axes, remote) = rest.rsplit_once(']')?;
    Some((target, axes, remote))
}

/// The axes of a case, each with its value. A comma within a value begins no axis.
fn axes_of(case: &str) -> Vec<&str> {
    let Some((_, mut rest, _)) = case_parts(case) else { return Vec::new() };
    let mut axes = Vec::new();
    let begins_axis = |(at, _): &(usize, &str), rest: &str| !axis_name(&rest[at + 1..]).is_empty();
    while let Some((at, _)) = rest.match_indices(',').find(|comma| begins_axis(comma, rest)) {
        axes.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    axes.push(rest);
    axes
}

/// The name of the axis with which a text begins; empty if it begins with none.
fn axis_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    if text[end..].starts_with('=') { &text[..end] } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lack_the_axes_that_are_the_same_in_all_cases_of_their_target() {
        let cases = [
            "gemm:a[n=1,TYPE=bf16,LIST=x,y]@h200",
            "gemm:a[n=2,TYPE=bf16,LIST=x,y]@h200",
            "gemm:b[n=3]",
            "gemm:b[n=4]",
            "gemm:c",
        ];
        let shared = SharedAxes::from_cases(cases.into_iter());
        let short = cases.map(|case| shared.shorten(case));
        let expected =
            ["gemm:a[n=1]@h200", "gemm:a[n=2]@h200", "gemm:b[n=3]", "gemm:b[n=4]", "gemm:c"];
        assert_eq!(short, expected);
        assert_eq!(shared.note(80), "  the same in all cases of gemm:a: TYPE=bf16, LIST=x,y\n\n");
        let [.., b3, b4, c] = cases;
        assert_eq!(SharedAxes::from_cases([b3, b4, c].into_iter()).note(80), "");
    }

    #[test]
    fn sizes_lack_the_axes_of_their_case() {
        let case = "a:b[n=1,TILE=4]";
        assert_eq!(sizes_without_axes("k=2,n=1", case), "k=2");
        assert_eq!(sizes_without_axes("n=1", case), "");
        assert_eq!(sizes_without_axes("k=2,n=1;k=3,n=1", case), "k=2;k=3");
        assert_eq!(sizes_without_axes("cols=1,rows=2", "a:b"), "cols=1,rows=2");
    }
}
