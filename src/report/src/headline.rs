//! The headline of a report: what bounds the kernel, and how fast it is.

use super::account;
use super::bound::share_text;
use super::kernel_name::KernelLabels;
use super::quantity::{duration, measured, percent};
use super::text::capital;
use super::{ReportInput, busy, finding, kernel_sums};
use rgpu_model::finding::START_UP;
use rgpu_model::number_form::by_number;
use rgpu_model::profile::{CheckVerdict, TimingClock};
use rgpu_model::sanitizer::{SanitizerResult, SanitizerVerdict};
use rgpu_model::{Account, Classification, Finding, Launch, Profile};

/// The parts of a step that a title names.
const MAX_TITLE_PARTS: usize = 3;

/// The first line of a report, and the sentence below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Headline {
    /// The subject and what was found, in a few words.
    pub(super) title: String,
    /// The numbers behind the title.
    pub(super) text: String,
    /// The launch that the headline is about, if it is about a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) launch: Option<u32>,
}

impl Headline {
    fn new(title: impl Into<String>, text: impl Into<String>) -> Self {
        Self { title: title.into(), text: text.into(), launch: None }
    }
}

/// The headline for `subject`. A comparison comes first, then wrong results, sanitizer results,
/// counters, timeline sums, and times.
pub(super) fn headline(subject: &ReportInput<'_>, names: &KernelLabels<'_>) -> Headline {
    let profile = subject.profile;
    if let Some(c) = subject.comparison {
        return Headline::new(format!("{}: {}", c.b.name, c.verdict.as_str()), &c.summary);
    }
    if let Some(c) = profile.correctness.as_ref().filter(|c| c.verdict == CheckVerdict::Wrong) {
        let first = c.first_wrong.as_deref().unwrap_or_default();
        return Headline::new(
            "Wrong results",
            match c.checked {
                // A function of the task refused the result as a whole.
                _ if c.wrong == 0 => format!("{first}."),
                1 => format!("The value is wrong. {first}"),
                all => {
                    let are = by_number(c.wrong, "is", "are");
                    format!("{} of {all} values {are} wrong. {first}", c.wrong)
                }
            },
        );
    }
    sanitizer(profile)
        .or_else(|| idle(subject, names))
        .or_else(|| counters(profile, names))
        .or_else(|| timeline(subject, names))
        .or_else(|| timed(profile))
        .unwrap_or_else(|| rest(profile))
}

fn sanitizer(profile: &Profile) -> Option<Headline> {
    let causes: usize = profile.sanitizer.iter().map(|r| r.causes.len()).sum();
    if let Some(found) = profile.sanitizer.iter().find(|r| !r.causes.is_empty()) {
        let text = found.causes.first().map(|c| c.text.clone()).unwrap_or_default();
        let s = if causes == 1 { "" } else { "s" };
        return Some(Headline::new(format!("{causes} cause{s} found by {}", found.title()), text));
    }
    let first = profile.sanitizer.first()?;
    let tools: Vec<String> = profile.sanitizer.iter().map(SanitizerResult::title).collect();
    let clean = profile.sanitizer.iter().all(|r| r.verdict == SanitizerVerdict::Clean);
    let tools = tools.join(", ");
    Some(Headline::new(
        if clean { "Clean" } else { "Not known to be clean" },
        match first.note.as_str() {
            "" => format!("checked by {tools}."),
            note => format!("checked by {tools}; {note}"),
        },
    ))
}

/// Of a program whose first finding is about idle time: the timeline, although launches have
/// counters too.
fn idle(subject: &ReportInput<'_>, names: &KernelLabels<'_>) -> Option<Headline> {
    let first = first_finding(subject.profile)?;
    if first.places.is_empty() {
        return None;
    }
    timeline(subject, names)
}

/// The first finding, if it is not about next to nothing of a step.
pub(super) fn first_finding(profile: &Profile) -> Option<&Finding> {
    profile.findings.first().filter(|first| !profile.is_little(first))
}

/// The longest launch that has a classification.
pub(super) fn longest(profile: &Profile) -> Option<(&Launch, &Classification)> {
    let classified = profile.launches.iter().filter_map(|l| Some((l, l.classification.as_ref()?)));
    classified.max_by(|a, b| {
        let ns = |l: &Launch| l.duration_ns.unwrap_or(0.0);
        ns(a.0).total_cmp(&ns(b.0))
    })
}

fn counters(profile: &Profile, names: &KernelLabels<'_>) -> Option<Headline> {
    // Launches of a timeline may be classified too, but that says little about the program.
    profile.launches.iter().find(|l| !l.metrics.is_empty())?;
    if let Some(several) = several_kernels(profile, names) {
        return Some(several);
    }
    let (launch, class) = longest(profile)?;
    let name = names.name(&launch.kernel);
    let mut parts = Vec::new();
    let primary = class.verdicts.iter().find(|v| v.verdict == class.primary);
    match primary.map(|verdict| (&verdict.text, verdict.evidence.first())) {
        Some((text, _)) if !text.is_empty() => parts.push(text.clone()),
        Some((_, Some(e))) => {
            let counter = e.metric.split('.').next().unwrap_or(&e.metric);
            parts.push(format!("`{counter}` is {}", measured(e.value, &e.unit)));
        }
        _ => {}
    }
    if let Some(ns) = launch.duration_ns {
        parts.push(format!("{} under the tool's clocks", duration(ns)));
    }
    if let Some(timing) = &profile.timing {
        parts.push(format!("{} without a tool", duration(timing.median_ns)));
    }
    if let [share] = &profile.bound[..] {
        parts.push(share_text(share));
    }
    if profile.launches.len() > 1 {
        parts.push(format!("the longest of {} launches", profile.launches.len()));
    }
    let title = format!("{name} {}", predicate(&class.primary));
    let text = format!("{}.", parts.join("; "));
    Some(Headline { launch: Some(launch.id), ..Headline::new(title, text) })
}

/// Of a profile with several kernels: its first finding.
fn several_kernels(profile: &Profile, names: &KernelLabels<'_>) -> Option<Headline> {
    if profile.kernels.len() < 2 {
        return None;
    }
    let first = first_finding(profile)?;
    // What limits a kernel of the set-up is not what the report is about.
    if first.id == "only_set_up" {
        return Some(Headline::new("Mostly set-up was profiled", format!("{}.", first.text)));
    }
    let launch = profile.launches.iter().find(|launch| Some(launch.id) == first.launch);
    let title = match (first.covers.len(), launch) {
        _ if first.id == "element_wise_kernels" => "Element-wise kernels in a row".to_owned(),
        (0 | 1, launch) => format!("{} {}", names.name(&launch?.kernel), predicate(&first.id)),
        (kernels, _) => format!("{kernels} kernels: {}", first.id.replace('_', " ")),
    };
    let gain = finding::gain(first, profile);
    let gain = gain.map(|gain| format!("; {gain}")).unwrap_or_default();
    let text = format!("{}{gain}.", capital(&first.text));
    Some(Headline { launch: launch.map(|launch| launch.id), ..Headline::new(title, text) })
}

/// A verdict as the predicate of a sentence about its kernel.
fn predicate(verdict: &str) -> String {
    let cause_text = match verdict {
        "stalled" | "uncoalesced" => return format!("is {verdict}"),
        "small_grid" => "a small grid",
        "fp32_gemm" => "FP32 products without tensor cores",
        "tail" => "its last wave of blocks",
        "spills" => "register spills",
        "occupancy_limited" => "its limited occupancy",
        "occupancy_not_reached" => "occupancy that is not reached",
        "local_memory" => "accesses to local memory",
        "low_tensor_use" => "low use of the tensor cores",
        "legacy_mma" => "older matrix instructions",
        "no_tma" => "loads without TMA",
        "one_cta_mma" => "matrix instructions of one block",
        "fp64_trickle" => "slow FP64 units",
        "instruction_cache" => "misses of the instruction cache",
        "low_issue_slots" => "unused issue slots",
        "l2_thrash" => "thrashing of the L2",
        bound if bound.ends_with("_bound") => return format!("is {}", bound.replace('_', " ")),
        other => return format!("is bound by {}", other.replace('_', " ")),
    };
    format!("is bound by {cause_text}")
}

fn timeline(subject: &ReportInput<'_>, names: &KernelLabels<'_>) -> Option<Headline> {
    let top = subject.profile.kernels.first()?;
    let total = kernel_sums::work_ns(subject.profile);
    let share = 100.0 * top.work_ns() as f64 / total.max(1) as f64;
    let sum = busy::several_gpus(subject.profile);
    let sum = sum.map_or_else(String::new, |gpus| format!(" (the sum of {gpus})"));
    let text = format!(
        "{} has {} of {} in kernels{sum}{}, over {} launches.",
        names.name(&top.kernel),
        percent(share),
        duration(total as f64),
        kernel_sums::apart_from_set_up(subject.profile),
        top.launches
    );
    let account = subject.profile.account.as_ref();
    let of_step = account.and_then(|account| of_step(account, names));
    // Where the time of a step goes is said by the title. Then, and of idle time, comes the finding;
    // but start-up is no part of a step.
    let is_told = |first: &&Finding| match of_step {
        Some(_) => first.id != START_UP,
        None => !first.places.is_empty(),
    };
    let first = first_finding(subject.profile).filter(is_told);
    let mut text = first.map_or(text, |first| {
        let gain = finding::gain(first, subject.profile).filter(|_| of_step.is_some());
        let gain = gain.map_or_else(String::new, |gain| format!("; {gain}"));
        format!("{}{gain}.", capital(&first.text))
    });
    busy::graphs_note(subject.profile).iter().for_each(|note| text += &format!(" {note}"));
    let of_gpu = || match busy::busy(subject.profile) {
        Some(busy) => busy.sentence(),
        None => format!("{} takes most of the GPU's time", names.name(&top.kernel)),
    };
    // An account is of one of several ranks or GPUs.
    let title = of_step.filter(|_| sum.is_empty()).unwrap_or_else(of_gpu);
    Some(Headline::new(title, text))
}

/// `A step takes 33.1 ms: matrix products 51 %, host work 24 %, casts 8.60 %`. `None` without steps.
fn of_step(account: &Account, names: &KernelLabels<'_>) -> Option<String> {
    let step = account::step(account)?;
    let parts = account::in_short(account, names, MAX_TITLE_PARTS)?;
    Some(format!("A step takes {}: {parts}", duration(step.median_ns as f64)))
}

fn timed(profile: &Profile) -> Option<Headline> {
    let name = &profile.kernel.name;
    let Some(timing) = profile.timing.as_ref() else {
        let title = format!("{name}: only its reference was timed, on the CPU");
        return profile
            .has_cpu_reference_time()
            .then(|| Headline::new(title, "No GPU was measured."));
    };
    let time = duration(timing.median_ns);
    Some(Headline::new(
        if timing.clock == TimingClock::CpuReference {
            format!("{name}: the reference on the CPU takes {time}; no GPU was measured")
        } else {
            format!("{name} takes {time}")
        },
        format!(
            "Median of {} samples, 95 % interval {} to {}.{}",
            timing.samples,
            duration(timing.ci95_ns[0]),
            duration(timing.ci95_ns[1]),
            match &profile.bound[..] {
                [share] => format!(" It reaches {}.", share_text(share)),
                _ => String::new(),
            }
        ),
    ))
}

fn rest(profile: &Profile) -> Headline {
    let right = profile.correctness.as_ref().filter(|c| c.verdict == CheckVerdict::Right);
    if let Some(c) = right.filter(|_| profile.regions.is_empty()) {
        let text = format!("{} values compared. Nothing was timed.", c.checked);
        return Headline::new("Right results", text);
    }
    if !profile.code.is_empty() {
        let n = profile.code.len();
        let s = if n == 1 { "" } else { "s" };
        return Headline::new(
            format!("{n} compiled kernel{s}"),
            "Nothing was run: this describes the compiled code only.",
        );
    }
    let without_gpu = profile.gaps.iter().find(|gap| gap.code == "no_gpu_rows");
    let without_gpu = without_gpu.map(|gap| gap.text.as_str());
    if !profile.regions.is_empty() {
        let n = profile.regions.len();
        let s = if n == 1 { "" } else { "s" };
        return if profile.copies.is_empty() {
            let title = format!("{n} region{s}, and no work on a GPU");
            Headline::new(title, without_gpu.unwrap_or("Only host times are known."))
        } else {
            let title = format!("{n} region{s}, and no kernel on a GPU");
            Headline::new(title, "The GPU only copied and filled memory.")
        };
    }
    if let Some(why) = without_gpu {
        return Headline::new("No work on a GPU", why);
    }
    let why = profile.gaps.first().map_or("Nothing was measured.", |gap| gap.text.as_str());
    Headline::new("No measurements", why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelNames;

    #[test]
    fn a_verdict_makes_a_sentence() {
        assert_eq!(predicate("divergence"), "is bound by divergence");
        assert_eq!(predicate("memory_bound"), "is memory bound");
        assert_eq!(predicate("small_grid"), "is bound by a small grid");
        assert_eq!(predicate("bank_conflicts"), "is bound by bank conflicts");
    }

    #[test]
    fn a_time_of_the_reference_is_never_the_kernels() {
        use rgpu_model::profile::{CaseResult, Timing};
        let timing =
            Timing { clock: TimingClock::CpuReference, median_ns: 2e6, ..Timing::default() };
        let timed = CaseResult { timing: Some(timing), ..CaseResult::default() };
        let mut profile =
            Profile { cases: vec![CaseResult::default(), timed], ..Profile::default() };
        profile.kernel.name = "k".to_owned();
        // The first case has none where its reference is a kernel of its own.
        let head = headline(&(&profile).into(), &KernelNames::Short.labels(&profile));
        assert_eq!(head.title, "k: only its reference was timed, on the CPU");
        profile.timing = profile.cases[1].timing.clone();
        let head = headline(&(&profile).into(), &KernelNames::Short.labels(&profile));
        assert_eq!(head.title, "k: the reference on the CPU takes 2.00 ms; no GPU was measured");
    }

    #[test]
    fn the_headline_names_the_launch_that_it_speaks_of() {
        let launch = |id, ns| {
            let metric = rgpu_model::Metric {
                value: rgpu_model::Value::Int(1),
                unit: "".into(),
                from: "".into(),
            };
            Launch {
                id,
                kernel: format!("k{id}"),
                duration_ns: Some(ns),
                metrics: [("m".into(), metric)].into(),
                classification: Some(Classification {
                    primary: "divergence".to_owned(),
                    ..Classification::default()
                }),
                ..Launch::default()
            }
        };
        let profile =
            Profile { launches: vec![launch(0, 1.0), launch(1, 2.0)], ..Profile::default() };
        let head = headline(&(&profile).into(), &KernelNames::Short.labels(&profile));
        assert_eq!((head.title.as_str(), head.launch), ("k1 is bound by divergence", Some(1)));

        // Idle time is worth more than what its longest kernel is bound by.
        let idle = rgpu_model::Finding {
            text: "for 90 % of 1.00 s the GPU runs no kernel".to_owned(),
            places: vec![rgpu_model::timeline::IdleGroup::default()],
            ..rgpu_model::Finding::default()
        };
        let kernel = rgpu_model::timeline::KernelSum {
            kernel: "k1".to_owned(),
            ..rgpu_model::timeline::KernelSum::default()
        };
        let profile = Profile { findings: vec![idle], kernels: vec![kernel], ..profile };
        let head = headline(&(&profile).into(), &KernelNames::Short.labels(&profile));
        assert_eq!(head.text, "For 90 % of 1.00 s the GPU runs no kernel.");
        assert_eq!(head.launch, None);
    }

    #[test]
    fn the_limit_of_a_kernel_of_the_set_up_is_no_headline() {
        use rgpu_model::timeline::KernelSum;
        let metric = rgpu_model::Metric {
            value: rgpu_model::Value::Int(1),
            unit: "".into(),
            from: "".into(),
        };
        let launch = Launch {
            kernel: "random".to_owned(),
            metrics: [("m".into(), metric)].into(),
            classification: Some(Classification {
                primary: "compute_bound".to_owned(),
                ..Classification::default()
            }),
            ..Launch::default()
        };
        let kernels = ["random", "scale"]
            .map(|kernel| KernelSum { kernel: kernel.to_owned(), ..KernelSum::default() });
        let set_up = rgpu_model::Finding {
            id: "only_set_up".to_owned(),
            text: "72 % of the GPU time goes into making random numbers".to_owned(),
            ..rgpu_model::Finding::default()
        };
        let profile = Profile {
            launches: vec![launch],
            kernels: kernels.to_vec(),
            findings: vec![set_up],
            ..Profile::default()
        };
        let head = headline(&(&profile).into(), &KernelNames::Short.labels(&profile));
        assert_eq!(head.title, "Mostly set-up was profiled");
        assert_eq!(head.text, "72 % of the GPU time goes into making random numbers.");
    }

    #[test]
    fn a_run_that_only_checks_is_no_compiled_code() {
        use rgpu_model::profile::Correctness;
        let right =
            Correctness { verdict: CheckVerdict::Right, checked: 3, ..Correctness::default() };
        let mut profile = Profile { code: vec![Default::default()], ..Profile::default() };
        assert_eq!(rest(&profile).title, "1 compiled kernel");
        profile.correctness = Some(right);
        let head = rest(&profile);
        assert_eq!(head.title, "Right results");
        assert_eq!(head.text, "3 values compared. Nothing was timed.");
    }

    #[test]
    fn one_region_is_no_plural() {
        let profile =
            |many| Profile { regions: vec![Default::default(); many], ..Profile::default() };
        assert_eq!(rest(&profile(1)).title, "1 region, and no work on a GPU");
        assert_eq!(rest(&profile(2)).title, "2 regions, and no work on a GPU");
    }
}
