//! Start/end ranges: the regions that are open at each call.
//!
//! A range may be open all the time, and thousands may be open together. A list of regions for each
//! call would then need more memory than the file has. The list changes only where a range opens or
//! closes, so the calls between two changes share one. The number of regions in a list, and of
//! those in all lists, are bounded.

use super::{CallTime, NvtxRangeKind, Range, Tree};

/// Most start/end regions that one call counts for.
const MAX_OPEN: usize = 64;
/// Most entries of all lists together: as many for any trace, and more for each call.
const MAX_ENTRIES: usize = 2 << 20;
const ENTRIES_PER_CALL: usize = 8;
/// The number of the list without regions.
pub(crate) const NO_REGIONS: u32 = 0;

/// The start/end regions around each call.
#[derive(Debug, Default)]
pub(crate) struct OpenRegions {
    /// The regions of all lists, list after list.
    regions: Vec<u32>,
    /// Where the lists end in `regions`, from list 1. List 0 is empty.
    ends: Vec<usize>,
    /// The number of the list of each call, by the call's index; empty without start/end ranges.
    of_call: Vec<u32>,
    /// Number of ranges and calls for which there was no room.
    left_out: u64,
}

impl OpenRegions {
    /// The number of the list of a call.
    pub(crate) fn list_of(&self, call: usize) -> u32 {
        self.of_call.get(call).copied().unwrap_or(NO_REGIONS)
    }

    /// The regions of a list, in the order in which they opened.
    pub(crate) fn list(&self, number: u32) -> &[u32] {
        let Some(at) = (number as usize).checked_sub(1) else { return &[] };
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let end = self.ends.get(at).copied().unwrap_or(0);
        self.regions.get(start.unwrap_or(0)..end).unwrap_or_default()
    }

    /// Number of ranges that opened while [`MAX_OPEN`] other regions were open, and of calls with a
    /// shorter list than regions were open.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Adds a list and returns its number.
    fn add(&mut self, open: &[OpenRegion]) -> u32 {
        if open.is_empty() {
            return NO_REGIONS;
        }
        self.regions.extend(open.iter().map(|region| region.node));
        self.ends.push(self.regions.len());
        u32::try_from(self.ends.len()).unwrap_or(NO_REGIONS)
    }
}

/// A region with an open range, and the end of the range that closes last.
#[derive(Clone, Copy, Debug)]
struct OpenRegion {
    node: u32,
    end_ns: i64,
}

/// Follows the ranges and calls of one process in time order.
#[derive(Default)]
struct OpenList {
    open: Vec<OpenRegion>,
    /// The number of the list with exactly these regions, if there is one.
    number: Option<u32>,
}

impl OpenList {
    fn clear(&mut self) {
        self.open.clear();
        self.number = None;
    }

    /// Removes the regions whose last range ended by `now_ns`.
    fn close(&mut self, now_ns: i64) {
        let before = self.open.len();
        self.open.retain(|region| region.end_ns > now_ns);
        if self.open.len() != before {
            self.number = None;
        }
    }

    /// Opens a range. Returns whether there was room for it.
    fn open(&mut self, node: u32, end_ns: i64) -> bool {
        if let Some(known) = self.open.iter_mut().find(|region| region.node == node) {
            known.end_ns = known.end_ns.max(end_ns);
            return true;
        }
        if self.open.len() >= MAX_OPEN {
            return false;
        }
        self.open.push(OpenRegion { node, end_ns });
        self.number = None;
        true
    }
}

impl Tree {
    /// Builds the start/end regions in one pass over ranges and calls, by process and time.
    pub(super) fn start_end(&mut self, ranges: &[Range], calls: &[CallTime]) -> OpenRegions {
        let mut all = OpenRegions::default();
        let by_start = Tree::by_start(ranges, NvtxRangeKind::StartEnd, |range| range.process);
        if by_start.is_empty() {
            return all;
        }
        all.of_call = vec![NO_REGIONS; calls.len()];
        let max_entries = MAX_ENTRIES.saturating_add(ENTRIES_PER_CALL.saturating_mul(calls.len()));
        let mut by_time: Vec<usize> = (0..calls.len()).collect();
        by_time.sort_by_key(|at| (calls[*at].process, calls[*at].at_ns));
        let mut by_time = by_time.into_iter().peekable();
        let mut process = None;
        let mut list = OpenList::default();
        let see = |at: usize, list: &mut OpenList, all: &mut OpenRegions| {
            list.close(calls[at].at_ns);
            let number = list.number.unwrap_or_else(|| {
                let room = max_entries.saturating_sub(all.regions.len()).min(list.open.len());
                all.left_out += u64::from(room < list.open.len());
                all.add(&list.open[..room])
            });
            list.number = Some(number);
            all.of_call[at] = number;
        };
        for index in by_start {
            let range = &ranges[index];
            let time = (range.process, range.start_ns);
            while let Some(at) = by_time.next_if(|at| (calls[*at].process, calls[*at].at_ns) < time)
            {
                if process == Some(calls[at].process) {
                    see(at, &mut list, &mut all);
                }
            }
            if process != Some(range.process) {
                list.clear();
                process = Some(range.process);
            }
            list.close(range.start_ns);
            let node = self.enter(None, range);
            self.of_range[index] = node;
            let has_room = u32::try_from(node).is_ok_and(|node| list.open(node, range.end_ns));
            all.left_out += u64::from(!has_room);
        }
        for at in by_time {
            if process == Some(calls[at].process) {
                see(at, &mut list, &mut all);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start_ns: i64, end_ns: i64, part: &str) -> Range {
        let kind = NvtxRangeKind::StartEnd;
        Range { kind, process: 1, thread: 1, start_ns, end_ns, part: part.into(), open: false }
    }

    fn at(at_ns: i64) -> CallTime {
        CallTime { process: 1, at_ns }
    }

    #[test]
    fn calls_between_two_changes_share_a_list_which_has_a_bound() {
        let ranges: Vec<Range> = (0..1000).map(|n| range(0, 100_000, &n.to_string())).collect();
        let calls: Vec<CallTime> = (0..10_000).map(at).collect();
        let (tree, open) = Tree::build(&ranges, &calls);
        assert_eq!((tree.len(), open.regions.len(), open.ends.len()), (1000, MAX_OPEN, 1));
        assert_eq!(open.list(open.list_of(9_999)).len(), MAX_OPEN);
        assert_eq!(open.left_out(), 1000 - MAX_OPEN as u64);
    }

    #[test]
    fn lists_of_calls_that_see_others_each_time_take_no_more_than_all_may() {
        // One region of 64 closes and opens again between two calls.
        let long = (0..63).map(|n| range(0, i64::MAX, &n.to_string()));
        let short = (0..60_000).map(|n| range(10 * n, 10 * n + 5, "short"));
        let ranges: Vec<Range> = long.chain(short).collect();
        let calls: Vec<CallTime> =
            (0..60_000).flat_map(|n| [at(10 * n + 1), at(10 * n + 6)]).collect();
        let (_, open) = Tree::build(&ranges, &calls);
        assert!(open.regions.len() <= MAX_ENTRIES + ENTRIES_PER_CALL * calls.len());
        assert!(open.left_out() > 0);
        assert_eq!(open.list(open.list_of(0)).len(), 64);
        assert_eq!(open.list(open.list_of(1)).len(), 63);
    }

    #[test]
    fn a_name_that_is_open_many_times_is_one_region_until_its_last_range_closes() {
        let ranges: Vec<Range> = (0..500).map(|n| range(n, 1000 - n, "request")).collect();
        let last = range(400, 2000, "other");
        let ranges: Vec<Range> = ranges.into_iter().chain([last]).collect();
        let (tree, open) = Tree::build(&ranges, &[at(450), at(999), at(1000), at(2000)]);
        let names = |call| {
            let regions = open.list(open.list_of(call)).iter();
            regions.map(|node| tree.path(*node as usize).join("/")).collect::<Vec<_>>()
        };
        let expected: [&[&str]; 4] =
            [&["request", "other"], &["request", "other"], &["other"], &[]];
        assert_eq!([0, 1, 2, 3].map(names), expected);
        assert_eq!(open.left_out(), 0);
    }
}
