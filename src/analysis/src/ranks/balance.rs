//! Computing time of each region by rank.

use std::collections::BTreeMap;

use super::MAX_REGIONS;
use super::intervals::UnionLength;
use super::on_all_cores;
use rgpu_model::rank_work::{GpuWorkKind, JoinedRanks, RankWork};
use rgpu_model::ranks::RegionBalance;

/// Regions with less of the computing time are left out.
const MIN_SHARE: f64 = 0.01;

pub(super) fn region_balances(joined: &JoinedRanks) -> Vec<RegionBalance> {
    let mut by_path: BTreeMap<Vec<String>, Vec<u64>> = BTreeMap::new();
    let many = joined.ranks.len();
    let mut most = 0;
    for (at, times) in on_all_cores::map(&joined.ranks, region_times).into_iter().enumerate() {
        for (path, ns) in times {
            most = most.max(ns);
            by_path.entry(path).or_insert_with(|| vec![0; many])[at] = ns;
        }
    }
    let regions = by_path.into_iter().filter_map(|(path, compute_ns)| {
        let (slowest, longest) =
            compute_ns.iter().copied().enumerate().max_by_key(|(_, ns)| *ns)?;
        let mean = compute_ns.iter().sum::<u64>() as f64 / many as f64;
        (longest as f64 >= MIN_SHARE * most as f64 && mean > 0.0).then(|| RegionBalance {
            slowest: joined.ranks[slowest].location.rank,
            imbalance: longest as f64 / mean - 1.0,
            path,
            compute_ns,
        })
    });
    let mut regions: Vec<RegionBalance> = regions.collect();
    regions.sort_by(|a, b| excess(b).total_cmp(&excess(a)));
    regions.truncate(MAX_REGIONS);
    regions
}

/// Time by which the slowest rank exceeds the mean.
pub(super) fn excess(region: &RegionBalance) -> f64 {
    let most = region.compute_ns.iter().max().copied().unwrap_or(0) as f64;
    most - most / (1.0 + region.imbalance)
}

/// The time of each region and of the regions around it.
fn region_times(rank: &RankWork) -> BTreeMap<Vec<String>, u64> {
    // A region and those around it, as indexes into all paths.
    let mut paths: BTreeMap<&[String], usize> = BTreeMap::new();
    let around: Vec<Vec<usize>> = rank
        .regions
        .iter()
        .map(|path| {
            (1..=path.len())
                .map(|length| {
                    let next = paths.len();
                    *paths.entry(&path[..length]).or_insert(next)
                })
                .collect()
        })
        .collect();
    let mut times = vec![UnionLength::default(); paths.len()];
    // Pieces are in order of start.
    for piece in rank.gpu_work.iter().filter(|piece| piece.kind == GpuWorkKind::Compute) {
        let Some(around) = piece.region.and_then(|at| around.get(at as usize)) else { continue };
        for path in around {
            times[*path].add(piece.start_ns, piece.end_ns);
        }
    }
    let times = paths.iter().map(|(path, at)| (path.to_vec(), times[*at].ns()));
    times.filter(|(_, ns)| *ns > 0).collect()
}
