//! Builds the lists of single events of a [`Trace`]: names are interned, times are relative to the
//! first event, and the lists are bounded.
//!
//! The importers of nsys and torch traces pass their ranges and regions. All of them use the same
//! bounds, so that two formats of one recording give the same trace.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::region_tree::{NvtxRangeKind, Range, Tree};
use rgpu_model::profile::Gap;
use rgpu_model::trace::{RangeEvent, Trace, TraceRegion, UnlistedEvents};

/// Longest list of GPU work in memory; what starts later is only counted. The document has fewer
/// ([`rgpu_model::trace::MAX_LISTED`]).
pub(super) const MAX_WORK: usize = 2_000_000;
/// Longest list of ranges in memory; what starts later is only counted.
pub(super) const MAX_RANGES: usize = 2_000_000;

/// Interns names: each is stored once.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    all: Vec<String>,
    by_name: HashMap<String, u32>,
}

impl NameTable {
    /// The index of a name, which is added if it is new.
    pub(super) fn index(&mut self, name: &str) -> u32 {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let index = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(name.to_owned());
        self.by_name.insert(name.to_owned(), index);
        index
    }

    pub(super) fn into_vec(self) -> Vec<String> {
        self.all
    }
}

/// Nanoseconds from the first event to `at_ns`; 0 if it is earlier.
pub(super) fn ns_since(first_ns: i64, at_ns: i64) -> u64 {
    u64::try_from(at_ns.saturating_sub(first_ns)).unwrap_or(0)
}

/// The regions of the listed ranges, numbered in order of first use.
#[derive(Debug, Default)]
pub(super) struct RegionTable {
    pub(super) all: Vec<TraceRegion>,
    by_node: HashMap<usize, u32>,
}

impl RegionTable {
    /// The index of a region. Its ancestors get their indices first.
    pub(super) fn index(&mut self, tree: &Tree, node: usize) -> u32 {
        if let Some(index) = self.by_node.get(&node) {
            return *index;
        }
        let (_, parent, kind) = tree.region_key(node);
        // The tree bounds its own depth, so this recursion is bounded too.
        let parent = parent.map(|parent| self.index(tree, parent));
        let index = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let start_end = kind == NvtxRangeKind::StartEnd;
        self.all.push(TraceRegion { path: tree.path(node), parent, start_end });
        self.by_node.insert(node, index);
        index
    }
}

/// The first ranges in time order, and the number of ranges left out. `max_ranges` is the most to
/// list, if less than [`MAX_RANGES`].
pub(super) fn list_ranges(
    (ranges, max_ranges): (&[Range], Option<usize>),
    tree: &Tree,
    first_ns: i64,
    names: &mut NameTable,
    regions: &mut RegionTable,
) -> (Vec<RangeEvent>, u64) {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|i| (ranges[*i].start_ns, Reverse(ranges[*i].end_ns), ranges[*i].thread));
    let listed = order.iter().take(max_ranges.unwrap_or(MAX_RANGES).min(MAX_RANGES)).map(|index| {
        let range = &ranges[*index];
        let node = tree.region_of_range(*index);
        let (depth, _, kind) = tree.region_key(node);
        RangeEvent {
            name: names.index(&range.part),
            start_ns: ns_since(first_ns, range.start_ns),
            duration_ns: (!range.open).then(|| ns_since(range.start_ns, range.end_ns)),
            thread: range.thread,
            depth: u32::try_from(depth).unwrap_or(u32::MAX),
            start_end: kind == NvtxRangeKind::StartEnd,
            region: Some(regions.index(tree, node)),
            rank: None,
        }
    });
    let listed: Vec<_> = listed.collect();
    let more = ranges.len() - listed.len();
    (listed, more as u64)
}

/// Code of the gap of [`unlisted_events_gap`].
pub(super) const TRACE_CUT: &str = "trace_cut";

/// The gap that says how many events `trace.json` will leave out; `None` if it will have all. The
/// analysis sees those in memory, too.
pub(super) fn unlisted_events_gap(trace: &Trace) -> Option<Gap> {
    let UnlistedEvents { work, ranges, calls } = trace.unlisted();
    if work == 0 && ranges == 0 {
        return None;
    }
    let listed = |in_memory: usize, unlisted: u64, cut: u64| {
        (in_memory as u64).saturating_sub(unlisted.saturating_sub(cut))
    };
    let cut = &trace.cut;
    let mut text = format!(
        "{}: trace.json lists the first {} pieces of GPU work and {} ranges; {work} and {ranges} \
         more, with {calls} calls, are only in the sums and the findings",
        trace.from,
        listed(trace.work.len(), work, cut.work),
        listed(trace.ranges.len(), ranges, cut.ranges),
    );
    if cut.work > 0 || cut.ranges > 0 {
        text += &format!(", the last {} and {} only in the sums", cut.work, cut.ranges);
    }
    Some(Gap { code: TRACE_CUT.to_owned(), text })
}
