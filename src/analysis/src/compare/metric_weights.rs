//! The weight of each metric when two launches are compared, and which direction is better.
//!
//! The weights are our own choice, in three tiers: causes that the code can fix (conflicts, excess
//! sectors, spills, idle lanes), then the resulting work (wavefronts, bytes, instructions), then
//! how busy the units are. A throughput has no preferred direction (`Neither`) if more of it may be
//! waste: an L1 that is busy with bank conflicts is not better. Metric names vary with the
//! architecture; the first candidate that both launches have is used.

use crate::concept::{DRAM_THROUGHPUT, MEMORY_THROUGHPUT, OCCUPANCY_ACHIEVED, SM_THROUGHPUT};
use rgpu_model::Launch;

/// The better direction of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BetterDirection {
    Higher,
    Lower,
    Neither,
}

/// How a number is compared and printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NumberForm {
    /// A count or amount, compared by relative change. Values below the floor are noise.
    Amount { floor: f64 },
    /// A percentage, compared by percentage points.
    Percent,
    /// The ways of a bank conflict; 1 is no conflict.
    Ways,
    /// Actual over ideal, at least 1.
    Ratio,
}

/// How a number is computed from metrics.
#[derive(Clone, Copy, Debug)]
pub(super) enum NumberSource {
    /// The first of these metrics that both launches have.
    Metric(&'static [&'static str]),
    /// Bank-conflict ways, with an id of rgpu: wavefronts / (requests × ideal wavefronts per
    /// request), at least 1. Without requests: wavefronts / (wavefronts − conflicts).
    Ways {
        id: &'static str,
        wavefronts: &'static str,
        conflicts: &'static str,
        requests: &'static str,
    },
    /// `actual / ideal`, with an id of rgpu.
    Excess { id: &'static str, actual: &'static str, ideal: &'static str },
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetricWeight {
    pub(super) label: &'static str,
    pub(super) from: NumberSource,
    pub(super) form: NumberForm,
    pub(super) better: BetterDirection,
    pub(super) weight: f64,
}

const fn line(
    label: &'static str,
    from: NumberSource,
    form: NumberForm,
    better: BetterDirection,
    weight: f64,
) -> MetricWeight {
    MetricWeight { label, from, form, better, weight }
}

const COUNT: NumberForm = NumberForm::Amount { floor: 1000.0 };
const RATE: NumberForm = NumberForm::Amount { floor: 0.01 };

/// The table, by weight.
pub(super) static METRIC_WEIGHTS: &[MetricWeight] = &[
    line(
        "shared-memory load bank conflicts",
        NumberSource::Ways {
            id: "rgpu.shared_load_ways",
            wavefronts: "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
            conflicts: "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
            requests: "smsp__sass_inst_executed_op_shared_ld.sum",
        },
        NumberForm::Ways,
        BetterDirection::Lower,
        1.0,
    ),
    line(
        "shared-memory store bank conflicts",
        NumberSource::Ways {
            id: "rgpu.shared_store_ways",
            wavefronts: "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
            conflicts: "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
            requests: "smsp__sass_inst_executed_op_shared_st.sum",
        },
        NumberForm::Ways,
        BetterDirection::Lower,
        1.0,
    ),
    line(
        "global-memory sectors per ideal sector",
        NumberSource::Excess {
            id: "rgpu.global_sector_excess",
            actual: "memory_l2_theoretical_sectors_global",
            ideal: "memory_l2_theoretical_sectors_global_ideal",
        },
        NumberForm::Ratio,
        BetterDirection::Lower,
        1.0,
    ),
    line(
        "local-memory requests of spilled registers",
        NumberSource::Metric(&["derived__local_spilling_requests"]),
        COUNT,
        BetterDirection::Lower,
        0.95,
    ),
    line(
        "active threads of a warp",
        NumberSource::Metric(&["smsp__thread_inst_executed_per_inst_executed.ratio"]),
        RATE,
        BetterDirection::Higher,
        0.95,
    ),
    line(
        "tensor pipe busy",
        NumberSource::Metric(&[
            "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.avg.pct_of_peak_sustained_elapsed",
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
            "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        ]),
        NumberForm::Percent,
        BetterDirection::Higher,
        0.9,
    ),
    line(
        "L1 wavefronts for shared memory",
        NumberSource::Metric(&["l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"]),
        COUNT,
        BetterDirection::Lower,
        0.85,
    ),
    line(
        "DRAM bytes read",
        NumberSource::Metric(&["dram__bytes_read.sum"]),
        COUNT,
        BetterDirection::Lower,
        0.8,
    ),
    line(
        "DRAM bytes written",
        NumberSource::Metric(&["dram__bytes_write.sum"]),
        COUNT,
        BetterDirection::Lower,
        0.7,
    ),
    line(
        "L2 sectors from L1",
        NumberSource::Metric(&["lts__t_sectors_srcunit_tex.sum"]),
        COUNT,
        BetterDirection::Lower,
        0.75,
    ),
    line(
        "L1 sectors of global loads",
        NumberSource::Metric(&["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]),
        COUNT,
        BetterDirection::Lower,
        0.7,
    ),
    line(
        "L1 sectors of global stores",
        NumberSource::Metric(&["l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"]),
        COUNT,
        BetterDirection::Lower,
        0.7,
    ),
    line(
        "instructions executed",
        NumberSource::Metric(&["smsp__inst_executed.sum", "sm__inst_executed.sum"]),
        COUNT,
        BetterDirection::Lower,
        0.7,
    ),
    line(
        "theoretical occupancy",
        NumberSource::Metric(&["sm__maximum_warps_per_active_cycle_pct"]),
        NumberForm::Percent,
        BetterDirection::Higher,
        0.6,
    ),
    line(
        "L2 hit rate",
        NumberSource::Metric(&["lts__t_sector_hit_rate.pct"]),
        NumberForm::Percent,
        BetterDirection::Higher,
        0.5,
    ),
    line(
        "L1 hit rate",
        NumberSource::Metric(&["l1tex__t_sector_hit_rate.pct"]),
        NumberForm::Percent,
        BetterDirection::Higher,
        0.5,
    ),
    line(
        "DRAM throughput",
        NumberSource::Metric(DRAM_THROUGHPUT),
        NumberForm::Percent,
        BetterDirection::Higher,
        0.45,
    ),
    line(
        "SM throughput",
        NumberSource::Metric(SM_THROUGHPUT),
        NumberForm::Percent,
        BetterDirection::Higher,
        0.4,
    ),
    line(
        "instructions issued per cycle",
        NumberSource::Metric(&["smsp__issue_active.avg.per_cycle_active"]),
        RATE,
        BetterDirection::Higher,
        0.35,
    ),
    line(
        "achieved occupancy",
        NumberSource::Metric(OCCUPANCY_ACHIEVED),
        NumberForm::Percent,
        BetterDirection::Higher,
        0.35,
    ),
    line(
        "memory throughput",
        NumberSource::Metric(MEMORY_THROUGHPUT),
        NumberForm::Percent,
        BetterDirection::Neither,
        0.3,
    ),
    line(
        "L1 throughput",
        NumberSource::Metric(&["l1tex__throughput.avg.pct_of_peak_sustained_elapsed"]),
        NumberForm::Percent,
        BetterDirection::Neither,
        0.3,
    ),
    line(
        "L2 throughput",
        NumberSource::Metric(&["lts__throughput.avg.pct_of_peak_sustained_elapsed"]),
        NumberForm::Percent,
        BetterDirection::Neither,
        0.3,
    ),
    line(
        "waves per SM",
        NumberSource::Metric(&["launch__waves_per_multiprocessor"]),
        RATE,
        BetterDirection::Neither,
        0.2,
    ),
    line(
        "SM clock",
        NumberSource::Metric(&[
            "sm__cycles_elapsed.avg.per_second",
            "smsp__cycles_elapsed.avg.per_second",
        ]),
        COUNT,
        BetterDirection::Neither,
        0.2,
    ),
];

/// Prefix of the metrics of stall reasons: cycles per instruction. Lower is better for all of them.
pub(super) const STALL_PREFIX: &str = "smsp__average_warps_issue_stalled_";
/// Suffix of the metrics of stall reasons.
pub(super) const STALL_SUFFIX: &str = "_per_issue_active.ratio";
/// Weight of a stall reason.
pub(super) const STALL_WEIGHT: f64 = 0.45;
/// Reasons that are no stalls: the warp issued an instruction or could have.
pub(super) const NO_STALLS: &[&str] = &["selected", "not_selected"];
/// Weight of a metric outside the table.
pub(super) const OTHER_WEIGHT: f64 = 0.05;

/// The id of a line's number and its values on both sides; `None` if a side lacks it.
pub(super) fn values_of_both_sides(
    from: NumberSource,
    a: &Launch,
    b: &Launch,
) -> Option<(&'static str, f64, f64)> {
    match from {
        NumberSource::Metric(ids) => {
            ids.iter().find_map(|id| Some((*id, a.number(id)?, b.number(id)?)))
        }
        NumberSource::Ways { id, wavefronts, conflicts, requests } => {
            let ways = |l: &Launch| {
                let (actual, conflicts) = (l.number(wavefronts)?, l.number(conflicts)?);
                let ideal = match l.number(requests).filter(|requests| *requests > 0.0) {
                    Some(requests) => requests * ideal_wavefronts(l),
                    None => actual - conflicts,
                };
                // The counter includes replays, so it can exceed the lanes of a warp.
                (actual > 0.0).then(|| (actual / ideal.max(1.0)).clamp(1.0, WARP_LANES))
            };
            excess_of_both(id, ways(a), ways(b), a.number(wavefronts), b.number(wavefronts))
        }
        NumberSource::Excess { id, actual, ideal } => {
            let excess = |l: &Launch| {
                let ideal = l.number(ideal)?;
                (ideal > 0.0).then_some(l.number(actual)? / ideal)
            };
            excess_of_both(id, excess(a), excess(b), a.number(actual), b.number(actual))
        }
    }
}

/// The lanes of a warp.
const WARP_LANES: f64 = 32.0;

/// The wavefronts per shared-memory request of a launch if there were no conflicts: 1 for words of
/// 4 bytes, 4 for 16 bytes.
fn ideal_wavefronts(launch: &Launch) -> f64 {
    let ideal = launch.number("memory_l1_wavefronts_shared_ideal");
    let requests = launch.number("smsp__sass_inst_executed_op_shared.sum");
    let each = ideal.zip(requests.filter(|requests| *requests > 0.0)).map(|(all, n)| all / n);
    each.unwrap_or(1.0).max(1.0)
}

/// All metrics that a number may be computed from.
pub(super) fn metrics_of(from: NumberSource) -> Vec<&'static str> {
    match from {
        NumberSource::Metric(ids) => ids.to_vec(),
        NumberSource::Ways { wavefronts, conflicts, requests, .. } => {
            vec![wavefronts, conflicts, requests]
        }
        NumberSource::Excess { actual, ideal, .. } => vec![actual, ideal],
    }
}

/// Both values of an excess. A side whose counter is 0 has no excess: its value is 1. `None` if a
/// side lacks the counter.
fn excess_of_both(
    id: &'static str,
    a: Option<f64>,
    b: Option<f64>,
    counted_a: Option<f64>,
    counted_b: Option<f64>,
) -> Option<(&'static str, f64, f64)> {
    if a.is_none() && b.is_none() {
        return None;
    }
    let or_none = |x: Option<f64>, counted: Option<f64>| x.or(counted.map(|_| 1.0));
    Some((id, or_none(a, counted_a)?, or_none(b, counted_b)?))
}
