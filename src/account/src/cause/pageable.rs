//! Copies from and to pageable memory.
//!
//! Signature: copies of more than 64 kB whose host side is pageable, by the tool's kinds of memory.
//! The driver brings such a copy through a pinned buffer of its own, piece by piece: at a third of
//! the bandwidth, and the call holds the host until the copy is done, also an asynchronous one (the
//! reference's causes 9, 10). From pinned memory the copy takes its bytes over the pinned
//! bandwidth and the call returns at once. At least the copy stays in its stream, and takes a
//! tenth longer than the bandwidth says; at most it has a queue of its own beside the kernels, and
//! the next work of its stream waits for it.

use rgpu_model::trace::TraceWork;

use super::common::{
    Direction, SMALL_COPY_BYTES, async_copy_call_ns, direction, is_small, next_on_stream, per_step,
    pinned_bytes_per_s, remove_wait, waits_of_copies,
};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::Framework;
use crate::view::View;

/// Copies to the GPU. See [`super::CAUSES`].
pub(super) fn find_to_gpu(view: &View<'_>) -> Option<Found> {
    let hint = match view.host().framework {
        Framework::Torch => {
            "`DataLoader(..., pin_memory=True)` or `tensor.pin_memory()` once, then \
             `x.to(device, non_blocking=True)`"
        }
        Framework::Jax => {
            "put the next batch on the GPU with `jax.device_put` before the step needs it, or keep \
             the data there"
        }
        Framework::Cupy => {
            "allocate the host array with `cupyx.empty_pinned(...)` and copy with \
             `array.set(host, stream=stream)`"
        }
        Framework::Cuda => {
            "allocate the host buffer once with `cudaMallocHost` (or lock it once with \
             `cudaHostRegister`) and use `cudaMemcpyAsync`"
        }
    };
    find(view, Direction::ToGpu, "copy to the GPU from pinned memory", hint)
}

/// Copies to the host. See [`super::CAUSES`].
pub(super) fn find_to_host(view: &View<'_>) -> Option<Found> {
    let hint = match view.host().framework {
        Framework::Torch => {
            "copy into a tensor made once with `torch.empty(..., pin_memory=True)` by \
             `out.copy_(x, non_blocking=True)`, and wait for an event where the host reads it"
        }
        Framework::Jax => {
            "start the copy early with `array.copy_to_host_async()` and read it a step later"
        }
        Framework::Cupy => "copy with `x.get(out=pinned)` into an array of `cupyx.empty_pinned`",
        Framework::Cuda => {
            "copy with `cudaMemcpyAsync` into a buffer of `cudaMallocHost`, and wait for an event \
             where the host reads it"
        }
    };
    let hint = format!(
        "if the host only looks at a sum, a maximum or some rows, compute these on the GPU and copy \
         them alone; else {hint}"
    );
    find(view, Direction::ToHost, "copy to the host into pinned memory", &hint)
}

fn find(view: &View<'_>, way: Direction, change: &str, hint: &str) -> Option<Found> {
    let is_one = |(_, work): &(u32, &TraceWork)| {
        work.pageable == Some(true)
            && work.bytes.is_some_and(|bytes| bytes > SMALL_COPY_BYTES)
            && direction(view, work) == Some(way)
    };
    let copies: Vec<(u32, &TraceWork)> = view.work().filter(is_one).collect();
    let rate = pinned_bytes_per_s(view)?;
    let host = view.host();
    let (mut on_path, mut bytes, mut now_ns) = (0_u64, 0_u64, 0_u64);
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let call_ns = async_copy_call_ns(view);
    let next = next_on_stream(view);
    let waits = waits_of_copies(view);
    for (at, work) in &copies {
        let size = work.bytes.unwrap_or(0);
        bytes = bytes.saturating_add(size);
        now_ns = now_ns.saturating_add(work.duration_ns);
        on_path = on_path.saturating_add(host.work_path(*at).run_ns);
        let pinned_ns = (size as f64 * 1e9 / rate).round() as u64;
        most.work_ns.insert(*at, pinned_ns.min(work.duration_ns));
        let slower_ns = pinned_ns.saturating_add(pinned_ns / 10);
        least.work_ns.insert(*at, slower_ns.min(work.duration_ns));
        most.own_stream.insert(*at, next.get(at).copied());
        if let Some(call) = work.call.and_then(|call| host.call(call)) {
            on_path = on_path.saturating_add(call.path_ns);
            // torch waits for such a copy, with `non_blocking=True` it does not.
            if let Some(wait) = waits.get(&call.at) {
                on_path = on_path.saturating_add(wait.path_ns);
                remove_wait(&mut least, wait.at);
                remove_wait(&mut most, wait.at);
            }
            for edits in [&mut least, &mut most] {
                edits.no_wait.insert(call.at);
                edits.call_ns.insert(call.at, call_ns.min(call.duration_ns()));
            }
        }
    }
    let lost = per_step(view, on_path);
    if copies.is_empty() || is_small(view, lost) {
        return None;
    }
    let seen_rate = bytes as f64 * 1e9 / (now_ns.max(1)) as f64;
    let count = words::count(copies.len(), view);
    let (first, _) = copies.first()?;
    let place = next.get(first).and_then(|at| view.trace.work.get(*at as usize));
    Some(Found {
        change: change.to_owned(),
        text: format!(
            "{count} copies a step ({} in all) {} pageable memory at {}/s, while the host is held: \
             {} of a step; pinned memory gives {}/s{}",
            words::size(per_step(view, bytes)),
            if way == Direction::ToGpu { "from" } else { "to" },
            words::size(seen_rate),
            words::time(lost),
            words::size(rate),
            place.map_or(String::new(), |work| words::place_of_work(view, work)),
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: copies.iter().map(|(at, _)| *at).collect(),
        calls: copies.iter().filter_map(|(_, work)| work.call).collect(),
        decides: None,
        is_bound: false,
    })
}

#[cfg(test)]
mod tests;
