//! A norm written out as operators: square, mean, root, product.
//!
//! The signature is a reduction (mean, sum or variance) and shortly after it a root, with
//! element-wise kernels around: `x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * w`. Each of
//! the large kernels reads and writes the whole tensor. The fused norm reads once and writes once:
//! it takes 0.8 to 1.8 times the longest of them.

use rgpu_model::account::AccountCause;
use rgpu_model::trace::TraceWork;

use super::Found;
use super::picked::{Changes, Picked, duration, has_name, lanes, names_that};
use crate::edits::Edits;
use crate::view::View;

/// The fused norm as a multiple of the longest kernel: most and least gain.
const FUSED_RATIO: (f64, f64) = (0.8, 1.8);
/// Kernels from the reduction to the root, and to either side of them.
const MAX_TO_ROOT: usize = 5;
const MAX_SIDE: usize = 4;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let roots = names_that(view, |name| {
        name.contains("at::native")
            && ["rsqrt_kernel", "sqrt_kernel"].iter().any(|word| name.contains(word))
    });
    let sums = names_that(view, |name| {
        name.contains("reduce_kernel")
            && ["MeanOps", "WelfordOps", "sum_functor"].iter().any(|word| name.contains(word))
    });
    let mut norms: Vec<Vec<u32>> = Vec::new();
    for lane in &lanes(view) {
        let mut from = 0_usize;
        for (position, (_, work)) in lane.iter().enumerate() {
            if !has_name(&roots, work) {
                continue;
            }
            if let Some((start, end)) = norm_around(view, lane, from, position, &sums) {
                let norm = lane.get(start..end).unwrap_or_default();
                norms.push(norm.iter().map(|(at, _)| *at).collect());
                from = end;
            }
        }
    }
    let kernels = Picked::new(view, norms.concat());
    if !kernels.matters() {
        return None;
    }
    let changes = Changes::new(view);
    let edits = |ratio: f64| {
        let mut edits = Edits::default();
        for norm in &norms {
            let longest = norm.iter().map(|at| duration(view, *at)).fold(0.0, f64::max);
            changes.fuse(&mut edits, norm, longest * ratio);
        }
        edits
    };
    let (most, least) = FUSED_RATIO;
    Some(Found {
        change: "use a fused norm".to_owned(),
        text: format!(
            "{:.0} norms a step are written out as operators, which take {}",
            norms.len() as f64 / view.step_count(),
            kernels.words()
        ),
        hint: "`torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)` or `F.layer_norm`; \
               `torch.compile` fuses them, too"
            .to_owned(),
        least: edits(least),
        most: edits(most),
        work: kernels.at.clone(),
        ..Found::default()
    })
}

/// The part of a lane that is the norm around a root, not before `from`.
fn norm_around(
    view: &View<'_>,
    lane: &[(u32, &TraceWork)],
    from: usize,
    root: usize,
    sums: &[bool],
) -> Option<(usize, usize)> {
    let is_small = |work: &TraceWork| {
        matches!(view.class(work), AccountCause::ElementWise | AccountCause::Cast)
    };
    let is_sum = |work: &TraceWork| has_name(sums, work);
    let head = lane.get(from.max(root.saturating_sub(MAX_TO_ROOT))..root)?;
    let distance = head.iter().rev().position(|(_, work)| is_sum(work))?;
    let between = head.get(head.len().saturating_sub(distance)..)?;
    let sum = root.checked_sub(distance.checked_add(1)?)?;
    let before = lane.get(from.max(sum.saturating_sub(MAX_SIDE))..sum)?;
    let before = before.iter().rev().take_while(|(_, work)| is_small(work) || is_sum(work)).count();
    let behind = lane.get(root.saturating_add(1)..)?;
    let behind = behind.iter().take(MAX_SIDE).take_while(|(_, work)| is_small(work)).count();
    let all_small = between.iter().all(|(_, work)| is_small(work));
    // A root without a product behind it belongs to something else.
    (all_small && before > 0 && behind > 0)
        .then_some((sum.saturating_sub(before), root.saturating_add(behind).saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn a_norm_of_operators_is_found_and_a_fused_one_is_silent() {
        let pow = "void at::native::vectorized_elementwise_kernel<(int)4, void at::native::<unnamed>::pow_tensor_scalar_kernel_impl<float, float>(X)>(int)";
        let rsqrt = "void at::native::vectorized_elementwise_kernel<(int)4, at::native::rsqrt_kernel_cuda(X)>(int)";
        let fault = StepScript::new()
            .kernel(names::PRODUCT, 100.0)
            .kernel(pow, 20.0)
            .kernel(names::MEAN, 12.0)
            .kernel(names::ADD, 1.0)
            .kernel(rsqrt, 1.0)
            .kernels(2, names::MUL, 24.0)
            .play(3);
        let found = fault.look(find).unwrap();
        assert_eq!(found.work.len(), 2 * 6);
        assert!((fault.removed_ns(&found.most) - 62_800.0).abs() < 10.0);
        assert!((fault.removed_ns(&found.least) - 38_800.0).abs() < 10.0);
        let fused =
            "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)1>(X)";
        let mended = StepScript::new().kernel(names::PRODUCT, 100.0).kernel(fused, 20.0);
        assert!(mended.play(3).look(find).is_none());
    }
}
