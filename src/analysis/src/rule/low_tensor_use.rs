//! Matrix work that uses the tensor cores little or not at all.

use super::matrix::{has_matrix_products, is_named_product, tensor_use};
use super::small_grid::leaves_sms_empty;
use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{FMA_PIPE, MEMORY_THROUGHPUT, TENSOR_ACTIVE};
use crate::known_kernel::{Author, MatrixUnit, author, matrix_unit};
use crate::threshold::{FMA_BUSY, Limits, TENSOR_LOW, TENSOR_USED, THROUGHPUT_LOW};
use rgpu_model::Launch;

pub(super) const RULE: Rule = Rule {
    id: "low_tensor_use",
    category: "compute",
    kind: VerdictRole::Symptom,
    gain: GainLimit::Score,
    plural_predicate: "use the tensor cores little",
    apply,
};

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    let (id, tensor) = launch.first_number(TENSOR_ACTIVE)?;
    let (used, low) = (limits.threshold(&TENSOR_USED), limits.threshold(&TENSOR_LOW));
    if tensor >= low.value || matrix_unit(&launch.kernel) == Some(MatrixUnit::Fp32) {
        return None;
    }
    // A product that waits for DRAM or has too few blocks cannot keep the tensor cores busier.
    let memory = launch.first_number(MEMORY_THROUGHPUT).map_or(0.0, |(_, memory)| memory);
    let starved =
        memory >= limits.threshold(&THROUGHPUT_LOW).value || leaves_sms_empty(launch, limits);
    if tensor >= used.value && !starved && has_matrix_products(launch, limits) {
        let of_time = tensor_use(launch, limits).map_or(tensor, |tensor| tensor.peak_percent());
        return Some(Conclusion {
            score: (1.0 - tensor / 100.0) / 2.0,
            confidence: Confidence::Medium,
            evidence: vec![low.evidence(id, tensor, "%")],
            text: format!("the tensor cores are used but busy for only {of_time:.0} % of the time"),
            hint: "feed them: larger tiles, more stages of asynchronous copies in flight, \
                   operands in shared memory in the layout that the matrix instruction wants"
                .to_owned(),
        });
    }
    // Most kernels have no matrix product, so only a busy FMA pipe leads to a finding, and never
    // for torch's element-wise kernels and reductions, nor for kernels that are made for tensor
    // cores.
    if matches!(author(&launch.kernel), Author::Torch | Author::Cupy) || is_named_product(launch) {
        return None;
    }
    let (fma_id, fma) = launch.first_number(FMA_PIPE)?;
    let busy = limits.threshold(&FMA_BUSY);
    (fma >= busy.value).then(|| Conclusion {
        score: fma / 100.0 / 2.0,
        confidence: Confidence::Low,
        evidence: vec![used.evidence(id, tensor, "%"), busy.evidence(fma_id, fma, "%")],
        text: format!("the FMA pipe is busy for {fma:.0} % of the time and the tensor cores idle"),
        hint: "if this is a matrix product or a convolution, use the tensor cores: TF32, BF16 or \
               FP16 inputs with FP32 sums, through a library or matrix instructions"
            .to_owned(),
    })
}
