//! The texts of a finding that all reports share: what it is worth, what it covers, and where.

use std::borrow::Cow;

use super::busy;
use super::kernel_name::KernelLabels;
use super::phrase::short_place;
use super::quantity::{duration, duration_change, percent};
use super::text::{cut_middle, one_line};
use rgpu_model::finding::{GainKind, GainScope, PotentialGain};
use rgpu_model::timeline::{HostWork, IdleGroup};
use rgpu_model::{Finding, Profile};

/// The maximum number of kernels that a finding names in a text.
const MAX_KERNELS: usize = 4;

/// The name of the kernel that a finding is about, if it is about a single one and the profile
/// has others.
pub(super) fn kernel(finding: &Finding, names: &KernelLabels<'_>) -> Option<String> {
    let single = finding.covers.len() <= 1;
    finding.kernel.as_deref().filter(|_| single).map(|kernel| names.name(kernel))
}

/// What acting on a finding gives, as a predicate: `worth up to 1.55 s, 62 % of …`, or the time of a
/// step before and after its change. `None` if it is not about time.
pub fn gain(finding: &Finding, profile: &Profile) -> Option<String> {
    let text = worth(finding, profile)?;
    Some(if is_of_step(finding) { text } else { format!("worth {text}") })
}

/// What acting on a finding gives, for use after a colon: as [`gain`], without the word `worth`.
pub(super) fn worth(finding: &Finding, profile: &Profile) -> Option<String> {
    // What was profiled instead of the work has nothing to give back.
    let stake = finding.stake.as_ref().filter(|_| finding.id != "only_set_up")?;
    let text = match (&stake.kind, stake.step_ns) {
        (GainKind::Replayed, Some(step_ns)) => replayed(stake, step_ns),
        _ => bound(stake, profile),
    };
    let change = stake.change.as_deref().filter(|change| !change.is_empty());
    Some(change.map_or(text.clone(), |change| format!("{}: {text}", one_line(change))))
}

fn is_of_step(finding: &Finding) -> bool {
    finding.stake.as_ref().is_some_and(|stake| stake.of == GainScope::Step)
}

/// `a step 33.1 → 27.4 ms (26.9 to 28.6)`.
fn replayed(stake: &PotentialGain, step_ns: u64) -> String {
    let after = |ns: u64| step_ns.saturating_sub(ns);
    // What gives most leaves the shortest step.
    match stake.high_ns.zip(stake.low_ns) {
        Some(ends) => replayed_step(step_ns, after(stake.ns), [after(ends.0), after(ends.1)]),
        None => format!("a step {}", duration_change(step_ns, after(stake.ns), None)),
    }
}

/// A step before and after changes, with the interval of its time after them.
pub(super) fn replayed_step(before_ns: u64, after_ns: u64, interval_ns: [u64; 2]) -> String {
    format!("a step {}", duration_change(before_ns, after_ns, Some(interval_ns)))
}

/// `up to 1.55 s, 62 % of the time from the first kernel to the last`, or `1.2 s to 1.55 s, 62 % of
/// …` where a lower end is known. GPU time of several GPUs is a sum, and is called so: `50 % of the
/// GPU time of 4 GPUs`.
fn bound(stake: &PotentialGain, profile: &Profile) -> String {
    let whole = match (&stake.of, &stake.region, stake.step_ns, busy::several_gpus(profile)) {
        (GainScope::Step, _, Some(step_ns), _) => {
            format!("a step of {}", duration(step_ns as f64))
        }
        (GainScope::Region, Some(region), ..) => format!("`{region}`"),
        (GainScope::Kernel, _, _, Some(gpus)) => format!("{} of {gpus}", stake.of.words()),
        (of, ..) => of.words().to_owned(),
    };
    let share = match 100.0 * stake.share {
        share if share < 0.01 => "less than 0.01 %".to_owned(),
        // As in the text of the finding: it is not the whole.
        share if (99.0..99.95).contains(&share) => format!("{share:.1} %"),
        share => percent(share),
    };
    let from = match stake.low_ns {
        Some(low) if low > 0 && low < stake.ns => duration(low as f64),
        _ => "up".to_owned(),
    };
    format!("{from} to {}, {share} of {whole}", duration(stake.ns as f64))
}

/// The advice of finding `at`. Advice that an earlier finding gives is not said again:
/// `as for finding 3`.
pub(super) fn hint(findings: &[Finding], at: usize) -> Cow<'_, str> {
    let hint = &findings[at].hint;
    match findings[..at].iter().position(|earlier| earlier.hint == *hint) {
        Some(earlier) if !hint.is_empty() => Cow::Owned(format!("as for finding {}", earlier + 1)),
        _ => Cow::Borrowed(hint),
    }
}

/// The kernels that a finding covers, the ones with the most time at stake by name: `gelu f32 (12
/// launches, 48.4 µs), … and 3 more`. `None` for a single launch.
pub(super) fn covered(finding: &Finding, names: &KernelLabels<'_>) -> Option<String> {
    let covers = &finding.covers;
    if covers.iter().map(|covered| covered.launches).sum::<u64>() <= 1 {
        return None;
    }
    let said = covers.iter().take(MAX_KERNELS).map(|covered| {
        let name = names.name(&covered.kernel);
        let s = if covered.launches == 1 { "" } else { "es" };
        format!("{name} ({} launch{s}, {})", covered.launches, duration(covered.total_ns as f64))
    });
    let mut text = said.collect::<Vec<_>>().join(", ");
    match covers.len().saturating_sub(MAX_KERNELS) {
        0 => {}
        more => text += &format!(" and {more} more"),
    }
    Some(text)
}

/// Where in the user's own code it is: `train.py:68 in step (82 %), lib/model.py:6 in forward
/// (10 %)`. `None` if the recording does not tell.
pub fn code(finding: &Finding) -> Option<String> {
    let places = finding.code.iter().map(|place| {
        let mut text = cut_middle(&one_line(&place.file), MAX_FILE_COLUMNS);
        if let Some(line) = place.line {
            text += &format!(":{line}");
        }
        let function = place.function.as_deref().filter(|function| *function != "<module>");
        if let Some(function) = function {
            text += &format!(" in {}", cut_middle(&one_line(function), MAX_FUNCTION_COLUMNS));
        }
        let is_all = place.share >= ALL_OF_IT;
        if is_all { text } else { format!("{text} ({})", percent(100.0 * place.share)) }
    });
    let places: Vec<String> = places.collect();
    (!places.is_empty()).then(|| places.join(", "))
}

/// Columns of a file and of a function in a text.
const MAX_FILE_COLUMNS: usize = 60;
const MAX_FUNCTION_COLUMNS: usize = 44;

/// The part of a finding's time from which on a place is all of it.
const ALL_OF_IT: f64 = 0.95;

/// Where idle time is:
/// `757 ms in 127 gaps before cudnn sdpa in decode::step, the longest 56.9 ms at 2.25 s of the recording (cuLaunchKernelEx)`.
pub(super) fn idle_location_text(place: &IdleGroup, names: &KernelLabels<'_>) -> String {
    let mut text = duration(place.total_ns as f64);
    match place.gaps {
        0 | 1 => text += " in 1 gap",
        gaps => text += &format!(" in {gaps} gaps"),
    }
    // Of a single long gap the longest one tells.
    if let Some(long) = place.long_gaps.as_ref().filter(|long| long.gaps > 1) {
        let share = percent(100.0 * long.total_ns as f64 / place.total_ns.max(1) as f64);
        text += &format!(", {} of which hold {share} of it,", long.gaps);
    }
    // nsys has no names of the kernels in a graph that it traces as a whole.
    text += &match place.before.as_str() {
        "graph" if place.call.contains("GraphLaunch") => " before a CUDA graph".to_owned(),
        kernel => format!(" before {}", names.name(kernel)),
    };
    if let Some(region) = &place.region {
        text += &format!(" in `{}`", cut_middle(&super::region_rows::short_xla(region), 44));
    }
    // The GPU's span begins later, with its first kernel.
    let at = format!("{} of the recording", duration(place.longest_start_ns as f64));
    text += &match place.gaps {
        0 | 1 => format!(", at {at}"),
        _ => format!(", the longest {} at {at}", duration(place.longest_ns as f64)),
    };
    if !place.call.is_empty() {
        text += &format!(" ({})", place.call);
    }
    text + &place.host.as_ref().map(host_text).unwrap_or_default()
}

/// What the GPU waits for: `; the host is in aten::randn, called in data.py(9): load, for 590 ms`.
fn host_text(host: &HostWork) -> String {
    let operator = host.operator.as_deref().map(|name| cut_middle(&one_line(name), 44));
    let function = host.function.as_deref().map(|name| one_line(&short_place(name)));
    let what = match (operator, function) {
        (Some(operator), Some(function)) => format!("`{operator}`, called in `{function}`,"),
        (Some(name), None) | (None, Some(name)) => format!("`{name}`"),
        (None, None) => return String::new(),
    };
    format!("; the host is in {what} for {}", duration(host.total_ns as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_name::KernelNames;
    use rgpu_model::finding::{CodePlace, CoveredKernel};
    use rgpu_model::timeline::{DeviceTime, KernelSum, LongGaps, Timeline};

    #[test]
    fn a_finding_says_what_it_is_worth_what_it_covers_and_where() {
        let covered_kernel = |kernel: &str, launches| CoveredKernel {
            kernel: kernel.to_owned(),
            launches,
            total_ns: 48_400,
            ..CoveredKernel::default()
        };
        let profile = Profile::default();
        let names = KernelNames::Short.labels(&profile);
        let mut finding = Finding {
            kernel: Some("a".to_owned()),
            stake: Some(PotentialGain::bound(1_550_000_000, GainScope::Program, 0.62)),
            covers: vec![covered_kernel("a", 12)],
            ..Finding::default()
        };
        let text = |finding: &Finding| worth(finding, &profile).unwrap();
        assert_eq!(
            text(&finding),
            "up to 1.55 s, 62 % of the time from the first kernel to the last"
        );
        let mut whole = finding.clone();
        whole.stake.as_mut().unwrap().share = 0.9968;
        assert_eq!(
            text(&whole),
            "up to 1.55 s, 99.7 % of the time from the first kernel to the last"
        );
        whole.stake.as_mut().unwrap().of = GainScope::Kernel;
        assert_eq!(text(&whole), "up to 1.55 s, 99.7 % of the GPU time");
        let mut interval = whole.clone();
        let stake = interval.stake.as_mut().unwrap();
        (stake.low_ns, stake.high_ns) = (Some(1_200_000_000), Some(1_550_000_000));
        assert_eq!(text(&interval), "1.20 s to 1.55 s, 99.7 % of the GPU time");
        let gpu = DeviceTime { span_ns: 1, ..DeviceTime::default() };
        let timeline = Timeline { devices: vec![gpu.clone(), gpu], ..Timeline::default() };
        let two = Profile { timeline: Some(timeline), ..Profile::default() };
        let told = worth(&whole, &two).unwrap();
        assert_eq!(told, "up to 1.55 s, 99.7 % of the GPU time of 2 GPUs");
        assert_eq!(kernel(&finding, &names).as_deref(), Some("a"));
        assert_eq!(covered(&finding, &names).unwrap(), "a (12 launches, 48.4 µs)");
        finding.covers.extend(["b", "c", "d", "e", "f"].map(|name| covered_kernel(name, 1)));
        assert_eq!(kernel(&finding, &names), None, "it is about several kernels");
        let text = covered(&finding, &names).unwrap();
        assert!(text.ends_with("d (1 launch, 48.4 µs) and 2 more"), "{text}");
        let gaps = IdleGroup {
            region: Some("decode::step".to_owned()),
            before: "gemm".to_owned(),
            call: "cuLibraryLoadData".to_owned(),
            gaps: 127,
            total_ns: 757_000_000,
            longest_ns: 56_900_000,
            longest_start_ns: 2_250_000_000,
            ..IdleGroup::default()
        };
        assert_eq!(
            idle_location_text(&gaps, &names),
            "757 ms in 127 gaps before gemm in `decode::step`, the longest 56.9 ms at 2.25 s of the \
             recording (cuLibraryLoadData)"
        );
        let long_gaps = Some(LongGaps { gaps: 15, total_ns: 749_400_000 });
        let few = idle_location_text(&IdleGroup { long_gaps, ..gaps.clone() }, &names);
        assert!(
            few.starts_with("757 ms in 127 gaps, 15 of which hold 99 % of it, before gemm"),
            "{few}"
        );
        let told = |operator: Option<&str>, function: Option<&str>| {
            let [operator, function] = [operator, function].map(|text| text.map(str::to_owned));
            let host = Some(HostWork { operator, function, total_ns: 590_000_000 });
            let text = idle_location_text(&IdleGroup { host, ..gaps.clone() }, &names);
            text.split_once("; ").unwrap().1.to_owned()
        };
        assert_eq!(
            told(Some("aten::randn"), Some("/a/data.py(9): load")),
            "the host is in `aten::randn`, called in `data.py(9): load`, for 590 ms"
        );
        assert_eq!(
            told(None, Some("/a/train.py: <module>")),
            "the host is in `train.py` for 590 ms"
        );
        assert_eq!(told(Some("load\nbatch"), None), "the host is in `load batch` for 590 ms");
    }

    #[test]
    fn places_in_the_users_code_are_told_with_their_share() {
        let place = |file: &str, line, function: &str, share| CodePlace {
            file: file.to_owned(),
            line,
            function: Some(function.to_owned()),
            share,
        };
        let told = |code| code_of(code).unwrap_or_default();
        let code_of_all = vec![place("train.py", Some(68), "<module>", 0.99)];
        assert_eq!(told(code_of_all), "train.py:68");
        let two = vec![
            place("lib/model.py", Some(6), "for\nward", 0.62),
            place("hops", None, "record", 0.1),
        ];
        assert_eq!(told(two), "lib/model.py:6 in for ward (62 %), hops in record (10 %)");
        assert_eq!(code_of(Vec::new()), None);
    }

    fn code_of(code: Vec<CodePlace>) -> Option<String> {
        super::code(&Finding { code, ..Finding::default() })
    }

    #[test]
    fn a_replayed_change_says_what_a_step_takes_before_and_after() {
        let gain_of = |stake: PotentialGain| {
            let finding = Finding { stake: Some(stake), ..Finding::default() };
            gain(&finding, &Profile::default()).unwrap()
        };
        let mut stake = PotentialGain {
            ns: 5_700_000,
            low_ns: Some(4_500_000),
            high_ns: Some(6_200_000),
            share: 0.172,
            of: GainScope::Step,
            kind: GainKind::Replayed,
            step_ns: Some(33_100_000),
            ..PotentialGain::default()
        };
        assert_eq!(gain_of(stake.clone()), "a step 33.1 → 27.4 ms (26.9 to 28.6)");
        stake.change = Some("copy from pinned\nmemory".to_owned());
        let expected = "copy from pinned memory: a step 33.1 → 27.4 ms (26.9 to 28.6)";
        assert_eq!(gain_of(stake.clone()), expected);
        stake = PotentialGain { kind: GainKind::Bound, low_ns: None, change: None, ..stake };
        assert_eq!(gain_of(stake.clone()), "up to 5.70 ms, 17 % of a step of 33.1 ms");
        // More than a step cannot be given back, whatever the numbers say.
        stake = PotentialGain { kind: GainKind::Replayed, ns: u64::MAX, ..stake };
        assert_eq!(gain_of(stake), "a step 33.1 ms → 0 ns");
    }

    /// torch has two kernels for products of elements, which only a profile with both tells apart.
    #[test]
    fn a_finding_names_kernels_as_the_profiles_tables_do() {
        let functor = "at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>";
        let [strided, vectorized] =
            [("elementwise_kernel", "128"), ("vectorized_elementwise_kernel", "4")].map(
                |(kernel, size)| format!("void at::native::{kernel}<(int){size}, {functor}>(int)"),
            );
        let sum = |kernel: &str| KernelSum { kernel: kernel.to_owned(), ..KernelSum::default() };
        let profile =
            Profile { kernels: vec![sum(&strided), sum(&vectorized)], ..Profile::default() };
        let names = KernelNames::Short.labels(&profile);
        let finding = Finding {
            kernel: Some(strided.clone()),
            covers: vec![CoveredKernel {
                kernel: strided.clone(),
                launches: 2,
                total_ns: 2000,
                ..CoveredKernel::default()
            }],
            ..Finding::default()
        };
        assert_eq!(kernel(&finding, &names).unwrap(), "mul f32 strided");
        assert_eq!(covered(&finding, &names).unwrap(), "mul f32 strided (2 launches, 2.00 µs)");
        let gap = IdleGroup { before: vectorized, gaps: 1, ..IdleGroup::default() };
        assert!(idle_location_text(&gap, &names).contains("before mul f32 vectorized, at"));
        let graph = IdleGroup {
            before: "graph".to_owned(),
            call: "cuGraphLaunch".to_owned(),
            ..IdleGroup::default()
        };
        assert!(idle_location_text(&graph, &names).contains("before a CUDA graph, at"));
        assert_eq!(KernelNames::Full.labels(&profile).name(&strided), strided);
    }

    #[test]
    fn advice_is_given_once() {
        let finding = |hint: &str| Finding { hint: hint.to_owned(), ..Finding::default() };
        let findings = ["fuse", "", "fuse", "", "wait"].map(finding);
        let hints: Vec<_> = (0..findings.len()).map(|at| hint(&findings, at)).collect();
        assert_eq!(hints, ["fuse", "", "as for finding 1", "", "wait"]);
    }
}
