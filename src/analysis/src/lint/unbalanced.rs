//! Ranges that never end, and ends of ranges that never began.

use super::{Lint, LintInput, distinct, ranges, some_of};

pub(super) const LINT: Lint = Lint {
    id: "unbalanced_range",
    hint: "close every range on every way out of its code, in C++ with a scoped range \
           (nvtx3::scoped_range), in Python with `with nvtx.annotate(…)`",
    apply,
};

fn apply(linted: &LintInput<'_>) -> Vec<String> {
    let events = linted.trace.map(|trace| &trace.ranges[..]).unwrap_or_default();
    let open = events.iter().filter(|range| range.duration_ns.is_none());
    let open: Vec<String> = open.map(|range| linted.name(range.name).to_owned()).collect();
    let mut found = Vec::new();
    if !open.is_empty() {
        let names = some_of(&distinct(open.iter().cloned()));
        found.push(format!("{} never closed: {names}", ranges(open.len() as u64)));
    }
    // Only our collector's log records ends without a start; nsys drops them.
    let strays = linted.profile.gaps.iter().filter(|gap| gap.code == "stray_ends");
    found.extend(strays.map(|gap| gap.text.clone()));
    found
}
