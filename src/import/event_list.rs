//! Single events for `trace.json`: names interned, times from the first event on, lists bounded.
//!
//! Every importer that sees single events fills the same lists by the same bounds, so that two
//! readings of one recording give the same document.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::region_tree::{Kind, Range, Tree};
use crate::model::profile::Gap;
use crate::model::trace::{Cut, RangeEvent, Trace, TraceRegion};

/// Pieces of GPU work that are listed, the first ones.
pub(super) const MAX_WORK: usize = 20_000;
/// Ranges that are listed.
pub(super) const MAX_RANGES: usize = 20_000;

/// Names, each once.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    all: Vec<String>,
    by_name: HashMap<String, u32>,
}

impl NameTable {
    /// The index of a name.
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

/// Nanoseconds since the first event.
pub(super) fn since(first_ns: i64, at_ns: i64) -> u64 {
    u64::try_from(at_ns.saturating_sub(first_ns)).unwrap_or(0)
}

/// The regions of the listed ranges, numbered as they are met.
#[derive(Debug, Default)]
pub(super) struct RegionTable {
    pub(super) all: Vec<TraceRegion>,
    by_node: HashMap<usize, u32>,
}

impl RegionTable {
    /// The index of a region; those around it get theirs first.
    pub(super) fn index(&mut self, tree: &Tree, node: usize) -> u32 {
        if let Some(index) = self.by_node.get(&node) {
            return *index;
        }
        let (_, parent, kind) = tree.place(node);
        // No deeper than the tree, which bounds its depth.
        let parent = parent.map(|parent| self.index(tree, parent));
        let index = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let start_end = kind == Kind::StartEnd;
        self.all.push(TraceRegion { path: tree.path(node), parent, start_end });
        self.by_node.insert(node, index);
        index
    }
}

/// The first ranges in time order, and how many more there are.
pub(super) fn ranges(
    ranges: &[Range],
    tree: &Tree,
    first_ns: i64,
    names: &mut NameTable,
    regions: &mut RegionTable,
) -> (Vec<RangeEvent>, u64) {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|i| (ranges[*i].start_ns, Reverse(ranges[*i].end_ns), ranges[*i].thread));
    let listed = order.iter().take(MAX_RANGES).map(|index| {
        let range = &ranges[*index];
        let node = tree.of_range(*index);
        let (depth, _, kind) = tree.place(node);
        RangeEvent {
            name: names.index(&range.part),
            start_ns: since(first_ns, range.start_ns),
            duration_ns: (!range.open).then(|| since(range.start_ns, range.end_ns)),
            thread: range.thread,
            depth: u32::try_from(depth).unwrap_or(u32::MAX),
            start_end: kind == Kind::StartEnd,
            region: Some(regions.index(tree, node)),
        }
    });
    let listed: Vec<_> = listed.collect();
    let more = ranges.len() - listed.len();
    (listed, more as u64)
}

/// What a bounded list has left out, in words.
pub(super) fn cut_gap(trace: &Trace) -> Option<Gap> {
    let Cut { work, ranges, calls } = trace.cut;
    (work + ranges > 0).then(|| Gap {
        code: "trace_cut".to_owned(),
        text: format!(
            "{}: trace.json lists the first {} pieces of GPU work and {} ranges; {work} and \
             {ranges} more, with {calls} calls, stand in the sums only",
            trace.from,
            trace.work.len(),
            trace.ranges.len(),
        ),
    })
}
