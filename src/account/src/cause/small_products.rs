//! Many small products one after the other: one for each expert, head or group.
//!
//! The signature is a run of at least eight products with nothing but the workspaces of cuBLAS
//! between them, each as short as 12 µs or shorter: they cannot fill the GPU, and each has its own
//! launch. One batched or grouped product does them side by side. It takes at least what the
//! longest of them takes, and a tenth to a half of their sum.

use rgpu_model::account::AccountCause;

use super::Found;
use super::picked::{Changes, Picked, duration, lanes, runs};
use crate::edits::Edits;
use crate::view::View;

/// Products in a run.
const MIN_PRODUCTS: usize = 8;
/// A product that takes longer has work enough of its own.
const MAX_PRODUCT_NS: u64 = 12_000;
/// One batched product as a part of the sum: most and least gain.
const BATCHED_RATIO: (f64, f64) = (0.1, 0.5);

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let lanes = lanes(view);
    let mut groups: Vec<Vec<u32>> = Vec::new();
    for lane in &lanes {
        let found = runs(lane, MIN_PRODUCTS, |work| {
            let class = view.class(work);
            class == AccountCause::Fill && work.duration_ns < 2_000
                || class == AccountCause::MatrixProduct && work.duration_ns <= MAX_PRODUCT_NS
        });
        for run in found {
            let is_product = |at: &u32| {
                let work = view.trace.work.get(*at as usize);
                work.is_some_and(|work| view.class(work) == AccountCause::MatrixProduct)
            };
            let group: Vec<u32> = run.iter().map(|(at, _)| *at).collect();
            if group.iter().filter(|at| is_product(at)).count() >= MIN_PRODUCTS {
                groups.push(group);
            }
        }
    }
    let products = Picked::new(view, groups.concat());
    if !products.matters() {
        return None;
    }
    let changes = Changes::new(view);
    let edits = |ratio: f64| {
        let mut edits = Edits::default();
        for group in &groups {
            let times = group.iter().map(|at| duration(view, *at));
            let (sum, longest) = times.fold((0.0, 0.0), |(s, m): (f64, f64), t| (s + t, m.max(t)));
            changes.fuse(&mut edits, group, (sum * ratio).max(longest));
        }
        edits
    };
    let (most, least) = BATCHED_RATIO;
    Some(Found {
        change: "batch small products".to_owned(),
        text: format!(
            "{:.0} runs of small products a step, one after the other, take {}",
            (groups.len() as f64 / view.step_count()).max(1.0),
            products.words()
        ),
        hint: "stack the matrices and multiply once: `torch.bmm(a, b)` or `torch.einsum` (JAX: \
               `jax.vmap`; cuBLAS: `cublasGemmStridedBatchedEx`); where the sizes differ, \
               `torch._grouped_mm` or `cublasGemmGroupedBatchedEx`"
            .to_owned(),
        least: edits(least),
        most: edits(most),
        work: products.at.clone(),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn a_run_of_small_products_is_found_and_one_batched_product_is_not() {
        let fault =
            StepScript::new().kernels(16, names::PRODUCT, 5.0).kernel(names::ADD, 9.0).play(3);
        let found = fault.look(find).unwrap();
        assert_eq!(found.work.len(), 2 * 16);
        assert!((fault.removed_ns(&found.most) - 72_000.0).abs() < 10.0);
        assert!((fault.removed_ns(&found.least) - 40_000.0).abs() < 10.0);
        assert!(StepScript::new().kernel(names::PRODUCT, 20.0).play(3).look(find).is_none());
        assert!(StepScript::new().kernels(16, names::PRODUCT, 50.0).play(3).look(find).is_none());
    }
}
