//! Tensor cores used with an older generation's instruction although the device has a newer one.
//!
//! `mma.sync` runs on every architecture since Volta. On Hopper it reaches two thirds of what
//! `wgmma` does (ceilings of a report of an H200: 697 against 1045 TFLOP/s of dense BF16); on data
//! centre Blackwell `tcgen05` takes its place. Consumer Blackwell (12.x) has neither.

use super::matrix::has_matrix_products;
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{MEMORY_THROUGHPUT, MMA_SYNC, TCGEN05, TENSOR_ACTIVE, WGMMA};
use crate::threshold::{Limits, TENSOR_USED, THROUGHPUT_LOW};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "legacy_mma",
    category: "compute",
    kind: VerdictRole::Cause,
    gain: GainLimit::Work,
    plural_predicate: "multiply with an older instruction than the device has",
    apply,
};

const HOPPER_SHARE: f64 = 2.0 / 3.0;

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (newer, newer_ids, confidence) = match limits.major()? {
        9 => ("wgmma", WGMMA, Confidence::High),
        10 | 11 => ("tcgen05", TCGEN05, Confidence::Low),
        _ => return None,
    };
    let (mma_id, mma) = launch.first_number(MMA_SYNC)?;
    let (newer_id, newer_used) = launch.first_number(newer_ids)?;
    let (active_id, active) = launch.first_number(TENSOR_ACTIVE)?;
    let used = limits.threshold(&TENSOR_USED);
    // On Blackwell the busy metric counts only the newer pipe, not `mma.sync`.
    let busy = if newer == "wgmma" { active } else { active.max(mma) };
    if newer_used > 0.0 || mma <= 0.0 || busy < used.value {
        return None;
    }
    if !has_matrix_products(launch, limits) {
        return None;
    }
    // A faster instruction does not help a kernel that waits for memory.
    let memory = launch.first_number(MEMORY_THROUGHPUT).map_or(0.0, |(_, percent)| percent);
    if memory > busy && memory >= limits.threshold(&THROUGHPUT_LOW).value {
        return None;
    }
    let mut text = format!("matrix products run on `mma.sync`, where the device has `{newer}`");
    if newer == "wgmma" {
        text.push_str(", which is 1.5 times as fast");
    }
    Some(Conclusion {
        score: (busy / 100.0 * (1.0 - HOPPER_SHARE)).min(1.0),
        confidence,
        evidence: vec![
            used.evidence(active_id, active, "%"),
            Evidence::number(mma_id, mma, "%"),
            Evidence::number(newer_id, newer_used, "%"),
        ],
        text,
        hint: format!(
            "issue `{newer}` with operands in shared memory, filled by TMA: CUTLASS 3 and newer \
             Triton do so for this architecture"
        ),
    })
}
