//! The same sequence of kernels on the same sizes runs again within a step, without a backward pass:
//! a forward pass for each metric, an evaluation that repeats what was computed, one pass for each
//! member of a group where one for all would do.
//!
//! Two forms. The host reads results where such a sequence ends, so a step is cut at its reads of
//! small values: two parts of at least twenty kernels each, nine tenths of which are the same kernels
//! with the same grids. Or a stretch of a step repeats exactly, twice or more, and is a whole pass: it
//! holds a repetition of its own (layers) for half of its length, which a layer does not. Whether the
//! inputs are the same, the trace does not tell, so the gain is a bound.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

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

/// Kernels of a pass that is looked for by its repetition, and kernels of a layer within it.
const MOST_KERNELS: usize = 4_000;
const LEAST_LAYER: usize = 5;
/// Passes that follow each other, at most.
const MOST_PASSES: usize = 16;

/// The kernels of a part of a step, by name and grid.
type Kinds = BTreeMap<(u32, Option<u32>), usize>;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    find_between_reads(view).or_else(|| find_passes(view))
}

fn find_between_reads(view: &View<'_>) -> Option<Found> {
    let backward = names_that(view, is_backward);
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
    // More of them are a loop that goes on, and not the same work again.
    let is_loop = parts_again as f64 > MOST_PASSES as f64 * view.step_count();
    if is_loop || (steps as f64) * 2.0 < view.step_count() || work.share() < MIN_SHARE {
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

/// Whole passes that follow each other.
fn find_passes(view: &View<'_>) -> Option<Found> {
    let backward = names_that(view, is_backward);
    let (mut again, mut first, mut passes, mut steps) = (Vec::new(), Vec::new(), 0_usize, 0_usize);
    for step in view.window() {
        let kernels: Vec<u32> =
            step.work.iter().copied().filter(|at| kind(view, *at).is_some()).collect();
        let kinds: Vec<Kind> = kernels.iter().filter_map(|at| kind(view, *at)).collect();
        let is_back = |kind: &Kind| backward.get(kind.0 as usize).copied().unwrap_or(false);
        let Some((period, range)) = whole_passes(&kinds, is_back) else { continue };
        let split = range.start + period;
        first.extend_from_slice(kernels.get(range.start..split).unwrap_or_default());
        again.extend_from_slice(kernels.get(split..range.end).unwrap_or_default());
        passes += range.len() / period;
        steps += 1;
    }
    let (first, work) = (Picked::new(view, first), Picked::new(view, again));
    if (steps as f64) * 2.0 < view.step_count() || work.share() < MIN_SHARE {
        return None;
    }
    let changes = Changes::new(view);
    Some(Found {
        change: "run one pass in place of several".to_owned(),
        text: format!(
            "{:.0} passes of the same kernels on the same sizes follow each other in a step without a \
             backward pass; the first takes {}, the others {}",
            passes as f64 / steps as f64,
            words::time(first.ns()),
            work.words()
        ),
        hint: "if their inputs differ, put them into one batch (one pass over all samples, members or \
               conditions at once: `torch.cat` of the inputs, `torch.func.vmap`, `jax.vmap`); if the \
               input is the same, compute it once and keep the result; if a later pass needs what an \
               earlier one gave, keep what does not change (a cache of keys and values)"
            .to_owned(),
        least: changes.scaled(&work.at, 0.9),
        most: changes.without(&work.at, 1.0),
        work: work.at,
        decides: Some("whether a pass needs the result of the one before".to_owned()),
        is_bound: true,
        ..Found::default()
    })
}

fn is_backward(name: &str) -> bool {
    ["ackward", "bprop", "_bwd", "dgrad", "wgrad", "grad_input", "multi_tensor_apply"]
        .iter()
        .any(|word| name.contains(word))
}

/// Name and grid of a kernel; `None` for other work.
type Kind = (u32, Option<u32>);

fn kind(view: &View<'_>, at: u32) -> Option<Kind> {
    let work = view.trace.work.get(at as usize)?;
    (work.kind == TraceWorkKind::Kernel).then_some((work.name, work.shape))
}

/// The length of a pass and where two or more of them follow each other; the longest stretch.
///
/// A kernel that comes once in each pass comes at equal distances: these are the lengths to try.
fn whole_passes(kinds: &[Kind], is_back: impl Fn(&Kind) -> bool) -> Option<(usize, Range<usize>)> {
    let mut places: BTreeMap<Kind, Vec<usize>> = BTreeMap::new();
    for (at, kind) in kinds.iter().enumerate() {
        let of_kind = places.entry(*kind).or_default();
        if of_kind.len() <= MOST_PASSES {
            of_kind.push(at);
        }
    }
    let mut tried: BTreeSet<(usize, usize)> = BTreeSet::new();
    let mut best: Option<(usize, Range<usize>)> = None;
    for of_kind in places.values().filter(|all| (2..=MOST_PASSES).contains(&all.len())) {
        let &[first, second, ..] = of_kind.as_slice() else { continue };
        let period = second - first;
        let is_even = of_kind.windows(2).all(|pair| matches!(pair, [a, b] if b - a == period));
        if !is_even || !(LEAST_KERNELS..=MOST_KERNELS).contains(&period) {
            continue;
        }
        let range = repeating(kinds, period, first);
        let is_longer = best.as_ref().is_none_or(|(_, known)| range.len() > known.len());
        if range.len() < 2 * period || !is_longer || !tried.insert((period, range.start)) {
            continue;
        }
        let pass = kinds.get(range.start..range.start + period).unwrap_or_default();
        if !pass.iter().any(&is_back) && has_layers(pass) {
            best = Some((period, range));
        }
    }
    best
}

/// The stretch around `inside` that repeats with a period.
fn repeating(kinds: &[Kind], period: usize, inside: usize) -> Range<usize> {
    let is_equal =
        |at: usize| kinds.get(at).zip(kinds.get(at + period)).is_some_and(|(a, b)| a == b);
    let mut start = inside;
    while start > 0 && is_equal(start - 1) {
        start -= 1;
    }
    let mut end = inside;
    while is_equal(end) {
        end += 1;
    }
    start..end + period
}

/// Whether half of a pass or more is three or more equal layers. Two equal blocks are in a single
/// layer of a decoder.
fn has_layers(pass: &[Kind]) -> bool {
    (LEAST_LAYER..=pass.len() / 2).any(|period| {
        let equal = pass.iter().zip(pass.iter().skip(period)).map(|(a, b)| a == b);
        let (mut run, mut longest) = (0, 0);
        for is_equal in equal {
            run = if is_equal { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        longest >= 2 * period && (longest + period) * 2 >= pass.len()
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

    /// Layers of a model, with a beginning and an end of its own.
    fn pass(layers: usize) -> StepScript {
        let layer = || {
            StepScript::new()
                .kernel(names::PRODUCT, 40.0)
                .kernel(names::FLASH, 30.0)
                .kernel(names::PRODUCT, 20.0)
                .kernel(names::MUL, 5.0)
                .kernel(names::PRODUCT, 40.0)
                .kernel(names::ADD, 5.0)
        };
        let begin = StepScript::new().kernel(names::CAT, 4.0);
        (0..layers).fold(begin, |all, _| all.then(layer())).kernel(names::SOFTMAX, 10.0)
    }

    #[test]
    fn passes_one_after_the_other_are_found_and_layers_are_not() {
        let step = (0..3).fold(StepScript::new(), |all, _| all.then(pass(6)));
        let fault = step.kernel(names::MEAN, 8.0).play(4);
        let found = fault.look(find).unwrap();
        assert!(found.text.starts_with("3 passes"), "{}", found.text);
        assert!((fault.removed_ns(&found.most) - 2.0 * 854_000.0).abs() < 10.0);
        assert!(pass(24).kernel(names::MEAN, 8.0).play(4).look(find).is_none());
        // Micro-batches have a backward pass each.
        let trained = || pass(6).kernel(names::SOFTMAX_BACKWARD, 9.0);
        assert!(trained().then(trained()).kernel(names::MEAN, 8.0).play(4).look(find).is_none());
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
        let many = (0..24).fold(StepScript::new(), |all, _| all.then(forward(4.0)));
        assert!(many.kernel(names::MEAN, 5.0).play(4).look(find).is_none());
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
