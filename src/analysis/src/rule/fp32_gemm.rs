//! A library's FP32 matrix product on the FP32 units, where the device has tensor cores.

use super::{Conclusion, Confidence, GainLimit, Rule, VerdictRole};
use crate::concept::{SM_THROUGHPUT, TENSOR_ACTIVE};
use crate::known_kernel::{MatrixUnit, matrix_unit};
use crate::threshold::{Limits, TENSOR_USED, TF32_GAIN, Threshold};
use rgpu_model::{Evidence, Launch};

pub(super) const RULE: Rule = Rule {
    id: "fp32_gemm",
    category: "compute",
    kind: VerdictRole::Cause,
    gain: GainLimit::Work,
    plural_predicate: "multiply FP32 matrices without the tensor cores",
    apply,
};

/// TF32 needs Ampere.
const FIRST_MAJOR: u32 = 8;

fn apply(launch: &Launch, limits: &Limits<'_>) -> Option<Conclusion> {
    if matrix_unit(&launch.kernel) != Some(MatrixUnit::Fp32) {
        return None;
    }
    let major = limits.major().filter(|major| *major >= FIRST_MAJOR)?;
    let used = limits.threshold(&TENSOR_USED);
    let tensor = launch.first_number(TENSOR_ACTIVE);
    if tensor.is_some_and(|(_, tensor)| tensor >= used.value) {
        return None;
    }
    let gain = limits.threshold(&TF32_GAIN);
    let needed = Threshold { value: f64::from(FIRST_MAJOR), source: "rgpu" };
    let mut evidence = vec![needed.evidence("device.compute_major", f64::from(major), "")];
    evidence.extend(tensor.map(|(id, tensor)| used.evidence(id, tensor, "%")));
    let mut text = "the matrix product runs on the FP32 units, the tensor cores idle".to_owned();
    if let Some((id, sm)) = launch.first_number(SM_THROUGHPUT) {
        evidence.push(Evidence::number(id, sm, "%"));
        text.push_str(&format!(", and the SMs are at {sm:.0} % of their peak"));
    }
    Some(Conclusion {
        score: 1.0 - 1.0 / gain.value.max(1.0),
        confidence: Confidence::High,
        evidence,
        text,
        hint: "let FP32 products use TF32 (`torch.set_float32_matmul_precision(\"high\")`, \
               `NVIDIA_TF32_OVERRIDE=1`), or compute in BF16 (`torch.autocast`)"
            .to_owned(),
    })
}
