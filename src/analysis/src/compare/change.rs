//! Changes between two launches of one kernel: metrics ranked by importance, and resources.

use super::metric_weights::{
    BetterDirection, METRIC_WEIGHTS, NO_STALLS, NumberForm, OTHER_WEIGHT, STALL_PREFIX,
    STALL_SUFFIX, STALL_WEIGHT, metrics_of, values_of_both_sides,
};
use rgpu_model::comparison::ChangeEffect;
use rgpu_model::comparison::MetricChange;
use rgpu_model::{KernelCode, Launch, Profile, SharedText};

/// Smaller changes are not listed: relative, or in percentage points over 100.
const MIN_CHANGE: f64 = 0.01;
/// The same for metrics outside the table, of which there are hundreds.
const MIN_UNKNOWN_CHANGE: f64 = 0.10;
/// The maximum number of listed changes of metrics outside the table.
const MAX_UNKNOWN_CHANGES: usize = 20;
/// A change by this factor or more gets the full weight.
const FULL_FACTOR: f64 = 16.0;

/// The metrics that changed, most important first.
pub(super) fn metrics(a: &Launch, b: &Launch) -> Vec<MetricChange> {
    let mut known: Vec<&str> = Vec::new();
    let mut changes = Vec::new();
    for line in METRIC_WEIGHTS {
        let Some((id, x, y)) = values_of_both_sides(line.from, a, b) else { continue };
        known.extend(metrics_of(line.from));
        known.push(id);
        let Some(size) = size(x, y, line.form).filter(|size| *size >= MIN_CHANGE) else { continue };
        changes.push(MetricChange {
            metric: id.to_owned(),
            label: line.label.to_owned(),
            a: x,
            b: y,
            unit: unit(a, id, line.form),
            change: judged(line.better, x, y),
            rank: rounded(line.weight * weight_of(x, y, line.form, size)),
        });
    }
    changes.extend(stalls(a, b));
    changes.sort_by(|x, y| y.rank.total_cmp(&x.rank).then_with(|| x.metric.cmp(&y.metric)));
    let mut others: Vec<MetricChange> = a
        .metrics
        .keys()
        .filter(|id| !known.contains(&id.as_str()) && comparable(id))
        .filter_map(|id| {
            let (x, y) = (a.number(id)?, b.number(id)?);
            let form = NumberForm::Amount { floor: 1.0 };
            let size = size(x, y, form).filter(|size| *size >= MIN_UNKNOWN_CHANGE)?;
            Some(MetricChange {
                metric: id.to_string(),
                label: id.to_string(),
                a: x,
                b: y,
                unit: unit(a, id, form),
                change: judged(BetterDirection::Neither, x, y),
                rank: rounded(OTHER_WEIGHT * weight_of(x, y, form, size)),
            })
        })
        .collect();
    others.sort_by(|x, y| y.rank.total_cmp(&x.rank).then_with(|| x.metric.cmp(&y.metric)));
    others.truncate(MAX_UNKNOWN_CHANGES);
    changes.extend(others);
    changes
}

/// Whether a metric outside the table is a property of the kernel. Attributes of the device and the
/// host, launch shape and other rollups of the same counter are not.
fn comparable(id: &str) -> bool {
    let outside = [
        "device__",
        "nvlink__",
        "numa__",
        "c2clink__",
        "profiler__",
        "launch__",
        "smsp__pcsamp",
        STALL_PREFIX,
        "derived__",
    ];
    let rollups = [".min", ".max", ".avg", ".peak_sustained", ".per_second", "_elapsed", "_active"];
    !outside.iter().any(|p| id.starts_with(p))
        && !id.contains("TriageCompute")
        && !rollups.iter().any(|r| id.contains(r))
        && id.contains("__")
}

/// Changes of stall reasons, weighted by their share of all stalls: the end of a rare reason
/// explains little.
fn stalls(a: &Launch, b: &Launch) -> Vec<MetricChange> {
    let reason = |id: &str| -> Option<String> {
        let reason = id.strip_prefix(STALL_PREFIX)?.strip_suffix(STALL_SUFFIX)?;
        (!NO_STALLS.contains(&reason)).then(|| reason.replace('_', " "))
    };
    let all = |l: &Launch| -> f64 {
        l.metrics.keys().filter(|id| reason(id).is_some()).filter_map(|id| l.number(id)).sum()
    };
    let most = all(a).max(all(b));
    let of = |id: &SharedText| {
        let reason = reason(id)?;
        let (x, y) = (a.number(id)?, b.number(id)?);
        let part = (y - x).abs() / most;
        (part >= MIN_CHANGE).then(|| MetricChange {
            metric: id.to_string(),
            label: format!("cycles per instruction lost to {reason}"),
            a: x,
            b: y,
            unit: String::new(),
            change: judged(BetterDirection::Lower, x, y),
            rank: rounded(STALL_WEIGHT * part),
        })
    };
    a.metrics.keys().filter_map(of).collect()
}

/// The size of a change: relative to the base, or in percentage points over 100. `None` for noise.
fn size(a: f64, b: f64, form: NumberForm) -> Option<f64> {
    match form {
        NumberForm::Percent => Some((b - a).abs() / 100.0),
        // A fraction of a way is arbitration with other traffic, not a conflict.
        NumberForm::Ways if a.max(b) < 1.5 => None,
        NumberForm::Amount { floor } if a.abs().max(b.abs()) < floor => None,
        _ if a == 0.0 && b == 0.0 => None,
        _ if a == 0.0 => Some(f64::INFINITY),
        _ => Some(((b - a) / a).abs()),
    }
}

/// The fraction of the metric's weight that a change gets, 0 to 1.
fn weight_of(a: f64, b: f64, form: NumberForm, size: f64) -> f64 {
    match form {
        NumberForm::Percent => size.min(1.0),
        _ if a <= 0.0 || b <= 0.0 => 1.0,
        _ => ((b / a).ln().abs() / FULL_FACTOR.ln()).min(1.0),
    }
}

fn judged(better: BetterDirection, a: f64, b: f64) -> ChangeEffect {
    match (better, b > a) {
        (BetterDirection::Neither, _) => ChangeEffect::Neutral,
        (BetterDirection::Higher, true) | (BetterDirection::Lower, false) => ChangeEffect::Better,
        _ => ChangeEffect::Worse,
    }
}

/// Rounds to three decimals, since weights are not more precise.
fn rounded(rank: f64) -> f64 {
    (rank * 1000.0).round() / 1000.0
}

fn unit(launch: &Launch, id: &str, form: NumberForm) -> String {
    match form {
        NumberForm::Ways => "way".to_owned(),
        NumberForm::Percent => "%".to_owned(),
        _ => launch.metrics.get(id).map(|m| m.unit.to_string()).unwrap_or_default(),
    }
}

/// The kernel's resources on both sides. Unchanged ones are listed too.
pub(super) fn resources(
    (profile_a, a): (&Profile, &Launch),
    (profile_b, b): (&Profile, &Launch),
) -> Vec<MetricChange> {
    let code_a = code(profile_a, a);
    let code_b = code(profile_b, b);
    let registers = |l: &Launch, c: Option<&KernelCode>| {
        l.registers.map(f64::from).or_else(|| c.map(|c| f64::from(c.registers)))
    };
    let shared = |l: &Launch, c: Option<&KernelCode>| {
        l.shared_bytes.map(|x| x as f64).or_else(|| c.map(|c| f64::from(c.shared_bytes)))
    };
    let spills = |c: Option<&KernelCode>| {
        let c = c?;
        Some(f64::from(c.spill_store_bytes?) + f64::from(c.spill_load_bytes?))
    };
    let metric = |l: &Launch, id: &str| l.number(id);
    let theoretical = "sm__maximum_warps_per_active_cycle_pct";
    let achieved = rgpu_model::metric::OCCUPANCY.ids[0];
    let neither = BetterDirection::Neither;
    [
        (
            "registers per thread",
            "rgpu.registers",
            "",
            neither,
            registers(a, code_a),
            registers(b, code_b),
        ),
        (
            "shared memory per block",
            "rgpu.shared_bytes",
            "byte",
            neither,
            shared(a, code_a),
            shared(b, code_b),
        ),
        (
            "spilled per thread",
            "rgpu.spill_bytes",
            "byte",
            BetterDirection::Lower,
            spills(code_a),
            spills(code_b),
        ),
        (
            "theoretical occupancy",
            theoretical,
            "%",
            BetterDirection::Higher,
            metric(a, theoretical),
            metric(b, theoretical),
        ),
        (
            "achieved occupancy",
            achieved,
            "%",
            BetterDirection::Higher,
            metric(a, achieved),
            metric(b, achieved),
        ),
    ]
    .into_iter()
    .filter_map(|(label, id, unit, better, x, y)| {
        let (x, y) = (x?, y?);
        Some(MetricChange {
            metric: id.to_owned(),
            label: label.to_owned(),
            a: x,
            b: y,
            unit: unit.to_owned(),
            change: if x == y { ChangeEffect::Neutral } else { judged(better, x, y) },
            rank: 0.0,
        })
    })
    .collect()
}

/// The compiled code of a launch. If the launch names none, the profile's only code.
fn code<'a>(profile: &'a Profile, launch: &Launch) -> Option<&'a KernelCode> {
    match launch.code {
        Some(at) => profile.code.get(at as usize),
        None if profile.code.len() == 1 => profile.code.first(),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAVEFRONTS: &str = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum";
    const CONFLICTS: &str = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum";

    #[test]
    fn conflicts_that_went_away_come_first_and_busier_units_after() {
        let a = Launch::from_numbers(&[
            (WAVEFRONTS, 33e6),
            (CONFLICTS, 32e6),
            ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 30.0),
            ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", 90.0),
            ("foo__bar.sum", 10.0),
            ("device__attribute_x", 1.0),
        ]);
        let b = Launch::from_numbers(&[
            (WAVEFRONTS, 1.02e6),
            (CONFLICTS, 0.02e6),
            ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", 60.0),
            ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", 60.0),
            ("foo__bar.sum", 20.0),
            ("device__attribute_x", 2.0),
        ]);
        let changes = metrics(&a, &b);
        let told: Vec<_> = changes.iter().map(|c| (c.metric.as_str(), c.change.as_str())).collect();
        assert_eq!(
            told,
            [
                ("rgpu.shared_load_ways", "better"),
                ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "better"),
                ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "neutral"),
                ("foo__bar.sum", "neutral"),
            ]
        );
        assert_eq!((changes[0].a, changes[0].rank), (32.0, 1.0));
        assert!(metrics(&a, &a).is_empty());
    }

    #[test]
    fn a_side_without_shared_memory_has_no_conflicts_and_small_counts_are_noise() {
        let a = Launch::from_numbers(&[
            (WAVEFRONTS, 4e6),
            (CONFLICTS, 3e6),
            ("dram__bytes_write.sum", 32.0),
        ]);
        let b = Launch::from_numbers(&[
            (WAVEFRONTS, 0.0),
            (CONFLICTS, 0.0),
            ("dram__bytes_write.sum", 320.0),
        ]);
        let changes = metrics(&a, &b);
        assert_eq!(changes.len(), 1, "{changes:?}");
        assert_eq!((changes[0].a, changes[0].b), (4.0, 1.0));
    }
}
