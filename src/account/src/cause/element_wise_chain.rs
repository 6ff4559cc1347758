//! Element-wise operators one after the other, each a kernel that reads and writes whole tensors.
//!
//! The signature is a run of at least two element-wise kernels of torch or CuPy in a stream, with
//! casts, fills and random numbers between. A fused kernel reads each input once and writes one
//! result. Sizes are not in the trace, so the gain lies between two cases: each operator has a new
//! input besides the last result (k kernels of 3 passes become k + 2 passes), or none (2k passes
//! become 2). The fused kernel takes at least most of what the longest of them takes. The launches
//! but one go, too. A compiler also takes the chain into the reduction or the norm right before or
//! behind it, which then makes no pass of its own over the chain's data: so it is where the change
//! gives most. An optimizer's chain is told by its own cause.

use std::collections::BTreeSet;

use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::picked::{Changes, Framework, Picked, duration, lanes, runs};
use super::{Found, unfused_optimizer};
use crate::class::KernelFamily;
use crate::edits::Edits;
use crate::view::View;

/// A smaller part of a step is usual in any program.
const MIN_SHARE: f64 = 0.03;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let optimizer = unfused_optimizer::per_tensor_work(view);
    let (mut chains, mut wholes) = (Vec::new(), Vec::new());
    for lane in &lanes(view) {
        for run in runs(lane, 2, |work| can_fuse(view, work) || reduces(view, work)) {
            let before = chains.len();
            chains.extend(chains_of(view, run, &optimizer));
            if chains.len() > before {
                let whole = run.iter().map(|(at, _)| *at).filter(|at| !optimizer.contains(at));
                wholes.push(whole.collect::<Vec<u32>>());
            }
        }
    }
    let kernels = Picked::new(view, chains.concat());
    if kernels.share() < MIN_SHARE {
        return None;
    }
    let changes = Changes::new(view);
    let (mut least, mut most) = (Edits::default(), Edits::default());
    for chain in &chains {
        changes.fuse(&mut least, chain, least_fused_ns(view, chain));
    }
    for whole in &wholes {
        changes.fuse(&mut most, whole, most_fused_ns(view, whole));
    }
    let compiled = kernels_of_compiler_before(view);
    let hint = match Framework::of(view) {
        Framework::Torch if compiled > 0 => {
            "the compiled function is not what runs any more: `TORCH_LOGS=recompiles,graph_breaks` \
             says why (an attribute or size that changes in each call, up to \
             `torch._dynamo.config.recompile_limit`); take what changes out of the compiled \
             function, or mark it dynamic"
        }
        Framework::Cupy => {
            "`@cupy.fuse()` above the function, or one `cupy.ElementwiseKernel`; where a sum \
             follows, `cupy.ReductionKernel`"
        }
        _ => {
            "`model = torch.compile(model)`, or `@torch.compile` above the function with these \
              operators"
        }
    };
    let (count, length) = (chains.len() as f64, kernels.at.len() as f64);
    Some(Found {
        change: "fuse element-wise operators".to_owned(),
        text: format!(
            "element-wise kernels in {:.0} chains a step of {:.1} kernels each take {}{}",
            count / view.step_count(),
            length / count.max(1.0),
            kernels.words(),
            if compiled == 0 {
                String::new()
            } else {
                format!(
                    "; {compiled} kernels of torch's compiler ran before, none runs in these steps: \
                     the program fell back to its operators"
                )
            }
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: kernels.at.clone(),
        ..Found::default()
    })
}

/// Launches of kernels of torch's compiler before the window, if the window has none.
fn kernels_of_compiler_before(view: &View<'_>) -> usize {
    if view.has_family(KernelFamily::Inductor) {
        return 0;
    }
    let begin_ns = view.window().first().map_or(0, |step| step.start_ns);
    let before = view.trace.work.iter().take_while(|work| work.start_ns < begin_ns);
    before.filter(|work| view.family(work) == KernelFamily::Inductor).count()
}

/// Whether a kernel can be a part of a fused element-wise one.
fn can_fuse(view: &View<'_>, work: &TraceWork) -> bool {
    let of_framework = matches!(view.family(work), KernelFamily::Torch | KernelFamily::Cupy);
    let class = view.class(work);
    let fits = matches!(
        class,
        AccountCause::ElementWise | AccountCause::Cast | AccountCause::Fill | AccountCause::Random
    );
    work.kind == TraceWorkKind::Kernel && of_framework && fits
}

/// Whether a kernel sums or normalises, so that a compiler takes a chain before or behind it into it.
fn reduces(view: &View<'_>, work: &TraceWork) -> bool {
    let of_framework = matches!(view.family(work), KernelFamily::Torch | KernelFamily::Cupy);
    let class = view.class(work);
    let fits = matches!(
        class,
        AccountCause::Reduction | AccountCause::Normalisation | AccountCause::Softmax
    );
    work.kind == TraceWorkKind::Kernel && of_framework && fits
}

/// The chains of element-wise kernels within a run; those of an optimizer are left out.
fn chains_of(
    view: &View<'_>,
    run: &[(u32, &TraceWork)],
    optimizer: &BTreeSet<u32>,
) -> Vec<Vec<u32>> {
    let parts = runs(run, 2, |work| can_fuse(view, work)).into_iter().filter(|part| {
        let computes =
            part.iter().filter(|(_, work)| view.class(work) == AccountCause::ElementWise);
        computes.count() >= 2 && part.iter().all(|(at, _)| !optimizer.contains(at))
    });
    parts.map(|part| part.iter().map(|(at, _)| *at).collect()).collect()
}

/// What the fused kernel of a chain takes in nanoseconds, if each operator has an input of its own.
fn least_fused_ns(view: &View<'_>, chain: &[u32]) -> f64 {
    let (sum, longest) = sum_and_longest(view, chain);
    let count = chain.len().max(1) as f64;
    (sum * (count + 2.0) / (3.0 * count)).max(longest)
}

/// What the fused kernels of a chain take with the reductions beside it, if it has one input and one
/// result, and each reduction one more pass.
fn most_fused_ns(view: &View<'_>, chain: &[u32]) -> f64 {
    let (sum, longest) = sum_and_longest(view, chain);
    let work = chain.iter().filter_map(|at| view.trace.work.get(*at as usize));
    let reductions = work.filter(|work| reduces(view, work)).count() as f64;
    (sum * (1.0 + reductions) / chain.len().max(1) as f64).max(longest * 0.7)
}

fn sum_and_longest(view: &View<'_>, chain: &[u32]) -> (f64, f64) {
    let times = chain.iter().map(|at| duration(view, *at));
    times.fold((0.0, 0.0), |(sum, longest): (f64, f64), ns| (sum + ns, longest.max(ns)))
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn a_chain_is_found_and_a_single_kernel_is_not() {
        let fault = StepScript::new()
            .kernel(names::PRODUCT, 100.0)
            .kernels(2, names::MUL, 30.0)
            .kernels(2, names::ADD, 30.0)
            .play(3);
        let found = fault.look(find).unwrap();
        assert_eq!(found.work.len(), 2 * 4);
        // One kernel of 30 µs, or six passes of twelve.
        assert!((fault.removed_ns(&found.most) - 90_000.0).abs() < 10.0);
        assert!((fault.removed_ns(&found.least) - 60_000.0).abs() < 10.0);
        // With a reduction behind it: one pass for each of both is left.
        let summed = StepScript::new()
            .kernel(names::PRODUCT, 100.0)
            .kernels(2, names::MUL, 30.0)
            .kernel(names::MEAN, 30.0)
            .play(3);
        let found = summed.look(find).unwrap();
        assert!((summed.removed_ns(&found.most) - 30_000.0).abs() < 10.0);
        assert!((summed.removed_ns(&found.least) - 20_000.0).abs() < 10.0);
        let single = StepScript::new().kernel(names::PRODUCT, 100.0).kernel(names::ADD, 30.0);
        assert!(single.kernel(names::PRODUCT, 9.0).play(3).look(find).is_none());
        let compiled = StepScript::new().kernels(4, "triton_poi_fused_add_mul_3", 30.0);
        assert!(compiled.play(3).look(find).is_none());
    }
}
