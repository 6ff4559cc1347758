//! Kernels whose grids leave most of the GPU idle.
//!
//! A block runs on one SM, and its warps on the SM's four schedulers. So a launch keeps at most the
//! part of the GPU busy that its blocks are of the SMs, or its warps of the schedulers, and of a warp
//! only the lanes that have threads. The signature is a kernel of at least 10 µs whose launch fills at
//! most half of the GPU by this, and beside which no kernel of another stream runs (the reference's
//! cause 30). Spread over the whole GPU it would take that part of its time. Whether its work can be
//! divided so is in no trace, so the gain is a bound.

use std::collections::BTreeMap;

use rgpu_model::account::AccountCause;
use rgpu_model::trace::{KernelShape, TraceWork, TraceWorkKind};

use super::common::{overlap_ns, union};
use super::picked::{Changes, Picked, duration};
use super::{Found, words};
use crate::class::KernelFamily;
use crate::edits::Edits;
use crate::view::View;

/// The part of the GPU that a launch fills at most.
const MOST_FILLED: f64 = 0.5;
/// A launch of less is bound by its own latency, in nanoseconds.
const SHORTEST_NS: u64 = 10_000;
/// What is left of a kernel at least, in nanoseconds.
const LEFT_NS: f64 = 5_000.0;
/// The part of a step that such kernels take.
const MIN_SHARE: f64 = 0.05;
/// Schedulers of an SM, and lanes of a warp.
const SCHEDULERS: f64 = 4.0;
const LANES: u64 = 32;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let sms = f64::from(view.facts.sms.filter(|sms| *sms > 0)?);
    let others = kernels_by_stream(view);
    let mut most = Edits::default();
    let changes = Changes::new(view);
    let mut found = Vec::new();
    for (at, work) in view.work() {
        let Some(filled) = shape(view, work).map(|shape| filled(&shape, sms)) else { continue };
        if filled > MOST_FILLED || work.duration_ns < SHORTEST_NS || is_beside(&others, work) {
            continue;
        }
        if view.class(work) != AccountCause::Communication {
            found.push(at);
            changes.scale(&mut most, at, filled.max(LEFT_NS / duration(view, at)));
        }
    }
    let kernels = Picked::new(view, found);
    if kernels.share() < MIN_SHARE {
        return None;
    }
    let longest = kernels.at.iter().filter_map(|at| view.trace.work.get(*at as usize));
    let longest = longest.max_by_key(|work| work.duration_ns)?;
    let of_longest = shape(view, longest)?;
    Some(Found {
        change: "spread these kernels over the whole GPU".to_owned(),
        text: format!(
            "kernels with too few blocks or warps for the GPU's {sms:.0} SMs take {}; `{}` has {} of {}",
            kernels.words(),
            words::short_name(view.name(longest)),
            counted(of_longest.blocks(), "block"),
            counted(of_longest.threads(), "thread"),
        ),
        hint: hint(view, longest, &of_longest).to_owned(),
        // Nothing is certain.
        least: changes.scaled(&kernels.at, 1.0),
        most,
        work: kernels.at.clone(),
        is_bound: true,
        ..Found::default()
    })
}

fn counted(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn shape(view: &View<'_>, work: &TraceWork) -> Option<KernelShape> {
    let shape = view.trace.shapes.get(work.shape? as usize).copied();
    shape.filter(|shape| work.kind == TraceWorkKind::Kernel && shape.blocks() > 0)
}

/// The part of the GPU that a launch keeps busy at most, 0 to 1.
fn filled(shape: &KernelShape, sms: f64) -> f64 {
    let (blocks, threads) = (shape.blocks() as f64, shape.threads().max(1));
    let warps = threads.div_ceil(LANES);
    let lanes = threads as f64 / (warps * LANES) as f64;
    let of_schedulers = blocks * warps as f64 / (sms * SCHEDULERS);
    (blocks / sms).min(of_schedulers).min(1.0) * lanes
}

/// The time that kernels of each stream cover.
fn kernels_by_stream(view: &View<'_>) -> BTreeMap<(u32, u64), Vec<(u64, u64)>> {
    let mut streams: BTreeMap<(u32, u64), Vec<&TraceWork>> = BTreeMap::new();
    for (_, work) in view.work().filter(|(_, work)| work.kind == TraceWorkKind::Kernel) {
        streams.entry((work.device, work.stream)).or_default().push(work);
    }
    streams.into_iter().map(|(stream, work)| (stream, union(work))).collect()
}

/// Whether kernels of another stream of the GPU run for half of the time of this one.
fn is_beside(streams: &BTreeMap<(u32, u64), Vec<(u64, u64)>>, work: &TraceWork) -> bool {
    let others = streams
        .iter()
        .filter(|((device, stream), _)| *device == work.device && *stream != work.stream);
    let ns = others.map(|(_, spans)| overlap_ns(spans, work.start_ns, work.end_ns()));
    ns.fold(0, u64::saturating_add) > work.duration_ns / 2
}

/// What to write, by what the kernel does.
fn hint(view: &View<'_>, work: &TraceWork, shape: &KernelShape) -> &'static str {
    let class = view.class(work);
    if view.family(work) == KernelFamily::Own && shape.threads() < LANES {
        return "blocks of fewer than 32 threads leave lanes of each warp idle: blocks of 128 or 256 \
                threads, `<<<(n + 255) / 256, 256>>>`, with the thread's number from `blockIdx.x * \
                blockDim.x + threadIdx.x`";
    }
    match class {
        AccountCause::MatrixProduct => {
            "the product has few tiles: give it more rows (a larger batch, several steps or requests \
             at once), join products that share an input into one (weights side by side), or split \
             the inner dimension (split-k: `torch.bmm` over parts of k, then a sum)"
        }
        AccountCause::Attention => {
            "few heads and queries: split along the keys (flash-decoding: `num_splits` of \
             flash-attention, a paged or split-kv backend), or take more requests at once"
        }
        AccountCause::Convolution => "a larger batch, or fewer and larger layers at low resolution",
        AccountCause::Reduction | AccountCause::Softmax | AccountCause::Normalisation => {
            "few rows, each reduced by one block: reduce in two steps (`x.view(rows, parts, -1)`, sum \
             the last axis, then the parts), or take more rows at once"
        }
        AccountCause::Sort | AccountCause::GatherScatter => {
            "take all rows or groups in one call, so that more blocks have work"
        }
        _ if view.family(work) == KernelFamily::Own => {
            "give the kernel more blocks: a block for each part of the rows or elements (a grid of \
             several blocks for each SM, atomics or a second kernel for what is summed), or launch \
             independent kernels of this kind on streams of their own"
        }
        _ => {
            "call the operator once for all rows or groups, in place of once for each, or run \
             independent ones on streams of their own"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    fn window(grid: u32, block: u32, us: f64) -> super::super::test_view::TestWindow {
        let step = StepScript::new().shaped(0).kernel("blend(float *)", us).shaped(1);
        let mut window = step.kernel(names::PRODUCT, 100.0).play(3);
        window.trace.shapes = vec![
            KernelShape { grid: [grid, 1, 1], block: [block, 1, 1] },
            KernelShape { grid: [132, 4, 1], block: [384, 1, 1] },
        ];
        window
    }

    #[test]
    fn a_grid_smaller_than_the_gpu_is_found_and_a_full_one_is_silent() {
        let few = window(33, 256, 400.0);
        let found = few.look(find).unwrap();
        assert!(found.is_bound && found.text.contains("`blend` has 33 blocks of 256 threads"));
        assert!((few.removed_ns(&found.most) - 300_000.0).abs() < 10.0);
        assert!(window(132, 256, 400.0).look(find).is_none());
        assert!(window(33, 256, 9.0).look(find).is_none());
        // One thread a block: of each warp one lane of 32 works.
        let lanes = window(100_000, 1, 400.0);
        let found = lanes.look(find).unwrap();
        assert!(found.hint.contains("fewer than 32 threads"));
        assert!((lanes.removed_ns(&found.most) - 387_500.0).abs() < 10.0);
    }

    #[test]
    fn kernels_side_by_side_fill_the_gpu_together() {
        let step = StepScript::new().shaped(0).kernel("blend(float *)", 400.0).on_stream(9);
        let mut window = step.kernel("blend(float *)", 400.0).play(3);
        window.trace.shapes = vec![KernelShape { grid: [33, 1, 1], block: [256, 1, 1] }];
        assert!(window.look(find).is_none());
    }
}
