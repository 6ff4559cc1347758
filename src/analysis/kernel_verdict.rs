//! The limit of each kernel with much of the GPU time, or why it is not known.

use std::collections::BTreeMap;

use super::concept::{MEMORY_THROUGHPUT, SM_THROUGHPUT};
use super::geometry::GeometryTimes;
use super::known_kernel::is_collective;
use super::threshold::{KERNEL_SHARE, Limits};
use super::tuning;
use crate::model::finding::KernelVerdict;
use crate::model::timeline::WHOLE_GRAPHS;
use crate::model::{Launch, Profile};

/// Why graphs have no verdict.
const NOT_TRACED: &str = "nsys traced the graphs as a whole; `--nsys-args \
     '--cuda-graph-trace=node'` traces their kernels";

const STOPPED: &str =
    "the program was stopped before one of its launches was profiled (`--budget` raises the limit)";

/// The verdict of launches that are as short as a launch takes.
const LAUNCH_BOUND: &str = "launch_bound";

/// Profiled launches with a lower share of the kernel's time may not be typical of it.
const TYPICAL_SHARE: f64 = 0.95;

/// Whether this kernel was chosen, and its pass was stopped.
fn is_stopped(profile: &Profile, kernel: &str) -> bool {
    let chosen = profile.selection.iter().flat_map(|selection| &selection.kernels);
    profile.stopped().is_some() && chosen.into_iter().any(|choice| choice.kernel == kernel)
}

/// The kernels with at least 5 % of the GPU time, longest first.
pub(super) fn of(profile: &Profile, limits: &Limits<'_>) -> Vec<KernelVerdict> {
    let all: u64 = profile.kernels.iter().map(|kernel| kernel.total_ns).sum();
    let share = |ns: u64| ns as f64 / all.max(1) as f64;
    let limit = limits.threshold(&KERNEL_SHARE).value;
    let long = profile.kernels.iter().filter(|kernel| share(kernel.total_ns) >= limit);
    let tuning = tuning::kernels(&profile.launches, &profile.kernels);
    let geometries = GeometryTimes::new(profile);
    let verdicts = long.map(|kernel| {
        let launches = profile.launches.iter().filter(|launch| launch.kernel == kernel.kernel);
        let launches: Vec<&Launch> = launches.collect();
        let (launch, verdict, text) = match tuning.get(kernel.kernel.as_str()) {
            _ if kernel.kernel == WHOLE_GRAPHS => (None, None, NOT_TRACED.to_owned()),
            Some(what) => (None, None, format!("it is set-up: {what}")),
            None if launches.is_empty() && is_stopped(profile, &kernel.kernel) => {
                (None, None, STOPPED.to_owned())
            }
            None => verdict(&launches, &geometries),
        };
        let share_of_profiled = geometries.profiled_share(&kernel.kernel);
        let text =
            match share_of_profiled.filter(|share| verdict.is_some() && *share < TYPICAL_SHARE) {
                Some(share) => format!(
                    "{text}; its profiled launches stand for {:.0} % of its time",
                    100.0 * share
                ),
                None => text,
            };
        KernelVerdict {
            kernel: kernel.kernel.clone(),
            launches: kernel.launches,
            total_ns: kernel.total_ns,
            percent: 100.0 * share(kernel.total_ns),
            launch,
            verdict,
            text,
        }
    });
    verdicts.collect()
}

/// The primary verdict that holds for most of the time of these launches, with the longest launch
/// that has it, or the median one if they are short; without a verdict the reason.
fn verdict(
    launches: &[&Launch],
    geometries: &GeometryTimes<'_>,
) -> (Option<u32>, Option<String>, String) {
    let duration = |launch: &Launch| launch.duration_ns.unwrap_or_default();
    let counted = launches.iter().any(|launch| !launch.metrics.is_empty());
    let judged: Vec<&Launch> =
        launches.iter().copied().filter(|launch| !launch.metrics.is_empty() || !counted).collect();
    let mut times: BTreeMap<Option<&str>, f64> = BTreeMap::new();
    for &launch in &judged {
        let scale = geometries.stands_for(launch).map_or(1.0, |(_, scale)| scale);
        *times.entry(primary(launch)).or_default() += duration(launch) * scale;
    }
    let Some(most) = times.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(verdict, _)| *verdict)
    else {
        return (None, None, "none of its launches was profiled".to_owned());
    };
    let mut of_verdict: Vec<&Launch> = judged;
    of_verdict.retain(|launch| primary(launch) == most);
    of_verdict.sort_by(|a, b| duration(a).total_cmp(&duration(b)));
    let typical = match most {
        Some(LAUNCH_BOUND) => of_verdict.get(of_verdict.len() / 2),
        _ => of_verdict.last(),
    };
    let Some(launch) = typical else { return (None, None, String::new()) };
    match launch.classification.as_ref().and_then(|class| class.verdicts.first()) {
        Some(first) => (Some(launch.id), Some(first.verdict.clone()), first.text.clone()),
        None => (Some(launch.id), None, why_none(launch)),
    }
}

/// The id of a launch's primary verdict.
fn primary(launch: &Launch) -> Option<&str> {
    launch.classification.as_ref().map(|class| class.primary.as_str())
}

/// Why a launch has no verdict.
fn why_none(launch: &Launch) -> String {
    if is_collective(&launch.kernel) {
        return "it moves data between GPUs, and waits there for the other ranks".to_owned();
    }
    if launch.metrics.is_empty() {
        return "no counters were measured (`rgpu profile --mode deep` measures the longest kernels)"
            .to_owned();
    }
    let percent = |ids: &[&str]| launch.first_number(ids).map(|(_, percent)| percent);
    match (percent(SM_THROUGHPUT), percent(MEMORY_THROUGHPUT)) {
        (Some(sm), Some(memory)) => {
            format!("no rule applies: compute runs at {sm:.0} % and memory at {memory:.0} %")
        }
        _ => "its report has no counters of throughput".to_owned(),
    }
}
