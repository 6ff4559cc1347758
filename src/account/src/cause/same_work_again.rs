//! The same sequence of kernels on the same sizes runs again within a step, without a backward pass:
//! a forward pass for each metric, an evaluation that repeats what was computed.
//!
//! The host reads results where such a sequence ends, so a step is cut at its reads of small values.
//! The signature is two parts of at least twenty kernels each, nine tenths of which are the same kernels
//! with the same grids. Whether their input is the same, the trace does not tell, so the gain is a
//! bound.

use std::collections::BTreeMap;

use rgpu_model::trace::TraceWorkKind;

use super::common::{Direction, direction, is_small_copy};
use super::picked::{Changes, Picked, has_name, names_that};
use super::{Found, words};
use crate::view::View;

/// Kernels of a part.
const LEAST_KERNELS: usize = 20;
/// The part of a step's time that all parts that come again take.
const MIN_SHARE: f64 = 0.05;
/// The part of the kernels that is equal.
const EQUAL_SHARE: f64 = 0.9;

/// The kernels of a part of a step, by name and grid.
type Kinds = BTreeMap<(u32, Option<u32>), usize>;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let backward = names_that(view, |name| {
        ["ackward", "bprop", "_bwd", "dgrad", "wgrad", "grad_input", "multi_tensor_apply"]
            .iter()
            .any(|word| name.contains(word))
    });
    let (mut again, mut parts_again, mut steps) = (Vec::new(), 0_usize, 0_usize);
    for step in view.window() {
        let mut seen: Vec<(Kinds, usize)> = Vec::new();
        let before = parts_again;
        for part in parts(view, &step.work) {
            let mut kinds = Kinds::new();
            let work = part.iter().filter_map(|at| view.trace.work.get(*at as usize));
            let mut is_forward = true;
            for work in work {
                is_forward &= !has_name(&backward, work);
                *kinds.entry((work.name, work.shape)).or_default() += 1;
            }
            if !is_forward || part.len() < LEAST_KERNELS {
                continue;
            }
            if seen.iter().any(|(other, count)| is_equal(&kinds, part.len(), other, *count)) {
                again.extend_from_slice(&part);
                parts_again += 1;
            } else {
                seen.push((kinds, part.len()));
            }
        }
        steps += usize::from(parts_again > before);
    }
    let work = Picked::new(view, again);
    if (steps as f64) * 2.0 < view.step_count() || work.share() < MIN_SHARE {
        return None;
    }
    let changes = Changes::new(view);
    Some(Found {
        change: "compute it once".to_owned(),
        text: format!(
            "the same kernels on the same sizes run again {} without a backward pass, each time up \
             to a value that the host reads: {}",
            words::times(parts_again, view),
            work.words()
        ),
        hint: "if the input is the same (a forward pass for each metric or each subset of rows), \
               compute it once and take all results from it; evaluate in every n-th step only"
            .to_owned(),
        least: changes.scaled(&work.at, 0.9),
        most: changes.without(&work.at, 1.0),
        work: work.at,
        decides: Some("whether both work on the same input".to_owned()),
        is_bound: true,
        ..Found::default()
    })
}

/// The kernels of a step between the host's reads of small values.
fn parts(view: &View<'_>, step: &[u32]) -> Vec<Vec<u32>> {
    let mut parts = vec![Vec::new()];
    for at in step {
        let Some(work) = view.trace.work.get(*at as usize) else { continue };
        if direction(view, work) == Some(Direction::ToHost) && is_small_copy(work) {
            parts.push(Vec::new());
        } else if work.kind == TraceWorkKind::Kernel
            && let Some(part) = parts.last_mut()
        {
            part.push(*at);
        }
    }
    parts
}

/// Whether two parts are the same kernels but for a tenth.
fn is_equal(a: &Kinds, a_count: usize, b: &Kinds, b_count: usize) -> bool {
    let equal = a.iter().map(|(kind, count)| (*count).min(b.get(kind).copied().unwrap_or(0)));
    equal.sum::<usize>() as f64 >= EQUAL_SHARE * a_count.max(b_count) as f64
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    fn forward(us: f64) -> StepScript {
        StepScript::new()
            .kernels(8, names::PRODUCT, us)
            .kernels(8, names::MUL, us)
            .kernels(8, names::SOFTMAX, us)
            .copy("DtoH", 4, 2.0, Some(true))
    }

    #[test]
    fn an_evaluation_that_computes_the_same_twice_is_found() {
        let training = StepScript::new()
            .kernels(6, names::PRODUCT, 50.0)
            .kernel(names::SOFTMAX_BACKWARD, 30.0)
            .kernels(12, names::PRODUCT, 50.0)
            .copy("DtoH", 4, 2.0, Some(true));
        let step = training.clone().then(forward(40.0)).then(forward(40.0));
        let fault = step.play(4);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 960_000.0).abs() < 10.0);
        assert!(training.clone().then(forward(40.0)).play(4).look(find).is_none());
        // Two batches that are trained on.
        assert!(training.clone().then(training).play(4).look(find).is_none());
        let other = StepScript::new().then(forward(40.0)).shaped(3).then(
            StepScript::new().shaped(9).kernels(24, names::PRODUCT, 40.0).copy(
                "DtoH",
                4,
                2.0,
                Some(true),
            ),
        );
        assert!(other.play(4).look(find).is_none());
    }
}
