//! The steps of a program: ranges of one name that follow each other on every rank.

use std::collections::BTreeMap;

use super::MAX_STEPS;
use super::intervals::UnionLength;
use super::on_all_cores;
use rgpu_model::rank_work::{GpuWorkKind, HostRange, JoinedRanks, RankWork};
use rgpu_model::ranks::{LongestStep, StepTime, Steps};

/// Words in the names of ranges that are steps.
const STEP_NAME_PARTS: &[&str] = &["step", "iteration", "iter", "batch"];

/// Start, time on the host and computing time of a step on one rank, in nanoseconds.
type StepOfRank = (u64, u64, u64);

/// Finds the steps. `None` if no range repeats equally often on every rank.
pub(super) fn find(joined: &JoinedRanks) -> Option<Steps> {
    let by_rank: Vec<BTreeMap<String, Vec<&HostRange>>> =
        joined.ranks.iter().map(repeated).collect();
    let (first, others) = by_rank.split_first()?;
    let everywhere = |name: &str, many: usize| {
        others.iter().all(|rank| rank.get(name).is_some_and(|ranges| ranges.len() == many))
    };
    let is_step = |name: &str| {
        let name = name.to_lowercase();
        STEP_NAME_PARTS.iter().any(|word| name.contains(word))
    };
    let candidates = first.iter().filter(|(name, ranges)| everywhere(name, ranges.len()));
    let name = candidates.max_by_key(|(name, ranges)| {
        let total: u64 = ranges.iter().map(|range| range.end_ns.abs_diff(range.start_ns)).sum();
        (is_step(name), total)
    });
    let (name, ranges) = name?;
    let many = ranges.len();
    let with_ranges: Vec<(&RankWork, &BTreeMap<String, Vec<&HostRange>>)> =
        joined.ranks.iter().zip(&by_rank).collect();
    let times = on_all_cores::map(&with_ranges, |(rank, ranges)| {
        times(rank, ranges.get(name).map_or(&[][..], Vec::as_slice))
    });
    let steps = (0..many.min(MAX_STEPS)).map(|step| StepTime {
        start_ns: times.iter().map(|rank| rank[step].0).collect(),
        host_ns: times.iter().map(|rank| rank[step].1).collect(),
        compute_ns: times.iter().map(|rank| rank[step].2).collect(),
    });
    Some(Steps {
        name: name.clone(),
        steps: steps.collect(),
        cut: many.saturating_sub(MAX_STEPS) as u64,
        longest: longest(joined, &times),
    })
}

/// The step that took some rank longest, of all steps: those that are not listed count as well.
fn longest(joined: &JoinedRanks, times: &[Vec<StepOfRank>]) -> Option<LongestStep> {
    let mut all: Vec<u64> = times.iter().flatten().map(|(_, host_ns, _)| *host_ns).collect();
    let middle = all.len() / 2;
    let median_ns = (!all.is_empty()).then(|| *all.select_nth_unstable(middle).1)?;
    let steps = joined.ranks.iter().zip(times).flat_map(|(rank, steps)| {
        steps
            .iter()
            .zip(0..)
            .map(|((_, host_ns, _), number)| (*host_ns, number, rank.location.rank))
    });
    let (host_ns, number, rank) = steps.max()?;
    Some(LongestStep { number, rank, host_ns, median_ns })
}

/// The ranges of each name that occurs more than once and never overlaps itself.
fn repeated(rank: &RankWork) -> BTreeMap<String, Vec<&HostRange>> {
    let mut by_name: BTreeMap<u32, Vec<&HostRange>> = BTreeMap::new();
    for range in &rank.ranges {
        by_name.entry(range.name).or_default().push(range);
    }
    let mut all: BTreeMap<String, Vec<&HostRange>> = BTreeMap::new();
    for (name, ranges) in by_name {
        all.entry(without_number(rank.name(name))).or_default().extend(ranges);
    }
    all.retain(|_, ranges| {
        ranges.sort_by_key(|range| range.start_ns);
        ranges.len() > 1 && ranges.windows(2).all(|pair| pair[0].end_ns <= pair[1].start_ns)
    });
    all
}

/// The name with `#` in place of a number at its end, because `ProfilerStep#3` and `step 3` count
/// up.
fn without_number(name: &str) -> String {
    match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        stem if stem.len() == name.len() || stem.is_empty() => name.to_owned(),
        stem => format!("{}#", stem.trim_end_matches('#')),
    }
}

/// Start, time on the host and computing time of each range.
fn times(rank: &RankWork, ranges: &[&HostRange]) -> Vec<StepOfRank> {
    let mut work = vec![UnionLength::default(); ranges.len()];
    for piece in rank.gpu_work.iter().filter(|piece| piece.kind == GpuWorkKind::Compute) {
        let Some(called) = piece.called_ns else { continue };
        let after = ranges.partition_point(|range| range.start_ns <= called);
        let Some(at) = after.checked_sub(1).filter(|at| called < ranges[*at].end_ns) else {
            continue;
        };
        work[at].add(piece.start_ns, piece.end_ns);
    }
    let compute = work.into_iter().map(UnionLength::ns);
    let begin = |range: &HostRange| u64::try_from(range.start_ns).unwrap_or(0);
    ranges
        .iter()
        .zip(compute)
        .map(|(range, ns)| (begin(range), range.end_ns.abs_diff(range.start_ns), ns))
        .collect()
}
