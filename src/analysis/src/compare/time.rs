//! The time that decides the verdict: from interleaved calls, else from the runner's samples, else
//! from the durations of launches.

use rgpu_case::Timing as CaseTiming;

use super::interval::{self, MIN_LAUNCHES};
use super::join::{JoinedKernels, KernelPair, LaunchGroup};
use super::sentence::{percent, side_names};
use super::{CompareOptions, gap, time_change};
use rgpu_model::Profile;
use rgpu_model::comparison::TimeSource;
use rgpu_model::comparison::{CaseChange, KernelChange, SideTime, TimeChange, TimeVerdict};
use rgpu_model::profile::{Gap, Timing, Trust};

/// Kernels with a smaller share of the time are irrelevant for the verdict.
pub(super) const SMALL_SHARE: f64 = 0.05;
/// If a larger share of a side's time is in unmatched kernels, no ratio is computed.
const MAX_UNMATCHED_SHARE: f64 = 0.5;
/// The maximum number of kernels named in one line.
const MAX_NAMED_KERNELS: usize = 3;

/// The result of interleaved calls or processes of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct PairedTimes {
    /// The case's name.
    pub case: String,
    /// `a / b`, the median over all rounds.
    pub speedup: f64,
    /// The 95 % interval of `speedup`.
    pub ci95: [f64; 2],
    /// The number of valid rounds: of four calls, or of one process of each side.
    pub rounds: u64,
    /// Whether calls or processes alternated.
    pub source: TimeSource,
}

impl PairedTimes {
    /// The times of one case in four processes, which ran in the order a b b a. `None` if a time is
    /// not positive.
    ///
    /// The speedup is the geometric mean of the two ratios. Its interval includes both of them, so
    /// that it is never narrower than the spread between processes.
    #[must_use]
    pub fn from_processes(case: &str, a: [&CaseTiming; 2], b: [&CaseTiming; 2]) -> Option<Self> {
        let bounds = [a[0], a[1], b[0], b[1]].map(Bound::from);
        let by_bounds = by_bounds(&bounds);
        let time = |timing: &CaseTiming| match Bound::from(timing).time.filter(|_| by_bounds) {
            Some(bound) => bound,
            None => SideTime {
                median_ns: timing.median_ns,
                ci95_ns: Some(timing.ci95_ns),
                samples: timing.samples as u64,
            },
        };
        let rounds = [0, 1].map(|n| interval::speedup(&time(a[n]), &time(b[n])));
        let [first, second] = rounds;
        let ratios = [first?, second?];
        let (speedup, ci95) = interval::mean(&ratios)?;
        let [mut low, mut high] = ci95?;
        for (ratio, _) in ratios {
            low = low.min(ratio);
            high = high.max(ratio);
        }
        Some(Self {
            case: case.to_owned(),
            speedup,
            ci95: [low, high],
            rounds: ratios.len() as u64,
            source: TimeSource::AlternatedProcesses,
        })
    }
}

/// The judge's bound of a time, and whether the time itself is proven.
pub(super) struct Bound {
    is_proven: bool,
    time: Option<SideTime>,
}

/// Whether times are compared by their bounds: all have one, and one of them is no more than that.
pub(super) fn by_bounds(sides: &[Bound]) -> bool {
    sides.iter().all(|side| side.time.is_some()) && !sides.iter().all(|side| side.is_proven)
}

fn bound_time(ns: Option<f64>, range_ns: Option<[f64; 2]>) -> Option<SideTime> {
    ns.map(|median_ns| SideTime { median_ns, ci95_ns: range_ns, samples: 1 })
}

impl From<&Timing> for Bound {
    fn from(timing: &Timing) -> Self {
        let time = bound_time(timing.bound_ns, timing.bound_range_ns);
        Self { is_proven: timing.trust == Some(Trust::Proven), time }
    }
}

impl From<&CaseTiming> for Bound {
    fn from(timing: &CaseTiming) -> Self {
        let time = bound_time(timing.bound_ns, timing.bound_range_ns);
        Self { is_proven: timing.trust == Some(rgpu_case::Trust::Proven), time }
    }
}

pub(super) struct Times {
    pub(super) cases: Vec<CaseChange>,
    pub(super) time: Option<TimeChange>,
    /// Why `time` is `None`.
    pub(super) no_time: Option<Gap>,
    /// Which launches the sides share, if launches decide.
    pub(super) shared: SharedTime,
}

/// Code of the gap of sides that ran without a GPU.
pub(super) const NO_GPU: &str = "no_gpu";

pub(super) fn times(
    a: &Profile,
    b: &Profile,
    kernels: &[KernelChange],
    joins: &JoinedKernels<'_>,
    options: &CompareOptions<'_>,
) -> Times {
    if a.has_cpu_reference_time() || b.has_cpu_reference_time() {
        let text = "without a GPU only the references ran, on the CPU; their times say nothing \
                    about the kernels";
        return Times::without(gap(NO_GPU, text));
    }
    let cases = cases(a, b, options);
    if !cases.is_empty() {
        let time = over_cases(&cases, options.threshold);
        return Times { cases, time, no_time: None, shared: SharedTime::default() };
    }
    if kernels.is_empty() && !a.launches.is_empty() && !b.launches.is_empty() {
        let text = "the sides have no kernel in common, so there is no ratio of times";
        return Times::without(gap("no_common_kernel", text));
    }
    let (time, shared) = over_kernels(kernels, joins, options);
    let no_time = time.is_none().then(|| match &shared.too_little {
        Some(text) => {
            gap("little_in_common", format!("the sides have too little in common: {text}"))
        }
        None => gap("no_time", "no time is known for both sides"),
    });
    Times { cases, time, no_time, shared }
}

impl Times {
    fn without(why: Gap) -> Self {
        Self { cases: Vec::new(), time: None, no_time: Some(why), shared: SharedTime::default() }
    }
}

/// The changes of all cases that both sides timed.
fn cases(a: &Profile, b: &Profile, options: &CompareOptions<'_>) -> Vec<CaseChange> {
    let whole = |p: &Profile| p.timing.clone().map(|t| (String::new(), t));
    let timed = |p: &Profile| -> Vec<(String, Timing)> {
        let cases = p.cases.iter().filter_map(|c| Some((c.name.clone(), c.timing.clone()?)));
        let cases: Vec<_> = cases.collect();
        if cases.is_empty() { whole(p).into_iter().collect() } else { cases }
    };
    let other = timed(b);
    let change = |(name, x): &(String, Timing)| {
        let (_, y) = other.iter().find(|(n, _)| n == name)?;
        let by_bounds = by_bounds(&[x.into(), y.into()]);
        let side = |timing: &Timing| match Bound::from(timing).time.filter(|_| by_bounds) {
            Some(bound) => bound,
            None => side(timing),
        };
        let mut time = time_change(side(x), side(y), options.threshold, TimeSource::Samples)?;
        if let Some(paired) = options.paired.iter().find(|p| p.case == *name) {
            time.speedup = paired.speedup;
            time.ci95 = Some(paired.ci95);
            time.rounds = Some(paired.rounds);
            time.source = paired.source.clone();
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
        ci95_ns: (timing.samples >= MIN_LAUNCHES as u64).then_some(timing.ci95_ns),
        samples: timing.samples,
    }
}

/// The overall time change: that of the only case, else the geometric mean of the speedups. The
/// verdict is ambiguous if some cases are faster and some slower.
fn over_cases(cases: &[CaseChange], threshold: f64) -> Option<TimeChange> {
    let [first, rest @ ..] = cases else { return None };
    if rest.is_empty() {
        return Some(first.time.clone());
    }
    let all: Vec<_> = cases.iter().map(|c| (c.time.speedup, c.time.ci95)).collect();
    let (speedup, ci95) = interval::mean(&all)?;
    let has = |verdict_sought| cases.iter().any(|c| c.time.verdict == verdict_sought);
    let verdict = if has(TimeVerdict::Faster) && has(TimeVerdict::Slower) {
        TimeVerdict::Ambiguous
    } else {
        interval::verdict(ci95, threshold)
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

/// The change of the GPU time of kernels that both sides launched. The time of a kernel is its
/// median duration, multiplied by the number of launches that both sides have, so a longer
/// recording does not look slower. There is an interval only if every relevant kernel has one, and
/// if kernels that only one side has take little time.
fn over_kernels(
    kernels: &[KernelChange],
    joins: &JoinedKernels<'_>,
    options: &CompareOptions<'_>,
) -> (Option<TimeChange>, SharedTime) {
    let shared = SharedTime::new(kernels, joins, options);
    if shared.alone > MAX_UNMATCHED_SHARE {
        return (None, shared);
    }
    let times = || kernels.iter().filter_map(|k| k.time.as_ref());
    let total = |of: fn(&TimeChange) -> &SideTime| {
        let all: f64 = times().map(|time| common(time) * of(time).median_ns).sum();
        let mut squares = Some([0.0_f64; 2]);
        for (one, n) in times().map(|time| (of(time), common(time))) {
            if n * one.median_ns <= SMALL_SHARE * all {
                continue;
            }
            squares = squares.zip(one.ci95_ns).map(|([down, up], [low, high])| {
                let [below, above] = [one.median_ns - low, high - one.median_ns];
                [down + (n * below).powi(2), up + (n * above).powi(2)]
            });
        }
        SideTime {
            median_ns: all,
            ci95_ns: squares.map(|[down, up]| [all - down.sqrt(), all + up.sqrt()]),
            samples: times().map(|time| of(time).samples).sum(),
        }
    };
    let time = match kernels {
        [only] => only.time.clone(),
        _ => time_change(total(|t| &t.a), total(|t| &t.b), options.threshold, TimeSource::Launches),
    };
    let time = time.map(|time| {
        if shared.alone > SMALL_SHARE {
            TimeChange { ci95: None, verdict: TimeVerdict::Ambiguous, ..time }
        } else {
            time
        }
    });
    (time, shared)
}

/// The number of launches of a kernel that both sides have.
pub(super) fn common(time: &TimeChange) -> f64 {
    time.a.samples.min(time.b.samples) as f64
}

/// Which part of the launches both sides share.
#[derive(Default)]
pub(super) struct SharedTime {
    /// The share of a side's time in unmatched kernels, on the side where it is larger.
    alone: f64,
    /// That share in words, if it is too large for a verdict.
    pub(super) too_little: Option<String>,
    /// Whether a kernel was launched more often on one side.
    pub(super) per_launch: bool,
    /// Notes about launch counts and unmatched kernels.
    pub(super) notes: Vec<Gap>,
}

impl SharedTime {
    fn new(
        kernels: &[KernelChange],
        joins: &JoinedKernels<'_>,
        options: &CompareOptions<'_>,
    ) -> Self {
        let mut shared = Self::default();
        let differing: Vec<String> = kernels
            .iter()
            .filter_map(|k| {
                let t = k.time.as_ref().filter(|t| t.a.samples != t.b.samples)?;
                let (a, b) = (t.a.samples, t.b.samples);
                Some(format!("`{}` was launched {a} and {b} times", k.kernel))
            })
            .collect();
        if !differing.is_empty() {
            shared.per_launch = true;
            let more = match differing.len().saturating_sub(MAX_NAMED_KERNELS) {
                0 => String::new(),
                1 => ", and 1 more kernel differs in its launches".to_owned(),
                n => format!(", and {n} more kernels differ in their launches"),
            };
            let named = differing[..differing.len().min(MAX_NAMED_KERNELS)].join(", ");
            shared.notes.push(gap("launch_counts", format!("{named}{more}: compared per launch")));
        }
        let names = side_names(options.names);
        let joined: [fn(&KernelPair<'_>) -> f64; 2] = [|j| j.a.total_ns(), |j| j.b.total_ns()];
        for ((name, groups), of) in names.iter().zip([&joins.only_a, &joins.only_b]).zip(joined) {
            let alone: f64 = groups.iter().map(LaunchGroup::total_ns).sum();
            let all = alone + joins.joined.iter().map(of).sum::<f64>();
            if alone <= 0.0 {
                continue;
            }
            let share = alone / all;
            let text = format!("kernels that only {name} has use {} of its time", percent(share));
            if share > SMALL_SHARE && share > shared.alone {
                shared.too_little = Some(text.clone());
            }
            shared.alone = shared.alone.max(share);
            shared.notes.push(gap("one_side_only", format!("{text}: they are not compared")));
        }
        shared
    }
}
