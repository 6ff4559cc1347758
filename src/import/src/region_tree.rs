//! Ranges to regions: builds the tree of paths and finds the ranges open at a given time.
//!
//! Push/pop ranges nest by thread. A range lies inside the ranges of its thread that were open when
//! it began, in any domain; its region is the path of their names. Start/end ranges may overlap, so
//! each name is a region of its own, for all threads of the process.

mod start_end;
mod steps;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use rgpu_model::Region;
use rgpu_model::timeline::RegionKind;
pub(super) use start_end::{NO_REGIONS, OpenRegions};
pub(super) use steps::{InnermostLookup, RangeAround, is_around_collective};
use steps::{OpenRange, RegionChanges, ThreadChanges};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NvtxRangeKind {
    PushPop,
    StartEnd,
}

/// An NVTX range of a trace.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) kind: NvtxRangeKind,
    /// The process. With the thread it decides which ranges nest.
    pub(super) process: u64,
    pub(super) thread: u64,
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    /// The path component: `name` or `domain@name`.
    pub(super) part: Arc<str>,
    /// Whether it never ended. Then `end_ns` is the end of the recording.
    pub(super) open: bool,
}

/// The time of an API call that launched GPU work.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallTime {
    pub(super) process: u64,
    pub(super) at_ns: i64,
}

/// The name of a range without a name.
pub(super) const UNNAMED: &str = "(unnamed)";

/// The path component of a range.
pub(super) fn part(domain: Option<&str>, name: Option<&str>) -> String {
    let name = name.unwrap_or(UNNAMED);
    match domain {
        Some(domain) if !domain.is_empty() => format!("{domain}@{name}"),
        _ => name.to_owned(),
    }
}

/// Deeper ranges count for their ancestor at this depth. Without a limit, the paths of a hostile
/// file could become longer than the file.
const MAX_DEPTH: usize = 64;
/// The same for ranges at which the names of the path would be longer than this.
const MAX_PATH_BYTES: usize = 8 << 10;
/// The region of all outermost ranges for whose names there is no room.
const MORE_REGIONS: &str = "(more regions)";
/// Memory that the regions of any trace may take, and more for each range. A path repeats the names
/// of the ranges around it, so a file of few names could have paths without end.
pub(super) const MAX_REGIONS_BYTES: usize = 16 << 20;
pub(super) const REGION_BYTES_PER_RANGE: usize = 32;
/// Memory of a region without its path: in the tree, the profile and the lists of single events.
const REGION_BYTES: usize = 800;
/// Memory of a part of a path without its text, and how often a path is kept.
const PART_BYTES: usize = 40;
const COPIES_OF_PATH: usize = 4;

/// One region of the tree.
#[derive(Debug)]
pub(super) struct Node {
    parent: Option<usize>,
    depth: usize,
    /// Memory of its path.
    path_bytes: usize,
    part: Arc<str>,
    kind: NvtxRangeKind,
    instances: u64,
    host_ns: u64,
}

/// A region by the region around it, its kind and its name.
type PathKey = (Option<usize>, NvtxRangeKind, Arc<str>);

/// All regions of a trace. A parent has a smaller number than its children.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    by_path: HashMap<PathKey, usize>,
    /// The region of each range, by the range's index.
    of_range: Vec<usize>,
    /// The push/pop ranges with the range around each, outer ranges first.
    nesting: Vec<(usize, Option<usize>)>,
    lanes: ThreadChanges,
    /// Memory that is left for regions.
    left_bytes: usize,
    /// Ranges that count for another region, since there was no memory for their own.
    folded: u64,
}

impl Tree {
    /// Builds the tree, and the start/end regions around each call. For push/pop regions, use
    /// [`Tree::innermost`].
    pub(super) fn build(ranges: &[Range], calls: &[CallTime]) -> (Tree, OpenRegions) {
        let left_bytes = MAX_REGIONS_BYTES + REGION_BYTES_PER_RANGE * ranges.len();
        Tree::build_within(ranges, calls, left_bytes)
    }

    fn build_within(
        ranges: &[Range],
        calls: &[CallTime],
        left_bytes: usize,
    ) -> (Tree, OpenRegions) {
        let mut tree = Tree { of_range: vec![0; ranges.len()], left_bytes, ..Tree::default() };
        tree.push_pop(ranges);
        let open = tree.start_end(ranges, calls);
        (tree, open)
    }

    /// A lookup of the innermost push/pop range by time.
    pub(super) fn innermost(&self) -> InnermostLookup<'_> {
        InnermostLookup::new(&self.lanes)
    }

    /// The ranges of a kind, sorted by lane and time. Of two that begin together, the outer comes
    /// first.
    fn by_start<L: Ord>(
        ranges: &[Range],
        kind: NvtxRangeKind,
        lane: impl Fn(&Range) -> L,
    ) -> Vec<usize> {
        let mut by_start: Vec<usize> =
            (0..ranges.len()).filter(|i| ranges[*i].kind == kind).collect();
        by_start.sort_by_key(|i| {
            let r = &ranges[*i];
            (lane(r), r.start_ns, Reverse(r.end_ns))
        });
        by_start
    }

    /// Builds the push/pop regions in one pass, thread by thread.
    fn push_pop(&mut self, ranges: &[Range]) {
        let lane = |range: &Range| (range.process, range.thread);
        let by_start = Tree::by_start(ranges, NvtxRangeKind::PushPop, lane);
        for of_lane in by_start.chunk_by(|a, b| lane(&ranges[*a]) == lane(&ranges[*b])) {
            let mut steps = RegionChanges::default();
            // The open ranges with their end times, outermost first.
            let mut open: Vec<(i64, OpenRange)> = Vec::new();
            for index in of_lane {
                let range = &ranges[*index];
                steps.add_range(&range.part);
                Tree::close(&mut open, range.start_ns, &mut steps);
                let outer = open.last().map(|(_, outer)| *outer);
                let node = self.enter(outer.map(|outer| outer.node), range);
                self.of_range[*index] = node;
                self.nesting.push((*index, outer.map(|outer| outer.range)));
                let own = OpenRange { node, range: *index };
                open.push((range.end_ns, own));
                steps.change(range.start_ns, Some(own));
            }
            Tree::close(&mut open, i64::MAX, &mut steps);
            if let Some(first) = of_lane.first() {
                self.lanes.insert(lane(&ranges[*first]), steps);
            }
        }
    }

    /// Removes the push/pop ranges that ended by `now`. Ranges of different domains may overlap, so
    /// an outer one can end before an inner one.
    fn close(open: &mut Vec<(i64, OpenRange)>, now: i64, steps: &mut RegionChanges) {
        while let Some((at, _)) = open.last().copied().filter(|(end, _)| *end <= now) {
            while open.last().is_some_and(|(end, _)| *end <= at) {
                open.pop();
            }
            steps.change(at, open.last().map(|(_, range)| *range));
        }
    }

    /// The region of a range below `parent`, which is added if new. Counts the instance.
    fn enter(&mut self, parent: Option<usize>, range: &Range) -> usize {
        let depth = parent.map_or(0, |p| self.nodes[p].depth + 1);
        if let Some(parent) = parent {
            if depth >= MAX_DEPTH {
                return parent;
            }
            let path_bytes = self.nodes[parent].path_bytes + range.part.len();
            if path_bytes > MAX_PATH_BYTES + PART_BYTES * depth {
                self.folded += 1;
                return parent;
            }
        }
        let key = (parent, range.kind, Arc::clone(&range.part));
        let node = match self.by_path.get(&key) {
            Some(node) => *node,
            None => {
                let around = parent.map_or(0, |parent| self.nodes[parent].path_bytes);
                let path_bytes = around + PART_BYTES + range.part.len();
                let bytes = REGION_BYTES + COPIES_OF_PATH * path_bytes;
                match (self.left_bytes.checked_sub(bytes), parent) {
                    (Some(left_bytes), _) => {
                        self.left_bytes = left_bytes;
                        self.add(key, depth, path_bytes)
                    }
                    (None, Some(parent)) => {
                        self.folded += 1;
                        return parent;
                    }
                    (None, None) => {
                        self.folded += 1;
                        let key = (None, range.kind, Arc::from(MORE_REGIONS));
                        let known = self.by_path.get(&key).copied();
                        known.unwrap_or_else(|| self.add(key, 0, PART_BYTES + MORE_REGIONS.len()))
                    }
                }
            }
        };
        self.nodes[node].instances += 1;
        let ns = u64::try_from(range.end_ns.saturating_sub(range.start_ns)).unwrap_or(0);
        self.nodes[node].host_ns = self.nodes[node].host_ns.saturating_add(ns);
        node
    }

    /// Adds a region and returns its number.
    fn add(&mut self, key: PathKey, depth: usize, path_bytes: usize) -> usize {
        let number = self.nodes.len();
        let (parent, kind, part) = key.clone();
        self.by_path.insert(key, number);
        self.nodes.push(Node { parent, depth, path_bytes, part, kind, instances: 0, host_ns: 0 });
        number
    }

    /// The number of ranges that count for the region around them, or for one of all outermost
    /// ones, since their path, or the paths of all regions together, are too long.
    pub(super) fn folded(&self) -> u64 {
        self.folded
    }

    /// The region of a range, by the range's index.
    pub(super) fn region_of_range(&self, range: usize) -> usize {
        self.of_range[range]
    }

    /// The push/pop ranges with the range around each, outer ranges first.
    pub(super) fn nesting(&self) -> &[(usize, Option<usize>)] {
        &self.nesting
    }

    /// The region's depth, parent and kind.
    pub(super) fn region_key(&self, node: usize) -> (usize, Option<usize>, NvtxRangeKind) {
        let node = &self.nodes[node];
        (node.depth, node.parent, node.kind)
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The region and its ancestors, innermost first.
    pub(super) fn ancestry(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(node), |n| self.nodes[*n].parent)
    }

    /// The region's path, outermost first.
    pub(super) fn path(&self, node: usize) -> Vec<String> {
        let mut parts: Vec<String> =
            self.ancestry(node).map(|n| self.nodes[n].part.to_string()).collect();
        parts.reverse();
        parts
    }

    /// All regions, parents before children, without GPU times.
    pub(super) fn regions(&self, from: &str) -> Vec<(usize, Region)> {
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut todo: Vec<usize> = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            match node.parent {
                Some(parent) => children[parent].push(index),
                None => todo.push(index),
            }
        }
        todo.reverse();
        let mut regions = Vec::with_capacity(self.nodes.len());
        while let Some(index) = todo.pop() {
            todo.extend(children[index].iter().rev());
            let node = &self.nodes[index];
            let kind = match node.kind {
                NvtxRangeKind::PushPop => RegionKind::PushPop,
                NvtxRangeKind::StartEnd => RegionKind::StartEnd,
            };
            regions.push((
                index,
                Region {
                    path: self.path(index),
                    kind,
                    instances: Some(node.instances),
                    host_ns: Some(node.host_ns),
                    from: from.to_owned(),
                    ..Region::default()
                },
            ));
        }
        regions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(kind: NvtxRangeKind, thread: u64, start_ns: i64, end_ns: i64, part: &str) -> Range {
        Range { kind, process: 1, thread, start_ns, end_ns, part: part.into(), open: false }
    }

    fn paths(tree: &Tree) -> Vec<(String, u64, u64)> {
        let regions = tree.regions("").into_iter();
        regions.map(|(_, r)| (r.display(), r.instances.unwrap(), r.host_ns.unwrap())).collect()
    }

    /// The regions of calls at (process, thread, time): the innermost, then the start/end ones.
    fn inside(ranges: &[Range], calls: &[(u64, u64, i64)]) -> Vec<Vec<String>> {
        let times: Vec<CallTime> = calls
            .iter()
            .map(|(process, _, at_ns)| CallTime { process: *process, at_ns: *at_ns })
            .collect();
        let (tree, open) = Tree::build(ranges, &times);
        let mut innermost = tree.innermost();
        let nodes = calls.iter().enumerate().map(|(index, (process, thread, at_ns))| {
            let start_end = open.list(open.list_of(index)).iter().map(|node| *node as usize);
            let inner = innermost.around(*process, *thread, *at_ns).map(|a| a.innermost.node);
            inner.into_iter().chain(start_end).collect::<Vec<_>>()
        });
        nodes.map(|nodes| nodes.iter().map(|n| tree.path(*n).join("/")).collect()).collect()
    }

    #[test]
    fn ranges_for_whose_names_there_is_no_memory_count_for_the_regions_around_them() {
        use NvtxRangeKind::PushPop;
        let name = |n: i64| format!("{n}{}", "x".repeat(1000));
        let deep = (0..50).map(|n| range(PushPop, 1, n, 1000 - n, &name(n)));
        let flat = (0..50).map(|n| range(PushPop, 2, 10 * n, 10 * n + 5, &name(n)));
        let ranges: Vec<Range> = deep.chain(flat).collect();
        let (tree, _) = Tree::build_within(&ranges, &[], 100_000);
        let regions = tree.regions("");
        let kept: usize =
            regions.iter().flat_map(|(_, region)| &region.path).map(String::len).sum();
        assert!((15_000..33_000).contains(&kept), "{kept}");
        assert!(tree.folded() > 80, "{}", tree.folded());
        let instances: u64 = regions.iter().filter_map(|(_, region)| region.instances).sum();
        // The deep ones are inside a region with instances of its own.
        assert!((50..100).contains(&instances), "{instances}");
        let more: Vec<_> =
            regions.iter().filter(|(_, region)| region.path == [MORE_REGIONS]).collect();
        assert!(matches!(more[..], [(_, region)] if region.instances > Some(40)), "{more:?}");
        assert_eq!(Tree::build(&ranges[50..], &[]).0.folded(), 0);
    }

    #[test]
    fn push_pop_ranges_nest_by_thread_and_sum_by_path() {
        use NvtxRangeKind::PushPop;
        let ranges = [
            range(PushPop, 1, 0, 100, "A"),
            range(PushPop, 1, 10, 20, "A1"),
            range(PushPop, 1, 30, 50, "A1"),
            range(PushPop, 2, 15, 25, "A1"),
            range(PushPop, 1, 100, 130, "B"),
        ];
        let (tree, _) = Tree::build(&ranges, &[]);
        let expected = [
            ("A".to_owned(), 1, 100),
            ("A::A1".to_owned(), 2, 30),
            ("B".to_owned(), 1, 30),
            ("A1".to_owned(), 1, 10),
        ];
        assert_eq!(paths(&tree), expected);
    }

    #[test]
    fn a_moment_lies_in_the_innermost_range_of_its_thread_and_in_every_open_start_end_range() {
        let ranges = [
            range(NvtxRangeKind::PushPop, 1, 0, 100, "A"),
            range(NvtxRangeKind::PushPop, 1, 10, 20, "A1"),
            range(NvtxRangeKind::StartEnd, 2, 5, 15, "S"),
            range(NvtxRangeKind::StartEnd, 2, 12, 90, "T"),
        ];
        let at = |thread, at_ns| (1, thread, at_ns);
        let moments = [at(1, 9), at(1, 14), at(1, 20), at(3, 14), at(1, 100), at(2, 200)];
        let got = inside(&ranges, &moments);
        let expected: [&[&str]; 6] =
            [&["A", "S"], &["A/A1", "S", "T"], &["A", "T"], &["A/A1", "S", "T"], &[], &[]];
        assert_eq!(got, expected);
    }

    #[test]
    fn ranges_that_cross_begin_together_or_take_no_time_leave_the_right_one_open() {
        let ranges = [
            range(NvtxRangeKind::PushPop, 1, 0, 50, "A"),
            range(NvtxRangeKind::PushPop, 1, 0, 10, "A0"),
            range(NvtxRangeKind::PushPop, 1, 40, 60, "B"),
            range(NvtxRangeKind::PushPop, 1, 45, 45, "nothing"),
            range(NvtxRangeKind::PushPop, 1, 70, 65, "backwards"),
            range(NvtxRangeKind::PushPop, 1, 80, i64::MAX, "last"),
        ];
        let times = [-1, 0, 9, 10, 39, 40, 45, 55, 60, 64, 70, 80, i64::MAX - 1, i64::MAX];
        let calls: Vec<_> = times.into_iter().map(|at_ns| (1, 1, at_ns)).collect();
        let got = inside(&ranges, &calls);
        let got: Vec<_> = got.iter().map(|regions| regions.join(" ")).collect();
        let (b, a0) = ("A/B", "A/A0");
        let expected = ["", a0, a0, "A", "A", b, b, b, "", "", "", "last", "last", ""];
        assert_eq!(got, expected);
    }

    #[test]
    fn another_process_has_ranges_of_its_own() {
        let ranges = [
            range(NvtxRangeKind::StartEnd, 1, 0, 100, "S"),
            range(NvtxRangeKind::PushPop, 1, 0, 100, "A"),
        ];
        let moments = [(2, 1, 50)];
        assert_eq!(inside(&ranges, &moments), [Vec::<String>::new()]);
    }

    #[test]
    fn a_range_at_which_the_path_is_too_long_counts_for_the_one_around_it() {
        let name = "x".repeat(3000);
        let ranges: Vec<Range> =
            (0..10).map(|n| range(NvtxRangeKind::PushPop, 1, n, 100 - n, &name)).collect();
        let (tree, _) = Tree::build(&ranges, &[]);
        assert_eq!((tree.len(), tree.folded()), (2, 8));
        let long = range(NvtxRangeKind::PushPop, 1, 0, 9, &"x".repeat(100_000));
        assert_eq!(Tree::build(&[long], &[]).0.folded(), 0);
    }

    #[test]
    fn absurdly_deep_ranges_count_to_an_ancestor() {
        let ranges: Vec<Range> =
            (0..1000).map(|n| range(NvtxRangeKind::PushPop, 1, n, 10_000 - n, "x")).collect();
        let (tree, _) = Tree::build(&ranges, &[]);
        assert_eq!(tree.len(), MAX_DEPTH);
    }
}
