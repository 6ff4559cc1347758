//! Batches of sequences whose length changes from step to step.
//!
//! Signature: the launches of one kernel of attention (or softmax) change their size again and
//! again, to at least five sizes (by grid, else by time), up and down without order; and the GPU's
//! time around a launch at the 90th percentile of these stretches is at least 1.25 times that at
//! the 10th. Such batches are often padded to their longest sequence. The trace does not tell the
//! lengths, so what padding costs is not known. The least of the gain: all batches as short as the
//! shortest tenth. The most: lengths that lie evenly between nothing and the longest, where half of
//! the work is padding. Lengths that only grow (generation of text, sorted data) and the few sizes
//! of a model's levels are not told.

use std::collections::{BTreeMap, BTreeSet};

use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::picked::{Changes, Framework, Picked};
use super::{Found, words};
use crate::view::View;

/// Stretches of one size from which on an order of lengths is none.
const LEAST_STRETCHES: usize = 8;

/// Sizes from which on they are no levels of a model.
const LEAST_SIZES: usize = 5;

/// Times of launches that differ by more are of another size, where the grids are the same.
const SAME_SIZE_RATIO: f64 = 1.08;

/// The most work that is looked at.
const MOST_WORK: usize = 60_000;

/// The ratio of the 90th and the 10th percentile of the GPU's time of a step.
const LEAST_RATIO: f64 = 1.25;

/// The part of stretches that are longer or shorter than both neighbours. In random order, two
/// thirds are; if sizes grow and begin again, two of each row.
const LEAST_TURNS: f64 = 0.5;

/// The part of the work that is padding, where lengths lie evenly between nothing and the longest.
const EVEN_PADDING: f64 = 0.5;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let work = compared(view);
    let sequence = sequence_kernel(view, &work)?;
    let name = view.trace.names.get(sequence as usize).map_or("", String::as_str);
    let times = stretches(&work, sequence, &Sizes::new(&work, sequence)?);
    if times.len() < LEAST_STRETCHES || turns(&times) < LEAST_TURNS {
        return None;
    }
    let mut sorted = times.clone();
    sorted.sort_by(f64::total_cmp);
    let percentile = |percent: usize| sorted.get((sorted.len() - 1) * percent / 100).copied();
    let (low, high) = (percentile(10)?, percentile(90)?);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    if low <= 0.0 || high < LEAST_RATIO * low {
        return None;
    }
    let kernels = Picked::find(view, |work| work.kind == TraceWorkKind::Kernel);
    if !kernels.matters() {
        return None;
    }
    let changes = Changes::new(view);
    let spread = 1.0 - low / mean;
    let most = spread.max(EVEN_PADDING);
    let hint = match Framework::of(view) {
        Framework::Jax => {
            "if they are padded to the longest: sort or bucket the samples by length before \
             batches are cut (a few fixed lengths, since each shape is compiled), or pack several \
             sequences into one row"
        }
        _ => {
            "if they are padded to the longest: sort or bucket the samples by length before \
             batches are cut, or pack sequences without padding (nested tensors, \
             `flash_attn_varlen_func`, `pack_padded_sequence`)"
        }
    };
    Some(Found {
        change: "batch sequences of similar length".to_owned(),
        text: format!(
            "the same kernels run with other sizes again and again, without order: the GPU works \
             {} to {} for each `{}` (10th and 90th percentile of {} stretches of one size), {} in \
             the mean; sequences differ in length, and padding to the longest costs more than that",
            words::time(low),
            words::time(high),
            words::short_name(name),
            times.len(),
            words::time(mean),
        ),
        hint: hint.to_owned(),
        least: changes.scaled(&kernels.at, 1.0 - spread.min(most)),
        most: changes.scaled(&kernels.at, 1.0 - most),
        work: kernels.at.clone(),
        decides: Some(
            "the part of a batch that is padding: print `mask.float().mean()`, or the mean length \
             over the longest, for a few batches"
                .to_owned(),
        ),
        ..Found::default()
    })
}

/// The kernels of the steps after the first tenth.
fn compared<'t>(view: &View<'t>) -> Vec<&'t TraceWork> {
    let all = &view.steps.all;
    let steps = all.get(all.len().div_ceil(10)..).unwrap_or_default();
    let work = steps.iter().flat_map(|step| &step.work).take(MOST_WORK);
    let work = work.filter_map(|at| view.trace.work.get(*at as usize));
    work.filter(|work| work.kind == TraceWorkKind::Kernel).collect()
}

/// The name of the kernel of attention with most time, else of softmax. `None` without one.
fn sequence_kernel(view: &View<'_>, work: &[&TraceWork]) -> Option<u32> {
    let mut names: BTreeMap<u32, (bool, u64)> = BTreeMap::new();
    for work in work {
        let is_attention = match view.class(work) {
            AccountCause::Attention => true,
            AccountCause::Softmax => false,
            _ => continue,
        };
        let name = names.entry(work.name).or_insert((is_attention, 0));
        name.1 = name.1.saturating_add(work.duration_ns);
    }
    names.into_iter().max_by_key(|(_, most)| *most).map(|(name, _)| name)
}

/// How the sizes of a kernel's launches are told apart.
enum Sizes {
    /// By the number of the shape.
    Shapes,
    /// By the time: the shortest launch of each size, in nanoseconds, rising.
    Times(Vec<u64>),
}

impl Sizes {
    /// The sizes of the kernel `name`; `None` if there are too few.
    fn new(work: &[&TraceWork], name: u32) -> Option<Sizes> {
        let own = || work.iter().filter(|work| work.name == name);
        let shapes: BTreeSet<u32> = own().filter_map(|work| work.shape).collect();
        if shapes.len() >= LEAST_SIZES {
            return Some(Sizes::Shapes);
        }
        let mut times: Vec<u64> = own().map(|work| work.duration_ns).collect();
        times.sort_unstable();
        let (mut shortest, mut before) = (Vec::new(), None);
        for ns in times {
            if before.is_none_or(|before: u64| ns as f64 > before as f64 * SAME_SIZE_RATIO) {
                shortest.push(ns);
            }
            before = Some(ns);
        }
        (shortest.len() >= LEAST_SIZES).then_some(Sizes::Times(shortest))
    }

    /// A number for the size of a launch.
    fn number(&self, work: &TraceWork) -> usize {
        match self {
            Sizes::Shapes => work.shape.map_or(0, |shape| shape as usize),
            Sizes::Times(shortest) => shortest.partition_point(|ns| *ns <= work.duration_ns),
        }
    }
}

/// By stretch of launches of the kernel `name` with one size: the time of all kernels in it, in
/// nanoseconds for each of these launches. Without the first and the last, which may be cut.
fn stretches(work: &[&TraceWork], name: u32, sizes: &Sizes) -> Vec<f64> {
    let (mut times, mut size) = (Vec::new(), None);
    let (mut ns, mut launches) = (0.0, 0.0);
    for work in work {
        if work.name == name {
            let here = Some(sizes.number(work));
            if size.is_some() && size != here {
                times.push(ns / launches);
                (ns, launches) = (0.0, 0.0);
            }
            size = here;
            launches += 1.0;
        }
        ns += work.duration_ns as f64;
    }
    times.into_iter().skip(1).collect()
}

/// The part of the inner values that are above or below both neighbours by a fiftieth.
fn turns(values: &[f64]) -> f64 {
    let is_turn = |triple: &&[f64]| match triple {
        [before, value, after] => {
            let (above, below) = (value / 1.02, value * 1.02);
            (above > *before && above > *after) || (below < *before && below < *after)
        }
        _ => false,
    };
    let turns = values.windows(3).filter(is_turn).count();
    turns as f64 / values.len().saturating_sub(2).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names, play};
    use super::*;

    /// Steps of these lengths.
    fn steps(lengths: &[u32]) -> Vec<StepScript> {
        let step = |length: &u32| {
            let us = f64::from(*length);
            StepScript::new()
                .shaped(*length)
                .kernel(names::ADD, 400.0 + us)
                .kernel(names::SOFTMAX, us)
                .kernel(names::PRODUCT, 2.0 * us)
        };
        lengths.iter().map(step).collect()
    }

    const RANDOM: &[u32] = &[40, 90, 30, 160, 70, 120, 50, 190, 20, 80, 140, 60, 110, 100];

    #[test]
    fn lengths_without_order_are_found_with_what_decides() {
        let window = play(&steps(RANDOM));
        let found = window.look(find).unwrap();
        assert!(found.text.contains("without order"), "{}", found.text);
        assert!(found.decides.is_some());
        assert!(window.removed_ns(&found.most) > window.removed_ns(&found.least));
    }

    #[test]
    fn sizes_are_seen_by_the_time_where_the_grid_is_one() {
        let step = |us: &u32| {
            let us = f64::from(*us);
            StepScript::new().shaped(1).kernel(names::ADD, 400.0).kernels(3, names::FLASH, us)
        };
        let all: Vec<StepScript> = RANDOM.iter().map(step).collect();
        assert!(play(&all).look(find).is_some());
        let noise: Vec<StepScript> = [100, 103, 101, 105, 99].repeat(4).iter().map(step).collect();
        assert!(play(&noise).look(find).is_none());
    }

    #[test]
    fn lengths_within_a_step_that_repeats_are_found_too() {
        let step = steps(RANDOM).into_iter().reduce(StepScript::then).unwrap();
        assert!(step.play(4).look(find).is_some());
    }

    #[test]
    fn lengths_that_grow_or_are_equal_are_silent() {
        let mut sorted = RANDOM.to_vec();
        sorted.sort_unstable();
        assert!(play(&steps(&sorted)).look(find).is_none());
        assert!(play(&steps(&[100; 14])).look(find).is_none());
        // Four levels of a model, again and again.
        let levels: Vec<u32> = [56, 28, 14, 7].repeat(4);
        assert!(play(&steps(&levels)).look(find).is_none());
    }

    #[test]
    fn other_kernels_of_changing_times_are_silent() {
        let step = |us: &u32| {
            let us = f64::from(*us);
            StepScript::new().shaped(1).kernel(names::ADD, us).kernel(names::SOFTMAX, 50.0)
        };
        let all: Vec<StepScript> = RANDOM.iter().map(step).collect();
        assert!(play(&all).look(find).is_none());
    }
}
