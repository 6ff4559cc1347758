//! Joins the lists and sums of the reports of several ranks into one: kernels, copies and regions
//! are summed over all ranks, and launches get new numbers. Events and ranks are joined elsewhere
//! (`trace`, and the parent module).

use std::collections::HashMap;

use crate::{ImportedArtifact, nsys};
use rgpu_model::Region;
use rgpu_model::profile::Gap;
use rgpu_model::timeline::{CopySum, KernelSum, RegionKind};

/// Adds the lists and sums of `reports` to `joined`. `numbers` are the numbers of the ranks of each
/// report.
pub(super) fn join_sums(
    joined: &mut ImportedArtifact,
    reports: Vec<ImportedArtifact>,
    numbers: &[Vec<u32>],
) {
    let max_launches = nsys::MAX_LAUNCHES / reports.len().max(1);
    let mut several_have_operators = 0;
    let mut indexes = SumIndexes::default();
    // The joined number of the first launch of each rank.
    let mut first_launches: HashMap<u32, u32> = HashMap::new();
    for (report, ranks) in reports.into_iter().zip(numbers) {
        let cut = report.launches.len().saturating_sub(max_launches);
        if cut > 0 {
            joined.gaps.push(Gap {
                code: "launches_capped".to_owned(),
                text: format!(
                    "rank {}: its first {max_launches} launches are listed one by one; the sums include all",
                    ranks.first().copied().unwrap_or(0)
                ),
            });
        }
        let first = u32::try_from(joined.launches.len()).unwrap_or(u32::MAX);
        first_launches.extend(ranks.iter().map(|rank| (*rank, first)));
        joined.launches.extend(report.launches.into_iter().take(max_launches).map(|mut launch| {
            launch.id = launch.id.saturating_add(first);
            launch.rank = launch.rank.and_then(|at| ranks.get(at as usize).copied());
            launch
        }));
        for sum in report.kernels {
            indexes.add_kernel(None, &mut joined.kernels, sum);
        }
        report.copies.into_iter().for_each(|sum| indexes.add_copy(&mut joined.copies, sum));
        report
            .regions
            .into_iter()
            .for_each(|region| indexes.add_region(&mut joined.regions, region));
        several_have_operators += u32::from(!report.operators.is_empty());
        if joined.operators.is_empty() {
            joined.operators = report.operators;
            joined.stages = report.stages;
            joined.program_model = report.program_model;
        }
        joined.memory.extend(report.memory);
        joined.device = joined.device.take().or(report.device);
        joined.tool_version = joined.tool_version.take().or(report.tool_version);
        for refusal in report.refusals {
            joined.gaps.push(Gap { code: refusal.code.to_owned(), text: refusal.text });
        }
        for gap in report.gaps {
            // Each report of one rank has this gap.
            if gap.code != "one_rank" && !joined.gaps.contains(&gap) {
                joined.gaps.push(gap);
            }
        }
    }
    for work in joined.sidecars.trace.iter_mut().flat_map(|trace| &mut trace.work) {
        let Some(first) = work.rank.and_then(|rank| first_launches.get(&rank)) else { continue };
        let listed = work.launch.filter(|launch| (*launch as usize) < max_launches);
        work.launch = listed.map(|launch| launch.saturating_add(*first));
    }
    if several_have_operators > 1 {
        let text = "operators and stages are those of the first report".to_owned();
        joined.gaps.push(Gap { code: "operators_of_one_rank".to_owned(), text });
    }
    joined.kernels.sort_by_key(|sum| std::cmp::Reverse(sum.total_ns));
}

/// Indices of the sums in the lists of the joined report.
#[derive(Default)]
struct SumIndexes {
    /// By the index of the region, `None` for the sums of the whole report, and the kernel's name.
    kernels: HashMap<(Option<usize>, String), usize>,
    /// By the kind of the copy.
    copies: HashMap<String, usize>,
    /// By path and kind.
    regions: HashMap<(Vec<String>, RegionKind), usize>,
}

impl SumIndexes {
    fn add_kernel(&mut self, region: Option<usize>, all: &mut Vec<KernelSum>, sum: KernelSum) {
        let at = *self.kernels.entry((region, sum.kernel.clone())).or_insert(all.len());
        let Some(other) = all.get_mut(at) else { return all.push(sum) };
        other.launches += sum.launches;
        other.total_ns = other.total_ns.saturating_add(sum.total_ns);
        other.min_ns = other.min_ns.min(sum.min_ns);
        other.max_ns = other.max_ns.max(sum.max_ns);
    }

    fn add_copy(&mut self, all: &mut Vec<CopySum>, sum: CopySum) {
        let at = *self.copies.entry(sum.kind.clone()).or_insert(all.len());
        let Some(other) = all.get_mut(at) else { return all.push(sum) };
        other.count += sum.count;
        other.bytes = other.bytes.saturating_add(sum.bytes);
        other.total_ns = other.total_ns.saturating_add(sum.total_ns);
    }

    fn add_region(&mut self, all: &mut Vec<Region>, mut region: Region) {
        let key = (region.path.clone(), region.kind.clone());
        let at = *self.regions.entry(key).or_insert(all.len());
        let kernels = std::mem::take(&mut region.kernels);
        if at == all.len() {
            all.push(region);
        } else {
            let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
                (Some(a), Some(b)) => Some(a.saturating_add(b)),
                (a, b) => a.or(b),
            };
            let other = &mut all[at];
            other.instances = add(other.instances, region.instances);
            other.host_ns = add(other.host_ns, region.host_ns);
            other.gpu_ns = add(other.gpu_ns, region.gpu_ns);
            other.gpu_span_ns = add(other.gpu_span_ns, region.gpu_span_ns);
            other.inferred_gpu_ns = add(other.inferred_gpu_ns, region.inferred_gpu_ns);
        }
        for sum in kernels {
            self.add_kernel(Some(at), &mut all[at].kernels, sum);
        }
    }
}
