//! Tensor cores fed by loads of every thread instead of bulk copies (TMA).

use super::matrix::has_matrix_products;
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{TENSOR_ACTIVE, TMA};
use crate::threshold::{Limits, TENSOR_LOW, TENSOR_USED};
use rgpu_model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "no_tma",
    category: "memory",
    kind: VerdictRole::Symptom,
    gain: GainLimit::Score,
    plural_predicate: "feed the tensor cores without TMA",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let major = limits.major().filter(|major| (9..=11).contains(major))?;
    let (tma_id, tma) = launch.first_number(TMA)?;
    let (id, tensor) = launch.first_number(TENSOR_ACTIVE)?;
    let used = limits.threshold(&TENSOR_USED);
    // Busy tensor cores get their operands fast enough without TMA.
    if tma > 0.0 || tensor < used.value || tensor >= 4.0 * limits.threshold(&TENSOR_LOW).value {
        return None;
    }
    if !has_matrix_products(launch, limits) {
        return None;
    }
    Some(Conclusion {
        score: (1.0 - tensor / 100.0) / 4.0,
        confidence: if major == 9 { Confidence::Medium } else { Confidence::Low },
        evidence: vec![used.evidence(id, tensor, "%"), used.evidence(tma_id, tma, "%")],
        text: format!(
            "the tensor cores are busy for {tensor:.0} % of the time and TMA is not used"
        ),
        hint: "load tiles with TMA (`cp.async.bulk.tensor`) into a ring of shared-memory buffers \
               and let a warp of its own order them"
            .to_owned(),
    })
}
