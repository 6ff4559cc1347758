//! Applies the rules to launches and ranks the verdicts on each.

use std::collections::HashSet;

use super::rule::{Conclusion, Confidence, RULES, Rule, VerdictRole};
use super::threshold::{Limits, Thresholds};
use super::{datasheet, device, ncu_estimate};
use rgpu_model::finding;
use rgpu_model::{Classification, Finding, Launch, Profile, Verdict};

/// The rules that hold for one launch, in the order of [`classify_with`].
pub(super) type Verdicts = Vec<(&'static Rule, Conclusion)>;

/// Classifies every launch of a profile, and returns the rules that hold for each. Of several
/// kernels, a launch that is as short as a launch takes is that first.
pub(super) fn classify_launches(profile: &mut Profile, thresholds: &Thresholds) -> Vec<Verdicts> {
    let device = device::find_device(profile);
    let sheet = device.name.as_deref().and_then(datasheet::peaks);
    let compute = device.compute.map(|(major, _)| major).or(sheet.map(|sheet| sheet.major));
    let names: HashSet<&str> = profile.launches.iter().map(|l| l.kernel.as_str()).collect();
    let several = names.len() > 1;
    let launches = profile.launches.iter_mut().map(|launch| {
        let major = device::major(launch).or(compute);
        let limits = Limits::new(thresholds, major).with_sms(sheet.map(|sheet| sheet.sms));
        let mut verdicts = verdicts(launch, &limits);
        if several {
            // Among other kernels, what is inside a launch as short as its overhead hardly counts.
            verdicts.sort_by_key(|(rule, _)| rule.id != LAUNCH_BOUND);
        }
        launch.classification = classification(&verdicts);
        verdicts
    });
    launches.collect()
}

/// The verdict on launches that are as short as a launch takes.
pub(super) const LAUNCH_BOUND: &str = "launch_bound";

/// Score from which a cause is ranked before the bounds. At this score, fixing the cause would save
/// a third of the time.
const MIN_DECIDING_CAUSE_SCORE: f64 = 0.33;

/// Classifies a launch by the built-in thresholds. See [`classify_with`].
pub fn classify(launch: &Launch) -> (Option<Classification>, Vec<Finding>) {
    let thresholds = Thresholds::default();
    classify_with(launch, &Limits::new(&thresholds, device::major(launch)))
}

/// Classifies a launch and returns its findings. The classification is `None` if no rule applies.
///
/// Deciding causes come first, then bounds, then the rest, each group by score; the first verdict
/// is the primary one. For example, `bank_conflicts` comes before `memory_bound` if the conflicts
/// keep memory busy.
pub fn classify_with(
    launch: &Launch,
    limits: &Limits<'_>,
) -> (Option<Classification>, Vec<Finding>) {
    let verdicts = verdicts(launch, limits);
    let findings = verdicts.iter().zip(1_u8..).map(|((rule, conclusion), priority)| Finding {
        id: rule.id.to_owned(),
        category: rule.category.to_owned(),
        priority,
        launch: Some(launch.id),
        text: conclusion.text.clone(),
        hint: conclusion.hint.clone(),
        evidence: conclusion.evidence.clone(),
        ..Finding::default()
    });
    (classification(&verdicts), findings.collect())
}

fn verdicts(launch: &Launch, limits: &Limits<'_>) -> Verdicts {
    let mut verdicts: Verdicts = RULES
        .iter()
        .filter_map(|rule| {
            let mut conclusion = (rule.apply)(launch, limits)?;
            conclusion.evidence.extend(ncu_estimate::of(launch, rule.id));
            Some((rule, conclusion))
        })
        .filter(|(_, conclusion)| conclusion.score.is_finite())
        .collect();
    verdicts.sort_by(|a, b| rank(a).cmp(&rank(b)).then(b.1.score.total_cmp(&a.1.score)));
    verdicts
}

fn classification(verdicts: &Verdicts) -> Option<Classification> {
    let verdicts: Vec<_> = verdicts.iter().map(verdict).collect();
    let primary = verdicts.first().map(|verdict| verdict.verdict.clone());
    primary.map(|primary| Classification { primary, verdicts })
}

/// Whether a verdict is a cause that fixing would save much of the time.
pub(super) fn decides((rule, conclusion): &(&Rule, Conclusion)) -> bool {
    rule.kind == VerdictRole::Cause && conclusion.score >= MIN_DECIDING_CAUSE_SCORE
}

fn rank(verdict: &(&Rule, Conclusion)) -> u8 {
    match verdict.0.kind {
        VerdictRole::Cause if decides(verdict) => 0,
        VerdictRole::Bound => 1,
        VerdictRole::Cause | VerdictRole::Symptom => 2,
    }
}

fn verdict((rule, conclusion): &(&Rule, Conclusion)) -> Verdict {
    let confidence = match conclusion.confidence {
        Confidence::High => finding::Confidence::High,
        Confidence::Medium => finding::Confidence::Medium,
        Confidence::Low => finding::Confidence::Low,
    };
    Verdict {
        verdict: rule.id.to_owned(),
        // Two digits, since the rules are not more precise than that.
        score: (conclusion.score.clamp(0.0, 1.0) * 100.0).round() / 100.0,
        confidence,
        text: conclusion.text.clone(),
        evidence: conclusion.evidence.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze;
    use rgpu_model::launch::StallReason;

    fn launch(metrics: &[(&str, f64)]) -> Launch {
        Launch { grid: [1, 1, 1], ..Launch::from_numbers(metrics) }
    }

    fn verdicts(launch: &Launch) -> Vec<String> {
        let found = classify(launch).0.unwrap_or_default().verdicts;
        found.into_iter().map(|verdict| verdict.verdict).collect()
    }

    const SM: &str = "sm__throughput.avg.pct_of_peak_sustained_elapsed";
    const MEMORY: &str = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed";

    #[test]
    fn a_streaming_kernel_is_memory_bound_at_dram() {
        let launch = launch(&[
            (SM, 41.4),
            (MEMORY, 65.9),
            ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 65.9),
            ("lts__throughput.avg.pct_of_peak_sustained_elapsed", 44.0),
        ]);
        let (classification, findings) = classify(&launch);
        assert_eq!(classification.map(|c| c.primary).as_deref(), Some("memory_bound"));
        assert_eq!(findings[0].text, "memory runs at 66 % of its peak, DRAM at 66 %");
        assert_eq!(findings[0].evidence[0].source, "ncu SOLBottleneck");
    }

    #[test]
    fn balanced_throughputs_hold_both_verdicts_and_low_ones_mean_latency() {
        assert_eq!(
            verdicts(&launch(&[(SM, 85.0), (MEMORY, 80.0)])),
            ["compute_bound", "memory_bound"]
        );
        assert_eq!(verdicts(&launch(&[(SM, 85.0), (MEMORY, 70.0)])), ["compute_bound"]);
        assert_eq!(verdicts(&launch(&[(SM, 30.0), (MEMORY, 20.0)])), ["latency_bound"]);
    }

    #[test]
    fn a_cause_that_decides_comes_before_the_bound_it_leads_to() {
        let conflicts = |ideal| {
            launch(&[
                (SM, 20.0),
                (MEMORY, 90.0),
                ("l1tex__throughput.avg.pct_of_peak_sustained_active", 90.0),
                ("memory_l1_wavefronts_shared", 1000.0),
                ("memory_l1_wavefronts_shared_ideal", ideal),
            ])
        };
        assert_eq!(verdicts(&conflicts(100.0)), ["bank_conflicts", "memory_bound"]);
        assert_eq!(verdicts(&conflicts(800.0)), ["memory_bound", "bank_conflicts"]);
        assert_eq!(verdicts(&conflicts(950.0)), ["memory_bound"]);
    }

    #[test]
    fn an_empty_gpu_is_a_small_grid_and_not_latency() {
        let waves = "launch__waves_per_multiprocessor";
        assert_eq!(verdicts(&launch(&[(SM, 3.0), (MEMORY, 2.0), (waves, 0.1)])), ["small_grid"]);
        assert_eq!(verdicts(&launch(&[(waves, 1.25)])), ["tail"]);
        assert!(verdicts(&launch(&[(waves, 7.25)])).is_empty());
    }

    #[test]
    fn occupancy_names_its_limiter() {
        let launch = launch(&[
            (SM, 10.0),
            (MEMORY, 10.0),
            ("sm__maximum_warps_per_active_cycle_pct", 25.0),
            ("launch__occupancy_limit_registers", 2.0),
            ("launch__occupancy_limit_warps", 8.0),
        ]);
        let finding = classify(&launch).1.into_iter().find(|f| f.id == "occupancy_limited");
        let text = finding.map(|finding| finding.text).unwrap_or_default();
        assert_eq!(text, "theoretical occupancy is 25 %, limited by registers to 2 blocks per SM");
    }

    #[test]
    fn constants_moved_through_the_tensor_pipe_are_no_matrix_products() {
        let of = |busy: f64, operations: Option<f64>| {
            let mut metrics = vec![
                ("device__attribute_compute_capability_major", 9.0),
                ("device__attribute_compute_capability_minor", 0.0),
                ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", busy),
                ("sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active", busy),
                ("sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active", 0.0),
                ("sm__inst_executed_pipe_tma.avg.pct_of_peak_sustained_active", 0.0),
                ("sm__ops_path_tensor_src_fp16_dst_fp32.sum.peak_sustained", 540672.0),
            ];
            metrics.extend(operations.map(|n| ("sm__ops_path_tensor_src_fp16_dst_fp32.sum", n)));
            let mut found = verdicts(&launch(&metrics));
            found.sort_unstable();
            found
        };
        let all = ["legacy_mma", "low_tensor_use", "no_tma"];
        assert!(of(2.99, Some(0.0)).is_empty());
        assert_eq!(of(2.99, Some(1e9)), all);
        assert!(of(2.99, None).is_empty());
        assert_eq!(of(12.0, None), all);
    }

    #[test]
    fn shared_memory_is_not_blamed_where_the_block_has_none() {
        let of = |shared_limit: f64| {
            let mut launch = launch(&[
                ("sm__maximum_warps_per_active_cycle_pct", 50.0),
                ("launch__occupancy_limit_blocks", 32.0),
                ("launch__occupancy_limit_barriers", 32.0),
                ("launch__occupancy_limit_shared_mem", shared_limit),
                ("launch__occupancy_limit_registers", 128.0),
            ]);
            launch.shared_bytes = Some(0);
            classify(&launch).1.into_iter().find(|f| f.id == "occupancy_limited").unwrap()
        };
        let tie = of(32.0);
        assert!(
            tie.text.ends_with("limited by the number of blocks to 32 blocks per SM"),
            "{}",
            tie.text
        );
        assert_eq!(tie.hint, "choose larger blocks");
        let driver = of(16.0).hint;
        assert!(driver.contains("Carveout") && !driver.contains("less shared"), "{driver}");
    }

    #[test]
    fn a_kernel_with_long_launches_too_is_short_in_some_of_them() {
        let mut profile = Profile::default();
        for (id, blocks, duration) in [(0, 1, 1300.0), (1, 1, 1200.0), (2, 9, 20e3)] {
            let grid = [blocks, 1, 1];
            let duration_ns = Some(duration);
            profile.launches.push(Launch { id, grid, duration_ns, ..launch(&[]) });
        }
        analyze(&mut profile);
        assert_eq!(
            profile.findings[0].text,
            "in 2 of its 3 launches the kernel runs for 1.3 µs, about as long as a launch takes"
        );
    }

    #[test]
    fn a_dominant_stall_says_what_is_waited_for() {
        let mut launch = launch(&[("smsp__issue_active.avg.per_cycle_active", 0.17)]);
        let stall = |reason: &str, percent| StallReason {
            reason: reason.to_owned(),
            percent: Some(percent),
            samples: None,
        };
        launch.stalls = vec![stall("not_selected", 50.0), stall("long_scoreboard", 40.0)];
        let findings = classify(&launch).1;
        assert!(findings[0].text.contains("memory (L1, L2 or DRAM)"), "{}", findings[0].text);
    }

    #[test]
    fn a_launch_without_metrics_has_no_classification() {
        assert_eq!(classify(&launch(&[])), (None, Vec::new()));
    }

    #[test]
    fn repeated_launches_are_classified_each_and_told_once() {
        let mut profile = Profile::default();
        for (id, duration) in [(0, 10e3), (1, 30e3), (2, 20e3)] {
            let mut launch = launch(&[(SM, 90.0), (MEMORY, 10.0)]);
            (launch.id, launch.duration_ns) = (id, Some(duration));
            profile.launches.push(launch);
        }
        analyze(&mut profile);
        assert!(profile.launches.iter().all(|launch| launch.classification.is_some()));
        assert_eq!(profile.findings.iter().map(|f| f.launch).collect::<Vec<_>>(), [Some(1)]);
    }
}
