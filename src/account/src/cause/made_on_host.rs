//! Small arrays that the host makes and copies to the GPU in each step.
//!
//! Signature: one to twenty copies of at most 64 kB a step from pageable memory to the GPU, on the
//! critical path with their calls (the reference's cause 13): a constant, an index, a learning rate
//! that `torch.tensor(x, device="cuda")` or a NumPy argument of a jitted function makes anew. torch
//! waits for such a copy. Made on the GPU, or once before the loop, the copy, its call and the wait
//! go. At least only the wait goes; at most the host's time before the copy goes by half, too, since
//! the value was also made there.

use rgpu_model::trace::TraceWork;

use super::common::{
    Direction, direction, is_small, is_small_copy, part, per_step, recurs, remove_wait,
    remove_work, waits_of_copies,
};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{Framework, HostCall};
use crate::view::View;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let is_one = |(_, work): &(u32, &TraceWork)| {
        work.pageable == Some(true)
            && is_small_copy(work)
            && direction(view, work) == Some(Direction::ToGpu)
    };
    let copies: Vec<(u32, &TraceWork)> = view.work().filter(is_one).collect();
    let host = view.host();
    let calls: Vec<&HostCall> =
        copies.iter().filter_map(|(_, work)| host.call(work.call?)).collect();
    if copies.len() as f64 > 20.0 * view.step_count() || !recurs(view, calls.iter().copied()) {
        return None;
    }
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let mut on_path = 0_u64;
    for (at, work) in &copies {
        let path = host.work_path(*at);
        on_path = on_path.saturating_add(path.run_ns).saturating_add(path.launch_ns);
        remove_work(&mut most, *at, work);
        least.no_wait.extend(work.call);
    }
    let waits = waits_of_copies(view);
    let waiting = calls.iter().filter(|call| waits.contains_key(&call.at)).count();
    let ahead = if waiting * 2 >= calls.len() && waiting > 0 {
        "; the host waits for each, and cannot launch ahead"
    } else {
        ""
    };
    for wait in calls.iter().filter_map(|call| waits.get(&call.at)) {
        on_path = on_path.saturating_add(wait.after_wait_ns.max(wait.path_ns));
        remove_wait(&mut least, wait.at);
        remove_wait(&mut most, wait.at);
    }
    for call in &calls {
        on_path = on_path.saturating_add(call.path_ns);
        if call.before_ns < host.pause_ns() {
            most.host_before_ns.insert(call.at, part(call.before_ns, 0.5));
        }
    }
    let lost = per_step(view, on_path);
    if is_small(view, lost) {
        return None;
    }
    let bytes = copies.iter().filter_map(|(_, work)| work.bytes).fold(0, u64::saturating_add);
    let hint = match host.framework {
        Framework::Torch => {
            "make it on the GPU (`torch.full(..., device=\"cuda\")`, `torch.arange(n, \
             device=\"cuda\")`) or once before the loop; input of each step with `pin_memory()` and \
             `x.to(\"cuda\", non_blocking=True)`, since `torch.tensor(x, device=\"cuda\")` waits"
        }
        Framework::Jax => {
            "pass arrays that are on the GPU already (`jnp.asarray` once before the loop) to the \
             jitted function, not NumPy arrays or Python numbers"
        }
        Framework::Cupy => {
            "make it with `cp.full`/`cp.arange`, or `cp.asarray` it once before the loop"
        }
        Framework::Cuda => "pass the values as kernel arguments, or copy them once before the loop",
    };
    Some(Found {
        change: "make small arrays on the GPU".to_owned(),
        text: format!(
            "the host copies small arrays from pageable memory to the GPU {} ({} in all): {} of a step{}{ahead}",
            words::times(copies.len(), view),
            words::size(per_step(view, bytes)),
            words::time(lost),
            calls.first().map_or(String::new(), |call| words::place(view, call)),
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: copies.iter().map(|(at, _)| *at).collect(),
        calls: calls.iter().map(|call| call.at).collect(),
        decides: None,
        is_bound: false,
    })
}

#[cfg(test)]
mod tests;
