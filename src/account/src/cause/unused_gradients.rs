//! Gradients of layers that nothing trains: a frozen encoder that runs with gradients on.
//!
//! The signature is in the times. A backward pass that computes the gradients of inputs and of
//! weights has two products for each of the forward pass; one that only passes gradients on has one.
//! An optimizer moves 28 bytes for each parameter (Adam's seven passes), which a backward pass of
//! a few thousand tokens turns into hundreds of operations. Where the optimizer takes less than a
//! two-hundredth of the backward pass, and no convolution uses its weights thousands of times, most
//! of the gradients are of parameters that it does not know. The gain is a bound: without gradients
//! the whole backward pass but that of the trained layers goes.

use std::collections::BTreeMap;

use rgpu_model::account::AccountCause;

use super::picked::{Changes, Picked, has_name, names_that};
use super::{Found, words};
use crate::view::View;

/// The backward pass as a multiple of the optimizer's time.
const MIN_MULTIPLE: f64 = 200.0;
/// Products of the backward pass as a multiple of the forward pass's.
const MIN_PRODUCTS: f64 = 1.5;
/// The part of a step that the backward pass takes.
const MIN_SHARE: f64 = 0.2;
/// The part of the backward pass that stays where the change gives least, and most.
const KEPT_SHARE: (f64, f64) = (0.2, 0.02);
/// Products of the forward pass from which on it has layers.
const LEAST_PRODUCTS: usize = 8;
/// Bytes that the fused optimizer moves for each parameter.
const BYTES: f64 = 28.0;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let has_convolutions = view.work().any(|(_, w)| view.class(w) == AccountCause::Convolution);
    if has_convolutions {
        return None;
    }
    let backward = names_that(view, |name| {
        ["ackward", "bprop", "_bwd", "grad_input"].iter().any(|word| name.contains(word))
    });
    let (mut of_backward, mut products) = (Vec::new(), (0_usize, 0_usize));
    let (mut optimizer_ns, mut backward_ns) = (0.0, 0.0);
    for step in view.window() {
        let mut is_backward = false;
        for at in &step.work {
            let Some(work) = view.trace.work.get(*at as usize) else { continue };
            let class = view.class(work);
            if class == AccountCause::Optimizer {
                is_backward = false;
                optimizer_ns += work.duration_ns as f64;
                continue;
            }
            is_backward |= has_name(&backward, work);
            let is_product = usize::from(class == AccountCause::MatrixProduct);
            if is_backward {
                products.1 = products.1.saturating_add(is_product);
                backward_ns += work.duration_ns as f64;
                of_backward.push(*at);
            } else {
                products.0 = products.0.saturating_add(is_product);
            }
        }
    }
    let work = Picked::new(view, of_backward);
    let has_layers = products.0 as f64 >= LEAST_PRODUCTS as f64 * view.step_count();
    let is_whole = products.1 as f64 >= MIN_PRODUCTS * products.0 as f64;
    let is_untrained = optimizer_ns > 0.0 && backward_ns >= MIN_MULTIPLE * optimizer_ns;
    if !has_layers || !is_whole || !is_untrained || work.share() < MIN_SHARE {
        return None;
    }
    let optimizer_ns = optimizer_ns / view.step_count();
    let trained = view.facts.memory_bytes_per_s.map_or(String::new(), |rate| {
        let parameters = optimizer_ns * 1e-9 * rate / BYTES;
        format!(", enough for {:.1} million parameters at most", parameters / 1e6)
    });
    let changes = Changes::new(view);
    let (least, most) = KEPT_SHARE;
    let without = |kept: f64| {
        let kept = (work.at.len() as f64 * kept) as usize;
        work.at.get(kept..).unwrap_or_default()
    };
    let (without_least, without) = (without(least), without(most));
    Some(Found {
        change: "compute no gradients of what is not trained".to_owned(),
        text: format!(
            "the backward pass takes {} of a step of {}, and the optimizer only {}{trained}: most \
             gradients seem to be of layers that nothing trains",
            words::time(work.ns()),
            words::time(view.step_ns()),
            words::time(optimizer_ns),
        ),
        hint: "run the frozen part under `torch.no_grad()`, or `requires_grad_(False)` on its \
               parameters (`features = encoder(x)` once, then only the head with gradients; JAX: \
               `jax.lax.stop_gradient(features)`)"
            .to_owned(),
        least: changes.without(without_least, 0.5),
        most: changes.without(without, 1.0),
        work: work.at,
        decides: Some(
            "the parameters with `requires_grad` that are in no group of the optimizer".to_owned(),
        ),
        ..Found::default()
    })
}

/// A backward pass that runs on through what another optimizer trains.
///
/// A step with two optimizers has a backward pass before each, as in adversarial training. The
/// second needs the gradients of all layers up to its own. If every kernel of it, by name and grid,
/// ran in the first one too, and the first has more of its own, the first computed them as well, and
/// they are thrown away: its input was not detached. Two equal networks with an optimizer each have
/// equal passes, and are no fault.
pub(super) fn find_thrown_away(view: &View<'_>) -> Option<Found> {
    let backward = names_that(view, |name| {
        ["ackward", "bprop", "_bwd", "wgrad", "grad_input"].iter().any(|word| name.contains(word))
    });
    let (mut thrown, mut steps) = (Vec::new(), 0_usize);
    for step in view.window() {
        let passes = backward_passes(view, &step.work, &backward);
        let [first, second] = passes.as_slice() else { continue };
        let of_step = thrown_away(view, first, second);
        steps += usize::from(!of_step.is_empty());
        thrown.extend(of_step);
    }
    let work = Picked::new(view, thrown);
    if (steps as f64) * 2.0 < view.step_count() || work.share() < MIN_THROWN_SHARE {
        return None;
    }
    let changes = Changes::new(view);
    Some(Found {
        change: "stop the first backward pass at its own layers".to_owned(),
        text: format!(
            "a step has two optimizers, and the backward pass before the first one computes all \
             gradients that the second one's needs, too, which are thrown away: {}",
            work.words()
        ),
        hint: "detach what comes from the other network before the first loss: `dis(fake.detach())` in \
               the discriminator's step, or make `fake` under `torch.no_grad()`; in the other step \
               `requires_grad_(False)` on the network that is not trained"
            .to_owned(),
        least: changes.scaled(&work.at, 0.1),
        most: changes.without(&work.at, 1.0),
        work: work.at,
        ..Found::default()
    })
}

/// The part of a step that gradients take which are thrown away.
const MIN_THROWN_SHARE: f64 = 0.05;
/// Kernels of a backward pass at least.
const LEAST_KERNELS: usize = 8;
/// The part of the second pass that ran in the first one, and of the first that is its own.
const IN_BOTH_SHARE: f64 = 0.95;
const OWN_SHARE: f64 = 0.1;

/// The backward passes of a step that an optimizer follows: from the first kernel that is only in
/// such a pass to the optimizer.
fn backward_passes(view: &View<'_>, step: &[u32], backward: &[bool]) -> Vec<Vec<u32>> {
    let work = |at: &u32| view.trace.work.get(*at as usize);
    let is_optimizer =
        |at: &u32| work(at).is_some_and(|work| view.class(work) == AccountCause::Optimizer);
    let mut passes = Vec::new();
    let parts = step.chunk_by(|a, b| is_optimizer(a) == is_optimizer(b));
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if part.first().is_none_or(is_optimizer) || parts.peek().is_none() {
            continue;
        }
        let begin = part.iter().position(|at| work(at).is_some_and(|w| has_name(backward, w)));
        let pass = begin.and_then(|begin| part.get(begin..)).unwrap_or_default();
        if pass.len() >= LEAST_KERNELS {
            passes.push(pass.to_vec());
        }
    }
    passes
}

/// The work of the first pass that the second one needs and the first does not.
fn thrown_away(view: &View<'_>, first: &[u32], second: &[u32]) -> Vec<u32> {
    let kind = |at: &u32| {
        let work = view.trace.work.get(*at as usize)?;
        Some((work.name, work.shape))
    };
    let ns = |at: &u32| view.trace.work.get(*at as usize).map_or(0.0, |w| w.duration_ns as f64);
    let count = |pass: &[u32]| {
        let mut counts: BTreeMap<_, usize> = BTreeMap::new();
        pass.iter().for_each(|at| *counts.entry(kind(at)).or_default() += 1);
        counts
    };
    let (in_first, in_second) = (count(first), count(second));
    let of = |counts: &BTreeMap<_, usize>, at: &u32| counts.get(&kind(at)).copied().unwrap_or(0);
    let sum = |pass: &[u32], is_it: &dyn Fn(&u32) -> bool| {
        pass.iter().filter(|at| is_it(at)).map(&ns).sum::<f64>()
    };
    let in_both = sum(second, &|at| of(&in_first, at) > 0);
    let own = sum(first, &|at| of(&in_first, at) > of(&in_second, at));
    let is_fault = in_both >= IN_BOTH_SHARE * sum(second, &|_| true)
        && own >= OWN_SHARE * sum(first, &|_| true);
    let thrown = first.iter().filter(|at| of(&in_first, at) <= of(&in_second, at));
    if is_fault { thrown.copied().collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    const NORM_BACKWARD: &str =
        "void at::native::<unnamed>::layer_norm_grad_input_kernel_vectorized<float, float>(X)";
    const ADAM: &str =
        "void at::native::<unnamed>::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>(X)";

    fn training(backward_products: usize, optimizer_us: f64) -> StepScript {
        StepScript::new()
            .kernels(12, names::PRODUCT, 100.0)
            .kernel(NORM_BACKWARD, 30.0)
            .kernels(backward_products, names::PRODUCT, 100.0)
            .kernel(ADAM, optimizer_us)
    }

    #[test]
    fn gradients_that_no_optimizer_reads_are_found() {
        let fault = training(24, 8.0).play(4);
        let found = fault.look(find).unwrap();
        assert!(fault.removed_ns(&found.most) > 2_300_000.0);
        assert!(found.text.contains("1.1 million"), "{}", found.text);
        // Trained as a whole; only passed on, as with adapters; and a head alone.
        assert!(training(24, 300.0).play(4).look(find).is_none());
        assert!(training(13, 5.0).play(4).look(find).is_none());
        assert!(training(2, 0.9).play(4).look(find).is_none());
    }

    #[test]
    fn a_pass_that_runs_on_through_the_other_network_is_found() {
        let adam = "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::FusedOptimizerTensorListMetadata<(int)4>, at::native::<unnamed>::FusedAdamMathFunctor<float>>(T1)";
        let network = |shape: u32| {
            let layer = StepScript::new().shaped(shape).kernel(NORM_BACKWARD, 5.0);
            let layer = layer.kernels(2, names::PRODUCT, 20.0);
            layer.clone().then(layer.clone()).then(layer)
        };
        let (judge, maker) = (network(1), network(2));
        let second = judge.clone().then(maker.clone()).kernel(adam, 10.0);
        let first = judge.clone().then(judge.clone());
        let fault = first.clone().then(maker).kernel(adam, 10.0).then(second.clone()).play(4);
        let found = fault.look(find_thrown_away).unwrap();
        assert!(found.hint.contains("detach"));
        assert!((fault.removed_ns(&found.most) - 135_000.0).abs() < 1.0);
        let mended = first.kernel(adam, 10.0).then(second.clone()).play(4);
        assert!(mended.look(find_thrown_away).is_none());
        // Two equal networks.
        assert!(second.clone().then(second).play(4).look(find_thrown_away).is_none());
    }
}
