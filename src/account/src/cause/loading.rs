//! Code that is loaded or compiled in the loop.
//!
//! Signature: calls that load, link or unload modules in at least a tenth of the steps; or a pause
//! of the host of a millisecond or more before a kernel whose name the trace has not seen before,
//! in at least a tenth of the steps: a compiler ran there (the reference's causes 43, 44, 45).
//! With fixed shapes and a kept cache both are gone. At least 30 % of the pauses stay.

use std::collections::{BTreeSet, HashMap};

use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::common::{is_small, part, per_step, recurs, sum};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, Framework, HostCall};
use crate::view::View;

/// Pause before a new kernel from which on a compiler may have run, in nanoseconds.
const COMPILE_NS: u64 = 1_000_000;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let calls = &view.host().all;
    let loads: Vec<&HostCall> = calls.iter().filter(|call| call.kind == CallKind::Load).collect();
    let compiled = pauses_before_new_kernels(view);
    let lost = sum(loads.iter().copied(), |call| call.path_ns.saturating_add(call.before_path_ns));
    let lost = lost.saturating_add(sum(compiled.iter().copied(), |call| call.before_path_ns));
    let lost = per_step(view, lost);
    let both: Vec<&HostCall> = loads.iter().chain(&compiled).copied().collect();
    let steps = super::common::steps_with(both.iter().copied());
    // One step in a window of three may be a late first use; half of the steps are no start-up.
    let is_repeated = recurs(view, both.iter().copied()) || steps >= 2;
    if both.is_empty() || !is_repeated || is_small(view, lost) {
        return None;
    }
    let (mut least, mut most) = (Edits::default(), Edits::default());
    for call in &loads {
        most.call_ns.insert(call.at, 0);
        least.call_ns.insert(call.at, part(call.duration_ns(), 0.3));
    }
    for call in &both {
        most.host_before_ns.insert(call.at, 0);
        least.host_before_ns.insert(call.at, part(call.before_ns, 0.3));
    }
    let hint = match view.host().framework {
        Framework::Torch | Framework::Cupy
            if are_before(view, &loads, |work| view.class(work) == AccountCause::Fft) =>
        {
            "a plan of a Fourier transform is made anew in each step: the cache of plans holds fewer \
             than the sizes in use (CuPy: `cupy.fft.config.get_plan_cache().set_size(n)`; torch: \
             `torch.backends.cuda.cufft_plan_cache.max_size = n`), or use fewer lengths"
        }
        Framework::Torch if are_before(view, &loads, |work| view.name(work).contains("cudnn")) => {
            "cuDNN makes a plan for each new shape: keep shapes equal from step to step (a cache of \
             keys and values that grows by one position in each step has a new shape in each: make \
             it once with its final length, write in place and mask; Transformers: \
             `cache_implementation=\"static\"`), or take another backend \
             (`torch.nn.attention.sdpa_kernel`)"
        }
        Framework::Torch => {
            "find what compiles with `TORCH_LOGS=recompiles`; pad to a few shapes, or \
             `torch.compile(dynamic=True)` and `torch._dynamo.mark_dynamic`"
        }
        Framework::Jax => {
            "find what compiles with `jax.config.update(\"jax_log_compiles\", True)`; pad to a few \
             shapes, and make the jitted function once outside the loop"
        }
        Framework::Cupy => {
            "make `RawKernel`, `ElementwiseKernel` and `fuse` functions once outside the loop: the \
             source text is the key of CuPy's cache"
        }
        Framework::Cuda => "load modules and functions once before the loop and keep their handles",
    };
    let costly = both.iter().max_by_key(|call| call.path_ns.saturating_add(call.before_path_ns))?;
    Some(Found {
        change: "compile and load before the loop".to_owned(),
        text: format!(
            "in {steps} of {:.0} steps code is compiled or loaded ({} calls that load, {} pauses \
             before kernels that ran never before): {} of a step{}",
            view.step_count(),
            loads.len(),
            compiled.len(),
            words::time(lost),
            words::place(view, costly),
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: compiled.iter().filter_map(|call| call.work).collect(),
        calls: both.iter().map(|call| call.at).collect(),
        decides: None,
        is_bound: false,
    })
}

/// Whether most of the calls that load code have such a kernel as the next one but fills.
fn are_before(view: &View<'_>, loads: &[&HostCall], is_it: impl Fn(&TraceWork) -> bool) -> bool {
    let calls = &view.host().all;
    let leads_to_it = |load: &&&HostCall| {
        let from = calls.partition_point(|other| other.at <= load.at);
        let later = calls.get(from..).unwrap_or_default().iter().take(500);
        let mut work = later.filter_map(|call| view.trace.work.get(call.work? as usize));
        let next = work.find(|work| work.kind == TraceWorkKind::Kernel);
        next.is_some_and(&is_it)
    };
    loads.iter().filter(leads_to_it).count() * 2 > loads.len()
}

/// Calls after a long pause that launch a kernel whose name is new in the trace.
pub(super) fn pauses_before_new_kernels<'v>(view: &'v View<'_>) -> Vec<&'v HostCall> {
    let mut wanted: BTreeSet<u32> = BTreeSet::new();
    let mut launches: HashMap<u32, &HostCall> = HashMap::new();
    for call in &view.host().all {
        if call.before_ns >= COMPILE_NS
            && call.kind == CallKind::Launch
            && let Some(at) = call.work
            && let Some(work) = view.trace.work.get(at as usize)
        {
            wanted.insert(work.name);
            launches.insert(at, call);
        }
    }
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (at, work) in view.trace.work.iter().enumerate() {
        if wanted.remove(&work.name)
            && let Some(call) = u32::try_from(at).ok().and_then(|at| launches.get(&at))
        {
            found.push(*call);
        }
        if wanted.is_empty() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests;
