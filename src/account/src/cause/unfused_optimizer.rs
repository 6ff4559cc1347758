//! An optimizer that launches kernels for each tensor, or for each operator of its formula.
//!
//! Three forms, by their names. A loop over parameters launches 5 to 10 element-wise kernels for
//! each (`foreach=False`): a long run of few names, whose times differ as the tensors do, or with
//! Adam's own operators (`addcmul`, `addcdiv`). A moving average of the weights and a clipping of
//! gradients are such loops, too; an average that is copied back has a copy within the GPU for each
//! tensor. A list of operators over all tensors (`foreach=True`) launches `multi_tensor_apply` for
//! each operator: about twenty passes over state, gradient and weight. The same over many groups of
//! one tensor each launches as often as the loop. The fused optimizer reads parameter, gradient and
//! two moments and writes three of them: 7 passes. Small tensors cost a launch each before, and
//! nearly nothing after.

use std::collections::{BTreeMap, BTreeSet};

use rgpu_model::account::AccountCause;
use rgpu_model::trace::TraceWork;

use super::Found;
use super::picked::{Changes, Picked, duration, has_name, lanes, names_that, runs};
use crate::class::KernelFamily;
use crate::edits::Edits;
use crate::view::View;

/// Kernels of a loop over parameters.
const MIN_LOOP: usize = 40;
/// Names in it, and how often each is used in the mean.
const MAX_LOOP_NAMES: usize = 12;
const MIN_USES: usize = 6;
/// A kernel up to this is bound by its launch.
const SMALL_NS: f64 = 4_000.0;
/// Fused passes as a part of today's: most and least gain; of few operators, of a small kernel.
const PASSES_RATIO: (f64, f64) = (0.33, 0.6);
const FEW_PASSES_RATIO: (f64, f64) = (0.6, 1.0);
const SMALL_RATIO: (f64, f64) = (0.05, 0.3);

/// The work of loops over parameters.
pub(super) fn per_tensor_work(view: &View<'_>) -> BTreeSet<u32> {
    loops(view).into_iter().flatten().collect()
}

fn loops(view: &View<'_>) -> Vec<Vec<u32>> {
    let adam = names_that(view, |name| {
        ["addcmul", "addcdiv"].iter().any(|word| name.contains(word)) && name.contains("at::native")
    });
    let mut found = Vec::new();
    for lane in &lanes(view) {
        let parts = runs(lane, MIN_LOOP, |work| {
            let class = view.class(work);
            let fits = matches!(
                class,
                AccountCause::ElementWise
                    | AccountCause::Fill
                    | AccountCause::Cast
                    | AccountCause::Layout
            );
            class == AccountCause::CopyDevice || view.family(work) == KernelFamily::Torch && fits
        });
        for run in parts {
            let computes =
                run.iter().filter(|(_, work)| view.class(work) == AccountCause::ElementWise);
            if computes.count() >= MIN_USES && is_loop(run, &adam) {
                found.push(run.iter().map(|(at, _)| *at).collect());
            }
        }
    }
    found
}

/// Whether a run of element-wise kernels is a loop over parameters.
fn is_loop(run: &[(u32, &TraceWork)], adam: &[bool]) -> bool {
    let mut times: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (_, work) in run {
        times.entry(work.name).or_default().push(work.duration_ns);
    }
    let uses = run.len() / times.len().max(1);
    if times.len() > MAX_LOOP_NAMES || uses < MIN_USES {
        return false;
    }
    let has_adam = run.iter().filter(|(_, work)| has_name(adam, work)).count() >= MIN_USES;
    has_adam || times.values_mut().any(|times| differ(times))
}

/// Whether times of one kernel differ as those of tensors of several sizes do.
fn differ(times: &mut [u64]) -> bool {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 10).copied().unwrap_or(0);
    times.len() >= 2 * MIN_USES && at(9) as f64 >= 1.6 * at(1) as f64
}

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let lists = names_that(view, |name| {
        name.contains("multi_tensor_apply")
            && !["FusedAdam", "FusedOptimizer", "FusedSgd", "LpNorm", "Zero"]
                .iter()
                .any(|word| name.contains(word))
    });
    let fused = names_that(view, |name| {
        ["FusedAdam", "FusedSgd", "FusedOptimizer"].iter().any(|word| name.contains(word))
    });
    let mut groups = loops(view);
    let loop_count = groups.len();
    for lane in &lanes(view) {
        let of_lists: Vec<u32> =
            lane.iter().filter(|(_, w)| has_name(&lists, w)).map(|(at, _)| *at).collect();
        // Fused kernels over one tensor each: many, and short.
        let of_fused: Vec<u32> =
            lane.iter().filter(|(_, w)| has_name(&fused, w)).map(|(at, _)| *at).collect();
        let sum: f64 = of_fused.iter().map(|at| duration(view, *at)).sum();
        let are_short =
            of_fused.len() >= MIN_LOOP && sum / (of_fused.len() as f64) < 2.0 * SMALL_NS;
        if of_lists.len() >= 8 {
            groups.push(of_lists);
        }
        if are_short {
            groups.push(of_fused);
        }
    }
    let kernels = Picked::new(view, groups.concat());
    if groups.is_empty() || !kernels.matters() && kernels.count() < MIN_LOOP as f64 {
        return None;
    }
    let changes = Changes::new(view);
    let edits = |is_most: bool| {
        let mut edits = Edits::default();
        for group in &groups {
            changes.fuse_all(&mut edits, group, fused_ns(view, group, is_most), is_most);
        }
        edits
    };
    let adam = names_that(view, |name| name.contains("addcmul") || name.contains("addcdiv"));
    let is_adam = view.work().any(|(_, work)| has_name(&adam, work));
    let text = if loop_count > 0 && !is_adam {
        "a loop over parameters (an optimizer, a moving average of the weights, a clipping of \
         gradients) launches kernels for each tensor"
    } else if loop_count > 0 {
        "the optimizer launches kernels for each tensor"
    } else if kernels.count() >= 100.0 {
        "the optimizer launches a list of operators for each of many groups"
    } else {
        "the optimizer makes a pass over all tensors for each operator of its formula"
    };
    Some(Found {
        change: if loop_count > 0 && !is_adam {
            "update all parameters together"
        } else {
            "use the fused optimizer"
        }
        .to_owned(),
        text: format!("{text}, which takes {}", kernels.words()),
        hint: if loop_count > 0 && !is_adam { LOOP_HINT } else { OPTIMIZER_HINT }.to_owned(),
        least: edits(false),
        most: edits(true),
        work: kernels.at.clone(),
        ..Found::default()
    })
}

const OPTIMIZER_HINT: &str = "`torch.optim.AdamW(params, fused=True)`, with all parameters of equal \
     settings in one group (`[{\"params\": decayed}, {\"params\": others, \"weight_decay\": 0}]`)";
const LOOP_HINT: &str = "one call for all tensors in place of a loop over them: \
     `torch._foreach_lerp_(averages, params, 1 - decay)` for a moving average, \
     `clip_grad_norm_(params, 1.0, foreach=True)` for a clipping, `torch._foreach_add_` and its like \
     for an update by hand, `fused=True` for an optimizer";

/// What the fused optimizer takes in a group's place, in nanoseconds.
fn fused_ns(view: &View<'_>, group: &[u32], is_most: bool) -> f64 {
    let pick = |(most, least): (f64, f64)| if is_most { most } else { least };
    let name = |at: &u32| view.trace.work.get(*at as usize).map(|work| work.name);
    let names: BTreeSet<Option<u32>> = group.iter().map(name).collect();
    let passes = if names.len() >= 4 { PASSES_RATIO } else { FEW_PASSES_RATIO };
    let times = group.iter().map(|at| duration(view, *at));
    let parts = times.map(|ns| ns * pick(if ns <= SMALL_NS { SMALL_RATIO } else { passes }));
    parts.sum::<f64>().max(SMALL_NS)
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    fn foreach(functor: &str) -> String {
        format!(
            "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<(int)3>, at::native::<unnamed>::{functor}<float>>(T1)"
        )
    }

    #[test]
    fn a_loop_over_parameters_is_found() {
        let addcdiv = names::MUL.replace("MulFunctor", "addcdiv_cuda_scalar");
        let mut step = StepScript::new().kernel(names::PRODUCT, 100.0);
        for _ in 0..20 {
            step = step.kernel(names::MUL, 2.0).kernel(names::ADD, 2.0).kernel(&addcdiv, 2.0);
        }
        let fault = step.kernel(names::PRODUCT, 100.0).play(3);
        let found = fault.look(find).unwrap();
        assert_eq!(found.work.len(), 2 * 60);
        assert!(fault.removed_ns(&found.most) > 110_000.0);
        assert!(!found.most.call_ns.is_empty());
        assert!(found.text.contains("each tensor"), "{}", found.text);
    }

    #[test]
    fn a_moving_average_that_is_copied_back_is_a_loop_over_parameters() {
        let tensor = |us: f64| {
            let kernels = StepScript::new().kernels(2, names::MUL, us).kernel(names::ADD, us);
            kernels.copy("DtoD", (us * 1e6) as u64, us, None)
        };
        let tensors = (0..20).fold(StepScript::new().kernel(names::PRODUCT, 100.0), |step, n| {
            step.then(tensor(1.0 + f64::from(n % 5)))
        });
        let fault = tensors.play(3);
        let found = fault.look(find).unwrap();
        assert!(found.hint.contains("_foreach_lerp_"), "{}", found.hint);
        assert_eq!(found.work.len(), 2 * 80);
        // With calls between that only ask: the host's time before them goes, too.
        let asking = (0..20).fold(StepScript::new().kernel(names::PRODUCT, 100.0), |step, n| {
            step.call("cudaStreamIsCapturing", 2.0).host(9.0).then(tensor(1.0 + f64::from(n % 5)))
        });
        let fault = asking.play(3);
        let found = fault.look(find).unwrap();
        let asks = |call: &&u32| {
            let name = fault.trace.calls[**call as usize].name;
            fault.trace.names[name as usize] == "cudaStreamIsCapturing"
        };
        assert_eq!(found.most.call_ns.keys().filter(asks).count(), 2 * 19);
        // Copies alone are no update.
        let copies = (0..60).fold(StepScript::new().kernel(names::PRODUCT, 100.0), |step, n| {
            step.copy("DtoD", 1 << 20, 1.0 + f64::from(n % 5), None)
        });
        assert!(copies.play(3).look(find).is_none());
    }

    #[test]
    fn a_loop_of_equal_tensors_is_no_optimizer() {
        let mut step = StepScript::new().kernel(names::PRODUCT, 100.0);
        for _ in 0..30 {
            step = step.kernel(names::MUL, 20.0).kernel(names::ADD, 20.0);
        }
        assert!(step.play(3).look(find).is_none());
    }

    #[test]
    fn lists_of_operators_are_found_and_a_fused_optimizer_is_silent() {
        let mut step = StepScript::new().kernel(names::PRODUCT, 1000.0);
        for functor in ["A", "B", "C", "D", "E"] {
            step = step.kernels(2, &foreach(functor), 50.0);
        }
        let fault = step.play(3);
        let found = fault.look(find).unwrap();
        let (least, most) = (fault.removed_ns(&found.least), fault.removed_ns(&found.most));
        assert!((least - 200_000.0).abs() < 10.0 && (most - 335_000.0).abs() < 10.0);
        let fused = foreach("FusedAdamMathFunctor");
        let mended = StepScript::new().kernel(names::PRODUCT, 1000.0).kernels(4, &fused, 50.0);
        assert!(mended.play(3).look(find).is_none());
    }
}
