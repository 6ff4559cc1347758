//! Tensor bound: matrix products keep the tensor cores busy.

use super::matrix::{computes_products, tensor_use};
use super::{Conclusion, Confidence, Gain, Kind, Rule};
use crate::analysis::threshold::{Limits, TENSOR_BUSY};
use crate::model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "tensor_bound",
    category: "compute",
    kind: Kind::Bound,
    gain: Gain::Headroom,
    plural_predicate: "keep the tensor cores busy",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let tensor = tensor_use(launch, limits)?;
    let busy = limits.threshold(&TENSOR_BUSY);
    if tensor.percent < busy.value || !computes_products(launch, limits) {
        return None;
    }
    Some(Conclusion {
        score: tensor.percent / 100.0,
        confidence: Confidence::High,
        evidence: vec![busy.evidence(tensor.metric, tensor.percent, "%")],
        text: tensor.text(),
        hint:
            "the tensor cores do the work: what is left is a narrower type (FP8, sparsity), fewer \
               or smaller products, and shapes that are multiples of the tile"
                .to_owned(),
    })
}
