//! A tensor that grows by concatenation: each step copies all that is there, and a little more.
//!
//! The signature is a copy (`CatArrayBatchedCopy`, a plain copy, DtoD) whose time in a step grows
//! from step to step, while the step's other work does not: `cache = torch.cat([cache, new])`. The
//! cost of a sequence is quadratic in its length. A buffer of the final size, written in place,
//! leaves one write of the new part.

use std::collections::{BTreeMap, BTreeSet};

use rgpu_model::account::AccountCause;

use super::Found;
use super::picked::{Changes, Framework, Picked};
use crate::view::View;

/// Steps in a row over which a copy must grow.
const MIN_GROWING_STEPS: usize = 8;
/// The last of them takes this much of the first.
const MIN_GROWTH: f64 = 1.2;
/// A step may take this part of the one before and still count as growth, since times vary.
const TOLERANCE: f64 = 0.9;
/// Steps, and names of copies, that are looked at.
const MAX_STEPS: usize = 4096;
const MAX_NAMES: usize = 256;

/// The names of copies that grow from step to step.
pub(super) fn growing_names(view: &View<'_>) -> BTreeSet<u32> {
    let steps = view.steps.all.get(..view.steps.all.len().min(MAX_STEPS)).unwrap_or_default();
    let mut sums: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        for work in step.work.iter().filter_map(|at| view.trace.work.get(*at as usize)) {
            if !matches!(view.class(work), AccountCause::Layout | AccountCause::CopyDevice) {
                continue;
            }
            if sums.len() >= MAX_NAMES && !sums.contains_key(&work.name) {
                continue;
            }
            let sum = sums.entry(work.name).or_insert_with(|| vec![0; steps.len()]);
            if let Some(ns) = sum.get_mut(number) {
                *ns = ns.saturating_add(work.duration_ns);
            }
        }
    }
    sums.into_iter().filter(|(_, times)| grows(times)).map(|(name, _)| name).collect()
}

/// Whether times grow over a stretch of steps, and the growth is not one jump.
fn grows(times: &[u64]) -> bool {
    let runs = times.chunk_by(|a, b| *b as f64 >= *a as f64 * TOLERANCE && *a > 0);
    runs.filter(|run| run.len() >= MIN_GROWING_STEPS).any(|run| {
        let third = run.len() / 3;
        let mean =
            |part: &[u64]| part.iter().map(|ns| *ns as f64).sum::<f64>() / part.len().max(1) as f64;
        let first = mean(run.get(..third).unwrap_or_default());
        let middle = mean(run.get(third..run.len() - third).unwrap_or_default());
        let last = mean(run.get(run.len() - third..).unwrap_or_default());
        // Straight growth: the middle lies between the ends, not at one of them.
        let place = if last > first { (middle - first) / (last - first) } else { 0.0 };
        last >= first * MIN_GROWTH && (0.25..=0.75).contains(&place)
    })
}

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let names = growing_names(view);
    let copies = Picked::find(view, |work| {
        names.contains(&work.name)
            && matches!(view.class(work), AccountCause::Layout | AccountCause::CopyDevice)
    });
    if names.is_empty() || !copies.matters() {
        return None;
    }
    let hint = match Framework::of(view) {
        Framework::Torch => {
            "make the buffer once with its final length and write into it: \
             `cache[:, :, at:at + 1] = new` (for Transformers `cache_implementation=\"static\"`), in \
             place of `torch.cat([cache, new])`"
        }
        Framework::Jax => {
            "keep a buffer of the final length and `jax.lax.dynamic_update_slice` into it, with the \
             buffer donated"
        }
        _ => "make the buffer once with its final length and write the new part into it",
    };
    let changes = Changes::new(view);
    Some(Found {
        change: "write into a buffer of the final size".to_owned(),
        text: format!("copies that grow from step to step take {}", copies.words()),
        hint: hint.to_owned(),
        least: changes.scaled(&copies.at, 0.15),
        most: changes.without(&copies.at, 0.0),
        work: copies.at,
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names, play};
    use super::*;

    #[test]
    fn a_concatenation_that_grows_is_found_and_one_of_equal_size_is_not() {
        let step = |us| StepScript::new().kernel(names::CAT, us).kernel(names::PRODUCT, 60.0);
        let growing: Vec<_> = (0..20).map(|n| step(10.0 + f64::from(n))).collect();
        let window = play(&growing);
        let found = window.look(find).unwrap();
        assert!(window.removed_ns(&found.most) > window.removed_ns(&found.least));
        assert!(found.hint.contains("final length"));
        assert!(step(20.0).play(20).look(find).is_none());
        // One jump is a change of phase.
        let jump: Vec<_> = (0..20).map(|n| step(if n < 4 { 10.0 } else { 30.0 })).collect();
        assert!(play(&jump).look(find).is_none());
    }
}
