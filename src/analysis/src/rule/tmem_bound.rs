//! Blackwell tensor memory is busier than the tensor cores. Unmeasured: no recording confirms it.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{TENSOR_ACTIVE, TMEM_ACTIVE};
use crate::threshold::{Limits, TMEM_BUSY};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "tmem_bound",
    category: "compute",
    kind: VerdictRole::Symptom,
    gain: GainLimit::Score,
    plural_predicate: "are bound by tensor memory",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (id, busy) = launch.first_number(TMEM_ACTIVE)?;
    let limit = limits.threshold(&TMEM_BUSY);
    let tensor = launch.first_number(TENSOR_ACTIVE);
    if busy < limit.value || tensor.is_some_and(|(_, tensor)| tensor >= busy) {
        return None;
    }
    let mut evidence = vec![limit.evidence(id, busy, "%")];
    evidence.extend(tensor.map(|(id, value)| Evidence::number(id, value, "%")));
    Some(Conclusion {
        score: busy / 100.0 / 2.0,
        confidence: Confidence::Low,
        evidence,
        text: format!(
            "tensor memory is busy for {busy:.0} % of the time, more than the tensor cores"
        ),
        hint: "move sums out of tensor memory less often: accumulate over more of k, and let the \
               epilogue of one tile overlap the products of the next (two accumulators)"
            .to_owned(),
    })
}
