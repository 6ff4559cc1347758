//! Tensor bound: matrix products keep the tensor cores busy.

use super::matrix::{computes_products, tensor_use};
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::threshold::{Limits, TENSOR_BUSY, TENSOR_PEAK};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "tensor_bound",
    category: "compute",
    kind: VerdictRole::Bound,
    gain: GainLimit::Headroom,
    plural_predicate: "keep the tensor cores busy",
    apply,
};

/// The hint for products that are near the peak.
pub(crate) const AT_PEAK_HINT: &str = "leave the kernel as it is: only less work makes it \
     faster, such as a narrower type (FP8), sparsity, or fewer or smaller products";

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let tensor = tensor_use(launch, limits)?;
    let busy = limits.threshold(&TENSOR_BUSY);
    if tensor.percent < busy.value || !computes_products(launch, limits) {
        return None;
    }
    let peak = limits.threshold(&TENSOR_PEAK);
    let mut evidence = vec![busy.evidence(tensor.metric, tensor.percent, "%")];
    evidence.extend(tensor.elapsed.map(|(id, share)| Evidence::number(id, share, "%")));
    let (text, hint) = if tensor.peak_percent() >= peak.value {
        evidence[0] = peak.evidence(tensor.metric, tensor.percent, "%");
        (tensor.text_at_peak(), AT_PEAK_HINT)
    } else {
        (
            tensor.text(),
            "the tensor cores do the work: what is left is a narrower type (FP8, sparsity), and \
             fewer or smaller products",
        )
    };
    Some(Conclusion {
        score: tensor.percent / 100.0,
        confidence: Confidence::High,
        evidence,
        text,
        hint: hint.to_owned(),
    })
}
