//! Bank conflicts: lanes of a warp access different rows of one shared-memory bank.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{L1_THROUGHPUT, SHARED_WAVEFRONTS_BUSY};
use crate::roofs::{Unit, WorkLeft};
use crate::threshold::{BANK_CONFLICTS, Limits};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "bank_conflicts",
    category: "memory",
    kind: VerdictRole::Cause,
    gain: GainLimit::Relief(work_left),
    plural_predicate: "have bank conflicts in shared memory",
    apply,
};

/// Actual and ideal wavefronts, summed over instructions. Unlike the L1's counters below, they
/// distinguish conflicts from wide accesses.
const EXACT: (&str, &str) = ("memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal");
const COUNTED: &[(&str, &str)] = &[
    (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    ),
    (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
    (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    ),
];

/// All wavefronts, the wavefronts that conflicts added, and the metric that counts them.
fn wavefronts(launch: &Launch) -> Option<(f64, f64, &'static str)> {
    if let (Some(all), Some(ideal)) = (launch.number(EXACT.0), launch.number(EXACT.1)) {
        return Some((all, all - ideal, EXACT.0));
    }
    let counted = COUNTED
        .iter()
        .filter_map(|(all, lost)| Some((launch.number(all)?, launch.number(lost)?, *lost)));
    counted.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The wavefronts that conflicts added are gone from L1, which has others too.
fn work_left(launch: &Launch) -> Vec<WorkLeft> {
    let Some((all, lost, _)) = wavefronts(launch) else { return Vec::new() };
    let busy = |ids| launch.first_number(ids).map(|(_, percent)| percent);
    let of_l1 = busy(SHARED_WAVEFRONTS_BUSY).zip(busy(L1_THROUGHPUT));
    let of_l1 = of_l1.map_or(1.0, |(shared, l1)| (shared / l1).min(1.0));
    let share = of_l1 * lost / all;
    if share.is_finite() { vec![(Unit::L1, [1.0 - share; 2])] } else { Vec::new() }
}

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (all, lost, id) = wavefronts(launch)?;
    let share = lost / all;
    // The share is NaN if there are no wavefronts.
    if share.is_nan() || share < limits.threshold(&BANK_CONFLICTS).value {
        return None;
    }
    let busy = launch.first_number(SHARED_WAVEFRONTS_BUSY);
    let busy = busy.or_else(|| launch.first_number(L1_THROUGHPUT));
    let mut evidence =
        vec![limits.threshold(&BANK_CONFLICTS).share_evidence(id, share, "of the wavefronts")];
    evidence.extend(busy.map(|(id, value)| Evidence::number(id, value, "%")));
    Some(Conclusion {
        score: share * busy.map_or(0.5, |(_, value)| value / 100.0),
        confidence: Confidence::High,
        evidence,
        text: format!(
            "bank conflicts cause {:.0} % of the shared-memory wavefronts: {:.1} times the ideal \
             count",
            share * 100.0,
            all / (all - lost).max(1.0)
        ),
        hint: "pad the rows of the shared array by one element, swizzle the index, or let \
               neighbouring lanes touch neighbouring words"
            .to_owned(),
    })
}
