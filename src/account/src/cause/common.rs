//! What several causes about the host and copies need.

use std::collections::HashMap;

use rgpu_model::trace::{TraceWork, TraceWorkKind};

use crate::edits::Edits;
use crate::host_calls::{CallKind, HostCall, median};
use crate::view::View;

/// The part of a step below which nothing is said.
const LEAST_SHARE: f64 = 0.01;

/// Bytes up to which a copy costs its latency and not its size: 64 kB take 1.3 µs at 50 GB/s. Up
/// to that size the driver also takes pageable memory into its command buffer.
pub(super) const SMALL_COPY_BYTES: u64 = 65_536;

/// A call that submits a copy from pinned memory, in nanoseconds, if the trace has none.
const ASYNC_COPY_CALL_NS: u64 = 6_000;

/// Whether nanoseconds of a step are too few to speak of.
pub(super) fn is_small(view: &View<'_>, step_ns: f64) -> bool {
    step_ns < view.step_ns() * LEAST_SHARE
}

/// Nanoseconds of the whole window, as nanoseconds of a step.
pub(super) fn per_step(view: &View<'_>, window_ns: u64) -> f64 {
    window_ns as f64 / view.step_count()
}

/// The sum of `ns` over calls.
pub(super) fn sum<'c>(
    calls: impl IntoIterator<Item = &'c HostCall>,
    ns: impl Fn(&HostCall) -> u64,
) -> u64 {
    calls.into_iter().map(ns).fold(0, u64::saturating_add)
}

/// Number of steps of the window in which at least one of `calls` is.
pub(super) fn steps_with<'c>(calls: impl IntoIterator<Item = &'c HostCall>) -> usize {
    let mut steps: Vec<u32> = calls.into_iter().map(|call| call.step).collect();
    steps.sort_unstable();
    steps.dedup();
    steps.len()
}

/// Whether it happens in at least half of the window's steps.
pub(super) fn recurs<'c>(view: &View<'_>, calls: impl IntoIterator<Item = &'c HostCall>) -> bool {
    steps_with(calls) as f64 * 2.0 >= view.step_count()
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Direction {
    /// From the host to the GPU.
    ToGpu,
    /// From the GPU to the host.
    ToHost,
    /// Within a GPU or between GPUs.
    Device,
}

/// Which way a copy goes; `None` for other work and for migrations of unified memory.
pub(super) fn direction(view: &View<'_>, work: &TraceWork) -> Option<Direction> {
    if work.kind != TraceWorkKind::Copy {
        return None;
    }
    let name = view.name(work);
    if name.starts_with("HtoD") || name.starts_with("HtoA") {
        Some(Direction::ToGpu)
    } else if name.starts_with("DtoH") || name.starts_with("AtoH") {
        Some(Direction::ToHost)
    } else if name.starts_with("unified") {
        None
    } else {
        Some(Direction::Device)
    }
}

/// Whether a copy is small enough that its latency counts and not its size.
pub(super) fn is_small_copy(work: &TraceWork) -> bool {
    work.bytes.is_some_and(|bytes| bytes <= SMALL_COPY_BYTES)
}

/// Removes a piece of work and the call that launched it; the host's time before it stays.
pub(super) fn remove_work(edits: &mut Edits, at: u32, work: &TraceWork) {
    edits.work_ns.insert(at, 0);
    if let Some(call) = work.call {
        edits.call_ns.insert(call, 0);
        edits.no_wait.insert(call);
    }
}

/// Removes a wait: the host goes on at once.
pub(super) fn remove_wait(edits: &mut Edits, call: u32) {
    edits.no_wait.insert(call);
    edits.call_ns.insert(call, 0);
}

/// The waits that belong to copies from pageable memory to the GPU, by the copy's call: the next
/// call of the thread into CUDA that does more than ask. torch's `x.to("cuda")` copies and waits so.
pub(super) fn waits_of_copies<'v>(view: &'v View<'_>) -> HashMap<u32, &'v HostCall> {
    let mut last: HashMap<u64, u32> = HashMap::new();
    let mut waits = HashMap::new();
    for call in &view.host().all {
        let work = call.work.and_then(|at| view.trace.work.get(at as usize));
        let is_copy = |work: &TraceWork| {
            work.pageable == Some(true) && direction(view, work) == Some(Direction::ToGpu)
        };
        if work.is_some_and(is_copy) {
            last.insert(call.thread, call.at);
        } else if call.kind == CallKind::Wait {
            if let Some(copy) = last.remove(&call.thread) {
                waits.insert(copy, call);
            }
        } else if call.kind != CallKind::Other {
            last.remove(&call.thread);
        }
    }
    waits
}

/// A part of a time: 0.25 of it, say.
pub(super) fn part(ns: u64, share: f64) -> u64 {
    (ns as f64 * share).round() as u64
}

/// The usual time of a call that submits a copy from pinned memory, in nanoseconds: the median of
/// the window, else what is usual.
pub(super) fn async_copy_call_ns(view: &View<'_>) -> u64 {
    let calls = view.host().all.iter().filter(|call| {
        let work = call.work.and_then(|at| view.trace.work.get(at as usize));
        call.kind == CallKind::Copy
            && !call.waits
            && work.is_some_and(|work| work.pageable == Some(false))
    });
    let times: Vec<u64> = calls.map(HostCall::duration_ns).collect();
    if times.len() < 3 { ASYNC_COPY_CALL_NS } else { median(times).min(2 * ASYNC_COPY_CALL_NS) }
}

/// The work that follows each work of the window on its stream.
pub(super) fn next_on_stream(view: &View<'_>) -> HashMap<u32, u32> {
    let mut last: HashMap<(u32, u64), u32> = HashMap::new();
    let mut next = HashMap::new();
    for (at, work) in view.work() {
        if let Some(previous) = last.insert((work.device, work.stream), at) {
            next.insert(previous, at);
        }
    }
    next
}

/// The time that work covers, as spans in order that do not overlap.
pub(super) fn union<'t>(work: impl IntoIterator<Item = &'t TraceWork>) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> =
        work.into_iter().map(|work| (work.start_ns, work.end_ns())).collect();
    all.sort_unstable();
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for (start_ns, end_ns) in all {
        match spans.last_mut() {
            Some((_, end)) if start_ns <= *end => *end = end_ns.max(*end),
            _ => spans.push((start_ns, end_ns)),
        }
    }
    spans
}

/// Nanoseconds of `start_ns` to `end_ns` that the spans cover.
pub(super) fn overlap_ns(spans: &[(u64, u64)], start_ns: u64, end_ns: u64) -> u64 {
    inside(spans, start_ns, end_ns)
        .map(|(start, end)| end.min(end_ns).saturating_sub(start.max(start_ns)))
        .fold(0, u64::saturating_add)
}

/// The spans that have a part in `start_ns` to `end_ns`.
pub(super) fn inside(
    spans: &[(u64, u64)],
    start_ns: u64,
    end_ns: u64,
) -> impl Iterator<Item = (u64, u64)> + '_ {
    let from = spans.partition_point(|(_, end)| *end <= start_ns);
    let rest = spans.get(from..).unwrap_or_default().iter().copied();
    rest.take_while(move |(start, _)| *start < end_ns)
}

/// Bytes per second of copies from pinned memory: that of the GPU, else the best of the trace's
/// copies of at least 1 MB. `None` if neither is known.
pub(super) fn pinned_bytes_per_s(view: &View<'_>) -> Option<f64> {
    let seen = view.trace.work.iter().filter(|work| {
        work.kind == TraceWorkKind::Copy
            && work.pageable == Some(false)
            && work.bytes.is_some_and(|bytes| bytes >= 1_000_000)
            && work.duration_ns > 0
    });
    let rate = |work: &TraceWork| work.bytes.unwrap_or(0) as f64 * 1e9 / work.duration_ns as f64;
    let best = seen.map(rate).fold(0.0, f64::max);
    view.facts.pinned_bytes_per_s.or((best > 0.0).then_some(best)).filter(|rate| *rate > 0.0)
}
