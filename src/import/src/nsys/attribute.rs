//! Joins GPU work to regions: from a trace to launches, sums and regions.

mod span;

use std::collections::HashMap;

use rgpu_format::nsys_row::{Kernel, Strings};

use super::ranks::RankNumbers;
use super::sums::RegionSums;
use super::trace::{NsysWorkKind, Trace};
use crate::ImportedArtifact;
use crate::region_tree::{
    CallTime, InnermostLookup, NO_REGIONS, NvtxRangeKind, OpenRegions, RangeAround, Tree,
};
use rgpu_model::SharedList;
use rgpu_model::launch::Launch;
use rgpu_model::profile::Gap;
use span::RangeSpans;

/// GPU work of a trace, by the region in which it was launched.
pub(super) struct AttributedWork {
    pub(super) tree: Tree,
    /// Sums of the work launched directly in each region, without inner regions, by region number.
    sums: Vec<RegionSums>,
    /// Span of the work launched directly in each range.
    spans: RangeSpans,
    /// The start/end regions around calls.
    open: OpenRegions,
    /// The list of start/end regions in which work was launched, by process and correlation id.
    start_end: HashMap<(u64, i64), u32>,
    /// Number of pieces of work whose API call is known.
    known: u64,
}

impl AttributedWork {
    pub(super) fn new(trace: &Trace) -> AttributedWork {
        // Only start/end ranges need all calls at once, and most traces have none.
        let mut moments: Vec<CallTime> = Vec::new();
        if trace.ranges.iter().any(|range| range.kind == NvtxRangeKind::StartEnd) {
            moments.extend(trace.pieces.launched().map(|launched| {
                let call = launched.call;
                CallTime { process: call.process, at_ns: call.at_ns }
            }));
        }
        let (tree, open) = Tree::build(&trace.ranges, &moments);
        drop(moments);
        let mut placed = AttributedWork {
            sums: Vec::new(),
            spans: RangeSpans::new(trace.ranges.len()),
            open: OpenRegions::default(),
            start_end: HashMap::new(),
            known: 0,
            tree: Tree::default(),
        };
        placed.sums.resize_with(tree.len(), RegionSums::default);
        let mut innermost = tree.innermost();
        for (index, launched) in trace.pieces.launched().enumerate() {
            let call = launched.call;
            if let Some(around) = innermost.around(call.process, call.thread, call.at_ns) {
                let sums = &mut placed.sums[around.innermost.node];
                for spent in launched.spent() {
                    sums.add(spent);
                    placed.spans.add(around.innermost.range, spent);
                    if around.is_inferred {
                        sums.inferred_ns = sums.inferred_ns.saturating_add(spent.ns);
                    }
                }
            }
            let list = open.list_of(index);
            if list != NO_REGIONS {
                for node in open.list(list) {
                    let sums = &mut placed.sums[*node as usize];
                    launched.spent().for_each(|spent| sums.add(spent));
                }
                placed.start_end.insert((call.process, launched.correlation), list);
            }
            placed.known += launched.spent().len() as u64;
        }
        AttributedWork { tree, open, ..placed }
    }

    /// A lookup of the launches of single pieces of work.
    pub(super) fn launches<'a>(&'a self, trace: &'a Trace) -> LaunchLookup<'a> {
        LaunchLookup { trace, placed: self, innermost: self.tree.innermost(), finger: 0 }
    }

    /// The sums of each region, including its inner regions.
    fn whole_sums(self) -> (Tree, Vec<RegionSums>, Vec<u64>) {
        let (tree, mut sums) = (self.tree, self.sums);
        let spans = self.spans.by_region(&tree);
        // A parent has a smaller number than its children, so a region is complete before it is
        // added to it.
        for node in (0..sums.len()).rev() {
            let (below, rest) = sums.split_at_mut(node);
            if let (_, Some(parent), _) = tree.region_key(node) {
                below[parent].merge(&rest[0]);
            }
        }
        (tree, sums, spans)
    }
}

/// Looks up the call and the regions of single pieces of work. Consecutive ones are mostly close in
/// time, so it starts at the last position.
pub(super) struct LaunchLookup<'a> {
    trace: &'a Trace,
    placed: &'a AttributedWork,
    innermost: InnermostLookup<'a>,
    finger: usize,
}

/// The launch of a piece of work.
pub(super) struct LaunchPlace<'a> {
    /// The call's number in reading order.
    pub(super) call: u32,
    /// The push/pop range around it.
    around: Option<RangeAround>,
    /// The list of start/end regions around it.
    list: u32,
    open: &'a OpenRegions,
}

impl LaunchPlace<'_> {
    /// Equal for places in the same regions: the innermost push/pop region, and the list of
    /// start/end ones.
    pub(super) fn key(&self) -> (Option<usize>, u32) {
        (self.around.map(|around| around.innermost.node), self.list)
    }

    /// The regions around it: the innermost push/pop region, then the start/end ones.
    pub(super) fn regions(&self) -> impl Iterator<Item = usize> + '_ {
        let inner = self.around.map(|around| around.innermost.node);
        inner.into_iter().chain(self.open.list(self.list).iter().map(|node| *node as usize))
    }
}

impl<'a> LaunchLookup<'a> {
    /// The launch with a process and correlation id. `None` if the trace does not have its call.
    pub(super) fn find(&mut self, key: (u64, i64)) -> Option<LaunchPlace<'a>> {
        let (call, number) = self.trace.pieces.call_for(key.0, key.1, &mut self.finger)?;
        let placed = self.placed;
        let list = if placed.start_end.is_empty() { None } else { placed.start_end.get(&key) };
        Some(LaunchPlace {
            call: number,
            around: self.innermost.around(call.process, call.thread, call.at_ns),
            list: list.copied().unwrap_or(NO_REGIONS),
            open: &placed.open,
        })
    }
}

/// Regions list all their kernels until there are so many in all lists together; those after list
/// their longest. A kernel is in the list of each region around it.
const MAX_REGION_KERNELS: usize = 50_000;
const MAX_MORE_KERNELS: usize = 100;

/// Adds everything in `trace` to `imported`, except the single events. `ranks` are the numbers of its processes.
pub(super) fn add(
    trace: &Trace,
    placed: AttributedWork,
    from: &str,
    ranks: &RankNumbers,
    imported: &mut ImportedArtifact,
) {
    imported.kernels = trace.totals.kernels(&trace.kernels);
    imported.copies = trace.totals.copies();
    imported.launches = launches(trace, &placed, ranks);
    imported.gaps.extend(gaps(trace, &placed, from));
    let (tree, sums, spans) = placed.whole_sums();
    let (mut kernels, mut shortened) = (0, 0);
    let regions = tree.regions(from).into_iter().map(|(node, mut region)| {
        region.gpu_ns = (trace.work_count > 0).then_some(sums[node].gpu_ns);
        region.gpu_span_ns = Some(spans[node]).filter(|ns| *ns > 0);
        region.inferred_gpu_ns = Some(sums[node].inferred_ns).filter(|ns| *ns > 0);
        let most = if kernels < MAX_REGION_KERNELS { usize::MAX } else { MAX_MORE_KERNELS };
        region.kernels = sums[node].kernels(&trace.kernels, most);
        kernels += region.kernels.len();
        shortened += u64::from(region.kernels.len() < sums[node].kernel_count());
        region
    });
    imported.regions = regions.collect();
    if shortened > 0 {
        let text = format!(
            "{from}: {shortened} regions list their {MAX_MORE_KERNELS} longest kernels only; their \
             times include all"
        );
        imported.gaps.push(Gap { code: "region_kernels_capped".to_owned(), text });
    }
}

fn launches(trace: &Trace, placed: &AttributedWork, ranks: &RankNumbers) -> Vec<Launch> {
    let kernels = trace.first_kernels.iter().zip(0..);
    let mut lookup = placed.launches(trace);
    let mut paths: HashMap<usize, SharedList<String>> = HashMap::new();
    kernels
        .map(|((work, kernel), id)| {
            let name = match work.what {
                NsysWorkKind::Kernel { name } => trace.kernels[name as usize].clone(),
                _ => String::new(),
            };
            let mut launch = facts(kernel, &trace.strings);
            launch.id = id;
            launch.rank = ranks.get(&work.process).copied();
            launch.kernel = name;
            launch.duration_ns = Some(work.ns() as f64);
            launch.start_ns = u64::try_from(work.start_ns.saturating_sub(trace.first_ns)).ok();
            let place = work.key().and_then(|key| lookup.find(key));
            let inner = place.as_ref().and_then(|place| place.regions().next());
            launch.region = inner.map_or_else(SharedList::default, |node| {
                let path = || SharedList::from(placed.tree.path(node));
                paths.entry(node).or_insert_with(path).clone()
            });
            let around = place.and_then(|place| place.around);
            launch.region_inferred = around.is_some_and(|around| around.is_inferred);
            launch
        })
        .collect()
}

fn facts(kernel: &Kernel, strings: &Strings) -> Launch {
    let dynamic = kernel.dynamic_shared_bytes.unwrap_or(0);
    Launch {
        mangled: kernel.mangled.and_then(|id| strings.get(id)).map(str::to_owned),
        grid: kernel.grid.unwrap_or_default(),
        block: kernel.block.unwrap_or_default(),
        stream: kernel.stream.map(u64::from),
        registers: kernel.registers,
        shared_bytes: kernel.static_shared_bytes.map(|bytes| bytes.saturating_add(dynamic)),
        ..Launch::default()
    }
}

fn gaps(trace: &Trace, placed: &AttributedWork, from: &str) -> Vec<Gap> {
    let (kernels, graphs) = (trace.kernel_count, trace.graph_count);
    let unplaced = trace.work_count - placed.known;
    let (folded, left_out) = (placed.tree.folded(), placed.open.left_out());
    let listed = trace.first_kernels.len() as u64;
    let all = [
        (
            kernels > listed,
            "launches_capped",
            format!(
                "{from}: {kernels} kernels were traced; the first {listed} are listed one by one; \
                 the sums include all"
            ),
        ),
        (
            unplaced > 0 && !trace.ranges.is_empty(),
            "unattributed_gpu_rows",
            format!(
                "{from}: {unplaced} rows of GPU work have no API call in the trace, so they \
                 belong to no region"
            ),
        ),
        (
            graphs > 0,
            "graph_level_rows",
            format!(
                "{from}: {graphs} CUDA graphs were traced as a whole; `--cuda-graph-trace=node` shows the kernels inside"
            ),
        ),
        (
            folded > 0,
            "regions_capped",
            format!(
                "{from}: {folded} ranges count for the region around them, or for `(more regions)`: \
                 the names of regions are too long"
            ),
        ),
        (
            left_out > 0,
            "regions_capped",
            format!(
                "{from}: too many start/end ranges are open at the same time: work is counted for \
                 those that opened first"
            ),
        ),
        (
            trace.open_ranges > 0,
            "open_ranges",
            format!(
                "{from}: {} NVTX range{} never closed; counted until the last event",
                trace.open_ranges,
                if trace.open_ranges == 1 { " was" } else { "s were" }
            ),
        ),
    ];
    let gaps = all.into_iter().filter(|(holds, ..)| *holds);
    gaps.map(|(_, code, text)| Gap { code: code.to_owned(), text }).collect()
}
