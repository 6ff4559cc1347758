//! A full sort in each step.
//!
//! The names of the radix and merge sorts of CUB and torch tell. A sort makes several passes over
//! keys and values. Where the largest few are wanted, `topk` needs one or two; where the order is
//! only wanted to add by key, a scatter needs one. What prepares a sort and puts its result in place
//! (numbers of the rows, fills between its passes, gathers behind it) goes with it. Whether the whole
//! order is needed is in no trace, so the gain is a bound: all of it. Sorts within the backward pass
//! of an index or an embedding belong to that.

use std::collections::BTreeSet;

use rgpu_model::account::AccountCause;

use super::Found;
use super::picked::{Changes, Picked, has_name, lanes, names_that};
use crate::view::View;

/// A smaller part of a step is not worth another algorithm.
const MIN_SHARE: f64 = 0.03;
/// Launches from a sort to the backward pass that it serves.
const NEAR: usize = 12;
/// Launches to either side of a sort's kernel among which its helpers are.
const BESIDE: usize = 2;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let sorts = names_that(view, |name| {
        let lower = name.to_ascii_lowercase();
        ["radixsort", "radix_sort", "mergesort", "merge_sort", "segmentedsort", "bitonicsort"]
            .iter()
            .any(|word| lower.contains(word))
    });
    let users = names_that(view, |name| {
        ["indexing_backward", "compute_grad_weight", "krn_partial", "UniqueByKey"]
            .iter()
            .any(|word| name.contains(word))
    });
    let mut all = Vec::new();
    for lane in &lanes(view) {
        for (position, (at, work)) in lane.iter().enumerate() {
            let behind = lane.get(position..position.saturating_add(NEAR).min(lane.len()));
            let serves = || behind.unwrap_or_default().iter().any(|(_, w)| has_name(&users, w));
            if has_name(&sorts, work) && view.class(work) == AccountCause::Sort && !serves() {
                all.push(*at);
            }
        }
    }
    let kernels = Picked::new(view, all);
    if kernels.share() < MIN_SHARE {
        return None;
    }
    let helpers = helpers(view, &kernels.at.iter().copied().collect());
    let changes = Changes::new(view);
    Some(Found {
        change: "sort less".to_owned(),
        text: format!("sorts take {}", kernels.words()),
        hint: "`torch.topk(x, k)` (CuPy: `cp.partition`, JAX: `jax.lax.top_k`) where only the \
               largest are used, a scatter where only sums by key are, smaller keys (int32, float16) \
               where they suffice, and one sort for all rows in place of one for each"
            .to_owned(),
        least: changes.scaled(&kernels.at, 0.8),
        most: changes.without(&[kernels.at.clone(), helpers].concat(), 1.0),
        work: kernels.at.clone(),
        is_bound: true,
        ..Found::default()
    })
}

/// Work between two kernels of a sort, and right around them, that only serves it: fills and kernels
/// that number, scan, copy or gather.
fn helpers(view: &View<'_>, sorts: &BTreeSet<u32>) -> Vec<u32> {
    let by_name = names_that(view, |name| {
        let lower = name.to_ascii_lowercase();
        ["fill_index", "fill_reverse", "arange", "sort_postprocess", "devicescan", "scan_by_key"]
            .iter()
            .any(|word| lower.contains(word))
    });
    let mut found = Vec::new();
    for lane in &lanes(view) {
        for (position, (at, work)) in lane.iter().enumerate() {
            let from = position.saturating_sub(BESIDE);
            let near = lane.get(from..position.saturating_add(BESIDE + 1).min(lane.len()));
            let near = near.unwrap_or_default();
            let serves = has_name(&by_name, work)
                || matches!(view.class(work), AccountCause::Fill | AccountCause::GatherScatter);
            if serves && !sorts.contains(at) && near.iter().any(|(at, _)| sorts.contains(at)) {
                found.push(*at);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn sorts_are_found_but_not_those_of_an_embedding() {
        let sort =
            "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<X>(T2 *)";
        let grad = "void at::native::<unnamed>::compute_grad_weight<float, long>(const T2 *)";
        let step = StepScript::new().kernel(names::PRODUCT, 100.0).kernels(4, sort, 10.0);
        let fault = step.clone().kernel(names::ADD, 5.0).play(3);
        let found = fault.look(find).unwrap();
        assert!(found.is_bound);
        assert!((fault.removed_ns(&found.most) - 40_000.0).abs() < 10.0);
        let gathered = step.clone().set(1 << 20, 3.0).kernel(names::ADD, 5.0).play(3);
        let found = gathered.look(find).unwrap();
        assert!((gathered.removed_ns(&found.most) - 43_000.0).abs() < 10.0);
        assert!(step.kernel(grad, 5.0).play(3).look(find).is_none());
    }
}
