//! The one-sentence summary of a comparison: how the time changed, with numbers, and why.

use super::time::{SMALL_SHARE, SharedTime, common};
use rgpu_model::comparison::{
    CaseChange, Difference, KernelChange, MetricChange, SideTime, TimeChange, TimeVerdict,
};
use rgpu_model::comparison::{ChangeEffect, TimeSource};

/// The maximum number of reasons in the sentence.
const MAX_REASONS: usize = 3;
/// The smallest rank of a change that counts as a reason.
const MIN_REASON_RANK: f64 = 0.05;

/// The input of the sentence.
pub(super) struct SentenceInput<'a> {
    /// The sides as the user named them.
    pub(super) names: [&'a str; 2],
    pub(super) time: Option<&'a TimeChange>,
    pub(super) verdict: TimeVerdict,
    pub(super) threshold: f64,
    pub(super) cases: &'a [CaseChange],
    pub(super) kernels: &'a [KernelChange],
    pub(super) differences: &'a [Difference],
    /// Why no time can be compared.
    pub(super) no_time: Option<&'a str>,
    /// Which launches both sides share.
    pub(super) shared: &'a SharedTime,
}

/// Longer names, such as paths, stand in the table of the sides alone.
const MAX_NAME_CHARS: usize = 40;

/// The names of the sides for texts: "the first" and "the second" if both have the same name, `a`
/// and `b`, as in the table of the sides, if one is long.
pub(super) fn side_names([a, b]: [&str; 2]) -> [String; 2] {
    let is_long = |name: &str| name.chars().count() > MAX_NAME_CHARS;
    if is_long(a) || is_long(b) {
        ["a".to_owned(), "b".to_owned()]
    } else if a == b {
        ["the first".to_owned(), "the second".to_owned()]
    } else {
        [format!("`{a}`"), format!("`{b}`")]
    }
}

/// The sentence that sums up a comparison.
pub(super) fn summary(input: &SentenceInput<'_>) -> String {
    let SentenceInput { time, verdict, threshold, .. } = input;
    let within = format!("{} %", number(threshold * 100.0));
    let [a, b] = side_names(input.names);
    let per = if input.shared.per_launch { " per launch" } else { "" };
    let mut text = match (verdict, time) {
        (TimeVerdict::Faster, Some(t)) => {
            format!("{b} is {} times as fast as {a}{per}{}", factor(t.speedup), interval(t.ci95))
        }
        (TimeVerdict::Slower, Some(t)) => {
            let inverse = t.ci95.map(|[low, high]| [1.0 / high, 1.0 / low]);
            format!(
                "{b} is {} times as slow as {a}{per}{}",
                factor(1.0 / t.speedup),
                interval(inverse)
            )
        }
        (TimeVerdict::Same, Some(t)) => {
            format!(
                "{a} and {b} take the same time{per} within {within}: speedup {}{}",
                factor(t.speedup),
                interval(t.ci95)
            )
        }
        (TimeVerdict::Ambiguous, Some(t)) if t.ci95.is_some() => {
            let why = if input.cases.iter().any(|c| c.time.verdict == TimeVerdict::Faster)
                && input.cases.iter().any(|c| c.time.verdict == TimeVerdict::Slower)
            {
                "some cases are faster, some slower".to_owned()
            } else {
                format!("the interval crosses the threshold of {within}")
            };
            format!("undecided: speedup {}{}, {why}", factor(t.speedup), interval(t.ci95))
        }
        (_, Some(t)) => format!(
            "undecided: {}; {}{b} took {} of the time of {a}{per}",
            no_interval(input, t),
            if input.shared.too_little.is_some() { "in the kernels of both sides " } else { "" },
            percent(1.0 / t.speedup)
        ),
        (_, None) => {
            format!("undecided: {}", input.no_time.unwrap_or("no time is known for both sides"))
        }
    };
    let mut tells_kernels = false;
    if let [only] = input.kernels
        && let Some(other) = &only.kernel_b
        && time.is_none_or(|t| t.source == TimeSource::Launches)
    {
        tells_kernels = true;
        text =
            format!("the compared kernels `{}` and `{other}` are different: {text}", only.kernel);
    }
    let reasons = reasons(input);
    if !reasons.is_empty() {
        text += &format!(": {}", reasons.join("; "));
    }
    let unlike = input.differences.iter().map(|difference| difference.what.as_str());
    // The beginning of the sentence names the kernels.
    let unlike: Vec<&str> = unlike.filter(|what| !tells_kernels || *what != "kernel").collect();
    if !unlike.is_empty() {
        text += &format!(" (compared with `--force` although these differ: {})", unlike.join(", "));
    }
    text
}

/// Why a time has no interval. Of several kernels, names a relevant one with too few launches.
fn no_interval(input: &SentenceInput<'_>, all: &TimeChange) -> String {
    if let Some(text) = &input.shared.too_little {
        return text.clone();
    }
    if !input.cases.is_empty() {
        return few("", all.a.samples, all.b.samples);
    }
    let matters = |kernel: &&KernelChange| {
        kernel.time.as_ref().is_some_and(|t| {
            let share = |one: &SideTime, all: &SideTime| {
                one.ci95_ns.is_none() && common(t) * one.median_ns > SMALL_SHARE * all.median_ns
            };
            share(&t.a, &all.a) || share(&t.b, &all.b)
        })
    };
    match input.kernels {
        [] | [_] => few("", all.a.samples, all.b.samples),
        kernels => match kernels.iter().find(matters).and_then(|k| Some((k, k.time.as_ref()?))) {
            Some((kernel, t)) => few(&format!(" of `{}`", kernel.kernel), t.a.samples, t.b.samples),
            None => few("", all.a.samples, all.b.samples),
        },
    }
}

fn few(of: &str, a: u64, b: u64) -> String {
    format!("not enough launches{of} for an interval: {a} and {b}, at least 5 each are needed")
}

/// The changes of the longest kernel that explain the verdict.
fn reasons(input: &SentenceInput<'_>) -> Vec<String> {
    let Some(kernel) = input.kernels.first() else { return Vec::new() };
    let speedup = input.time.or(kernel.time.as_ref()).map_or(1.0, |t| t.speedup);
    let expected_change = match input.verdict {
        TimeVerdict::Faster => ChangeEffect::Better,
        TimeVerdict::Slower => ChangeEffect::Worse,
        TimeVerdict::Same => return Vec::new(),
        TimeVerdict::Ambiguous if speedup > 1.0 + input.threshold => ChangeEffect::Better,
        TimeVerdict::Ambiguous if speedup * (1.0 + input.threshold) < 1.0 => ChangeEffect::Worse,
        TimeVerdict::Ambiguous => return Vec::new(),
    };
    let fitting =
        kernel.metrics.iter().filter(|m| m.change == expected_change && m.rank >= MIN_REASON_RANK);
    fitting.take(MAX_REASONS).map(phrase).collect()
}

/// One change in words: `shared-memory load bank conflicts 33-way → none`.
pub fn phrase(change: &MetricChange) -> String {
    let MetricChange { label, a, b, unit, .. } = change;
    match unit.as_str() {
        "way" => {
            let ways = |x: f64| if x < 1.5 { "none".to_owned() } else { format!("{x:.0}-way") };
            format!("{label} {} → {}", ways(*a), ways(*b))
        }
        "%" => format!("{label} {a:.0} % → {b:.0} %"),
        _ if *b == 0.0 => format!("{label} gone"),
        _ if *a == 0.0 => format!("{label} from none to {}", number(*b)),
        _ if b / a > 4.0 => format!("{label} ×{}", number(b / a)),
        _ => format!("{label} {}", relative(*a, *b)),
    }
}

/// `−94 %`, `+3.1 %`.
fn relative(a: f64, b: f64) -> String {
    let change = (b - a) / a * 100.0;
    let sign = if change < 0.0 { "−" } else { "+" };
    format!("{sign}{} %", number(change.abs()))
}

fn interval(ci: Option<[f64; 2]>) -> String {
    ci.map_or(String::new(), |[low, high]| {
        format!(" (95 % interval {} to {})", factor(low), factor(high))
    })
}

fn factor(x: f64) -> String {
    if x < 0.1 { format!("{x:.4}") } else { format!("{x:.3}") }
}

/// A share as percent.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

/// Two or three digits, without an exponent.
fn number(x: f64) -> String {
    match x.abs() {
        x if x >= 10.0 => format!("{x:.0}"),
        x if x >= 1.0 => format!("{x:.1}").trim_end_matches(".0").to_owned(),
        x => format!("{x:.2}").trim_end_matches('0').trim_end_matches('.').to_owned(),
    }
}
