//! Tells when the profiled launches are only a program's set-up: they fill tensors with random
//! numbers, or tune kernels.

use super::threshold::{Limits, SETUP_SHARE};
use super::tuning::{self, Tuner};
use crate::model::finding::{CoveredKernel, GainScope, PotentialGain};
use crate::model::{Finding, Launch, Profile};

/// Parts of the names of kernels that make random numbers: torch's, cuRAND's and JAX' ones.
const RANDOM: &[&str] = &["distribution_elementwise_grid_stride_kernel", "curand", "threefry"];

/// The finding, if counters were measured mostly on such kernels.
pub(super) fn finding(profile: &Profile, limits: &Limits<'_>) -> Option<Finding> {
    if profile.timeline.is_some() || !profile.launches.iter().any(|l| !l.metrics.is_empty()) {
        return None;
    }
    let ns = |launches: &[&Launch]| launches.iter().filter_map(|l| l.duration_ns).sum::<f64>();
    let all: Vec<&Launch> = profile.launches.iter().collect();
    let benchmarked = tuning::benchmarked_launches(&profile.launches);
    let tuning = |launch: &&Launch| benchmarked.contains_key(&launch.id);
    let tunes = |tuner: Tuner| benchmarked.values().any(|of_launch| *of_launch == tuner);
    let random = |launch: &&Launch| RANDOM.iter().any(|word| launch.kernel.contains(word));
    let what: Vec<&str> = [
        (all.iter().any(random), "making random numbers"),
        (tunes(Tuner::Xla), "autotuning of XLA"),
        (tunes(Tuner::Triton), "benchmarks of Triton's kernels"),
    ]
    .into_iter()
    .filter_map(|(is_there, what)| is_there.then_some(what))
    .collect();
    let what = what.join(" and ");
    let set_up = all.iter().copied().filter(|launch| random(launch) || tuning(launch));
    let set_up: Vec<&Launch> = set_up.collect();
    let (total_ns, set_up_ns) = (ns(&all), ns(&set_up));
    let limit = limits.threshold(&SETUP_SHARE);
    let share = set_up_ns / total_ns;
    // The share is NaN without durations.
    if share.is_nan() || share < limit.value {
        return None;
    }
    let mut covers: Vec<CoveredKernel> = Vec::new();
    for launch in &set_up {
        let ns = launch.duration_ns.unwrap_or_default().round() as u64;
        let covered = match covers.iter().position(|covered| covered.kernel == launch.kernel) {
            Some(at) => &mut covers[at],
            None => {
                let kernel = launch.kernel.clone();
                covers.push(CoveredKernel { kernel, ..CoveredKernel::default() });
                covers.last_mut()?
            }
        };
        covered.launches += 1;
        covered.total_ns += ns;
        covered.stake_ns += ns;
    }
    covers.sort_by_key(|covered| std::cmp::Reverse(covered.total_ns));
    Some(Finding {
        id: "only_set_up".to_owned(),
        category: "selection".to_owned(),
        stake: Some(PotentialGain {
            ns: set_up_ns.round() as u64,
            of: GainScope::GpuTime,
            region: None,
            share,
        }),
        text: format!(
            "{:.0} % of the GPU time of the profiled launches goes into {what}: these {} launches \
             are probably the program's set-up",
            100.0 * share,
            all.len()
        ),
        hint:
            "profile what matters: an NVTX range with `--regions NAME`, the kernels that hold the \
               time with `--mode deep`, or more launches with `--launch-count N`"
                .to_owned(),
        evidence: vec![limit.share_evidence("launches.set_up_share", share, "of the GPU time")],
        covers,
        ..Finding::default()
    })
}
