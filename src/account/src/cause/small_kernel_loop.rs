//! A loop of tiny kernels within a step.
//!
//! Signature: the same at most 16 kernels follow each other at least 50 times, 100 pieces of work
//! or more, with a median of less than 10 µs, in at least half of the steps: XLA's `while` of a
//! `lax.scan`, a recurrence or a solver written as a loop. Of at most 6 kernels 24 times are enough,
//! 48 pieces of work: a loop over rows, heads or groups. Loops of an optimizer over its tensors, and
//! of fills and copies alone, have causes of their own. The latency from kernel to kernel sets the
//! time, not the work. At least the loop's launches become one graph; at most only every 16th
//! iteration's kernels remain of it, as with a scan in parallel or iterations unrolled into one
//! kernel.

use std::collections::BTreeSet;

use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::common::{is_small, per_step, remove_work};
use super::{Found, unfused_optimizer, words};
use crate::edits::Edits;
use crate::host_calls::{Framework, HostCall, median};
use crate::view::View;

/// Kernels of an iteration, at most.
const MOST_KERNELS: usize = 16;
/// Iterations from which on it is a loop.
const LEAST_ITERATIONS: usize = 50;
/// Pieces of work of a loop, at least.
const LEAST_WORKS: usize = 100;
/// The same for loops of few kernels.
const FEW_KERNELS: usize = 6;
const LEAST_SHORT_ITERATIONS: usize = 24;
const LEAST_SHORT_WORKS: usize = 48;
/// Median time of the loop's work in nanoseconds, at most.
const MOST_NS: u64 = 10_000;

/// A loop: its work, and the number of kernels of an iteration.
struct KernelLoop {
    work: Vec<u32>,
    period: usize,
}

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let by_step = view.window().iter().map(|step| loops_of_step(view, &step.work));
    let mut by_step: Vec<Vec<KernelLoop>> = by_step.collect();
    let optimizer = unfused_optimizer::per_tensor_work(view);
    for loops in &mut by_step {
        loops.retain(|found| computes(view, found, &optimizer));
    }
    let with_loops = by_step.iter().filter(|loops| !loops.is_empty()).count();
    if with_loops == 0 || (with_loops as f64) * 2.0 < view.step_count() {
        return None;
    }
    let loops: Vec<KernelLoop> = by_step.into_iter().flatten().collect();
    let works = || loops.iter().flat_map(|found| found.work.iter().copied());
    let host = view.host();
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let mut on_path = 0_u64;
    for found in &loops {
        for (pos, at) in found.work.iter().enumerate() {
            let Some(work) = view.trace.work.get(*at as usize) else { continue };
            let path = host.work_path(*at);
            on_path = on_path.saturating_add(path.run_ns).saturating_add(path.launch_ns);
            if pos > 0 {
                least.in_graph.insert(*at);
                most.in_graph.insert(*at);
            }
            if (pos / found.period) % 16 != 0 {
                remove_work(&mut most, *at, work);
            }
        }
        // The calls between are events and waits of streams, which a loop in one kernel or graph
        // does not need.
        for call in calls_within(view, found) {
            on_path = on_path.saturating_add(call.path_ns).saturating_add(call.before_path_ns);
            for edits in [&mut least, &mut most] {
                edits.no_wait.insert(call.at);
                edits.call_ns.insert(call.at, 0);
                edits.host_before_ns.insert(call.at, 0);
            }
        }
    }
    let lost = per_step(view, on_path);
    let durations = works().filter_map(|at| Some(view.trace.work.get(at as usize)?.duration_ns));
    let median_ns = median(durations.collect());
    if is_small(view, lost) || median_ns >= MOST_NS {
        return None;
    }
    let first = works().next().and_then(|at| view.trace.work.get(at as usize))?;
    let period = loops.first().map_or(1, |found| found.period);
    let iterations = loops.iter().map(|found| found.work.len() / found.period.max(1)).sum();
    let hint = match host.framework {
        Framework::Jax => {
            "for a linear recurrence `jax.lax.associative_scan` (some ten large passes in place of \
             one for each element); else `jax.lax.scan(..., unroll=16)`"
        }
        Framework::Torch => {
            "if the iterations do not need each other (rows, heads, samples, groups), take all of them \
             in one operator (a dimension more, `torch.bmm`, `torch.func.vmap`); a recurrence over the \
             whole sequence (`cumsum`, a parallel scan, a fused RNN), or as one Triton kernel that \
             keeps the state in registers"
        }
        _ => {
            "if the iterations do not need each other, let one launch do all of them (a dimension more \
             of the grid); else let one kernel run all iterations (a persistent kernel, or a scan in \
             parallel), or capture the loop as a CUDA graph"
        }
    };
    Some(Found {
        change: "run the loop's iterations in few kernels".to_owned(),
        text: format!(
            "{period} kernels (first `{}`) repeat {} in a loop, {} each in the median: {} of a \
             step, of which the latency from kernel to kernel is the larger part",
            words::short_name(view.name(first)),
            words::times(iterations, view),
            words::time(median_ns as f64),
            words::time(lost),
        ),
        hint: hint.to_owned(),
        work: works().collect(),
        least,
        most,
        calls: Vec::new(),
        decides: None,
        is_bound: false,
    })
}

/// Whether a loop does more than fill and copy, and is not an optimizer's over its tensors.
fn computes(view: &View<'_>, found: &KernelLoop, optimizer: &BTreeSet<u32>) -> bool {
    let mut work = found.work.iter().filter_map(|at| view.trace.work.get(*at as usize));
    let moves = |work: &TraceWork| {
        work.kind != TraceWorkKind::Kernel || view.class(work) == AccountCause::Fill
    };
    work.any(|work| !moves(work)) && found.work.iter().all(|at| !optimizer.contains(at))
}

/// The calls after the launch of a loop's first work, to the launch of its last, of that thread.
fn calls_within<'v>(view: &'v View<'_>, found: &KernelLoop) -> impl Iterator<Item = &'v HostCall> {
    let call = |at: Option<&u32>| {
        let work = view.trace.work.get(*at? as usize)?;
        view.host().call(work.call?)
    };
    let (first, last) = (call(found.work.first()), call(found.work.last()));
    let thread = first.map(|call| call.thread);
    let (from, to) = (first.map_or(u32::MAX, |call| call.at), last.map_or(0, |call| call.at));
    let calls = &view.host().all;
    let range =
        calls.partition_point(|call| call.at <= from)..calls.partition_point(|call| call.at <= to);
    let inside = calls.get(range).unwrap_or_default().iter();
    inside.filter(move |call| Some(call.thread) == thread)
}

/// The stretches of a step's work in which at most [`MOST_KERNELS`] names repeat, longest first,
/// none of which overlaps a longer one.
fn loops_of_step(view: &View<'_>, step: &[u32]) -> Vec<KernelLoop> {
    let name = |at: &u32| view.trace.work.get(*at as usize).map(|work| work.name);
    let names: Vec<Option<u32>> = step.iter().map(name).collect();
    let mut stretches: Vec<(usize, std::ops::Range<usize>)> = Vec::new();
    for period in 1..=MOST_KERNELS {
        let mut from = 0;
        for pos in period..=names.len() {
            let is_equal = names.get(pos).is_some_and(|name| names.get(pos - period) == Some(name));
            if is_equal {
                continue;
            }
            // names[from..pos] repeat with the period.
            let length = pos - from;
            let (works, iterations) = if period <= FEW_KERNELS {
                (LEAST_SHORT_WORKS, LEAST_SHORT_ITERATIONS)
            } else {
                (LEAST_WORKS, LEAST_ITERATIONS)
            };
            if length >= works && length >= iterations * period {
                stretches.push((period, from..pos));
            }
            from = (pos + 1).saturating_sub(period);
        }
    }
    // Of two of the same length the shorter period counts: the sort keeps their order.
    stretches.sort_by_key(|(_, range)| std::cmp::Reverse(range.len()));
    let mut is_taken = vec![false; names.len()];
    let mut loops = Vec::new();
    for (period, range) in stretches {
        let Some(taken) = is_taken.get_mut(range.clone()) else { continue };
        if taken.iter().any(|taken| *taken) {
            continue;
        }
        taken.fill(true);
        loops.push(KernelLoop { work: step.get(range).unwrap_or_default().to_vec(), period });
    }
    loops
}

#[cfg(test)]
mod tests;
