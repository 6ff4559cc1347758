//! Copies in the stream of the kernels, and copies of both directions one after another.
//!
//! Signature: copies of more than 64 kB from or to the host, not pageable, in a stream that also
//! runs kernels, on the critical path, and alone: neither a kernel nor a copy the other way runs
//! beside them for most of their time (the reference's causes 11, 14). In a stream of its own with
//! two buffers a copy runs beside the previous kernels, and GPUs have an engine for each direction.
//! The kernel that follows still waits for a copy to the GPU. At least the copies take half as long again there, since they share memory and link; at
//! most they keep their time.

use std::collections::HashSet;

use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::common::{
    Direction, SMALL_COPY_BYTES, direction, is_small, next_on_stream, overlap_ns, part, per_step,
    union,
};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, Framework};
use crate::view::View;

/// The part of a copy's time in which nothing else runs, for copies that overlap nothing.
const LEAST_ALONE_SHARE: f64 = 0.5;

/// One direction only. See [`super::CAUSES`].
pub(super) fn find_one_way(view: &View<'_>) -> Option<Found> {
    let copies = copies_in_stream(view);
    let (to_gpu, to_host) = path_by_direction(view, &copies);
    if !is_small(view, to_gpu.min(to_host)) || is_small(view, to_gpu + to_host) {
        return None;
    }
    let way = if to_gpu >= to_host { Direction::ToGpu } else { Direction::ToHost };
    let copies: Vec<(u32, &TraceWork)> =
        copies.into_iter().filter(|(_, work)| direction(view, work) == Some(way)).collect();
    let name = if way == Direction::ToGpu { "to the GPU" } else { "to the host" };
    let text = format!(
        "{} copies a step {name} ({}) run in the stream of the kernels, and no kernel runs beside \
         them: {} of a step",
        words::count(copies.len(), view),
        words::size(per_step(view, bytes(&copies))),
        words::time(to_gpu.max(to_host)),
    );
    Some(found(view, &copies, "copy beside the kernels, in a stream of its own", text))
}

/// Both directions. See [`super::CAUSES`].
pub(super) fn find_both_ways(view: &View<'_>) -> Option<Found> {
    let copies = copies_in_stream(view);
    let (to_gpu, to_host) = path_by_direction(view, &copies);
    if is_small(view, to_gpu.min(to_host)) {
        return None;
    }
    let text = format!(
        "copies to the GPU ({} of a step) and to the host ({}), {} in all, run one after another \
         in the stream of the kernels",
        words::time(to_gpu),
        words::time(to_host),
        words::size(per_step(view, bytes(&copies))),
    );
    Some(found(view, &copies, "copy both ways at once, beside the kernels", text))
}

fn bytes(copies: &[(u32, &TraceWork)]) -> u64 {
    copies.iter().filter_map(|(_, work)| work.bytes).fold(0, u64::saturating_add)
}

/// Large copies from or to the host in streams that also run kernels.
fn copies_in_stream<'t>(view: &View<'t>) -> Vec<(u32, &'t TraceWork)> {
    let kernels = view.work().filter(|(_, work)| work.kind == TraceWorkKind::Kernel);
    let streams: HashSet<(u32, u64)> =
        kernels.map(|(_, work)| (work.device, work.stream)).collect();
    let copies = view.work().filter(|(_, work)| {
        work.pageable != Some(true)
            && work.bytes.is_some_and(|bytes| bytes > SMALL_COPY_BYTES)
            && matches!(direction(view, work), Some(Direction::ToGpu | Direction::ToHost))
            && streams.contains(&(work.device, work.stream))
    });
    let copies: Vec<(u32, &TraceWork)> = copies.collect();
    let total_ns = copies.iter().map(|(_, work)| work.duration_ns as f64).sum::<f64>();
    if alone_ns(view, &copies) < LEAST_ALONE_SHARE * total_ns {
        return Vec::new();
    }
    copies
}

/// Nanoseconds of copies in which neither a kernel nor a copy the other way runs.
fn alone_ns(view: &View<'_>, copies: &[(u32, &TraceWork)]) -> f64 {
    let others = |way: Option<Direction>| {
        let work = view.work().map(|(_, work)| work);
        union(work.filter(|work| {
            work.kind == TraceWorkKind::Kernel
                || direction(view, work).is_some() && direction(view, work) != way
        }))
    };
    let beside = [Direction::ToGpu, Direction::ToHost].map(|way| (way, others(Some(way))));
    let alone = copies.iter().map(|(_, work)| {
        let of_way = beside.iter().find(|(way, _)| direction(view, work) == Some(*way));
        let spans = of_way.map_or(&[][..], |(_, spans)| spans.as_slice());
        let beside_ns = overlap_ns(spans, work.start_ns, work.end_ns());
        work.duration_ns.saturating_sub(beside_ns) as f64
    });
    alone.sum()
}

/// Nanoseconds of a step on the path: copies to the GPU, and to the host.
fn path_by_direction(view: &View<'_>, copies: &[(u32, &TraceWork)]) -> (f64, f64) {
    let (mut to_gpu, mut to_host) = (0, 0);
    for (at, work) in copies {
        let ns = view.host().work_path(*at).run_ns;
        if direction(view, work) == Some(Direction::ToGpu) {
            to_gpu += ns;
        } else {
            to_host += ns;
        }
    }
    (per_step(view, to_gpu), per_step(view, to_host))
}

fn found(view: &View<'_>, copies: &[(u32, &TraceWork)], change: &str, text: String) -> Found {
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let next = next_on_stream(view);
    for (at, work) in copies {
        let is_to_gpu = direction(view, work) == Some(Direction::ToGpu);
        let consumer = next.get(at).copied().filter(|_| is_to_gpu);
        for edits in [&mut least, &mut most] {
            edits.own_stream.insert(*at, consumer);
        }
        least.work_ns.insert(*at, part(work.duration_ns, 1.5));
    }
    let hint = match view.host().framework {
        _ if streams_take_turns(view, copies) => {
            "the copies are in several streams already, but each waits for the one before: look for \
             `wait_stream`, `cudaStreamWaitEvent` or a synchronisation in the loop that makes all \
             streams wait for one; let a stream wait only for the event of the buffer that it uses \
             again, and wait for all of them once after the loop"
        }
        Framework::Torch => {
            "copy the next batch in a `torch.cuda.Stream()` of its own \
             (`with torch.cuda.stream(s): nxt = x.to(device, non_blocking=True)`), and before its \
             use `torch.cuda.current_stream().wait_stream(s)`"
        }
        Framework::Jax => {
            "call `jax.device_put` for the next batch before this step's result is read"
        }
        Framework::Cupy => {
            "copy within `with cp.cuda.Stream(non_blocking=True):` into a second buffer, and let \
             the kernels' stream wait with `wait_event`"
        }
        Framework::Cuda => {
            "use two buffers and a second stream: `cudaMemcpyAsync(..., copy_stream)`, \
             `cudaEventRecord`, `cudaStreamWaitEvent(compute_stream, event)`"
        }
    };
    Found {
        change: change.to_owned(),
        text,
        hint: hint.to_owned(),
        least,
        most,
        work: copies.iter().map(|(at, _)| *at).collect(),
        calls: copies.iter().filter_map(|(_, work)| work.call).collect(),
        decides: None,
        is_bound: false,
    }
}

/// Whether the copies are in several streams already, which wait for each other.
fn streams_take_turns(view: &View<'_>, copies: &[(u32, &TraceWork)]) -> bool {
    let streams: HashSet<(u32, u64)> =
        copies.iter().map(|(_, work)| (work.device, work.stream)).collect();
    let is_wait = |kind: CallKind| matches!(kind, CallKind::StreamWait | CallKind::Wait);
    let waits = view.host().all.iter().filter(|call| is_wait(call.kind)).count();
    streams.len() > 1 && waits as f64 >= view.step_count()
}

#[cfg(test)]
mod tests;
