//! Memory that is allocated, freed or locked in each step.
//!
//! Signature: `cudaMalloc`, `cudaFree` and their kin (GPU memory), or `cudaHostRegister`,
//! `cudaMallocHost` and theirs (locking of the host's pages) in at least half of the steps, with
//! their time on the critical path (the reference's causes 39, 41). `cudaFree` waits for the device
//! beside; locking 16 MB takes milliseconds. `cudaMallocAsync` is cheap, unless its pool gives its
//! memory back to the driver at each synchronisation (release threshold 0): then the waits return
//! late, too. With memory that stays nothing is left of these calls; at least, 15 % of their time
//! stays (a pool of one's own takes some).

use super::common::{is_small, part, per_step, recurs, remove_wait, sum};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, Framework, HostCall};
use crate::view::View;

/// From the end of the work to the return of a wait, in nanoseconds: the upper end of what was seen
/// on hosts of GPU servers.
const USUAL_RETURN_NS: u64 = 10_000;

/// GPU memory, not by torch. See [`super::CAUSES`].
pub(super) fn find_in_loop(view: &View<'_>) -> Option<Found> {
    let calls = calls(view, |kind| matches!(kind, CallKind::Allocate | CallKind::Free));
    if is_emptied_cache(view, &calls) {
        return None;
    }
    let is_async = |call: &&HostCall| name(view, call).contains("Async");
    let is_pool = calls.iter().filter(|call| is_async(call)).count() * 2 > calls.len();
    let hint = match view.host().framework {
        Framework::Torch => {
            "torch's allocator keeps what it has: new `cudaMalloc` in each step come from sizes \
             that change or from a library; set \
             `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` and keep the shapes"
        }
        Framework::Jax => "leave `XLA_PYTHON_CLIENT_PREALLOCATE` on, so that XLA keeps its pool",
        Framework::Cupy => {
            "keep CuPy's pool (`cp.cuda.set_allocator(cp.cuda.MemoryPool().malloc)`) and do not \
             call `free_all_blocks()` in the loop"
        }
        Framework::Cuda if is_pool => {
            "keep the pool's memory: `cudaMemPoolSetAttribute(pool, \
             cudaMemPoolAttrReleaseThreshold, &max)` with `UINT64_MAX`; else each synchronisation \
             gives it back to the driver"
        }
        Framework::Cuda => {
            "allocate once before the loop, or use `cudaMallocAsync`/`cudaFreeAsync` with a \
             release threshold (`cudaMemPoolAttrReleaseThreshold`)"
        }
    };
    let change = if is_pool { "let the pool keep its memory" } else { "allocate before the loop" };
    found(view, &calls, change, "GPU memory is allocated or freed", hint)
}

/// torch's cache emptied in each step. See [`super::CAUSES`].
pub(super) fn find_empty_cache(view: &View<'_>) -> Option<Found> {
    let calls = calls(view, |kind| matches!(kind, CallKind::Allocate | CallKind::Free));
    if !is_emptied_cache(view, &calls) {
        return None;
    }
    let mut found = found(
        view,
        &calls,
        "do not empty the allocator's cache",
        "torch's allocator gives its memory back and fetches it again",
        "remove `torch.cuda.empty_cache()` from the loop; if no line calls it, memory runs short \
         and the allocator retries: `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` or a \
         smaller batch",
    )?;
    found.decides = Some(
        "whether a line calls `empty_cache` or memory runs short: \
         `torch.cuda.memory_stats()[\"num_alloc_retries\"]`"
            .to_owned(),
    );
    Some(found)
}

/// Pages of the host. See [`super::CAUSES`].
pub(super) fn find_page_locking(view: &View<'_>) -> Option<Found> {
    let calls = calls(view, |kind| kind == CallKind::Pin);
    let hint = match view.host().framework {
        Framework::Torch => {
            "make pinned tensors once (`torch.empty(..., pin_memory=True)` before the loop) and \
             copy into them; `tensor.pin_memory()` in the loop locks new pages each time"
        }
        Framework::Cupy => "make the buffer once with `cupyx.empty_pinned` before the loop",
        _ => {
            "lock the buffers once before the loop (`cudaHostRegister`, `cudaMallocHost`) and \
             unlock them after it"
        }
    };
    found(
        view,
        &calls,
        "lock pages once before the loop",
        "the host's pages are locked or unlocked",
        hint,
    )
}

fn calls<'v>(view: &'v View<'_>, is_it: impl Fn(CallKind) -> bool) -> Vec<&'v HostCall> {
    view.host().all.iter().filter(|call| is_it(call.kind)).collect()
}

fn name<'v>(view: &'v View<'_>, call: &HostCall) -> &'v str {
    let name = view.trace.names.get(call.name as usize);
    words::call_name(name.map_or("", String::as_str))
}

/// torch's allocator frees GPU memory only when its cache is emptied: by a line, or before it
/// retries an allocation.
fn is_emptied_cache(view: &View<'_>, calls: &[&HostCall]) -> bool {
    let is_torch = view.host().framework == Framework::Torch;
    let frees = calls.iter().filter(|call| call.kind == CallKind::Free);
    is_torch && frees.count() as f64 >= view.step_count()
}

fn found(
    view: &View<'_>,
    calls: &[&HostCall],
    change: &str,
    what: &str,
    hint: &str,
) -> Option<Found> {
    let lost = sum(calls.iter().copied(), |call| call.path_ns.max(call.after_wait_ns));
    let lost = per_step(view, lost);
    if !recurs(view, calls.iter().copied()) || is_small(view, lost) {
        return None;
    }
    let (mut least, mut most) = (Edits::default(), Edits::default());
    if calls.iter().any(|call| name(view, call).contains("Async")) {
        // The pool gives its memory back within the waits.
        for wait in view.host().all.iter().filter(|call| call.kind == CallKind::Wait) {
            least.return_ns.insert(wait.at, USUAL_RETURN_NS);
            most.return_ns.insert(wait.at, USUAL_RETURN_NS);
        }
    }
    for call in calls {
        remove_wait(&mut most, call.at);
        least.no_wait.insert(call.at);
        least.call_ns.insert(call.at, part(call.duration_ns(), 0.15));
    }
    let costly = calls.iter().max_by_key(|call| call.path_ns)?;
    Some(Found {
        change: change.to_owned(),
        text: format!(
            "{what} {} (`{}` with most time): {} of a step{}",
            words::times(calls.len(), view),
            name(view, costly),
            words::time(lost),
            words::place(view, costly),
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: Vec::new(),
        calls: calls.iter().map(|call| call.at).collect(),
        decides: None,
        is_bound: false,
    })
}

#[cfg(test)]
mod tests;
