//! Blackwell tensor cores used by single blocks, although two blocks could share operands.
//! Unmeasured.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{CLUSTER, TCGEN05};
use crate::threshold::{CLUSTER_PAIR, Limits, TENSOR_USED};
use rgpu_model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "one_cta_mma",
    category: "compute",
    kind: VerdictRole::Symptom,
    gain: GainLimit::Score,
    plural_predicate: "multiply within one block where two could share operands",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    limits.major().filter(|major| *major == 10)?;
    let (id, tensor) = launch.first_number(TCGEN05)?;
    let (cluster_id, cluster) = launch.first_number(CLUSTER)?;
    let (used, pair) = (limits.threshold(&TENSOR_USED), limits.threshold(&CLUSTER_PAIR));
    if tensor < used.value || cluster >= pair.value {
        return None;
    }
    Some(Conclusion {
        score: (1.0 - tensor / 100.0).clamp(0.0, 1.0) / 4.0,
        confidence: Confidence::Low,
        evidence: vec![pair.evidence(cluster_id, cluster, "block"), used.evidence(id, tensor, "%")],
        text: "`tcgen05` runs without clusters: each block loads its operands alone".to_owned(),
        hint:
            "launch clusters of two blocks and issue `tcgen05.mma` with `cta_group::2`: the pair \
               shares one operand, which halves that traffic"
                .to_owned(),
    })
}
