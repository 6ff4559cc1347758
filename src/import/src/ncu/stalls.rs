//! Warp stall reasons, from exact counters and from samples.

use std::collections::BTreeMap;

use rgpu_model::Launch;
use rgpu_model::launch::StallReason;
use rgpu_model::profile::Gap;

const EXACT: (&str, &str) = ("smsp__average_warps_issue_stalled_", "_per_issue_active.ratio");
const SAMPLED: &str = "smsp__pcsamp_warps_issue_stalled_";
const SAMPLES: &str = "smsp__pcsamp_sample_count";
/// Largest sum of the reasons as a part of the latency; with a larger one the passes disagree.
const MAX_SUM: f64 = 1.1;
const LATENCY: &str = "smsp__average_warp_latency_per_inst_issued.ratio";

/// Fills in the launch's stalls, largest first. `selected` counts warps that issued: it is part of
/// the sums, but not a stall.
///
/// Returns a gap if the reasons do not sum to the number of samples, because a reason is unknown to
/// rgpu, or if there are too few instructions for shares.
pub(crate) fn import(launch: &mut Launch) -> Option<Gap> {
    let mut exact = BTreeMap::new();
    let mut sampled = BTreeMap::new();
    for (name, metric) in &launch.metrics {
        let Some(value) = metric.value.as_f64() else { continue };
        let rest = name.strip_prefix(EXACT.0).and_then(|rest| rest.strip_suffix(EXACT.1));
        if let Some(reason) = rest {
            exact.insert(reason_name(reason), value);
        } else if let Some(reason) = name.strip_prefix(SAMPLED)
            && !reason.ends_with("_not_issued")
        {
            sampled.insert(reason_name(reason), value as u64);
        }
    }
    let sum: f64 = exact.values().sum();
    // ncu measures the reasons and the latency in different passes. With few instructions the
    // passes differ, and shares above 100 % mean nothing.
    let latency = launch.number(LATENCY).unwrap_or(sum);
    let too_few = sum > latency * MAX_SUM;
    let mut stalls: Vec<_> = exact
        .keys()
        .chain(sampled.keys())
        .filter(|reason| **reason != "selected")
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .map(|reason| StallReason {
            reason: (*reason).to_owned(),
            percent: exact
                .get(reason)
                .filter(|_| latency > 0.0 && !too_few)
                .map(|x| x / latency * 100.0),
            samples: sampled.get(reason).copied(),
        })
        .collect();
    stalls.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    let samples: u64 = sampled.values().sum();
    let expected = launch.number(SAMPLES).map(|count| count as u64);
    launch.stalls = stalls;
    let wrong = !sampled.is_empty() && expected.is_some_and(|expected| expected != samples);
    if too_few && !wrong {
        let text = format!(
            "launch {}: it executes too few instructions for shares of its stall reasons, which \
             would sum to {:.0} %",
            launch.id,
            100.0 * sum / latency
        );
        return Some(Gap { code: "few_instructions".to_owned(), text });
    }
    wrong.then(|| Gap {
        code: "stall_samples".to_owned(),
        text: format!(
            "launch {}: the stall reasons sum to {samples} samples, but `{SAMPLES}` is {}",
            launch.id,
            expected.unwrap_or_default()
        ),
    })
}

/// The reason's name among the counters. Two reasons have a different name among the samples.
pub(crate) fn reason_name(name: &str) -> &str {
    match name {
        "no_instructions" => "no_instruction",
        "warpgroup_arrive" => "gmma",
        other => other,
    }
}

fn weight(stall: &StallReason) -> f64 {
    stall.percent.unwrap_or_else(|| stall.samples.unwrap_or_default() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::Value;

    fn launch(metrics: &[(&str, Value)]) -> Launch {
        let metrics = metrics.iter().map(|(name, value)| ((*name).into(), value.clone().into()));
        Launch { metrics: metrics.collect(), ..Launch::default() }
    }

    #[test]
    fn exact_and_sampled_reasons_are_joined_and_ordered() {
        let mut launch = launch(&[
            ("smsp__average_warp_latency_per_inst_issued.ratio", Value::Float(20.0)),
            ("smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", Value::Float(4.0)),
            ("smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio", Value::Float(15.0)),
            (
                "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio",
                Value::Float(1.0),
            ),
            ("smsp__pcsamp_warps_issue_stalled_barrier", Value::Int(20)),
            ("smsp__pcsamp_warps_issue_stalled_barrier_not_issued", Value::Int(19)),
            ("smsp__pcsamp_warps_issue_stalled_selected", Value::Int(5)),
            ("smsp__pcsamp_warps_issue_stalled_warpgroup_arrive", Value::Int(75)),
            ("smsp__pcsamp_sample_count", Value::Int(100)),
        ]);
        assert_eq!(import(&mut launch), None);
        let stall = |reason: &str, percent, samples| StallReason {
            reason: reason.to_owned(),
            percent: Some(percent),
            samples: Some(samples),
        };
        assert_eq!(launch.stalls, [stall("gmma", 75.0, 75), stall("barrier", 20.0, 20)]);
    }

    #[test]
    fn a_launch_of_few_instructions_has_no_shares_of_more_than_the_whole() {
        let mut launch = launch(&[
            ("smsp__average_warp_latency_per_inst_issued.ratio", Value::Float(20.0)),
            (
                "smsp__average_warps_issue_stalled_no_instruction_per_issue_active.ratio",
                Value::Float(58.0),
            ),
        ]);
        let gap = import(&mut launch).unwrap();
        assert_eq!(gap.code, "few_instructions");
        assert!(gap.text.contains("too few instructions") && gap.text.contains("290 %"));
        assert_eq!(launch.stalls[0].percent, None);
    }

    #[test]
    fn reasons_that_do_not_add_up_to_the_samples_are_a_gap() {
        let mut launch = launch(&[
            ("smsp__pcsamp_warps_issue_stalled_barrier", Value::Int(20)),
            ("smsp__pcsamp_sample_count", Value::Int(100)),
        ]);
        let gap = import(&mut launch).map(|gap| gap.code);
        assert_eq!(gap.as_deref(), Some("stall_samples"));
    }
}
