//! Data that goes to the host and comes back in each step.
//!
//! Signature: copies of more than 64 kB to the host, each followed in the same step by a copy of the
//! same size to a GPU: at least 70 % of the bytes come back. To the same GPU it is a reduction on
//! the CPU, as torch's gloo backend does it with gradients, or a computation on the host between;
//! to another GPU it is an exchange between GPUs through the host (the reference's cause 15). On
//! the GPU the copies, their waits and the host's time between fall away. At most nothing is left
//! of them; at least 15 % of the copies' time, for what NCCL or a copy between GPUs takes.

use std::collections::{HashMap, HashSet};

use rgpu_model::trace::TraceWork;

use super::common::{
    Direction, SMALL_COPY_BYTES, direction, is_small, part, per_step, remove_wait, remove_work,
};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, Framework, HostCall};
use crate::view::View;

/// Bytes from which on a copy counts: smaller ones are values that are read.
const LEAST_BYTES: u64 = SMALL_COPY_BYTES + 1;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let pairs = pairs(view);
    let host = view.host();
    let is_large = |work: &TraceWork| work.bytes.is_some_and(|bytes| bytes >= LEAST_BYTES);
    let all = view
        .work()
        .filter(|(_, work)| is_large(work) && direction(view, work) == Some(Direction::ToHost));
    let all_bytes = all.filter_map(|(_, work)| work.bytes).fold(0, u64::saturating_add);
    let bytes = pairs.iter().filter_map(|((_, out), _)| out.bytes).fold(0, u64::saturating_add);
    if pairs.is_empty() || (bytes as f64) < 0.7 * all_bytes as f64 {
        return None;
    }
    let copies: Vec<(u32, &TraceWork)> =
        pairs.iter().flat_map(|(out, back)| [*out, *back]).collect();
    let run_ns = copies.iter().map(|(at, _)| host.work_path(*at).run_ns).sum();
    let run_ns = per_step(view, run_ns);
    let (mut least, mut most) = (Edits::default(), Edits::default());
    for (at, work) in &copies {
        remove_work(&mut most, *at, work);
        least.work_ns.insert(*at, part(work.duration_ns, 0.15));
        if let Some(call) = work.call {
            least.no_wait.insert(call);
        }
    }
    let lost_ns = per_step(view, remove_host_side(view, &copies, &mut least, &mut most));
    if is_small(view, run_ns + lost_ns) {
        return None;
    }
    let is_other_gpu = pairs.iter().any(|((_, out), (_, back))| out.device != back.device);
    let is_reduced = is_reduction(&copies);
    let (change, cause, hint) = words_of(view.host().framework, is_other_gpu, is_reduced);
    let is_clear = is_other_gpu || is_reduced;
    Some(Found {
        change: change.to_owned(),
        text: format!(
            "{} copies a step bring {} to the host and back ({cause}): {} of a step in copies and \
             {} in which the host waits or works on them",
            words::count(copies.len(), view),
            words::size(per_step(view, bytes)),
            words::time(run_ns),
            words::time(lost_ns),
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: copies.iter().map(|(at, _)| *at).collect(),
        calls: copies.iter().filter_map(|(_, work)| work.call).collect(),
        decides: (!is_clear).then(|| {
            "whether the host reduces gradients or computes with the data: a recording with \
             stacks (`rgpu profile --mode torch`) names the function between the copies"
                .to_owned()
        }),
        is_bound: false,
    })
}

/// Copies to the host with the copy of the same size that brings the data back.
fn pairs<'t>(view: &View<'t>) -> Vec<((u32, &'t TraceWork), (u32, &'t TraceWork))> {
    let mut pairs = Vec::new();
    for step in view.window() {
        let mut out: HashMap<u64, Vec<(u32, &TraceWork)>> = HashMap::new();
        for at in &step.work {
            let Some(work) = view.trace.work.get(*at as usize) else { continue };
            let Some(bytes) = work.bytes.filter(|bytes| *bytes >= LEAST_BYTES) else { continue };
            match direction(view, work) {
                Some(Direction::ToHost) => out.entry(bytes).or_default().push((*at, work)),
                Some(Direction::ToGpu) => {
                    if let Some(from) = out.get_mut(&bytes).and_then(Vec::pop) {
                        pairs.push((from, (*at, work)));
                    }
                }
                _ => {}
            }
        }
    }
    pairs
}

/// Removes the waits of the threads that submit the copies, and the host's time between a copy and
/// the next call of a thread that does nothing else. Gives the nanoseconds on the path of both.
fn remove_host_side(
    view: &View<'_>,
    copies: &[(u32, &TraceWork)],
    least: &mut Edits,
    most: &mut Edits,
) -> u64 {
    let host = view.host();
    let submitting: HashSet<u32> = copies.iter().filter_map(|(_, work)| work.call).collect();
    let mut lost = 0_u64;
    for thread in host.threads() {
        let has_copies = thread.iter().any(|call| submitting.contains(&call.at));
        let has_kernels = thread.iter().any(|call| call.kind == CallKind::Launch);
        if !has_copies {
            continue;
        }
        let mut is_after_copy = false;
        // The calls from a copy to the host to the copy back, in which the host has the data.
        let mut between: Vec<&HostCall> = Vec::new();
        for call in thread {
            let is_copy = submitting.contains(&call.at);
            if call.kind == CallKind::Wait && is_after_copy {
                lost = lost.saturating_add(call.path_ns);
                remove_wait(least, call.at);
                remove_wait(most, call.at);
            }
            if is_after_copy || !has_kernels {
                between.push(call);
            }
            if is_copy {
                for call in between.drain(..) {
                    lost = lost.saturating_add(call.before_path_ns);
                    least.host_before_ns.insert(call.at, part(call.before_ns, 0.15));
                    most.host_before_ns.insert(call.at, 0);
                }
                is_after_copy = true;
            } else if call.kind == CallKind::Launch && call.work.is_some() {
                is_after_copy = false;
                between.clear();
            }
        }
    }
    lost
}

/// Whether it looks like gradients in buckets: at least three sizes or more, all pinned.
fn is_reduction(copies: &[(u32, &TraceWork)]) -> bool {
    let sizes: HashSet<u64> = copies.iter().filter_map(|(_, work)| work.bytes).collect();
    sizes.len() >= 3 && copies.iter().all(|(_, work)| work.pageable == Some(false))
}

/// The change, the cause and the hint.
fn words_of(
    framework: Framework,
    is_other_gpu: bool,
    is_reduced: bool,
) -> (&'static str, &'static str, &'static str) {
    if is_other_gpu {
        return (
            "copy between the GPUs directly",
            "from one GPU to another through the host",
            "enable peer access (`cudaDeviceEnablePeerAccess`, `cudaMemcpyPeerAsync`), or use NCCL",
        );
    }
    match framework {
        Framework::Torch if is_reduced => (
            "reduce on the GPU",
            "as the all-reduce of the gloo backend does it",
            "`torch.distributed.init_process_group(\"nccl\")`: gloo reduces tensors of the GPU on \
             the CPU",
        ),
        _ => (
            "keep the data on the GPU",
            "the host works on them in between",
            "do the computation between the two copies (`.cpu()`, `.numpy()`, `.get()`) on the GPU; a \
             sum over processes with NCCL",
        ),
    }
}

#[cfg(test)]
mod tests;
