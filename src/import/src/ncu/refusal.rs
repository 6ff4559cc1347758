//! Reasons to refuse a report that is not what its rung should deliver.

use super::RequestedCounters;
use super::metrics::AbsentMetrics;
use crate::RejectedReport;
use rgpu_model::{Launch, Value};

/// Metrics that need no hardware counter: they have values even where access to counters is denied.
/// So do peak values, which ncu knows from the chip.
const WITHOUT_COUNTERS: &[&str] = &[
    "launch__",
    "device__attribute_",
    "profiler__",
    "nvlink__",
    "numa__",
    "derived_",
    "c2clink__",
];

pub(super) fn judge(
    launches: &[Launch],
    absent: &AbsentMetrics,
    requested: &RequestedCounters<'_>,
    command_line: &str,
) -> Vec<RejectedReport> {
    if launches.is_empty() {
        let text =
            format!("the report has no result: ncu profiled no launch. {}", why(command_line));
        return vec![RejectedReport { code: "empty_report", text, metrics: Vec::new() }];
    }
    let named = launches.iter().any(|launch| !launch.metrics.is_empty());
    if !named && absent.no_value.is_empty() && absent.not_finite.is_empty() {
        let text = format!("the report has {} results and no metric", launches.len());
        return vec![RejectedReport { code: "empty_report", text, metrics: Vec::new() }];
    }
    let mut refusals = Vec::new();
    refusals.extend(nan_counters(launches, absent));
    refusals.extend(unknown_metrics(launches, absent, requested));
    refusals
}

/// Why ncu may have profiled nothing, from its own command line.
fn why(command_line: &str) -> String {
    const FILTERS: &[&str] = &[
        "-k",
        "--kernel-name",
        "--kernel-id",
        "--launch-skip",
        "-s",
        "--nvtx-include",
        "--nvtx-exclude",
        "--range-filter",
        "--devices",
    ];
    let words = command_line.split_whitespace();
    let mut words = words.map(|word| word.split_once('=').map_or(word, |(name, _)| name));
    match words.rfind(|word| FILTERS.contains(word)) {
        Some(filter) => format!(
            "Its command line has `{filter}`: no launch may have matched it, or the program \
             launched none"
        ),
        None => {
            "The program may have launched no kernel, have ended before, or have launched them \
                 in a child process (`--target-processes all` follows it)"
                .to_owned()
        }
    }
}

/// Refuses a report in which counters were collected and none has a number. Seen after a kernel
/// that crashed, and reported for virtualised GPUs. A clock that shows no cycles is the same fault.
fn nan_counters(launches: &[Launch], absent: &AbsentMetrics) -> Option<RejectedReport> {
    let counter = |name: &str| {
        !WITHOUT_COUNTERS.iter().any(|prefix| name.starts_with(prefix))
            && !name.ends_with(".peak_sustained")
            && !name.contains("__maximum_")
    };
    let numbers = launches.iter().flat_map(|launch| &launch.metrics);
    let numbers =
        numbers.filter(|(name, metric)| counter(name) && !matches!(metric.value, Value::Text(_)));
    let (mut count, mut clocks, mut ticking) = (0, 0, 0);
    for (name, metric) in numbers {
        count += 1;
        if name.contains("__cycles_elapsed.") || name.starts_with("gpu__time_duration") {
            clocks += 1;
            ticking += usize::from(metric.value.as_f64().is_some_and(|value| value > 0.0));
        }
        // Nothing that follows can change the answer.
        if ticking > 0 {
            return None;
        }
    }
    let lost = absent.not_finite.iter().chain(&absent.no_value).filter(|name| counter(name));
    let lost = lost.count();
    let text = if count == 0 && lost > 0 {
        format!("none of the {lost} counters in the report has a number")
    } else if clocks > 0 && ticking == 0 {
        "every clock in the report is 0".to_owned()
    } else {
        return None;
    };
    Some(RejectedReport { code: "nan_counters", text, metrics: Vec::new() })
}

fn unknown_metrics(
    launches: &[Launch],
    absent: &AbsentMetrics,
    requested: &RequestedCounters<'_>,
) -> Option<RejectedReport> {
    let plain = requested.metrics.iter().filter(|name| !name.contains([':', '*']));
    let metrics: Vec<_> = plain.filter(|name| !answered(launches, absent, name)).cloned().collect();
    if metrics.is_empty() {
        return None;
    }
    let text = format!("the report has no values for `{}`", metrics.join("`, `"));
    Some(RejectedReport { code: "unknown_metric", text, metrics })
}

/// Whether the report contains a requested metric. A base name such as `dram__bytes` is satisfied
/// by `dram__bytes.sum`. A metric that ncu lists without a value counts too: ncu knows it, so
/// leaving it out would not help.
fn answered(launches: &[Launch], absent: &AbsentMetrics, requested: &str) -> bool {
    let is = |name: &str| {
        name.strip_prefix(requested).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    launches.iter().any(|launch| launch.metrics.keys().any(|name| is(name)))
        || absent.not_finite.iter().chain(&absent.no_value).any(|name| is(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(launches: &[Launch], absent: &AbsentMetrics, requested: &[&str]) -> Vec<&'static str> {
        let requested: Vec<_> = requested.iter().map(|name| (*name).to_owned()).collect();
        let refusals = judge(launches, absent, &RequestedCounters { metrics: &requested }, "");
        refusals.iter().map(|refusal| refusal.code).collect()
    }

    #[test]
    fn a_report_without_results_or_metrics_is_empty() {
        assert_eq!(codes(&[], &AbsentMetrics::default(), &[]), ["empty_report"]);
        assert_eq!(
            codes(&[Launch::from_numbers(&[])], &AbsentMetrics::default(), &[]),
            ["empty_report"]
        );
    }

    #[test]
    fn counters_without_any_number_are_refused_and_launch_facts_alone_are_not() {
        let facts = Launch::from_numbers(&[("launch__registers_per_thread", 16.0)]);
        assert!(codes(std::slice::from_ref(&facts), &AbsentMetrics::default(), &[]).is_empty());
        let mut absent = AbsentMetrics::default();
        absent.not_finite.insert("sm__throughput.avg.pct_of_peak_sustained_elapsed".to_owned());
        assert_eq!(codes(&[facts], &absent, &[]), ["nan_counters"]);
        let stopped =
            Launch::from_numbers(&[("sm__cycles_elapsed.max", 0.0), ("dram__bytes.sum", 1.0)]);
        assert_eq!(codes(&[stopped], &AbsentMetrics::default(), &[]), ["nan_counters"]);
        let one_lost = Launch::from_numbers(&[("sm__cycles_elapsed.max", 10.0)]);
        assert!(codes(&[one_lost], &absent, &[]).is_empty());
    }

    #[test]
    fn a_metric_asked_for_and_not_there_is_named() {
        let launches = [Launch::from_numbers(&[("dram__bytes.sum", 1.0)])];
        let requested = ["dram__bytes", "dram__byte", "regex:.*", "group:x"].map(str::to_owned);
        let refusals = judge(
            &launches,
            &AbsentMetrics::default(),
            &RequestedCounters { metrics: &requested },
            "",
        );
        assert_eq!(refusals.len(), 1);
        assert_eq!(refusals[0].metrics, ["dram__byte"]);
    }
}
