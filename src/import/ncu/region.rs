//! The NVTX path of a launch, and the regions of launches and ranges.

use std::collections::{BTreeSet, HashMap};

use rgpu_format::ncu_rep::{NcuReport, NvtxState};

use super::launch::kernels_of_range;
use crate::import::imported::kernel_sums;
use crate::model::timeline::RangeResult;
use crate::model::timeline::RegionKind;
use crate::model::{Launch, Region};

/// The open push/pop ranges, outermost first. A range of a named domain is `domain@name`.
///
/// A report gives the nesting of ranges within a domain, but not between domains. Domains are
/// therefore put one after another, rgpu's first, since the runner opens its ranges around
/// everything else. Start/end ranges need not nest; they are used only if nothing else is open.
pub(super) fn path(state: &NvtxState) -> Vec<String> {
    let mut stacks: Vec<_> = state.stacks.iter().collect();
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
        region.gpu_ns = sum.map(|ns| ns.max(0.0).round() as u64);
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
        let depth = if state.stacks.is_empty() { 0 } else { path.len().min(MAX_DEPTH) };
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
