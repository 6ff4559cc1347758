//! Gradients are set to zero in each step, and added to, where they could be written.
//!
//! The signature is a run of fills, one for each parameter: fill kernels, memsets, or the kernels
//! of `_foreach_zero_`. Without them backward writes each gradient in place of adding to it. The
//! fills go whole; the additions become writes, which is not counted.

use rgpu_model::account::AccountCause;

use super::Found;
use super::picked::{Changes, Framework, Picked, has_name, lanes, names_that, runs};
use crate::view::View;

/// Fills in a row.
const MIN_FILLS: usize = 8;

/// The fills that come in a row, or as a list of tensors.
pub(super) fn fills(view: &View<'_>) -> Vec<u32> {
    let zeros = names_that(view, |name| {
        name.contains("multi_tensor_apply") && name.contains("ZeroFunctor")
    });
    let lanes = lanes(view);
    let mut all = Vec::new();
    for lane in &lanes {
        let fills = runs(lane, MIN_FILLS, |work| view.class(work) == AccountCause::Fill);
        all.extend(fills.into_iter().flatten().map(|(at, _)| *at));
        all.extend(lane.iter().filter(|(_, work)| has_name(&zeros, work)).map(|(at, _)| *at));
    }
    all
}

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let fills = Picked::new(view, fills(view));
    if !fills.matters() {
        return None;
    }
    let hint = match Framework::of(view) {
        Framework::Torch => {
            "`optimizer.zero_grad(set_to_none=True)` (the default since torch 2.0; \
             `zero_grad(set_to_none=False)` and `p.grad.zero_()` fill)"
        }
        _ => "allocate the arrays in one piece and fill once, or let the first kernel write",
    };
    let changes = Changes::new(view);
    Some(Found {
        change: "do not fill what is written anyway".to_owned(),
        text: format!("fills in a row take {}", fills.words()),
        hint: hint.to_owned(),
        least: changes.without(&fills.at, 0.5),
        most: changes.without(&fills.at, 1.0),
        work: fills.at.clone(),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn a_fill_for_each_gradient_is_found_and_single_fills_are_not() {
        let fault = StepScript::new().kernels(20, names::FILL, 2.0).kernel(names::PRODUCT, 99.0);
        let fault = fault.play(3);
        let found = fault.look(find).unwrap();
        assert_eq!(found.work.len(), 2 * 20);
        assert!((fault.removed_ns(&found.least) - 40_000.0).abs() < 1.0);
        let single = StepScript::new().kernel(names::FILL, 9.0).kernel(names::PRODUCT, 99.0);
        assert!(single.play(3).look(find).is_none());
    }
}
