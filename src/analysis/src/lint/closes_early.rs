//! Ranges that close before their work on the GPU ends: their host time differs from the GPU time.

use std::collections::BTreeMap;

use super::{Lint, LintInput, is_ours, some_of};
use rgpu_model::Trace;
use rgpu_model::trace::RangeEvent;

pub(super) const LINT: Lint = Lint {
    id: "range_closes_before_gpu",
    hint: "read the region's GPU time, not its host time; where the host time must count, \
           synchronise before the range closes",
    apply,
};

fn apply(linted: &LintInput<'_>) -> Vec<String> {
    let Some(trace) = linted.trace else { return Vec::new() };
    // By region: the number of instances that close early, and by how long at most (ns).
    let mut early: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut instances: BTreeMap<u32, Vec<&RangeEvent>> = BTreeMap::new();
    for range in &trace.ranges {
        if let Some(region) = range.region {
            instances.entry(region).or_default().push(range);
        }
    }
    let mut ends: BTreeMap<(u32, u64), u64> = BTreeMap::new();
    for work in &trace.work {
        let Some(call) = work.call.and_then(|call| trace.calls.get(call as usize)) else {
            continue;
        };
        for region in around(trace, &work.regions) {
            let of_region = instances.get(&region).map(Vec::as_slice).unwrap_or_default();
            let same_thread = |range: &&&RangeEvent| range.start_end || range.thread == call.thread;
            let before = of_region.partition_point(|range| range.start_ns <= call.start_ns);
            let mut open =
                of_region[..before].iter().rev().take(MAX_CHECKED_RANGES).filter(same_thread);
            if let Some(range) = open.next() {
                let end = ends.entry((region, range.start_ns)).or_default();
                *end = work.end_ns().max(*end);
            }
        }
    }
    for (region, ranges) in &instances {
        for range in ranges {
            let Some(ns) = range.duration_ns else { continue };
            let gpu = ends.get(&(*region, range.start_ns)).copied().unwrap_or(0);
            let late = gpu.saturating_sub(range.start_ns.saturating_add(ns));
            if late > 0 {
                let (count, longest) = early.entry(*region).or_default();
                *count += 1;
                *longest = late.max(*longest);
            }
        }
    }
    let region = |index: u32| trace.regions.get(index as usize);
    let early = early.into_iter().filter_map(|(index, times)| Some((region(index)?, times)));
    let texts = early.filter(|(region, _)| !is_ours(&region.path)).map(|(region, (count, ns))| {
        let path = region.path.clone();
        let name = rgpu_model::Region { path, ..Default::default() }.display();
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        format!(
            "{} closes before its work on the GPU ends: {times}, by up to {:.1} µs",
            some_of(&[name]),
            ns as f64 / 1e3
        )
    });
    texts.collect()
}

/// How many open ranges of one region are checked to find the one of the calling thread.
const MAX_CHECKED_RANGES: usize = 64;

/// These regions and all regions around them, each once.
fn around(trace: &Trace, regions: &[u32]) -> std::collections::BTreeSet<u32> {
    let mut all = std::collections::BTreeSet::new();
    for region in regions {
        let mut next = Some(*region);
        while let Some(index) = next.filter(|index| all.insert(*index)) {
            next = trace.regions.get(index as usize).and_then(|region| region.parent);
        }
    }
    all
}
