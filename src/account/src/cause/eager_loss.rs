//! Cross entropy in several passes over tokens times vocabulary.
//!
//! The signature is a log-softmax with the loss behind it, and backward, whose neighbours cast or
//! fill tensors of the same size. Each pass moves all logits. A fused loss reads them once for the
//! forward pass and writes their gradient once; it takes a quarter to two thirds of the time,
//! depending on the types of the passes.

use rgpu_model::account::AccountCause;

use super::Found;
use super::picked::{Changes, Framework, Picked, has_name, lanes, names_that};
use crate::view::View;

/// The fused loss as a part of the passes: most and least gain.
const FUSED_RATIO: (f64, f64) = (0.25, 0.65);
/// A neighbour works on the logits if it takes this part of the longest pass.
const SAME_SIZE_SHARE: f64 = 0.2;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let passes = names_that(view, |name| {
        ["LogSoftMax", "log_softmax", "nll_loss", "cross_entropy"].iter().any(|w| name.contains(w))
    });
    let lanes = lanes(view);
    let of_loss = lanes.iter().flatten().filter(|(_, work)| has_name(&passes, work));
    let longest = of_loss.map(|(_, work)| work.duration_ns).max()?;
    let mut all = Vec::new();
    for lane in &lanes {
        let is_near = |position: usize| {
            let from = position.saturating_sub(2);
            let near = lane.get(from..position.saturating_add(3).min(lane.len()));
            near.unwrap_or_default().iter().any(|(_, work)| has_name(&passes, work))
        };
        for (position, (at, work)) in lane.iter().enumerate() {
            let class = view.class(work);
            let moves = matches!(class, AccountCause::Cast | AccountCause::Fill);
            let is_large = work.duration_ns as f64 >= longest as f64 * SAME_SIZE_SHARE;
            if has_name(&passes, work) || moves && is_large && is_near(position) {
                all.push(*at);
            }
        }
    }
    let loss = Picked::new(view, all);
    if !loss.matters() {
        return None;
    }
    let hint = if Framework::of(view) == Framework::Jax {
        "compute the loss from the logits in one jitted function, in blocks of tokens \
         (`jax.lax.map`), so that XLA keeps no FP32 copy of the logits"
    } else {
        "use a fused loss that takes the last layer's input \
         (`liger_kernel.transformers.LigerFusedLinearCrossEntropyLoss`), or \
         `torch.compile` the last layer with the loss"
    };
    let changes = Changes::new(view);
    let (most, least) = FUSED_RATIO;
    Some(Found {
        change: "fuse the cross entropy".to_owned(),
        text: format!("passes of the cross entropy over all logits take {}", loss.words()),
        hint: hint.to_owned(),
        least: changes.scaled(&loss.at, least),
        most: changes.scaled(&loss.at, most),
        work: loss.at.clone(),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn passes_over_the_logits_are_found_and_a_small_loss_is_silent() {
        let forward = "void at::native::<unnamed>::cunn_SoftMaxForward<(int)4, float, float, float, at::native::<unnamed>::LogSoftMaxForwardEpilogue>(T4 *)";
        let fault = |us: f64| {
            StepScript::new()
                .kernel(names::PRODUCT, 200.0)
                .kernel(names::CAST, us)
                .kernel(forward, us)
                .kernel(
                    "void at::native::<unnamed>::nll_loss_forward_reduce_cuda_kernel_2d<float>(X)",
                    2.0,
                )
                .kernel(names::PRODUCT, 200.0)
                .play(3)
        };
        let window = fault(100.0);
        let found = window.look(find).unwrap();
        assert_eq!(found.work.len(), 2 * 3);
        assert!(window.removed_ns(&found.most) > window.removed_ns(&found.least));
        assert!(fault(1.0).look(find).is_none());
    }
}
