//! The time that acting on a finding could give back, and the order of findings by it.

use std::cmp::Reverse;

use super::classify::{Verdicts, decides};
use super::concept::{MEMORY_THROUGHPUT, SM_THROUGHPUT};
use super::roofs::{Gain, Roofs};
use super::rule::{GainLimit, VerdictRole};
use rgpu_model::finding::{GainScope, PotentialGain, START_UP};
use rgpu_model::timeline::Timeline;
use rgpu_model::{Finding, Launch, Profile};

/// For each verdict on a launch, the part of the launch's time that acting on it could give back.
///
/// A launch cannot be faster than its busiest unit at its peak allows, unless there is less work to
/// do: then the next busiest unit is the limit. What a deciding cause explains is not counted for
/// the bound again.
pub(super) fn gains(launch: &Launch, verdicts: &Verdicts) -> Vec<Gain> {
    let busy = launch.first_number(SM_THROUGHPUT).into_iter();
    let busy = busy.chain(launch.first_number(MEMORY_THROUGHPUT)).map(|(_, percent)| percent);
    let headroom = (1.0 - busy.fold(0.0, f64::max) / 100.0).clamp(0.0, 1.0);
    let explaining = verdicts.iter().filter(|verdict| decides(verdict));
    let explained = explaining.map(|(_, conclusion)| conclusion.score).fold(0.0, f64::max);
    let roofs = Roofs::new(launch);
    let unexplained = |most: f64| Gain::up_to(most - explained.min(most));
    let gains = verdicts.iter().map(|(rule, conclusion)| match rule.gain {
        GainLimit::Headroom => unexplained(headroom),
        GainLimit::Score => Gain::up_to(conclusion.score.min(headroom)),
        GainLimit::Work => Gain::up_to(conclusion.score),
        GainLimit::Relief(left) => match (roofs.gain(&left(launch)), rule.kind) {
            // Without less work, the busiest unit may still come nearer to its peak.
            (gain, VerdictRole::Bound) => {
                unexplained(gain.map_or(headroom, |gain| gain.most.max(headroom)))
            }
            (gain, _) => gain.unwrap_or(Gain::up_to(conclusion.score)),
        },
        GainLimit::Everything => Gain::up_to(1.0),
    });
    gains.collect()
}

/// A finding about a smaller share of the wall time does not come first before start-up.
const MIN_LEADING_SHARE: f64 = 0.01;

/// The time from which a finding comes before start-up: the part of the steady time that counts,
/// but not next to nothing of the whole span.
pub(super) fn leading_ns(steady_ns: u64, steady_share: f64, span_ns: u64) -> u64 {
    (steady_ns as f64 * steady_share).max(span_ns as f64 * MIN_LEADING_SHARE) as u64
}

/// The time of one GPU: the mean of those that ran kernels, which run at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MeanGpuTime {
    /// Their number, at least 1.
    pub(super) gpus: usize,
    /// Nanoseconds from the first kernel to the end of the last; more than 0.
    pub(super) span_ns: f64,
    /// Nanoseconds in which a kernel ran; 0 if that is not known.
    kernel_ns: f64,
}

impl MeanGpuTime {
    /// The times of a timeline; `None` if no GPU has a span.
    pub(super) fn new(timeline: Option<&Timeline>) -> Option<MeanGpuTime> {
        let gpus = timeline.map_or(0, Timeline::gpus);
        let devices = timeline.iter().flat_map(|timeline| &timeline.devices);
        let (span_ns, kernel_ns) = devices.fold((0.0, 0.0), |(span, kernel), device| {
            (span + device.span_ns as f64, kernel + device.kernel_ns as f64)
        });
        let mean = |sum: f64| sum / gpus as f64;
        let time = || MeanGpuTime { gpus, span_ns: mean(span_ns), kernel_ns: mean(kernel_ns) };
        (gpus > 0).then(time)
    }
}

/// The bound of what kernels could give back: `ns` of the `gpu_ns` of all kernels, both summed over
/// launches and GPUs. With a timeline it is of the time that passes. Kernels that run side by side
/// give back no more of it than the time in which any of them runs.
pub(super) fn of_kernels(ns: f64, gpu_ns: f64, of_gpu: Option<MeanGpuTime>) -> PotentialGain {
    let Some(time) = of_gpu else {
        return PotentialGain::bound(ns.round() as u64, GainScope::Kernel, share(ns, gpu_ns));
    };
    let most = if time.kernel_ns > 0.0 { time.kernel_ns } else { time.span_ns };
    let ns = (ns / time.gpus as f64).min(most);
    PotentialGain::bound(ns.round() as u64, GainScope::Program, share(ns, time.span_ns))
}

/// A part of the whole, 0 to 1; 0 of nothing.
pub(super) fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).min(1.0) } else { 0.0 }
}

/// Where a finding stands among others, first to last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FindingRank {
    /// The results are wrong.
    Correctness,
    /// It is about time; where steps are known, about at least a twentieth of one.
    Time,
    /// It is about less than a twentieth of a step.
    SomeTime,
    /// It is about no time, or none is known.
    Timeless,
    /// It is about start-up, which happens once however long a program runs.
    StartUp,
    /// It is about next to nothing of a step.
    Little,
}

/// Sorts a profile's findings: correctness first, then by the time at stake, then those about no
/// time. Their priorities are their places.
///
/// Where steps are known, times compare by what they are of a step, and what is next to nothing of
/// one comes last. Kernels that take most of a step count an eighth of their time, also if it is not
/// known what they could give back. The findings of the account keep its order, which knows more than
/// times: a plain mistake before a rewrite, a cause before a place. Start-up comes after all
/// else if something repeats: steps, or what has at least `repeating_ns` at stake.
pub(super) fn sort(profile: &mut Profile, repeating_ns: u64) {
    let step = profile.account.as_ref().and_then(|account| account.step.as_ref());
    let (steps, step_ns) = step.map_or((0, 0), |step| (step.count, step.median_ns));
    let gpus = profile.timeline.as_ref().map_or(1, Timeline::gpus) as u64;
    let time = |finding: &Finding, steps: u64| {
        finding.stake.as_ref().map_or(0, |stake| stake.comparable_ns(steps, gpus))
    };
    let has_repeating_time =
        |finding: &Finding| finding.id != START_UP && time(finding, 0) >= repeating_ns.max(1);
    let repeats = step.is_some() || profile.findings.iter().any(has_repeating_time);
    let mut findings = std::mem::take(&mut profile.findings);
    let times = times_in_order(&findings, step_ns, |finding| time(finding, steps));
    let rank = |finding: &Finding, of_step_ns: u64| {
        if finding.category == "correctness" {
            FindingRank::Correctness
        } else if repeats && finding.id == START_UP {
            FindingRank::StartUp
        } else if profile.is_little(finding) {
            FindingRank::Little
        } else if of_step_ns == 0 {
            FindingRank::Timeless
        } else if step_ns > 0 && (of_step_ns as f64) < LARGE_STEP_SHARE * step_ns as f64 {
            FindingRank::SomeTime
        } else {
            FindingRank::Time
        }
    };
    let mut ranked: Vec<_> = findings
        .drain(..)
        .zip(times)
        .map(|(finding, ns)| (rank(&finding, ns), Reverse(ns), finding))
        .collect();
    ranked.sort_by_key(|(rank, ns, _)| (*rank, *ns));
    findings.extend(ranked.into_iter().map(|(_, _, finding)| finding));
    for (at, finding) in findings.iter_mut().enumerate() {
        finding.priority = u8::try_from(at + 1).unwrap_or(u8::MAX);
    }
    profile.findings = findings;
}

/// The part of a step that a gain must have to come before kernels that take most of the step.
const LARGE_STEP_SHARE: f64 = 0.05;

/// The part of a step that is most of it, and the part of their time that kernels stand for which
/// take as much, if it is not known what they could give back.
const MOST_OF_STEP: f64 = 0.5;
const PART_WITHOUT_GAIN: f64 = 0.12;

/// Nanoseconds by which findings are ordered: of the account's, none more than the one before it.
fn times_in_order(findings: &[Finding], step_ns: u64, time: impl Fn(&Finding) -> u64) -> Vec<u64> {
    let mut most_ns = u64::MAX;
    let times = findings.iter().map(|finding| {
        if takes_most_of_step(finding, step_ns) && finding.stake.is_none() {
            let kernels = finding.covers.iter().map(|kernel| kernel.total_ns);
            let ns = kernels.fold(0, u64::saturating_add) as f64 * PART_WITHOUT_GAIN;
            most_ns = most_ns.min(ns as u64);
            return most_ns;
        }
        let ns = time(finding);
        if !OF_ACCOUNT.contains(&finding.category.as_str()) || ns == 0 {
            return ns;
        }
        most_ns = most_ns.min(ns);
        most_ns
    });
    times.collect()
}

/// The categories of the account's findings.
const OF_ACCOUNT: &[&str] = &["steps", "program"];

/// Whether a finding of the account is about kernels that take most of a step of `step_ns`.
fn takes_most_of_step(finding: &Finding, step_ns: u64) -> bool {
    let kernels = finding.covers.iter().map(|kernel| kernel.total_ns);
    let ns = kernels.fold(0, u64::saturating_add);
    let is_of_step = finding.category == "steps" && step_ns > 0;
    is_of_step && ns as f64 >= MOST_OF_STEP * step_ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::Account;
    use rgpu_model::account::StepTime;
    use rgpu_model::finding::CoveredKernel;
    use rgpu_model::timeline::DeviceTime;

    /// A finding with a bound of the program's time, if it is about time.
    fn finding(id: &str, ns: Option<u64>) -> Finding {
        let stake = ns.map(|ns| PotentialGain::bound(ns, GainScope::Program, 0.5));
        Finding { id: id.to_owned(), stake, ..Finding::default() }
    }

    /// The ids of findings in their order.
    fn order(mut profile: Profile, repeating_ns: u64) -> Vec<String> {
        sort(&mut profile, repeating_ns);
        let priorities = profile.findings.iter().map(|finding| usize::from(finding.priority));
        assert!(priorities.eq(1..=profile.findings.len()));
        profile.findings.into_iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn correctness_comes_first_then_the_most_time() {
        let wrong = Finding { category: "correctness".to_owned(), ..finding("wrong", None) };
        let findings = vec![
            finding("names", None),
            finding("small", Some(5)),
            finding("large", Some(500)),
            wrong,
        ];
        let profile = Profile { findings, ..Profile::default() };
        assert_eq!(order(profile, 0), ["wrong", "large", "small", "names"]);
    }

    /// A chain of small kernels: 5.2 ms after 198.8 ms of start-up, and then 0.09 ms.
    #[test]
    fn next_to_nothing_of_a_short_program_does_not_lead() {
        assert_eq!(leading_ns(5_224_426, 0.1, 204_033_650), 2_040_336);
        assert_eq!(leading_ns(301_770_463, 0.1, 2_497_678_645), 30_177_046);
    }

    #[test]
    fn start_up_comes_last_unless_nothing_repeats() {
        let findings = |repeating| {
            let all = [("little", 5_000), (START_UP, 900_000), ("repeats", repeating)];
            let about_time = all.map(|(id, ns)| finding(id, Some(ns)));
            [vec![finding("names", None)], about_time.to_vec()].concat()
        };
        let without_steps = |repeating| {
            order(Profile { findings: findings(repeating), ..Profile::default() }, 10_000)
        };
        assert_eq!(without_steps(30_000), ["repeats", "little", "names", START_UP]);
        assert_eq!(without_steps(9_000), [START_UP, "repeats", "little", "names"]);
        let with_steps = |median_ns| {
            let step = StepTime { count: 10, median_ns, ..StepTime::default() };
            let account = Some(Account { step: Some(step), ..Account::default() });
            order(Profile { account, findings: findings(9_000), ..Profile::default() }, 10_000)
        };
        assert_eq!(with_steps(50_000), ["repeats", "little", "names", START_UP]);
        let below = ["repeats", "names", START_UP, "little"];
        assert_eq!(with_steps(50_001), below, "below 1 % of a step");
    }

    #[test]
    fn with_steps_findings_compare_by_the_time_of_a_step() {
        let replayed = PotentialGain {
            ns: 300_000,
            of: GainScope::Step,
            share: 0.03,
            step_ns: Some(10_000_000),
            ..PotentialGain::default()
        };
        let replayed = Finding { stake: Some(replayed), ..finding("replayed", None) };
        let findings = vec![
            finding("little", Some(9_900_000)),
            finding("names", None),
            replayed,
            finding("bound", Some(50_000_000)),
        ];
        let step = StepTime { count: 100, median_ns: 10_000_000, ..StepTime::default() };
        let account = Some(Account { step: Some(step), ..Account::default() });
        let mut profile = Profile { account, findings, ..Profile::default() };
        let by_step = order(profile.clone(), 0);
        assert_eq!(by_step, ["bound", "replayed", "names", "little"]);
        profile.account = None;
        assert_eq!(order(profile, 0), ["bound", "little", "replayed", "names"]);
    }

    #[test]
    fn a_kernel_that_takes_most_of_a_step_counts_an_eighth_of_its_time() {
        let gain = |id, ns| {
            let stake = PotentialGain { ns, of: GainScope::Step, ..PotentialGain::default() };
            Finding { stake: Some(stake), ..finding(id, None) }
        };
        let kernel = |id, total_ns| {
            let covers = vec![CoveredKernel { total_ns, ..CoveredKernel::default() }];
            Finding { covers, category: "steps".to_owned(), ..finding(id, None) }
        };
        let step = StepTime { count: 100, median_ns: 10_000_000, ..StepTime::default() };
        let account = Some(Account { step: Some(step), ..Account::default() });
        let findings = vec![
            gain("some", 400_000),
            kernel("part", 3_000_000),
            kernel("most", 9_000_000),
            gain("large", 600_000),
        ];
        let profile = Profile { account, findings, ..Profile::default() };
        assert_eq!(order(profile, 0), ["most", "large", "some", "part"]);
    }

    #[test]
    fn findings_of_the_account_keep_its_order() {
        let gain = |id, ns| {
            let stake = PotentialGain { ns, of: GainScope::Step, ..PotentialGain::default() };
            Finding { stake: Some(stake), category: "steps".to_owned(), ..finding(id, None) }
        };
        let step = StepTime { count: 100, median_ns: 10_000_000, ..StepTime::default() };
        let account = Some(Account { step: Some(step), ..Account::default() });
        let findings = vec![
            gain("mistake", 2_000_000),
            gain("rewrite", 3_000_000),
            gain("small", 700_000),
            finding("other", Some(250_000_000)),
        ];
        let profile = Profile { account, findings, ..Profile::default() };
        assert_eq!(order(profile, 0), ["other", "mistake", "rewrite", "small"]);
    }

    #[test]
    fn a_sum_over_gpus_counts_as_the_time_of_one() {
        let order_on = |gpus| {
            let kernel = Some(PotentialGain::bound(2000, GainScope::Kernel, 0.5));
            let kernel = Finding { stake: kernel, ..finding("kernel", None) };
            let findings = vec![kernel, finding("idle", Some(1000))];
            let device = DeviceTime { span_ns: 5000, ..DeviceTime::default() };
            let timeline = Timeline { devices: vec![device; gpus], ..Timeline::default() };
            order(Profile { findings, timeline: Some(timeline), ..Profile::default() }, 0)
        };
        assert_eq!(order_on(1), ["kernel", "idle"]);
        assert_eq!(order_on(4), ["idle", "kernel"]);
    }

    #[test]
    fn kernels_side_by_side_give_back_no_more_than_the_time_in_which_they_run() {
        let device = DeviceTime { span_ns: 80, kernel_ns: 60, ..DeviceTime::default() };
        let timeline =
            |gpus| Timeline { devices: vec![device.clone(); gpus], ..Timeline::default() };
        let gain = |ns, gpus| {
            let gain = of_kernels(ns, 635.0, MeanGpuTime::new(Some(&timeline(gpus))));
            (gain.ns, gain.of, gain.share)
        };
        assert_eq!(gain(635.0, 1), (60, GainScope::Program, 0.75));
        assert_eq!(gain(40.0, 1), (40, GainScope::Program, 0.5));
        assert_eq!(gain(40.0, 2), (20, GainScope::Program, 0.25));
        let alone = of_kernels(127.0, 635.0, MeanGpuTime::new(None));
        assert_eq!((alone.ns, alone.of, alone.share), (127, GainScope::Kernel, 0.2));
    }
}
