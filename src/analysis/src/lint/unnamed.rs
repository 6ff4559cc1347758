//! Ranges without a name: filters of ncu and nsys cannot select them.

use super::{Lint, LintInput, ranges};

pub(super) const LINT: Lint = Lint {
    id: "unnamed_range",
    hint: "give every range a name: without one neither `--regions` nor ncu can select it",
    apply,
};

fn apply(linted: &LintInput<'_>) -> Vec<String> {
    let count = match linted.trace {
        Some(trace) => {
            let names = trace.ranges.iter().map(|range| linted.name(range.name));
            names.filter(|name| is_unnamed(name)).count() as u64
        }
        None => {
            let regions = linted.profile.regions.iter();
            let unnamed = regions.filter(|r| r.path.last().is_some_and(|part| is_unnamed(part)));
            unnamed.map(|region| region.instances.unwrap_or(1)).sum()
        }
    };
    (count > 0).then(|| format!("{} without a name", ranges(count))).into_iter().collect()
}

fn is_unnamed(part: &str) -> bool {
    let name = part.split_once('@').map_or(part, |(_, name)| name);
    name.trim().is_empty() || name == "(unnamed)"
}
