//! A long pause of the host at the same place of each step.
//!
//! Signature: the critical path goes through host time before the same call of each step, without a
//! call into CUDA: more than ten of the program's usual times between launches, and 150 µs at
//! least. The GPU has nothing to do meanwhile. A data loader that is late, preprocessing, sampling,
//! tokenizing, a container that is slow to index, or printing look like this (the reference's
//! causes 47, 48); what the trace tells is the call after it, and its region or operator. At most
//! other threads or a faster algorithm hide all of it; at least a quarter of it stays.

use std::collections::{HashMap, HashSet};

use rgpu_model::trace::TraceWork;

use super::common::{Direction, direction, is_small, part, per_step, recurs, sum};
use super::{Found, loading, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, Framework, HostCall};
use crate::view::View;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let pauses = long_pauses(view);
    let mut groups: HashMap<(u32, Option<u32>), Vec<&HostCall>> = HashMap::new();
    for call in pauses {
        groups.entry(slot(view, call)).or_default().push(call);
    }
    let on_path = |calls: &[&HostCall]| sum(calls.iter().copied(), |call| call.before_path_ns);
    let mut groups: Vec<Vec<&HostCall>> = groups
        .into_values()
        .filter(|calls| recurs(view, calls.iter().copied()) && on_path(calls) > 0)
        .collect();
    groups.sort_by_key(|calls| (std::cmp::Reverse(on_path(calls)), calls.first().map(|c| c.at)));
    let largest = groups.first()?;
    let costly = *largest.iter().max_by_key(|call| call.before_path_ns)?;
    let largest_ns = on_path(largest);
    let all: Vec<&HostCall> = groups.iter().flatten().copied().collect();
    let lost = per_step(view, on_path(&all));
    if is_small(view, lost) {
        return None;
    }
    let (mut least, mut most) = (Edits::default(), Edits::default());
    for call in &all {
        most.host_before_ns.insert(call.at, 0);
        least.host_before_ns.insert(call.at, part(call.before_ns, 0.25));
    }
    let others = groups.len() - 1;
    let more = if others == 0 {
        String::new()
    } else {
        format!(", and {} at {others} other places", words::time(lost - per_step(view, largest_ns)))
    };
    Some(Found {
        change: "take the host's work off the step".to_owned(),
        text: format!(
            "for {} of a step the host works without a call into CUDA{}{more}, and the GPU waits \
             for it{}",
            words::time(per_step(view, largest_ns)),
            words::place(view, costly),
            operator(view, costly),
        ),
        hint: hint(view, costly).to_owned(),
        least,
        most,
        work: Vec::new(),
        calls: all.iter().map(|call| call.at).collect(),
        decides: Some(
            "what the host does there: a recording with stacks (`py-spy dump`, `perf`, or \
             `rgpu profile --mode torch`) names the function"
                .to_owned(),
        ),
        is_bound: false,
    })
}

/// Calls with a long pause before them, on the critical path or beside it in single steps, apart from those in which a compiler
/// ran, code was loaded or a graph was made.
fn long_pauses<'v>(view: &'v View<'_>) -> Vec<&'v HostCall> {
    let host = view.host();
    let limit = host.pause_ns();
    let compiled = loading::pauses_before_new_kernels(view);
    let compiled: HashSet<u32> = compiled.iter().map(|call| call.at).collect();
    let is_one = |call: &&HostCall| {
        call.before_ns >= limit
            && !matches!(call.kind, CallKind::Load | CallKind::BeginCapture | CallKind::GraphMake)
            && !compiled.contains(&call.at)
    };
    host.all.iter().filter(is_one).collect()
}

/// What makes a place in a step: the call and the work that it, or the next launch, launches.
fn slot(view: &View<'_>, call: &HostCall) -> (u32, Option<u32>) {
    let work = next_work(view, call);
    // A query of a kernel's name or attribute before a launch is the launch's place.
    let name = if call.kind == CallKind::Other { u32::MAX } else { call.name };
    (name, work.map(|work| work.name))
}

/// The work that a call, or the next launch of its thread, launches.
fn next_work<'t>(view: &View<'t>, call: &HostCall) -> Option<&'t TraceWork> {
    let calls = &view.host().all;
    let from = calls.partition_point(|other| other.at < call.at);
    let later = calls.get(from..).unwrap_or_default();
    let mut later = later.iter().take(500).filter(|other| other.thread == call.thread);
    later.find_map(|other| view.trace.work.get(other.work? as usize))
}

/// The operator or function that covers the middle of the pause, if the trace tells.
fn operator(view: &View<'_>, call: &HostCall) -> String {
    let middle = call.start_ns.saturating_sub(call.before_ns / 2);
    let events = &view.trace.host;
    let end = events.partition_point(|event| event.start_ns <= middle);
    let started = events.get(..end).unwrap_or_default();
    let mut started = started.iter().rev().take(10_000).filter(|event| {
        event.thread == call.thread && event.start_ns.saturating_add(event.duration_ns) > middle
    });
    let name = started.find_map(|event| event.function.as_ref().or(event.operator.as_ref()));
    name.map_or(String::new(), |name| format!(" (in `{name}`)"))
}

/// What to do, by what follows the pause: input is prepared before a copy to the GPU only.
fn hint(view: &View<'_>, pause: &HostCall) -> &'static str {
    let brings_input =
        next_work(view, pause).is_some_and(|work| direction(view, work) == Some(Direction::ToGpu));
    match view.host().framework {
        Framework::Torch if !brings_input => {
            "nothing is brought to the GPU after it, so it is no input: look for Python between the \
             operators, a module's own preparation in each call (weights that are packed again, a \
             plan that is made again), logging, or a callback; do it once before the loop, or while \
             the GPU works"
        }
        Framework::Torch => {
            "prepare the next batch while the GPU works: `DataLoader(num_workers=4, \
             prefetch_factor=2, persistent_workers=True)` or a thread; do random draws, indexing \
             and lookups with tensors on the GPU; find the line with `py-spy top`"
        }
        Framework::Jax => {
            "dispatch the next step before the host's work of this one (read results a step \
             later), and prepare input in a thread or with `grain`/`tf.data` prefetch"
        }
        Framework::Cupy => {
            "do this work with CuPy on the GPU, or in a thread while the GPU works; find the line \
             with `py-spy top`"
        }
        Framework::Cuda => {
            "launch the next work before the host's own, or do the host's work in a second thread; \
             find the function with `perf record -g`"
        }
    }
}

#[cfg(test)]
mod tests;
