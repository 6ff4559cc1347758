//! The gradient of an embedding is as large as its table, though a batch touches few rows.
//!
//! The backward pass of an embedding fills a gradient of the table's size, adds the rows of the batch,
//! and the optimizer then goes over the whole table. The signature is a large fill shortly before
//! torch's kernel of that backward pass (`embedding_backward`, `compute_grad_weight`). The fill
//! writes the table once, so its time measures the table: an optimizer like Adam makes seven such
//! passes. With sparse gradients the fill goes, and between three and seven passes of the optimizer
//! with it, but no more than the optimizer takes.

use rgpu_model::account::AccountCause;

use super::Found;
use super::picked::{Changes, Picked, duration, has_name, lanes, names_that};
use crate::edits::Edits;
use crate::view::View;

/// Launches from the fill to the kernel that adds the rows: a sort lies between.
const NEAR: usize = 16;
/// A fill of less is a small table.
const MIN_FILL_NS: f64 = 10_000.0;
/// A smaller part of a step is not worth another optimizer.
const MIN_SHARE: f64 = 0.02;
/// Passes over the table that go: most and least gain.
const PASSES: (f64, f64) = (7.0, 3.0);

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let adds = names_that(view, |name| {
        ["embedding_backward", "compute_grad_weight", "sum_and_scatter"]
            .iter()
            .any(|word| name.contains(word))
    });
    let mut fills: Vec<u32> = Vec::new();
    for lane in &lanes(view) {
        for (position, (_, work)) in lane.iter().enumerate() {
            if !has_name(&adds, work) {
                continue;
            }
            let before = lane.get(position.saturating_sub(NEAR)..position).unwrap_or_default();
            let before = before.iter().filter(|(_, w)| view.class(w) == AccountCause::Fill);
            let longest = before.max_by_key(|(_, fill)| fill.duration_ns).map(|(at, _)| *at);
            fills.extend(longest.filter(|at| duration(view, *at) >= MIN_FILL_NS));
        }
    }
    fills.sort_unstable();
    fills.dedup();
    let optimizer = Picked::find(view, |work| view.class(work) == AccountCause::Optimizer);
    let fills = Picked::new(view, fills);
    let passes_ns = |passes: f64| (fills.ns() * passes).min(optimizer.ns() * 0.98);
    let share = (fills.ns() + passes_ns(PASSES.1)) / view.step_ns().max(1.0);
    if fills.at.is_empty() || share < MIN_SHARE {
        return None;
    }
    let changes = Changes::new(view);
    let edits = |passes: f64| -> Edits {
        let mut edits = changes.without(&fills.at, 0.0);
        let left = 1.0 - passes_ns(passes) / optimizer.ns().max(1.0);
        edits.add(&changes.scaled(&optimizer.at, left));
        edits
    };
    let (most, least) = PASSES;
    Some(Found {
        change: "use sparse gradients for the embedding".to_owned(),
        text: format!(
            "the gradient of an embedding is filled with zeros in the size of its table, and the \
             optimizer goes over all of it: the fill takes {}",
            fills.words()
        ),
        hint:
            "`nn.Embedding(n, d, sparse=True)` with `torch.optim.SparseAdam` (or Adagrad, SGD) for \
               its parameters; Adam on sparse gradients changes only the rows of the batch"
                .to_owned(),
        least: edits(least),
        most: edits(most),
        work: fills.at.clone(),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn a_large_fill_for_an_embedding_is_found_with_its_optimizer() {
        let adds =
            "void at::native::<unnamed>::embedding_backward_feature_kernel<float, float, long>(X)";
        let adam = "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::FusedOptimizerTensorListMetadata<(int)4>, at::native::<unnamed>::FusedAdamMathFunctor<float>>(X)";
        let step = |fill_us| {
            StepScript::new()
                .kernel(names::PRODUCT, 500.0)
                .kernel(names::FILL, fill_us)
                .kernel(adds, 20.0)
                .kernel(adam, 900.0)
                .play(3)
        };
        let fault = step(100.0);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 800_000.0).abs() < 100.0);
        assert!((fault.removed_ns(&found.least) - 400_000.0).abs() < 100.0);
        assert!(step(2.0).look(find).is_none());
    }
}
