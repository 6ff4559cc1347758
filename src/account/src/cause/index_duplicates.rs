//! Many values are added to few places: gradients of a small table, sums by key.
//!
//! Two forms. `index_put` with `accumulate`, the backward pass of `table[index]`, sorts the indexes
//! and lets one warp add all values of a place: torch's `indexing_backward_kernel` then runs for
//! long with the GPU nearly empty. An atomic addition (`scatter_add`, `index_add`, a scatter of XLA)
//! to few addresses is served one after the other by the L2 cache.
//!
//! How often an index repeats is in no trace. The time tells: moving the values once takes about as
//! long as the element-wise or reducing kernel next to it that made or reads them. A scatter that
//! takes more than eight times that is told; it takes one to four times its neighbour then. The
//! kernel of `index_put` is slow by construction, and is always told where it matters.

use rgpu_model::account::AccountCause;
use rgpu_model::trace::TraceWork;

use super::Found;
use super::picked::{Changes, Framework, Picked, duration, has_name, lanes, names_that};
use crate::edits::Edits;
use crate::view::View;

/// A scatter of this multiple of its neighbour is slow.
const SLOW_MULTIPLE: f64 = 8.0;
/// What a scatter without contention takes, as a multiple of its neighbour: most and least gain.
const NEIGHBOUR_MULTIPLE: (f64, f64) = (1.0, 4.0);
/// What is left of `index_put`'s kernel: most and least gain.
const SERIAL_RATIO: (f64, f64) = (0.005, 0.25);
/// Launches to either side that count as neighbours, and those in which its sort lies.
const NEAR: usize = 3;
const SORT_DISTANCE: usize = 12;
/// A neighbour of less is about something else.
const MIN_NEIGHBOUR_NS: f64 = 2_000.0;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let serial = names_that(view, |name| name.contains("indexing_backward_kernel"));
    let scatters = names_that(view, |name| {
        ["ReduceAdd", "indexFuncLargeIndex", "index_add", "scatter_fusion", "wrapped_scatter"]
            .iter()
            .any(|word| name.contains(word))
            && !name.contains("reduce_kernel")
    });
    let (mut slow, mut most, mut least) = (Vec::new(), Edits::default(), Edits::default());
    let changes = Changes::new(view);
    for lane in &lanes(view) {
        for (position, (at, work)) in lane.iter().enumerate() {
            let ns = duration(view, *at);
            if has_name(&serial, work) {
                slow.push(*at);
                changes.scale(&mut most, *at, SERIAL_RATIO.0);
                changes.scale(&mut least, *at, SERIAL_RATIO.1);
                // The sort of the indexes goes with it.
                let before = lane.get(position.saturating_sub(SORT_DISTANCE)..position);
                for (sort, work) in before.unwrap_or_default() {
                    if view.class(work) == AccountCause::Sort {
                        slow.push(*sort);
                        changes.remove(&mut most, *sort, 0.0);
                    }
                }
            } else if has_name(&scatters, work) {
                let near = neighbour_ns(view, lane, position);
                if near >= MIN_NEIGHBOUR_NS && ns >= near * SLOW_MULTIPLE {
                    slow.push(*at);
                    changes.scale(&mut most, *at, near * NEIGHBOUR_MULTIPLE.0 / ns);
                    changes.scale(&mut least, *at, near * NEIGHBOUR_MULTIPLE.1 / ns);
                }
            }
        }
    }
    let kernels = Picked::new(view, slow);
    if !kernels.matters() {
        return None;
    }
    let hint = match Framework::of(view) {
        Framework::Torch => {
            "look a table up with `F.embedding(index, table)` in place of `table[index]`: its \
             backward pass adds duplicates in parallel; for sums by key few keys are faster as a \
             product with `F.one_hot(index)`"
        }
        Framework::Jax => {
            "sum by key as `jax.nn.one_hot(index, n).T @ values` or with masks where keys are few; \
             else sort once and `jax.ops.segment_sum(…, indices_are_sorted=True)`"
        }
        _ => "add within a block first (shared memory), then once for each block",
    };
    Some(Found {
        change: "add duplicates in parallel".to_owned(),
        text: format!("additions to places that many indexes share take {}", kernels.words()),
        hint: hint.to_owned(),
        least,
        most,
        work: kernels.at.clone(),
        ..Found::default()
    })
}

/// The time of the longest kernel nearby that moves data once.
fn neighbour_ns(view: &View<'_>, lane: &[(u32, &TraceWork)], position: usize) -> f64 {
    let from = position.saturating_sub(NEAR);
    let near = lane.get(from..position.saturating_add(NEAR + 1).min(lane.len()));
    let near = near.unwrap_or_default().iter().filter(|(_, work)| {
        matches!(
            view.class(work),
            AccountCause::ElementWise
                | AccountCause::Cast
                | AccountCause::Layout
                | AccountCause::Fused
                | AccountCause::Reduction
                | AccountCause::Softmax
        )
    });
    near.map(|(at, _)| duration(view, *at)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn the_backward_pass_of_an_index_is_found_with_its_sort() {
        let sort =
            "void at_cuda_detail::cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<X>(T2 *)";
        let slow = "void <unnamed>::indexing_backward_kernel_small_stride<float>(const long *)";
        let fault = StepScript::new()
            .kernel(names::PRODUCT, 500.0)
            .kernel(sort, 10.0)
            .kernel(slow, 400.0)
            .play(3);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 408_000.0).abs() < 10.0);
        assert!((fault.removed_ns(&found.least) - 300_000.0).abs() < 10.0);
    }

    #[test]
    fn a_scatter_is_told_by_what_its_neighbour_takes() {
        let step = |us| {
            StepScript::new()
                .kernel("loop_multiply_fusion", 20.0)
                .kernel("input_scatter_fusion", us)
                .play(3)
        };
        let fault = step(900.0);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 880_000.0).abs() < 10.0);
        assert!((fault.removed_ns(&found.least) - 820_000.0).abs() < 10.0);
        assert!(step(60.0).look(find).is_none());
    }
}
