//! The NVTX path of a launch, and the regions of launches and ranges.

use std::collections::{BTreeSet, HashMap, HashSet};

use rgpu_format::ncu_rep::{NcuReport, NvtxStack, NvtxState};

use super::launch::kernels_of_range;
use crate::imported::kernel_sums;
use crate::region_tree::is_around_collective;
use rgpu_model::timeline::RangeResult;
use rgpu_model::timeline::RegionKind;
use rgpu_model::{Launch, Region};

/// The open push/pop ranges, outermost first. A range of a named domain is `domain@name`.
///
/// A report gives the nesting of ranges within a domain, but not between domains. Domains are
/// therefore put one after another, rgpu's first, since the runner opens its ranges around
/// everything else. Start/end ranges need not nest; they are used only if nothing else is open.
///
/// A launch lies in the ranges of its own thread. Where that has none open, it lies in those of the
/// only other thread that has, which is inferred: autograd's thread launches the kernels of a
/// backward pass that another thread began.
///
/// NCCL's own ranges hold only NCCL's kernels: ncu 2025.3 shows `ncclCommInitRankConfig` as open
/// for the rest of the program. What threads of XLA have open is their own work.
pub(super) fn path(state: &NvtxState, thread: Option<u64>, kernel: &str) -> LaunchPath {
    let is_of = |stack: &NvtxStack, domain: &str| state.domain_name(stack.domain) == Some(domain);
    let is_foreign = |stack: &&NvtxStack| is_of(stack, NCCL_DOMAIN) && !kernel.contains("nccl");
    let mut own: Vec<&NvtxStack> =
        state.stacks.iter().filter(|stack| thread.is_none_or(|id| stack.thread == id)).collect();
    own.retain(|stack| thread.is_none() || !is_foreign(stack));
    let mut others: Vec<&NvtxStack> = state.stacks.iter().collect();
    others.retain(|stack| !is_foreign(stack) && !is_of(stack, XLA_DOMAIN));
    let first = others.first().map(|stack| stack.thread);
    let is_of_one_thread = others.iter().all(|stack| Some(stack.thread) == first);
    let is_inferred = own.is_empty() && first.is_some() && is_of_one_thread;
    LaunchPath { path: joined_path(state, if is_inferred { others } else { own }), is_inferred }
}

const NCCL_DOMAIN: &str = "NCCL";
/// XLA uses the domain of TSL, its library.
const XLA_DOMAIN: &str = "TSL";

/// The ranges around a launch.
pub(super) struct LaunchPath {
    /// Their names, outermost first.
    pub(super) path: Vec<String>,
    /// Whether they are those of another thread.
    pub(super) is_inferred: bool,
}

/// Removes inferred regions of threads that open ranges themselves elsewhere in the report, other
/// than around collectives, as the import of timelines does.
pub(super) fn keep_own_regions(report: &NcuReport<'_>, launches: &mut [Launch]) {
    if launches.iter().all(|launch| !launch.region_inferred) {
        return;
    }
    let states = report.results().filter_map(|result| result.nvtx());
    let has_own_range = |state: &NvtxState, stack: &NvtxStack| {
        stack.path.iter().any(|name| !is_around_collective(&part(state, stack.domain, name)))
    };
    let opening = |state: NvtxState| -> Vec<u64> {
        let own = state.stacks.iter().filter(|stack| has_own_range(&state, stack));
        own.map(|stack| stack.thread).collect()
    };
    let opening: HashSet<u64> = states.flat_map(opening).collect();
    for (result, launch) in report.results().zip(launches) {
        let opens = result.launch().is_some_and(|kernel| opening.contains(&kernel.thread));
        if launch.region_inferred && opens {
            launch.region_inferred = false;
            launch.region = Default::default();
        }
    }
}

fn joined_path(state: &NvtxState, mut stacks: Vec<&NvtxStack>) -> Vec<String> {
    stacks.sort_by_key(|stack| match state.domain_name(stack.domain) {
        Some("rgpu") => 0,
        None => 1,
        Some(_) => 2,
    });
    let nested = stacks.into_iter().flat_map(|stack| {
        stack.path.iter().map(|name| part(state, stack.domain, name)).collect::<Vec<_>>()
    });
    let nested: Vec<_> = nested.collect();
    if !nested.is_empty() {
        return nested;
    }
    state.ranges.iter().map(|range| part(state, range.domain, &range.name)).collect()
}

/// The regions of a report, parents before children. A launch counts for every range around it. A
/// range that was replayed as a whole counts for its own region only, with its metrics.
///
/// ncu gives no times of ranges, so these regions have no host time. Their GPU time is the sum of
/// ncu's durations, measured under its clock policy.
pub(super) fn rows(report: &NcuReport<'_>, launches: &[Launch], from: &str) -> Vec<Region> {
    let mut rows = RegionBuilder::default();
    for (result, launch) in report.results().zip(launches) {
        let Some(state) = result.nvtx() else { continue };
        let regions = rows.around(&state, &launch.region);
        if result.launch().is_some() {
            for region in regions {
                rows.all[region].launches.push(launch.id);
            }
        } else if let Some(region) = rows.own(&state, &launch.region) {
            let region = &mut rows.all[region];
            let kernels = kernels_of_range(&result);
            region.ranges.push(RangeResult { launch: launch.id, kernels });
            if region.metrics.is_empty() {
                region.metrics.clone_from(&launch.metrics);
            }
        }
    }
    for region in &mut rows.all {
        from.clone_into(&mut region.from);
        let inside = region.launches.iter().filter_map(|id| launches.get(*id as usize));
        let inside: Vec<Launch> = inside.map(times).collect();
        region.kernels = kernel_sums(&inside);
        let durations = inside.iter().map(|launch| launch.duration_ns);
        let known: Option<Vec<f64>> = durations.collect();
        let sum = known.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>());
        let whole = |sum: f64| sum.max(0.0).round() as u64;
        region.gpu_ns = sum.map(whole);
        let inferred = region.launches.iter().filter_map(|id| launches.get(*id as usize));
        let inferred = inferred.filter(|l| l.region_inferred).filter_map(|l| l.duration_ns);
        let inferred: f64 = inferred.sum();
        region.inferred_gpu_ns = (inferred > 0.0).then_some(whole(inferred));
        // A range that was measured as a whole has one time, from its first work to its last.
        let of_ranges =
            region.ranges.iter().filter_map(|range| launches.get(range.launch as usize));
        let of_ranges: Option<f64> = of_ranges.map(|launch| launch.duration_ns).sum();
        if region.launches.is_empty() && !region.ranges.is_empty() {
            region.gpu_ns = of_ranges.map(whole);
            region.gpu_span_ns = region.gpu_ns;
        }
    }
    rows.all
}

/// A launch reduced to what the sums use.
fn times(launch: &Launch) -> Launch {
    let (kernel, duration_ns) = (launch.kernel.clone(), launch.duration_ns);
    Launch { kernel, duration_ns, ..Launch::default() }
}

/// Collects regions in order of first use.
#[derive(Default)]
struct RegionBuilder {
    all: Vec<Region>,
    by_path: HashMap<(RegionKind, Vec<String>), usize>,
}

impl RegionBuilder {
    fn index(&mut self, kind: RegionKind, path: &[String]) -> usize {
        let next = self.all.len();
        let index = *self.by_path.entry((kind.clone(), path.to_vec())).or_insert(next);
        if index == next {
            self.all.push(Region { path: path.to_vec(), kind, ..Region::default() });
        }
        index
    }

    /// The indices of all regions around a launch with the path `path`.
    fn around(&mut self, state: &NvtxState, path: &[String]) -> BTreeSet<usize> {
        // Without an open push/pop range the path is that of the start/end ranges.
        let ranges = state.ranges.iter().map(|range| part(state, range.domain, &range.name));
        let is_of_ranges = state.stacks.is_empty() || ranges.eq(path.iter().cloned());
        let depth = if is_of_ranges { 0 } else { path.len().min(MAX_DEPTH) };
        let nested = (1..=depth).map(|depth| self.index(RegionKind::PushPop, &path[..depth]));
        let mut all: BTreeSet<usize> = nested.collect();
        for range in &state.ranges {
            all.insert(self.index(RegionKind::StartEnd, &[part(state, range.domain, &range.name)]));
        }
        all
    }

    /// The index of the innermost region, which is the one that was replayed.
    fn own(&mut self, state: &NvtxState, path: &[String]) -> Option<usize> {
        match (state.stacks.is_empty(), state.ranges.last()) {
            (false, _) => Some(self.index(RegionKind::PushPop, &path[..path.len().min(MAX_DEPTH)])),
            (true, Some(range)) => {
                Some(self.index(RegionKind::StartEnd, &[part(state, range.domain, &range.name)]))
            }
            (true, None) => None,
        }
    }
}

/// Longest path of a region. Bounds the work for a hostile report, since each prefix is a region
/// too.
const MAX_DEPTH: usize = 64;

/// The path component of a range: `name` or `domain@name`.
fn part(state: &NvtxState, domain: u64, name: &str) -> String {
    match state.domain_name(domain) {
        Some(domain) => format!("{domain}@{name}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rgpu_format::ncu_rep::NvtxDomain;

    use super::*;

    fn state(stacks: &[(u64, &[&str])]) -> NvtxState {
        let stack = |(thread, path): &(u64, &[&str])| NvtxStack {
            thread: *thread,
            domain: 0,
            path: path.iter().map(|name| (*name).to_owned()).collect(),
        };
        NvtxState { stacks: stacks.iter().map(stack).collect(), ..NvtxState::default() }
    }

    #[test]
    fn a_launch_of_a_thread_without_ranges_lies_in_those_of_the_only_other_thread() {
        let around = |stacks: &[(u64, &[&str])], thread| {
            let around = path(&state(stacks), thread, "gemm");
            (around.path.join("::"), around.is_inferred)
        };
        let step: (u64, &[&str]) = (1, &["step", "backward"]);
        let load: (u64, &[&str]) = (2, &["load"]);
        assert_eq!(around(&[step, load], Some(1)), ("step::backward".into(), false));
        assert_eq!(around(&[step, load], Some(2)), ("load".into(), false));
        assert_eq!(around(&[step], Some(3)), ("step::backward".into(), true));
        assert_eq!(around(&[step, load], Some(3)), (String::new(), false), "two threads");
        assert_eq!(around(&[], Some(3)), (String::new(), false));
    }

    /// Data-parallel training: ncu shows NCCL's range of the start as open on the launching thread.
    #[test]
    fn ranges_of_nccl_hold_only_its_kernels() {
        let in_domain = |name: &str, range: &str| {
            let mut domain = NvtxDomain::default();
            (domain.id, domain.name) = (7, name.to_owned());
            NvtxState {
                domains: vec![domain],
                stacks: vec![NvtxStack { thread: 1, domain: 7, path: vec![range.to_owned()] }],
                ..NvtxState::default()
            }
        };
        let around = |state: &NvtxState, thread, kernel: &str| {
            let around = path(state, Some(thread), kernel);
            (around.path.join("::"), around.is_inferred)
        };
        let nccl = in_domain("NCCL", "ncclCommInitRankConfig");
        let none = (String::new(), false);
        assert_eq!(around(&nccl, 1, "sm80_xmma_gemm"), none);
        assert_eq!(around(&nccl, 2, "sm80_xmma_gemm"), none);
        let own = around(&nccl, 1, "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
        assert_eq!(own, ("NCCL@ncclCommInitRankConfig".to_owned(), false));
        let mut rows = RegionBuilder::default();
        assert!(rows.around(&nccl, &[]).is_empty());
        let xla = in_domain("TSL", "XlaCompile");
        assert_eq!(around(&xla, 1, "fusion").0, "TSL@XlaCompile");
        assert_eq!(around(&xla, 2, "fusion"), none);
    }
}
