//! CUDA graphs that are made in the loop.
//!
//! Signature: a capture (`cudaStreamBeginCapture` to `cudaGraphInstantiate`), an instantiation or
//! an update of a graph in at least a tenth of the steps, with host time on the critical path (the
//! reference's cause 70): the graph is made anew, or its cache misses. The part from the calls
//! that prepare the capture (a synchronisation, memory that is freed) to the graph's first launch
//! falls away if the graph is kept, as do the calls that destroy graphs; and that launch need not
//! bring the graph to the GPU. At most the warm-up launches on a stream of their own before the
//! capture go too; at least a tenth of the host's time stays.

use std::collections::HashSet;

use super::common::{is_small, part, per_step, remove_work, sum};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, Framework, HostCall};
use crate::view::View;

/// What a launch of a graph takes that is on the GPU already, in nanoseconds.
const GRAPH_LAUNCH_NS: u64 = 2_500;

/// Calls before a capture among which its warm-up is looked for.
const MOST_CALLS_BEFORE: usize = 5_000;

/// Launches between the preparation of a capture and its begin, at most.
const MOST_LAUNCHES_IN_PREPARATION: usize = 4;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let threads = view.host().threads();
    let mut made: Vec<&HostCall> = Vec::new();
    let mut warm_up: Vec<&HostCall> = Vec::new();
    let mut launches: Vec<&HostCall> = Vec::new();
    let mut count = 0;
    for thread in &threads {
        for part in making_parts(thread) {
            count += 1;
            let from = part.start.saturating_sub(MOST_CALLS_BEFORE);
            let before = thread.get(from..part.start).unwrap_or_default();
            warm_up.extend(warm_up_before(view, before));
            let after = thread.get(part.end..).unwrap_or_default().iter().take(20);
            launches.extend(after.copied().find(|call| call.kind == CallKind::GraphLaunch));
            made.extend(thread.get(part).unwrap_or_default());
        }
    }
    if count > 0 {
        let destroyed = view.host().all.iter();
        made.extend(destroyed.filter(|call| call.kind == CallKind::GraphDestroy));
        made.sort_by_key(|call| call.at);
        made.dedup_by_key(|call| call.at);
    }
    let lost = sum(made.iter().copied(), |call| call.path_ns.saturating_add(call.before_path_ns));
    let lost = per_step(view, lost);
    if (count as f64) < 0.1 * view.step_count() || is_small(view, lost) {
        return None;
    }
    let (mut least, mut most) = (Edits::default(), Edits::default());
    for call in &made {
        for edits in [&mut least, &mut most] {
            edits.no_wait.insert(call.at);
        }
        most.call_ns.insert(call.at, 0);
        most.host_before_ns.insert(call.at, 0);
        least.call_ns.insert(call.at, part(call.duration_ns(), 0.1));
        least.host_before_ns.insert(call.at, part(call.before_ns, 0.1));
    }
    // The first launch of a new graph brings it to the GPU; later ones take 2.5 µs and do not wait
    // for that. A removed call has no such latency, so its time counts as the host's own.
    for call in launches.iter().filter(|call| call.work.is_some()) {
        for edits in [&mut least, &mut most] {
            edits.call_ns.insert(call.at, 0);
            edits.host_before_ns.insert(call.at, call.before_ns.saturating_add(GRAPH_LAUNCH_NS));
        }
    }
    for call in &warm_up {
        most.call_ns.insert(call.at, 0);
        most.host_before_ns.insert(call.at, 0);
        if let Some(at) = call.work
            && let Some(work) = view.trace.work.get(at as usize)
        {
            remove_work(&mut most, at, work);
        }
    }
    let captured = made.iter().filter(|call| is_captured(call)).count();
    let hint = match view.host().framework {
        Framework::Torch => {
            "capture once for each shape and keep the graph; let the cache hold all shapes in use, \
             or pad to a few shapes; with `torch.compile(mode=\"reduce-overhead\")` mark static \
             inputs and avoid new shapes"
        }
        Framework::Jax => "keep the shapes, so that XLA's command buffers are made once",
        Framework::Cupy => "keep the graph of `stream.end_capture()` and call `graph.launch()`",
        Framework::Cuda => {
            "capture and `cudaGraphInstantiate` once before the loop; for new pointers or sizes \
             `cudaGraphExecKernelNodeSetParams` or `cudaGraphExecUpdate`"
        }
    };
    let first = made.first()?;
    Some(Found {
        change: "keep the CUDA graph".to_owned(),
        text: format!(
            "a CUDA graph is captured or instantiated {} ({} launches captured each): {} of a step{}",
            words::times(count, view),
            captured.checked_div(count).unwrap_or(0),
            words::time(lost),
            words::place(view, first),
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: warm_up.iter().filter_map(|call| call.work).collect(),
        calls: made.iter().map(|call| call.at).collect(),
        decides: None,
        is_bound: false,
    })
}

/// The parts of a thread's calls in which graphs are made, as ranges of positions: from the first
/// call that belongs to it to the last, with the waits, allocations and other calls around that
/// launch nothing.
fn making_parts(thread: &[&HostCall]) -> Vec<std::ops::Range<usize>> {
    let mut parts: Vec<std::ops::Range<usize>> = Vec::new();
    let mut pos = 0;
    while let Some(call) = thread.get(pos) {
        let is_made = matches!(call.kind, CallKind::BeginCapture | CallKind::GraphMake);
        if !is_made {
            pos += 1;
            continue;
        }
        let from = parts.last().map_or(0, |part| part.end);
        let before = thread.get(from..pos).unwrap_or_default();
        let prepared = prepared_length(before);
        let rest = thread.get(pos..).unwrap_or_default();
        let length = rest.iter().take_while(|call| is_around(call) || is_captured(call));
        let end = pos + length.count().max(1);
        parts.push(pos - prepared..end);
        pos = end;
    }
    // A call to upload a graph, or to set parameters of a node, does not make one.
    parts.retain(|part| {
        let calls = thread.get(part.clone()).unwrap_or_default();
        calls.iter().any(|call| call.kind == CallKind::BeginCapture)
            || calls.iter().filter(|call| call.kind == CallKind::GraphMake).count() >= 2
    });
    parts
}

/// Launches, copies and fills that a capture took: they put nothing on the GPU.
fn is_captured(call: &HostCall) -> bool {
    let is_work = matches!(call.kind, CallKind::Launch | CallKind::Copy | CallKind::Fill);
    is_work && call.work.is_none()
}

/// Number of calls right before a capture that prepare it: back to the first wait or allocation of
/// which only a few launches (of random numbers' state, say) are between it and the capture.
fn prepared_length(before: &[&HostCall]) -> usize {
    let (mut length, mut launches) = (0, 0);
    for (number, call) in before.iter().rev().enumerate() {
        if !is_around(call) {
            launches += 1;
            let is_kernel = call.kind == CallKind::Launch;
            if !is_kernel || launches > MOST_LAUNCHES_IN_PREPARATION {
                break;
            }
        } else if launches == 0 || call.kind.is_allocation() || call.kind == CallKind::Wait {
            length = number + 1;
        }
    }
    length
}

/// Calls that prepare a capture or belong to it and launch nothing on the GPU.
fn is_around(call: &HostCall) -> bool {
    call.work.is_none()
        && !matches!(call.kind, CallKind::Launch | CallKind::GraphLaunch)
        && !matches!(call.kind, CallKind::Copy | CallKind::Fill)
}

/// Launches before a capture, back to the last launch of a graph, whose stream no graph and no
/// other launch of the window's calls before uses: the warm-up that torch asks for.
fn warm_up_before<'v>(view: &View<'_>, before: &[&'v HostCall]) -> Vec<&'v HostCall> {
    let is_launch = |call: &&&HostCall| call.kind == CallKind::Launch && call.work.is_some();
    let after_graph = before.iter().rev().take_while(|call| call.kind != CallKind::GraphLaunch);
    let launches: Vec<&HostCall> = after_graph.copied().filter(|call| is_launch(&call)).collect();
    let stream = |call: &HostCall| Some(view.trace.work.get(call.work? as usize)?.stream);
    let earlier = before.len().saturating_sub(launches.len());
    let graphs = before.get(..earlier).unwrap_or_default().iter();
    let used: HashSet<u64> = graphs
        .filter(|call| call.kind == CallKind::GraphLaunch)
        .filter_map(|call| stream(call))
        .collect();
    if used.is_empty() {
        return Vec::new();
    }
    let is_apart = |call: &&HostCall| stream(call).is_some_and(|stream| !used.contains(&stream));
    launches.into_iter().filter(|call| is_apart(call)).collect()
}

#[cfg(test)]
mod tests;
