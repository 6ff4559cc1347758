//! The NVTX path of a launch.

use rgpu_format::ncu_rep::NvtxState;

/// The open push/pop ranges, outermost first; those of a named domain are `domain@name`.
///
/// A report says how the ranges of one domain are nested and nothing about ranges of two domains,
/// so domains follow each other: ours first, since the runner opens its ranges around everything.
/// Start/end ranges need not nest and are used only where nothing else is open.
pub(super) fn path(state: &NvtxState) -> Vec<String> {
    let part = |domain: u64, name: &str| match state.domain_name(domain) {
        Some(domain) => format!("{domain}@{name}"),
        None => name.to_owned(),
    };
    let mut stacks: Vec<_> = state.stacks.iter().collect();
    stacks.sort_by_key(|stack| match state.domain_name(stack.domain) {
        Some("rgpu") => 0,
        None => 1,
        Some(_) => 2,
    });
    let nested = stacks.into_iter().flat_map(|stack| {
        stack.path.iter().map(|name| part(stack.domain, name)).collect::<Vec<_>>()
    });
    let nested: Vec<_> = nested.collect();
    if !nested.is_empty() {
        return nested;
    }
    state.ranges.iter().map(|range| part(range.domain, &range.name)).collect()
}
