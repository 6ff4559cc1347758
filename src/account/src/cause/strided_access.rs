//! Element-wise kernels and reductions that walk memory with strides.
//!
//! torch has a kernel for dense operands (`vectorized_elementwise_kernel`) and one for strides
//! (`elementwise_kernel` with an offset calculator); a reduction over an axis that is not the last
//! may walk with strides, too. Neighbouring threads then read from different sectors, and most of
//! what memory delivers is not used. The names tell the kind; whether the strides cost, the time
//! tells: such a kernel that takes more than four times what the kernel right before it took to
//! write its data. With a dense operand it takes one to two times that. A broadcast has strides and
//! costs less, so it stays below.

use rgpu_model::account::AccountCause;
use rgpu_model::trace::TraceWork;

use super::Found;
use super::picked::{Changes, Picked, duration, has_name, lanes, names_that};
use crate::edits::Edits;
use crate::view::View;

/// The multiple of the kernel before it.
const MIN_MULTIPLE: f64 = 4.0;
/// What a dense operand takes, as a multiple of the kernel before: most and least gain.
const DENSE_MULTIPLE: (f64, f64) = (1.0, 2.0);
/// Launches before the kernel that may have written its data.
const NEAR: usize = 2;
/// A kernel before of less wrote something else.
const MIN_BEFORE_NS: f64 = 5_000.0;
/// The part of a step that the kernels take.
const MIN_SHARE: f64 = 0.05;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let strided = names_that(view, |name| {
        let is_strided = name.contains("at::native::elementwise_kernel<")
            && !name.contains("direct_copy_kernel");
        is_strided || name.contains("at::native::reduce_kernel<")
    });
    let dense = names_that(view, |name| {
        name.contains("vectorized_elementwise_kernel")
            || name.contains("unrolled_elementwise_kernel")
    });
    let (mut slow, mut most, mut least) = (Vec::new(), Edits::default(), Edits::default());
    let changes = Changes::new(view);
    for lane in &lanes(view) {
        for (position, (at, work)) in lane.iter().enumerate() {
            if !has_name(&strided, work) || !is_judged(view, work) {
                continue;
            }
            let before = lane.get(position.saturating_sub(NEAR)..position).unwrap_or_default();
            let before = before.iter().filter(|(_, work)| has_name(&dense, work));
            let before_ns = before.map(|(at, _)| duration(view, *at)).fold(0.0, f64::max);
            let ns = duration(view, *at);
            if before_ns >= MIN_BEFORE_NS && ns >= before_ns * MIN_MULTIPLE {
                slow.push(*at);
                changes.scale(&mut most, *at, before_ns * DENSE_MULTIPLE.0 / ns);
                changes.scale(&mut least, *at, before_ns * DENSE_MULTIPLE.1 / ns);
            }
        }
    }
    let kernels = Picked::new(view, slow);
    if kernels.share() < MIN_SHARE {
        return None;
    }
    Some(Found {
        change: "give these kernels dense operands".to_owned(),
        text: format!(
            "kernels that walk memory with strides take more than {MIN_MULTIPLE:.0} times what \
             writing their data took: {}",
            kernels.words()
        ),
        hint: "make the axis that these operators walk the last one: put the transposition where the \
               data is made, sum over the last axis, or `.contiguous()` once where several operators \
               read the same strided tensor"
            .to_owned(),
        least,
        most,
        work: kernels.at.clone(),
        decides: Some(
            "the sectors for each request of this kernel in `rgpu profile --mode deep`: 4 for dense \
             FP32"
                .to_owned(),
        ),
        ..Found::default()
    })
}

fn is_judged(view: &View<'_>, work: &TraceWork) -> bool {
    matches!(view.class(work), AccountCause::ElementWise | AccountCause::Reduction)
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn a_strided_kernel_that_is_slow_is_found_and_a_broadcast_is_silent() {
        let strided = "void at::native::elementwise_kernel<(int)128, (int)2, void at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float>>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)";
        let step = |us| {
            StepScript::new()
                .kernel(names::PRODUCT, 100.0)
                .kernel(names::MUL, 50.0)
                .kernel(strided, us)
                .play(3)
        };
        let fault = step(300.0);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 250_000.0).abs() < 10.0);
        assert!((fault.removed_ns(&found.least) - 200_000.0).abs() < 10.0);
        assert!(step(120.0).look(find).is_none());
        let sum = StepScript::new().kernel(names::MUL, 50.0).kernel(names::MEAN, 400.0).play(3);
        assert!(sum.look(find).is_some());
    }
}
