//! The limit of each kernel with much of the GPU time, or why it is not known.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::classify::LAUNCH_BOUND;
use super::concept::{MEMORY_THROUGHPUT, SM_THROUGHPUT};
use super::geometry::GeometryTimes;
use super::known_kernel::is_collective;
use super::set_up::{preparing_in, what_prepares};
use super::threshold::{KERNEL_SHARE, Limits};
use super::tuning;
use rgpu_model::finding::KernelVerdict;
use rgpu_model::timeline::{KernelSum, WHOLE_GRAPHS};
use rgpu_model::{Finding, Launch, Profile, Verdict};

/// Why graphs have no verdict.
const NOT_TRACED: &str = "nsys traced the graphs as a whole; `--nsys-args \
     '--cuda-graph-trace=node'` traces their kernels";

const STOPPED: &str =
    "the program was stopped before one of its launches was profiled (`--budget` raises the limit)";

const NOT_PROFILED: &str = "not profiled";

/// Why a kernel has no verdict although some of its launches have counters.
const NOT_TYPICAL: &str = "only launches that are no part of its steady work were profiled, such as a \
     compiler's benchmarks";

const NO_COUNTERS: &str = "ncu left no counters of its launches";

/// Profiled launches with a lower share of the kernel's time may not be typical of it.
const TYPICAL_SHARE: f64 = 0.95;
/// Profiled launches with a lower share of the kernel's time say nothing about it.
const MIN_TYPICAL_SHARE: f64 = 0.005;

/// Whether mode `deep` chose this kernel.
fn is_chosen(profile: &Profile, kernel: &str) -> bool {
    let mut chosen = profile.selection.iter().flat_map(|selection| &selection.kernels);
    chosen.any(|choice| choice.kernel == kernel)
}

/// Why ncu measured none of the launches of a kernel that mode `deep` chose.
fn why_not_measured(profile: &Profile) -> &'static str {
    match profile.stopped_pass() {
        Some(_) => STOPPED,
        None if profile.launches.iter().all(|launch| launch.metrics.is_empty()) => NO_COUNTERS,
        None => NOT_PROFILED,
    }
}

/// The kernels with at least 5 % of the GPU time, or of the time without a compiler's tuning,
/// longest first. The time of launches that are set-up does not count. The profile has its
/// findings.
pub(super) fn verdicts(profile: &Profile, limits: &Limits<'_>) -> Vec<KernelVerdict> {
    let tuning = tuning::kernels(&profile.launches, &profile.kernels);
    let tunes = |kernel: &KernelSum| tuning.contains_key(kernel.kernel.as_str());
    let without_set_up = profile.kernels.iter().map(|kernel| (kernel, kernel.work_ns()));
    let mut kernels: Vec<(&KernelSum, u64)> = without_set_up.collect();
    kernels.sort_by_key(|(_, ns)| Reverse(*ns));
    let total_ns = |counts: &dyn Fn(&KernelSum) -> bool| {
        let counted = kernels.iter().filter(|(kernel, _)| counts(kernel));
        counted.map(|(_, ns)| ns).sum::<u64>().max(1) as f64
    };
    let all = total_ns(&|_| true);
    let untuned = total_ns(&|kernel| !tunes(kernel));
    let share = |ns: u64| ns as f64 / all;
    let limit = limits.threshold(&KERNEL_SHARE).value;
    let long = kernels.iter().filter(|(kernel, ns)| {
        let whole = if tunes(kernel) { all } else { untuned };
        *ns as f64 / whole >= limit
    });
    let preparing = preparing_in(profile);
    let geometries = GeometryTimes::new(profile);
    let judge = Judge {
        geometries: &geometries,
        findings: &profile.findings,
        is_deep: profile.selection.is_some(),
    };
    let verdicts = long.map(|&(kernel, ns)| {
        let launches = profile.launches.iter().filter(|launch| launch.kernel == kernel.kernel);
        let launches: Vec<&Launch> = launches.collect();
        let (launch, verdict, text) = match tuning.get(kernel.kernel.as_str()) {
            _ if kernel.kernel == WHOLE_GRAPHS => (None, None, NOT_TRACED.to_owned()),
            Some(what) => (None, None, format!("it is set-up: {what}")),
            // A kernel with counters has a verdict on what they say.
            None if launches.len() as u64 == kernel.launches
                && launches.iter().all(|l| l.metrics.is_empty() && preparing.contains(&l.id)) =>
            {
                let what = launches.first().map(|launch| what_prepares(launch));
                (None, None, format!("it is set-up: {}", what.unwrap_or_default()))
            }
            None if launches.iter().all(|launch| launch.metrics.is_empty())
                && is_chosen(profile, &kernel.kernel) =>
            {
                (None, None, why_not_measured(profile).to_owned())
            }
            None => judge.verdict(&kernel.kernel, &launches),
        };
        let share_of_profiled = geometries.profiled_share(&kernel.kernel);
        let untypical =
            share_of_profiled.filter(|share| verdict.is_some() && *share < TYPICAL_SHARE);
        let (launch, verdict, text) = match untypical {
            Some(share) if share < MIN_TYPICAL_SHARE => (None, None, NOT_TYPICAL.to_owned()),
            Some(share) => {
                let percent = 100.0 * share;
                let share = format!("its profiled launches stand for {percent:.0} % of its time");
                (launch, verdict, format!("{text}; {share}"))
            }
            None => (launch, verdict, text),
        };
        KernelVerdict {
            kernel: kernel.kernel.clone(),
            launches: kernel.launches,
            total_ns: ns,
            percent: 100.0 * share(ns),
            launch,
            verdict,
            text,
        }
    });
    verdicts.collect()
}

/// What judges the launches of a kernel.
struct Judge<'a> {
    geometries: &'a GeometryTimes<'a>,
    findings: &'a [Finding],
    /// Whether mode `deep` chose what is profiled.
    is_deep: bool,
}

impl Judge<'_> {
    /// The verdict that holds for most of the time of these launches of a kernel, with a launch
    /// that has it: the one that its finding is about, else the longest, or the median one if they
    /// are short. Without a verdict the reason.
    fn verdict(&self, kernel: &str, launches: &[&Launch]) -> (Option<u32>, Option<String>, String) {
        let duration = |launch: &Launch| launch.duration_ns.unwrap_or_default();
        let counted = launches.iter().any(|launch| !launch.metrics.is_empty());
        let judged = launches.iter().copied();
        let judged: Vec<&Launch> =
            judged.filter(|launch| !launch.metrics.is_empty() || !counted).collect();
        let mut times: BTreeMap<Option<&str>, f64> = BTreeMap::new();
        for &launch in &judged {
            let scale = self.geometries.stands_for(launch).map_or(1.0, |(_, scale)| scale);
            *times.entry(self.id(launch)).or_default() += duration(launch) * scale;
        }
        let Some(most) = times.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(id, _)| *id) else {
            return (None, None, NOT_PROFILED.to_owned());
        };
        let mut of_verdict: Vec<&Launch> = judged;
        of_verdict.retain(|launch| self.id(launch) == most);
        of_verdict.sort_by(|a, b| duration(a).total_cmp(&duration(b)));
        let told = most.and_then(|id| self.told(kernel, id));
        let is_told = |launch: &&&Launch| {
            told.is_some() && self.first(launch).map(|verdict| verdict.text.as_str()) == told
        };
        let typical = match most {
            Some(LAUNCH_BOUND) => of_verdict.get(of_verdict.len() / 2),
            _ => of_verdict.iter().rev().find(is_told).or(of_verdict.last()),
        };
        let Some(launch) = typical else { return (None, None, String::new()) };
        match self.first(launch) {
            Some(first) => (Some(launch.id), Some(first.verdict.clone()), first.text.clone()),
            None if self.is_deep && launch.metrics.is_empty() => {
                (Some(launch.id), None, NOT_PROFILED.to_owned())
            }
            None => (Some(launch.id), None, why_none(launch)),
        }
    }

    /// The text of this verdict on the kernel in the findings.
    fn told(&self, kernel: &str, verdict: &str) -> Option<&str> {
        let findings = self.findings.iter().filter(|finding| finding.id == verdict);
        let mut covers = findings.flat_map(|finding| &finding.covers);
        covers.find(|covered| covered.kernel == kernel).map(|covered| covered.text.as_str())
    }

    /// The verdict on a launch that counts.
    fn first<'l>(&self, launch: &'l Launch) -> Option<&'l Verdict> {
        launch.classification.as_ref()?.verdicts.first()
    }

    fn id<'l>(&self, launch: &'l Launch) -> Option<&'l str> {
        self.first(launch).map(|verdict| verdict.verdict.as_str())
    }
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::set_up;
    use super::super::threshold::{Limits, Thresholds};
    use super::*;
    use rgpu_model::selection::Selection;

    /// Inductor's benchmarks took nearly all of the GPU time of a compiled program, and the second
    /// pass does not list their launches.
    #[test]
    fn set_up_that_the_first_pass_found_does_not_count() {
        let sum = |kernel: &str, total_ns| KernelSum {
            kernel: kernel.to_owned(),
            total_ns,
            launches: 10,
            ..KernelSum::default()
        };
        let kernels = vec![sum("fill", 53_000), sum("gelu", 17_000), sum("gemm", 2_700)];
        let mut profile = Profile { kernels, ..Profile::default() };
        let shown = |profile: &mut Profile| {
            set_up::mark_kernels(profile, &HashSet::new());
            let verdicts =
                verdicts(profile, &Limits::new(&Thresholds::default(), None)).into_iter();
            verdicts.map(|v| (v.kernel, v.total_ns, v.percent.round())).collect::<Vec<_>>()
        };
        let all = [("fill".into(), 53_000, 73.0), ("gelu".into(), 17_000, 23.0)];
        assert_eq!(shown(&mut profile), all);
        let set_up = [("fill", 53_000), ("gelu", 16_700)].map(|(name, ns)| (name.to_owned(), ns));
        let selection = Selection { set_up_ns: set_up.into(), ..Selection::default() };
        profile.selection = Some(selection);
        let counted = [("gemm".into(), 2_700, 90.0), ("gelu".into(), 300, 10.0)];
        assert_eq!(shown(&mut profile), counted);
    }

    /// `torch.profiler` records a decoder's random weights with the work, and counts nothing.
    #[test]
    fn a_kernel_that_only_sets_the_program_up_says_so_where_nothing_is_counted() {
        const RANDOM: &str =
            "void at::native::<unnamed>::distribution_elementwise_grid_stride_kernel<float>(int)";
        let order = [RANDOM, RANDOM, "gemm", "gemm", "gemm", "gemm"];
        let launch = |(id, kernel): (u32, &&str)| Launch {
            id,
            kernel: (*kernel).to_owned(),
            duration_ns: Some(1000.0),
            ..Launch::default()
        };
        let sum = |kernel: &str, launches| KernelSum {
            kernel: kernel.to_owned(),
            total_ns: 1000 * launches,
            launches,
            ..KernelSum::default()
        };
        let mut profile = Profile {
            launches: (0..).zip(&order).map(launch).collect(),
            kernels: vec![sum(RANDOM, 2), sum("gemm", 4)],
            ..Profile::default()
        };
        let text_of_random = |profile: &Profile| {
            let verdicts = verdicts(profile, &Limits::new(&Thresholds::default(), None));
            verdicts.into_iter().find(|verdict| verdict.kernel == RANDOM).unwrap().text
        };
        let text = "it is set-up: it makes random numbers, only before the program's work";
        assert_eq!(text_of_random(&profile), text);
        // Launches that are not listed may be among the work.
        profile.kernels[0].launches = 3;
        assert!(text_of_random(&profile).starts_with("no counters were measured"));
    }
}
