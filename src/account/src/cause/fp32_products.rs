//! Products and convolutions in FP32 on the FP32 units, not on the tensor cores.
//!
//! The name tells: `ffma`, `simt`, `sgemm` multiply on the FP32 units; `tf32` would be the tensor
//! cores. TF32 keeps FP32's range and 10 bits of mantissa. The gain follows from the two peaks: the
//! kernel reaches 75 to 95 % of the FP32 peak today, and products in TF32 reach half to 70 % of
//! theirs; small ones a third. A kernel that is as short as a launch gains nothing.

use rgpu_model::account::AccountCause;

use super::Found;
use super::picked::{Changes, Framework, Picked, duration, has_name, names_that};
use crate::class::KernelFamily;
use crate::edits::Edits;
use crate::view::View;

/// What a product takes at least, in nanoseconds.
const SHORTEST_NS: f64 = 5_000.0;
/// Peaks' ratio of a large GPU of 2022 and later, where the GPU is not known.
const USUAL_RATIO: f64 = 0.14;
/// What products reach of the FP32 peak, and of the TF32 peak, where the change gives most.
const REACHED_AT_MOST: (f64, f64) = (0.75, 0.7);
/// The same where it gives least, for large products and for small ones.
const REACHED_AT_LEAST: (f64, f64) = (0.95, 0.5);
const SMALL_REACHED: (f64, f64) = (0.95, 0.35);
/// A product of less is a small one.
const SMALL_NS: f64 = 100_000.0;

/// Whether a library's product runs on the FP32 units.
fn is_fp32(name: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let is_double = has(&["dgemm", "double", "d884", "f64"]);
    !is_double
        && (has(&["_ffma_", "_simt_", "sgemm_"]) || name.contains("_sgemm"))
        && !has(&["tensorop", "tf32", "s884", "s1688", "s16816", "wmma", "__half", "bfloat16"])
}

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let names = names_that(view, is_fp32);
    let products = Picked::find(view, |work| {
        has_name(&names, work)
            && view.family(work) == KernelFamily::Nvidia
            && matches!(view.class(work), AccountCause::MatrixProduct | AccountCause::Convolution)
    });
    if !products.matters() {
        return None;
    }
    let ratio = match (view.facts.fp32_flops, view.facts.tf32_flops) {
        (Some(fp32), Some(tf32)) if fp32 > 0.0 && tf32 > fp32 => fp32 / tf32,
        // A GPU without TF32.
        (Some(_), None) => return None,
        _ => USUAL_RATIO,
    };
    let changes = Changes::new(view);
    let edits = |is_most: bool| {
        let mut edits = Edits::default();
        for at in &products.at {
            let ns = duration(view, *at);
            let least = if ns < SMALL_NS { SMALL_REACHED } else { REACHED_AT_LEAST };
            let (fp32, tf32) = if is_most { REACHED_AT_MOST } else { least };
            let floor = if ns > 0.0 { SHORTEST_NS / ns } else { 1.0 };
            changes.scale(&mut edits, *at, (ratio * fp32 / tf32).max(floor));
        }
        edits
    };
    let hint = match Framework::of(view) {
        Framework::Torch => {
            "`torch.set_float32_matmul_precision(\"high\")` at the start (TF32), or \
             `torch.autocast(\"cuda\", torch.bfloat16)` around forward and loss; compare the loss"
        }
        Framework::Jax => {
            "`jax.config.update(\"jax_default_matmul_precision\", \"tensorfloat32\")`, and no \
             `precision=\"highest\"` in the products"
        }
        Framework::Cupy => "`CUPY_TF32=1` in the environment lets CuPy's products use TF32",
        Framework::Plain => {
            "`cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH)`, or the compute type \
             `CUBLAS_COMPUTE_32F_FAST_TF32`"
        }
    };
    Some(Found {
        change: "multiply in TF32 on the tensor cores".to_owned(),
        text: format!("products in FP32 run without tensor cores and take {}", products.words()),
        hint: hint.to_owned(),
        least: edits(false),
        most: edits(true),
        work: products.at,
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    const FFMA: &str = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas";

    #[test]
    fn products_on_the_fp32_units_are_found_and_tf32_is_silent() {
        let fault = StepScript::new().kernel(FFMA, 1000.0).kernel(names::ADD, 10.0).play(3);
        let found = fault.look(find).unwrap();
        // Peaks of 60 and 400 TFLOP/s: 0.16 to 0.29 of the time is left.
        let (least, most) = (fault.removed_ns(&found.least), fault.removed_ns(&found.most));
        assert!((710_000.0..720_000.0).contains(&least), "{least}");
        assert!((835_000.0..845_000.0).contains(&most), "{most}");
        let tf32 =
            "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_execute_kernel__5x_cublas";
        assert!(StepScript::new().kernel(tf32, 1000.0).play(3).look(find).is_none());
        // A user's own kernel is another matter.
        assert!(
            StepScript::new().kernel("sgemm_naive(float*)", 1000.0).play(3).look(find).is_none()
        );
    }

    #[test]
    fn a_product_as_short_as_a_launch_gains_nothing() {
        let fault = StepScript::new().kernel(FFMA, 4.0).kernel(names::ADD, 10.0).play(3);
        let found = fault.look(find).unwrap();
        assert!(fault.removed_ns(&found.most).abs() < 1.0);
    }
}
