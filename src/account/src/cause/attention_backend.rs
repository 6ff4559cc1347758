//! Attention runs on the memory-efficient kernels, although the flash kernels exist.
//!
//! torch chooses flash or cuDNN for 16-bit inputs that they can take, else `fmha_cutlass…`, which
//! carries its type in its name. In FP32 there is no flash kernel at all. On the same shape the
//! flash kernels of a recent GPU take a third to three quarters of its time, and a 16-bit type
//! takes another half off; so the interval is wide, and the shape decides.

use super::Found;
use super::picked::{Changes, Picked, has_name, names_that};
use crate::view::View;

/// Time on flash kernels as a part of that on 16-bit memory-efficient ones: most and least gain.
const HALF_RATIO: (f64, f64) = (0.35, 0.75);
/// The same from FP32, when the type changes to 16 bits, too.
const FP32_RATIO: (f64, f64) = (0.12, 0.4);

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let names = names_that(view, |name| {
        name.contains("fmha_cutlass") || name.contains("PyTorchMemEffAttention")
    });
    let fp32 = names_that(view, |name| name.contains("_f32_"));
    let kernels = Picked::find(view, |work| has_name(&names, work));
    if !kernels.matters() {
        return None;
    }
    let is_fp32 = kernels
        .at
        .iter()
        .filter_map(|at| view.trace.work.get(*at as usize))
        .any(|work| has_name(&fp32, work));
    let (most, least) = if is_fp32 { FP32_RATIO } else { HALF_RATIO };
    let why = if is_fp32 { "in FP32, for which no flash kernel exists, " } else { "" };
    let hint = if is_fp32 {
        "give `scaled_dot_product_attention` queries, keys and values in bfloat16 \
         (`torch.autocast(\"cuda\", torch.bfloat16)`)"
    } else {
        "ask why the flash kernel refuses: `with torch.nn.attention.sdpa_kernel(\
         SDPBackend.FLASH_ATTENTION):` around the call tells; a mask as a tensor, a head of more \
         than 256 or of no multiple of 8 are usual reasons"
    };
    let changes = Changes::new(view);
    Some(Found {
        change: "run attention on the flash kernels".to_owned(),
        text: format!(
            "attention runs {why}on the memory-efficient kernels, which take {}",
            kernels.words()
        ),
        hint: hint.to_owned(),
        least: changes.scaled(&kernels.at, least),
        most: changes.scaled(&kernels.at, most),
        work: kernels.at,
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn memory_efficient_kernels_are_found_and_flash_is_silent() {
        let fault = |kind| {
            let name = format!("fmha_cutlassF_{kind}_aligned_64x64_rf_sm80(X::Params)");
            StepScript::new().kernel(&name, 100.0).kernel(names::PRODUCT, 50.0).play(3)
        };
        let half = fault("bf16").look(find).unwrap();
        let fp32 = fault("f32").look(find).unwrap();
        assert!(fault("f32").removed_ns(&fp32.least) > fault("bf16").removed_ns(&half.least));
        assert!(fp32.text.contains("FP32"));
        assert!(StepScript::new().kernel(names::FLASH, 100.0).play(3).look(find).is_none());
    }
}
