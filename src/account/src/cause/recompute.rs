//! Activation checkpointing: the backward pass computes parts of the forward pass again.
//!
//! The signature is the forward pass's own sequence of kernels within the backward pass: at least
//! two stretches of six or more kernels, between kernels that are only backward, in which each three
//! kernels in a row are three in a row of the forward pass. A second model's forward pass is one
//! stretch, as long as the forward pass, and is not counted. Without checkpointing the stretches go,
//! and their tensors stay in memory: whether they fit is for the allocator to tell.

use std::collections::HashSet;

use rgpu_model::account::AccountCause;
use rgpu_model::trace::TraceWorkKind;

use super::Found;
use super::picked::{Changes, Picked, has_name, names_that};
use crate::steps::Step;
use crate::view::View;

/// Kernels of a stretch.
const MIN_STRETCH: usize = 6;
/// A stretch is at most this part of the forward pass.
const MAX_STRETCH_SHARE: f64 = 0.6;
/// The stretches together are at least this part of the forward pass.
const MIN_TOTAL_SHARE: f64 = 0.25;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let backward = names_that(view, |name| {
        ["ackward", "bprop", "_bwd", "dgrad", "wgrad", "grad_input"]
            .iter()
            .any(|word| name.contains(word))
    });
    let again: Vec<u32> =
        view.window().iter().flat_map(|step| repeated(view, step, &backward)).collect();
    let work = Picked::new(view, again);
    if !work.matters() {
        return None;
    }
    let changes = Changes::new(view);
    Some(Found {
        change: "checkpoint fewer layers".to_owned(),
        text: format!(
            "the backward pass computes parts of the forward pass again (activation \
             checkpointing), which takes {}",
            work.words()
        ),
        hint: "checkpoint only as many layers as memory demands: \
               `torch.cuda.max_memory_allocated()` tells what is free; or keep the products' results \
               (`torch.utils.checkpoint.create_selective_checkpoint_contexts`; JAX: \
               `jax.checkpoint(f, policy=jax.checkpoint_policies.dots_saveable)`)"
            .to_owned(),
        least: changes.scaled(&work.at, 0.2),
        most: changes.without(&work.at, 1.0),
        work: work.at.clone(),
        decides: Some("the memory that is free at the peak of a step".to_owned()),
        ..Found::default()
    })
}

/// The kernels of a step that repeat the forward pass within the backward pass.
fn repeated(view: &View<'_>, step: &Step, backward: &[bool]) -> Vec<u32> {
    let kernels = step.work.iter().filter_map(|at| {
        let work = view.trace.work.get(*at as usize)?;
        let counts = work.kind == TraceWorkKind::Kernel && view.class(work) != AccountCause::Fill;
        counts.then_some((*at, work))
    });
    let kernels: Vec<_> = kernels.collect();
    let is_backward =
        |position: &usize| kernels.get(*position).is_some_and(|(_, work)| has_name(backward, work));
    let Some(first) = (0..kernels.len()).find(is_backward) else { return Vec::new() };
    let Some(last) = (0..kernels.len()).rev().find(is_backward) else { return Vec::new() };
    let name = |(_, work): &(u32, &rgpu_model::trace::TraceWork)| work.name;
    let forward = kernels.get(..first).unwrap_or_default();
    let threes: HashSet<Vec<u32>> =
        forward.windows(3).map(|three| three.iter().map(name).collect()).collect();
    let behind = kernels.get(first..last).unwrap_or_default();
    let mut is_repeated = vec![false; behind.len()];
    for (position, three) in behind.windows(3).enumerate() {
        if threes.contains(&three.iter().map(name).collect::<Vec<u32>>()) {
            let marked = is_repeated.iter_mut().skip(position).take(3);
            marked.for_each(|mark| *mark = true);
        }
    }
    let marks: Vec<(bool, u32)> =
        is_repeated.iter().zip(behind).map(|(mark, (at, _))| (*mark, *at)).collect();
    let stretches: Vec<&[(bool, u32)]> = marks
        .chunk_by(|a, b| a.0 == b.0)
        .filter(|run| run.first().is_some_and(|(mark, _)| *mark) && run.len() >= MIN_STRETCH)
        .collect();
    let total: usize = stretches.iter().map(|run| run.len()).sum();
    let longest = stretches.iter().map(|run| run.len()).max().unwrap_or(0);
    let of_forward = |count: usize| count as f64 / forward.len().max(1) as f64;
    if stretches.len() < 2
        || of_forward(longest) > MAX_STRETCH_SHARE
        || of_forward(total) < MIN_TOTAL_SHARE
    {
        return Vec::new();
    }
    stretches.into_iter().flatten().map(|(_, at)| *at).collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    const NORM: &str =
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(X)";
    const NORM_BACKWARD: &str =
        "void at::native::<unnamed>::layer_norm_grad_input_kernel_vectorized<float, float>(X)";

    fn forward(step: StepScript) -> StepScript {
        step.kernel(NORM, 9.0)
            .kernel(names::PRODUCT, 50.0)
            .kernel(names::FLASH, 40.0)
            .kernel(names::COPY, 5.0)
            .kernel("nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT", 50.0)
            .kernel(names::ADD, 5.0)
            .kernel(names::MUL, 5.0)
    }

    fn backward(step: StepScript) -> StepScript {
        step.kernel(NORM_BACKWARD, 20.0)
            .kernels(2, names::PRODUCT, 50.0)
            .kernel(names::FLASH_BACKWARD, 90.0)
            .kernels(2, names::PRODUCT, 50.0)
    }

    #[test]
    fn layers_that_are_computed_again_are_found() {
        let mut step = StepScript::new();
        for _ in 0..4 {
            step = forward(step);
        }
        step = step.kernel("void at::native::<unnamed>::cunn_SoftMaxBackward<(int)4>(X)", 5.0);
        let plain = step.clone();
        for _ in 0..4 {
            step = backward(forward(step));
        }
        let fault = step.play(3);
        let found = fault.look(find).unwrap();
        let most = fault.removed_ns(&found.most);
        assert!((most - 4.0 * 164_000.0).abs() < 10_000.0, "{most}");
        let mut mended = plain.clone();
        for _ in 0..4 {
            mended = backward(mended);
        }
        assert!(mended.play(3).look(find).is_none());
        // A second forward pass as a whole is another batch.
        let mut batches = backward(backward(plain));
        for _ in 0..4 {
            batches = forward(batches);
        }
        assert!(backward(batches).play(3).look(find).is_none());
    }
}
