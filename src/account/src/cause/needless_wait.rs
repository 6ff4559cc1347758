//! A wait that nothing needs.
//!
//! Signature: a synchronisation of the device, a stream or an event in each step, with nothing for
//! the host to read: since the previous wait the process copied nothing to the host, and neither is
//! memory freed around it nor is it the wait for a copy to the GPU (those have causes of their own). Timing code, progress output and
//! habit write such waits at the end of steps or after each launch (the reference's causes 5, 7).
//! Unified memory may be read by the host without a copy: then the gain is a bound, and where its
//! pages move in each step the wait is needed. At least: of several waits in a step one remains; of
//! one a step every second.

use std::collections::HashSet;

use super::common::{
    Direction, direction, is_small, per_step, recurs, remove_wait, sum, waits_of_copies,
};
use super::unified::migrations;
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, Framework, HostCall};
use crate::view::View;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let waits = needless_waits(view);
    let moves_pages = migrations(view).len() as f64 >= view.step_count();
    if moves_pages || !recurs(view, waits.iter().copied()) {
        return None;
    }
    let lost = per_step(view, sum(waits.iter().copied(), |wait| wait.after_wait_ns));
    if is_small(view, lost) {
        return None;
    }
    let costly = waits.iter().max_by_key(|wait| wait.after_wait_ns)?;
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let is_one_a_step = (waits.len() as f64) < 1.5 * view.step_count();
    for (number, wait) in waits.iter().enumerate() {
        remove_wait(&mut most, wait.at);
        let is_last = waits.get(number + 1).is_none_or(|next| next.step != wait.step);
        let is_kept = if is_one_a_step { number % 2 == 1 } else { is_last };
        if !is_kept {
            remove_wait(&mut least, wait.at);
        }
    }
    let name = view.trace.names.get(costly.name as usize).map_or("", String::as_str);
    Some(Found {
        change: "do not wait for the GPU in the loop".to_owned(),
        text: format!(
            "the host waits for the GPU {} ({}) though nothing was copied to the host since its \
             previous wait; the GPU then has nothing to do for {} a step{}",
            words::times(waits.len(), view),
            words::call_name(name),
            words::time(lost),
            words::place(view, costly),
        ),
        hint: hint(view.host().framework).to_owned(),
        least,
        most,
        work: Vec::new(),
        calls: waits.iter().map(|wait| wait.at).collect(),
        decides: None,
        // The host may read unified memory without a copy.
        is_bound: view.trace.names.iter().any(|name| name.starts_with("unified")),
    })
}

/// The explicit waits before which nothing was copied to the host.
fn needless_waits<'v>(view: &'v View<'_>) -> Vec<&'v HostCall> {
    let calls = &view.host().all;
    let of_copies: HashSet<u32> = waits_of_copies(view).values().map(|wait| wait.at).collect();
    let mut waits = Vec::new();
    // Before the window's first wait as before the same one in other steps: what follows the last.
    let mut after_last = calls.iter().rev().take_while(|call| call.kind != CallKind::Wait);
    let mut has_data = after_last.any(|call| brings_data(view, call));
    for (pos, call) in calls.iter().enumerate() {
        has_data |= brings_data(view, call);
        if call.kind != CallKind::Wait {
            continue;
        }
        let from = pos.saturating_sub(1);
        let around = calls.get(from..calls.len().min(pos + 2)).unwrap_or_default();
        let is_of_allocation = around.iter().any(|other| {
            other.thread == call.thread
                && (other.kind.is_allocation()
                    || matches!(
                        other.kind,
                        CallKind::BeginCapture | CallKind::GraphMake | CallKind::GraphDestroy
                    ))
        });
        if !has_data && !of_copies.contains(&call.at) && !is_of_allocation && call.waits {
            waits.push(call);
        }
        has_data = false;
    }
    waits
}

/// Whether a call copies something to the host.
fn brings_data(view: &View<'_>, call: &HostCall) -> bool {
    let work = call.work.and_then(|at| view.trace.work.get(at as usize));
    work.is_some_and(|work| direction(view, work) == Some(Direction::ToHost))
}

fn hint(framework: Framework) -> &'static str {
    match framework {
        Framework::Torch => {
            "remove `torch.cuda.synchronize()` from the loop; to time it, record \
             `torch.cuda.Event(enable_timing=True)` in each step and read the times after the loop"
        }
        Framework::Jax => {
            "call `block_until_ready()` once after the loop, not in each step: JAX dispatches the \
             next step while the GPU works"
        }
        Framework::Cupy => {
            "remove `Stream.synchronize()` from the loop; time with `cupyx.profiler.benchmark` or \
             events read after the loop"
        }
        Framework::Cuda => {
            "remove `cudaDeviceSynchronize`/`cudaStreamSynchronize` from the loop: work of one \
             stream keeps its order by itself; between streams use `cudaStreamWaitEvent`; time \
             with events that are read after the loop"
        }
    }
}

#[cfg(test)]
mod tests;
