//! Ranges that share a name and cannot be distinguished.

use std::collections::{BTreeMap, BTreeSet};

use super::{Lint, LintInput, is_ours, some_of};

pub(super) const LINT: Lint = Lint {
    id: "colliding_ranges",
    hint: "give each its own name, or put them into domains of their own: in sums by name, and \
           for filters of ncu and nsys, they are the same range",
    apply,
};

fn apply(linted: &LintInput<'_>) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(crossing(linted));
    let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut inside_itself = BTreeSet::new();
    for region in linted.profile.regions.iter().filter(|region| !is_ours(&region.path)) {
        if let [.., around, own] = &region.path[..]
            && around == own
        {
            inside_itself.insert(region.display());
        }
        if let Some(part) = region.path.last() {
            kinds.entry(part).or_default().insert(&region.kind);
        }
    }
    let both = kinds.iter().filter(|(_, kinds)| kinds.len() > 1);
    let both: Vec<String> = both.map(|(name, _)| (*name).to_owned()).collect();
    if !both.is_empty() {
        found.push(format!("push/pop and start/end ranges share names: {}", some_of(&both)));
    }
    let nested: Vec<String> = inside_itself.into_iter().collect();
    if !nested.is_empty() {
        found.push(format!("ranges lie inside ranges of their own name: {}", some_of(&nested)));
    }
    found
}

/// Start/end ranges of the same name that are open at the same time. Process-wide ranges can only
/// be distinguished by name.
fn crossing(linted: &LintInput<'_>) -> Option<String> {
    let ranges = linted.trace.map(|trace| &trace.ranges[..]).unwrap_or_default();
    let mut open_until: BTreeMap<u32, u64> = BTreeMap::new();
    let mut crossing = BTreeSet::new();
    // Ranges are sorted by start.
    for range in ranges.iter().filter(|range| range.start_end) {
        let end = range.duration_ns.map_or(u64::MAX, |ns| range.start_ns.saturating_add(ns));
        let until = open_until.entry(range.name).or_default();
        if range.start_ns < *until {
            crossing.insert(linted.name(range.name).to_owned());
        }
        *until = end.max(*until);
    }
    let names: Vec<String> = crossing.into_iter().collect();
    (!names.is_empty())
        .then(|| format!("start/end ranges of one name are open at once: {}", some_of(&names)))
}
