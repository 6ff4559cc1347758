//! The time that acting on a finding could give back, and the order of findings by it.

use std::cmp::Reverse;

use super::classify::{Verdicts, decides};
use super::concept::{MEMORY_THROUGHPUT, SM_THROUGHPUT};
use super::rule::GainLimit;
use super::timeline::START_UP;
use rgpu_model::finding::{GainScope, PotentialGain};
use rgpu_model::{Finding, Launch};

/// For each verdict on a launch, the part of the launch's time that acting on it could give back.
///
/// A launch cannot be faster than its busiest unit at its peak allows, unless there is less work to
/// do. What a deciding cause explains of that headroom is not counted for the bound again.
pub(super) fn gains(launch: &Launch, verdicts: &Verdicts) -> Vec<f64> {
    let busy = launch.first_number(SM_THROUGHPUT).into_iter();
    let busy = busy.chain(launch.first_number(MEMORY_THROUGHPUT)).map(|(_, percent)| percent);
    let headroom = (1.0 - busy.fold(0.0, f64::max) / 100.0).clamp(0.0, 1.0);
    let explaining = verdicts.iter().filter(|verdict| decides(verdict));
    let explained = explaining.map(|(_, conclusion)| conclusion.score).fold(0.0, f64::max);
    let gain = |gain: GainLimit, score: f64| match gain {
        GainLimit::Headroom => headroom - explained.min(headroom),
        GainLimit::Score => score.min(headroom),
        GainLimit::Work => score,
        GainLimit::Everything => 1.0,
    };
    verdicts.iter().map(|(rule, c)| gain(rule.gain, c.score).clamp(0.0, 1.0)).collect()
}

/// A finding about a smaller share of the wall time does not come first before start-up.
const MIN_LEADING_SHARE: f64 = 0.01;

/// The time from which a finding comes before start-up: the part of the steady time that counts,
/// but not next to nothing of the whole span.
pub(super) fn leading_ns(steady_ns: u64, steady_share: f64, span_ns: u64) -> u64 {
    (steady_ns as f64 * steady_share).max(span_ns as f64 * MIN_LEADING_SHARE) as u64
}

/// Sorts findings: correctness first, then by the time at stake, then those about no time. Start-up
/// comes after what repeats and has at least `repeating_ns` at stake, because a program that runs
/// for longer starts up only once, too. Their priorities are their places.
///
/// GPU time is a sum over `gpus`, which run at the same time; of wall time each GPU has its own.
pub(super) fn sort(findings: &mut [Finding], repeating_ns: u64, gpus: usize) {
    let per_gpu = |stake: &PotentialGain| match stake.of {
        GainScope::GpuTime => stake.ns / gpus.max(1) as u64,
        _ => stake.ns,
    };
    let about_time = |finding: &Finding| finding.stake.as_ref().map_or(0, per_gpu);
    let starts_up = findings.iter().any(|finding| finding.id == START_UP);
    let repeats = |finding: &Finding| {
        starts_up && finding.id != START_UP && about_time(finding) >= repeating_ns.max(1)
    };
    findings.sort_by_key(|f| (f.category != "correctness", !repeats(f), Reverse(about_time(f))));
    for (at, finding) in findings.iter_mut().enumerate() {
        finding.priority = u8::try_from(at + 1).unwrap_or(u8::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correctness_comes_first_then_the_most_time() {
        let finding = |id: &str, category: &str, ns: Option<u64>| Finding {
            id: id.to_owned(),
            category: category.to_owned(),
            stake: ns.map(|ns| PotentialGain { ns, ..PotentialGain::default() }),
            ..Finding::default()
        };
        let mut all = [
            finding("names", "nvtx", None),
            finding("small", "memory", Some(5)),
            finding("large", "host", Some(500)),
            finding("wrong", "correctness", None),
        ];
        sort(&mut all, 0, 1);
        let order: Vec<_> = all.iter().map(|f| (f.id.as_str(), f.priority)).collect();
        assert_eq!(order, [("wrong", 1), ("large", 2), ("small", 3), ("names", 4)]);
    }

    /// A chain of small kernels: 5.2 ms after 198.8 ms of start-up, and then 0.09 ms.
    #[test]
    fn next_to_nothing_of_a_short_program_does_not_lead() {
        assert_eq!(leading_ns(5_224_426, 0.1, 204_033_650), 2_040_336);
        assert_eq!(leading_ns(301_770_463, 0.1, 2_497_678_645), 30_177_046);
    }

    #[test]
    fn what_repeats_comes_before_start_up_unless_it_is_little() {
        let finding = |id: &str, ns| Finding {
            id: id.to_owned(),
            stake: Some(PotentialGain { ns, ..PotentialGain::default() }),
            ..Finding::default()
        };
        let mut all = [finding("little", 5), finding(START_UP, 900), finding("repeats", 30)];
        sort(&mut all, 10, 1);
        assert_eq!(all.each_ref().map(|f| f.id.as_str()), ["repeats", START_UP, "little"]);
    }

    #[test]
    fn a_sum_over_gpus_counts_as_the_time_of_one() {
        let finding = |id: &str, ns, of| Finding {
            id: id.to_owned(),
            stake: Some(PotentialGain { ns, of, ..PotentialGain::default() }),
            ..Finding::default()
        };
        let order = |gpus| {
            let [kernel, idle] = [GainScope::GpuTime, GainScope::WallTime];
            let mut all = [finding("kernel", 2000, kernel), finding("idle", 1000, idle)];
            sort(&mut all, 0, gpus);
            all.map(|finding| finding.id)
        };
        assert_eq!(order(1), ["kernel", "idle"]);
        assert_eq!(order(4), ["idle", "kernel"]);
    }
}
