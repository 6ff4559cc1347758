//! A kernel of a framework that takes many times what its neighbours take.
//!
//! Kernels that only move data (element-wise, casts, copies, reductions, norms) take what their bytes
//! take. Where one of a framework's own kernels takes a quarter of a step, and more than eight times
//! the longest of the moving kernels right around it, it does not move data once: few threads work,
//! addresses collide, or its algorithm makes many passes. Which, the name and its counters tell. The
//! gain is a bound, down to twice the neighbour. Products, convolutions and attention compute, and
//! are not judged so; additions by index, sorts and Fourier transforms have causes of their own.

use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::picked::{Changes, Picked, duration, has_name, lanes, names_that};
use super::{Found, words, written_out_attention};
use crate::class::KernelFamily;
use crate::edits::Edits;
use crate::view::View;

/// The part of a step that the kernel takes.
const MIN_SHARE: f64 = 0.25;
/// The multiple of its longest neighbour.
const MIN_MULTIPLE: f64 = 8.0;
/// What is left of it, as a multiple of its neighbour.
const LEFT_MULTIPLE: f64 = 2.0;
/// Launches to either side that are neighbours.
const NEAR: usize = 3;
/// A neighbour of less is about other data.
const MIN_NEIGHBOUR_NS: f64 = 5_000.0;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let told = names_that(view, |name| {
        ["indexing_backward_kernel", "ReduceAdd", "scatter_fusion", "RadixSort", "MergeSort"]
            .iter()
            .any(|word| name.contains(word))
    });
    let attention = written_out_attention::work(view);
    let (mut slow, mut most) = (Vec::new(), Edits::default());
    let changes = Changes::new(view);
    for lane in &lanes(view) {
        for (position, (at, work)) in lane.iter().enumerate() {
            if has_name(&told, work) || attention.contains(at) || !is_judged(view, work) {
                continue;
            }
            let from = position.saturating_sub(NEAR);
            let near = lane.get(from..position.saturating_add(NEAR + 1).min(lane.len()));
            let near = near.unwrap_or_default().iter().filter(|(other, neighbour)| {
                other != at && neighbour.name != work.name && moves_once(&view.class(neighbour))
            });
            let near_ns = near.map(|(at, _)| duration(view, *at)).fold(0.0, f64::max);
            let ns = duration(view, *at);
            if near_ns >= MIN_NEIGHBOUR_NS && ns >= near_ns * MIN_MULTIPLE {
                slow.push(*at);
                changes.scale(&mut most, *at, near_ns * LEFT_MULTIPLE / ns);
            }
        }
    }
    let kernels = Picked::new(view, slow);
    if kernels.share() < MIN_SHARE {
        return None;
    }
    let name = kernels.at.first().and_then(|at| view.trace.work.get(*at as usize));
    let name = name.map_or(String::new(), |work| words::short_name(view.name(work)));
    Some(Found {
        change: format!("replace the operator behind `{name}`"),
        text: format!(
            "a framework's kernel takes more than {MIN_MULTIPLE:.0} times what the kernels around it \
             take to move their data: {}",
            kernels.words()
        ),
        hint: "find the operator that launches it (a recording with stacks names the line), and \
               write it with another operator or another layout: few rows or groups leave most of \
               the GPU idle, and repeated indexes collide; `rgpu profile --mode deep` tells which"
            .to_owned(),
        // Nothing is certain.
        least: changes.scaled(&kernels.at, 1.0),
        most,
        work: kernels.at.clone(),
        is_bound: true,
        ..Found::default()
    })
}

/// Whether a kernel is a framework's own, and moves more than it computes.
fn is_judged(view: &View<'_>, work: &TraceWork) -> bool {
    let of_framework =
        matches!(view.family(work), KernelFamily::Torch | KernelFamily::Cupy | KernelFamily::Cub);
    let computes = matches!(
        view.class(work),
        AccountCause::MatrixProduct
            | AccountCause::Convolution
            | AccountCause::Attention
            | AccountCause::Optimizer
            | AccountCause::Fft
            | AccountCause::Communication
    );
    work.kind == TraceWorkKind::Kernel && of_framework && !computes
}

/// Whether a class moves its data about once.
fn moves_once(class: &AccountCause) -> bool {
    matches!(
        class,
        AccountCause::ElementWise
            | AccountCause::Cast
            | AccountCause::Layout
            | AccountCause::Reduction
            | AccountCause::Normalisation
            | AccountCause::Softmax
            | AccountCause::Fused
    )
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn a_kernel_that_is_far_slower_than_its_neighbours_is_found() {
        let scan = "void at::native::tensor_kernel_scan_outer_dim<float, unsigned int, std::plus<float>>(T1 *)";
        let step = |us| {
            StepScript::new()
                .kernel(names::PRODUCT, 200.0)
                .kernel(names::MUL, 20.0)
                .kernel(scan, us)
                .play(3)
        };
        let fault = step(800.0);
        let found = fault.look(find).unwrap();
        assert!(found.is_bound && found.text.contains("tensor_kernel_scan_outer_dim"));
        assert!((fault.removed_ns(&found.most) - 760_000.0).abs() < 10.0);
        assert!(step(100.0).look(find).is_none());
        let product = StepScript::new().kernel(names::MUL, 20.0).kernel(names::PRODUCT, 900.0);
        assert!(product.play(3).look(find).is_none());
    }
}
