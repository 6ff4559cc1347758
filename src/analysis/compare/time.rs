//! The time that the verdict rests on: interleaved calls where there are some, else the runner's
//! samples, else the durations of the launches.

use super::interval::{self, FEWEST};
use super::join::Joins;
use super::{Options, gap, time_change};
use crate::model::Profile;
use crate::model::comparison::{CaseChange, KernelChange, SideTime, TimeChange, TimeVerdict};
use crate::model::profile::{Gap, Timing};

/// A kernel with less of the time than this decides nothing.
pub(super) const SMALL_SHARE: f64 = 0.05;

/// What interleaved calls of one case gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Paired {
    /// The case.
    pub case: String,
    /// `a / b`, the median over all rounds.
    pub speedup: f64,
    /// Its 95 % interval.
    pub ci95: [f64; 2],
    /// Rounds of four calls that count.
    pub rounds: u64,
}

/// What is known of the times.
pub(super) struct Times {
    pub(super) cases: Vec<CaseChange>,
    pub(super) time: Option<TimeChange>,
    /// Why there is none to decide by.
    pub(super) no_time: Option<Gap>,
}

pub(super) fn times(
    a: &Profile,
    b: &Profile,
    kernels: &[KernelChange],
    joins: &Joins<'_>,
    options: &Options<'_>,
) -> Times {
    let on_cpu = |p: &Profile| p.timing.as_ref().is_some_and(|t| t.clock == "cpu_reference");
    if on_cpu(a) || on_cpu(b) {
        let text = "without a GPU the references ran on the CPU, and their times say nothing of \
                    the kernels";
        return Times { cases: Vec::new(), time: None, no_time: Some(gap("no_gpu", text)) };
    }
    let cases = cases(a, b, options);
    if !cases.is_empty() {
        let time = over_cases(&cases, options.threshold);
        return Times { cases, time, no_time: None };
    }
    if kernels.is_empty() && !a.launches.is_empty() && !b.launches.is_empty() {
        let text = "no kernel is in common, and so there is no ratio of times";
        return Times { cases, time: None, no_time: Some(gap("no_common_kernel", text)) };
    }
    let time = over_kernels(kernels, joins, options.threshold);
    let no_time = time.is_none().then(|| gap("no_time", "no time is known on both sides"));
    Times { cases, time, no_time }
}

/// Every case that both sides timed.
fn cases(a: &Profile, b: &Profile, options: &Options<'_>) -> Vec<CaseChange> {
    let whole = |p: &Profile| p.timing.clone().map(|t| (String::new(), t));
    let timed = |p: &Profile| -> Vec<(String, Timing)> {
        let cases = p.cases.iter().filter_map(|c| Some((c.name.clone(), c.timing.clone()?)));
        let cases: Vec<_> = cases.collect();
        if cases.is_empty() { whole(p).into_iter().collect() } else { cases }
    };
    let other = timed(b);
    let change = |(name, x): &(String, Timing)| {
        let (_, y) = other.iter().find(|(n, _)| n == name)?;
        let mut time = time_change(side(x), side(y), options.threshold, "samples")?;
        if let Some(paired) = options.paired.iter().find(|p| p.case == *name) {
            time.speedup = paired.speedup;
            time.ci95 = Some(paired.ci95);
            time.rounds = Some(paired.rounds);
            time.source = "abba".to_owned();
            time.verdict = interval::verdict(time.ci95, options.threshold);
        }
        let name = if name.is_empty() { a.kernel.name.clone() } else { name.clone() };
        Some(CaseChange { name, time })
    };
    timed(a).iter().filter_map(change).collect()
}

fn side(timing: &Timing) -> SideTime {
    SideTime {
        median_ns: timing.median_ns,
        ci95_ns: (timing.samples >= FEWEST as u64).then_some(timing.ci95_ns),
        samples: timing.samples,
    }
}

/// One case is the answer; of several, the geometric mean of their speedups. Cases that disagree
/// leave it open.
fn over_cases(cases: &[CaseChange], threshold: f64) -> Option<TimeChange> {
    let [first, rest @ ..] = cases else { return None };
    if rest.is_empty() {
        return Some(first.time.clone());
    }
    let all: Vec<_> = cases.iter().map(|c| (c.time.speedup, c.time.ci95)).collect();
    let (speedup, ci95) = interval::mean(&all)?;
    let has = |wanted| cases.iter().any(|c| c.time.verdict == wanted);
    let verdict = match has(TimeVerdict::Faster) && has(TimeVerdict::Slower) {
        true => TimeVerdict::Ambiguous,
        false => interval::verdict(ci95, threshold),
    };
    let sum = |side: fn(&TimeChange) -> &SideTime| SideTime {
        median_ns: cases.iter().map(|c| side(&c.time).median_ns).sum(),
        ci95_ns: None,
        samples: cases.iter().map(|c| side(&c.time).samples).sum(),
    };
    let rounds = cases.iter().map(|c| c.time.rounds).sum::<Option<u64>>();
    let (a, b) = (sum(|t| &t.a), sum(|t| &t.b));
    Some(TimeChange { a, b, speedup, ci95, verdict, source: first.time.source.clone(), rounds })
}

/// The GPU time of all kernels: medians times launches. It has an interval only where every kernel
/// that matters has one, and every kernel that matters was joined.
fn over_kernels(kernels: &[KernelChange], joins: &Joins<'_>, threshold: f64) -> Option<TimeChange> {
    if let [only] = kernels
        && joins.only_a.is_empty()
        && joins.only_b.is_empty()
    {
        return only.time.clone();
    }
    let alone: [f64; 2] = [&joins.only_a, &joins.only_b]
        .map(|groups| groups.iter().map(super::join::Group::total_ns).sum());
    let total = |side: usize, of: fn(&TimeChange) -> &SideTime| {
        let times = || {
            let timed = kernels.iter().filter_map(|k| Some((k.time.as_ref()?, k.launches[side])));
            timed.map(|(time, launches)| (of(time), launches as f64))
        };
        let all = alone[side] + times().map(|(one, n)| n * one.median_ns).sum::<f64>();
        let small = |ns: f64| ns <= SMALL_SHARE * all;
        let mut squares = small(alone[side]).then_some([0.0_f64; 2]);
        for (one, n) in times().filter(|(one, n)| !small(n * one.median_ns)) {
            squares = squares.zip(one.ci95_ns).map(|([down, up], [low, high])| {
                let [below, above] = [one.median_ns - low, high - one.median_ns];
                [down + (n * below).powi(2), up + (n * above).powi(2)]
            });
        }
        SideTime {
            median_ns: all,
            ci95_ns: squares.map(|[down, up]| [all - down.sqrt(), all + up.sqrt()]),
            samples: times().map(|(one, _)| one.samples).sum(),
        }
    };
    let (a, b) = (total(0, |t| &t.a), total(1, |t| &t.b));
    time_change(a, b, threshold, "launches")
}
