//! Attention is given its mask as a tensor.
//!
//! torch turns a boolean mask into one of numbers in each call (`where`, right before the kernel of
//! attention), the kernel reads it, and it computes all pairs of positions, also those that the
//! mask takes away. A causal mask said as such (`is_causal=True`) needs half of the pairs and reads
//! no mask. Reading the mask costs the kernel a fifth to two fifths more, so attention takes 0.35
//! to 0.6 of its time then. If the mask is one of padding, the padded positions cost in all other
//! layers, too, and the remedy is another; the trace cannot tell which mask it is.

use rgpu_model::account::AccountCause;

use super::Found;
use super::picked::{Changes, Picked, has_name, lanes, names_that};
use crate::edits::Edits;
use crate::view::View;

/// Attention with `is_causal` as a part of its time with a mask of numbers: most and least gain.
const CAUSAL_RATIO: (f64, f64) = (0.35, 0.6);
/// Launches between the mask's conversion and the kernel of attention.
const MAX_DISTANCE: usize = 3;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let forward = names_that(view, |name| {
        ["flash_fprop", "flash_fwd", "fmha_cutlassF"].iter().any(|word| name.contains(word))
    });
    let masks = names_that(view, |name| {
        ["where_kernel_impl", "masked_fill_kernel"].iter().any(|word| name.contains(word))
    });
    let (mut conversions, mut attended) = (Vec::new(), 0_usize);
    for lane in lanes(view) {
        for (position, (_, work)) in lane.iter().enumerate() {
            if !has_name(&forward, work) {
                continue;
            }
            attended = attended.saturating_add(1);
            let before = lane.get(position.saturating_sub(MAX_DISTANCE)..position);
            let mask = before.unwrap_or_default().iter().find(|(_, work)| has_name(&masks, work));
            conversions.extend(mask.map(|(at, _)| *at));
        }
    }
    let attention = Picked::find(view, |work| view.class(work) == AccountCause::Attention);
    // Each call of attention converts its mask.
    if conversions.len() * 2 < attended.max(1) || !attention.matters() {
        return None;
    }
    let changes = Changes::new(view);
    let edits = |ratio: f64| -> Edits {
        let mut edits = changes.without(&conversions, 0.5);
        edits.add(&changes.scaled(&attention.at, ratio));
        edits
    };
    let (most, least) = CAUSAL_RATIO;
    let converts = Picked::new(view, conversions.clone());
    Some(Found {
        change: "say `is_causal=True` in place of a mask".to_owned(),
        text: format!(
            "attention reads a mask, which is converted before each call ({}), and computes all \
             pairs of positions: it takes {}",
            converts.names(1),
            attention.words()
        ),
        hint: "if the mask is causal: `F.scaled_dot_product_attention(q, k, v, is_causal=True)` \
               without `attn_mask`; if it hides padding: put sequences of similar length into a \
               batch, or drop the padding (`torch.nested`, `flash_attn_varlen_func`)"
            .to_owned(),
        least: edits(least),
        most: edits(most),
        work: conversions.iter().chain(&attention.at).copied().collect(),
        decides: Some(
            "whether the mask is causal: count the pairs that it keeps, half of all for a causal \
             one"
            .to_owned(),
        ),
        is_bound: true,
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn a_mask_as_a_tensor_is_found_and_is_causal_is_silent() {
        let mask = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::<unnamed>::where_kernel_impl(X)>>(int)";
        let fault = StepScript::new()
            .kernel(mask, 10.0)
            .set(4, 1.0)
            .kernel(names::FLASH, 100.0)
            .kernel(names::PRODUCT, 100.0)
            .play(3);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 75_000.0).abs() < 1.0);
        assert!((fault.removed_ns(&found.least) - 50_000.0).abs() < 1.0);
        assert!(found.decides.is_some() && found.is_bound);
        let mended = StepScript::new().kernel(names::FLASH, 50.0).kernel(names::PRODUCT, 100.0);
        assert!(mended.play(3).look(find).is_none());
        // A `where` elsewhere is none.
        let elsewhere = StepScript::new().kernel(names::FLASH, 50.0).kernel(mask, 10.0);
        let elsewhere = elsewhere.kernels(4, names::ADD, 1.0).play(3);
        assert!(elsewhere.look(find).is_none());
    }
}
