//! A loop of tiny kernels within a step.
//!
//! Signature: the same at most 16 kernels follow each other at least 50 times, 100 pieces of work
//! or more, with a median of less than 10 µs, in at least half of the steps: XLA's `while` of a
//! `lax.scan`, a recurrence or a solver written as a loop. The latency from kernel to kernel sets
//! the time, not the work. At least the loop's launches become one graph; at most only every 16th
//! iteration's kernels remain, as with a scan in parallel or iterations unrolled into one kernel.

use super::common::{is_small, per_step, remove_work};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{Framework, median};
use crate::view::View;

/// Kernels of an iteration, at most.
const MOST_KERNELS: usize = 16;
/// Iterations from which on it is a loop.
const LEAST_ITERATIONS: usize = 50;
/// Pieces of work of a loop, at least.
const LEAST_WORKS: usize = 100;
/// Median time of the loop's work in nanoseconds, at most.
const MOST_NS: u64 = 10_000;

/// A loop: positions among a step's work, and the number of kernels of an iteration.
struct KernelLoop {
    work: Vec<u32>,
    period: usize,
}

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let loops: Vec<KernelLoop> =
        view.window().iter().filter_map(|step| longest_loop(view, &step.work)).collect();
    if loops.is_empty() || (loops.len() as f64) * 2.0 < view.step_count() {
        return None;
    }
    let works = || loops.iter().flat_map(|found| found.work.iter().copied());
    let host = view.host();
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let mut on_path = 0_u64;
    for found in &loops {
        for (pos, at) in found.work.iter().enumerate() {
            let Some(work) = view.trace.work.get(*at as usize) else { continue };
            let path = host.work_path(*at);
            on_path = on_path.saturating_add(path.run_ns).saturating_add(path.launch_ns);
            let call = work.call.and_then(|call| host.call(call));
            if let Some(call) = call {
                on_path = on_path.saturating_add(call.path_ns);
                on_path = on_path.saturating_add(call.before_path_ns);
            }
            if pos > 0 {
                least.in_graph.insert(*at);
                if let Some(call) = call {
                    least.call_ns.insert(call.at, 0);
                    least.host_before_ns.insert(call.at, 0);
                }
            }
            if (pos / found.period) % 16 != 0 {
                remove_work(&mut most, *at, work);
                if let Some(call) = call {
                    most.host_before_ns.insert(call.at, 0);
                }
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
    let hint = match host.framework {
        Framework::Jax => {
            "for a linear recurrence `jax.lax.associative_scan` (some ten large passes in place of \
             one for each element); else `jax.lax.scan(..., unroll=16)`"
        }
        Framework::Torch => {
            "write the recurrence over the whole sequence (`cumsum`, a parallel scan, a fused \
             RNN), or as one Triton kernel that keeps the state in registers"
        }
        _ => {
            "let one kernel run all iterations (a persistent kernel, or a scan in parallel), or \
             capture the loop as a CUDA graph"
        }
    };
    Some(Found {
        change: "run the loop's iterations in few kernels".to_owned(),
        text: format!(
            "{period} kernels (first `{}`) repeat {} in a loop, {} each in the median: {} of a \
             step, of which the latency from kernel to kernel is the larger part",
            words::short_name(view.name(first)),
            words::times(works().count() / period.max(1), view),
            words::time(median_ns as f64),
            words::time(lost),
        ),
        hint: hint.to_owned(),
        work: works().collect(),
        least,
        most,
        calls: Vec::new(),
        decides: None,
        is_bound: true,
    })
}

/// The longest stretch of a step's work in which at most [`MOST_KERNELS`] names repeat.
fn longest_loop(view: &View<'_>, step: &[u32]) -> Option<KernelLoop> {
    let name = |at: &u32| view.trace.work.get(*at as usize).map(|work| work.name);
    let names: Vec<Option<u32>> = step.iter().map(name).collect();
    let mut best: Option<(usize, std::ops::Range<usize>)> = None;
    for period in 1..=MOST_KERNELS {
        let mut from = 0;
        for pos in period..=names.len() {
            let is_equal = names.get(pos).is_some_and(|name| names.get(pos - period) == Some(name));
            if is_equal {
                continue;
            }
            // names[from..pos] repeat with the period.
            let length = pos - from;
            let is_loop = length >= LEAST_WORKS && length >= LEAST_ITERATIONS * period;
            if is_loop && best.as_ref().is_none_or(|(_, range)| length > range.len()) {
                best = Some((period, from..pos));
            }
            from = (pos + 1).saturating_sub(period);
        }
    }
    let (period, range) = best?;
    Some(KernelLoop { work: step.get(range)?.to_vec(), period })
}

#[cfg(test)]
mod tests;
