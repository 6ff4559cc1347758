//! A wait for the size of a selection.
//!
//! Signature: a kernel of CUB's select or scan, of `nonzero`, `unique` or a masked index among the
//! last eight before a small copy to the host and its wait, in each step: the host must know how
//! many elements were selected before it can launch what works on them (the reference's cause 2).
//! With a fixed size (`where` with a neutral value) nothing is counted and nobody waits: the waits
//! and the kernels that count go. At least the kernel that gathers the selection stays, since the
//! masked form reads as much, and takes a quarter more, since it and what follows move the full
//! size; at most it goes too, fused into what follows.

use super::common::{is_small, per_step, recurs, remove_work};
use super::reads::{ValueRead, value_reads};
use super::{Found, value_read, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, Framework, HostCall};
use crate::view::View;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let reads = value_reads(view);
    let reads: Vec<&ValueRead<'_>> =
        reads.iter().filter(|read| !read.compaction.is_empty()).collect();
    let waits: Vec<&HostCall> =
        reads.iter().filter_map(|read| read.waits.first().copied()).collect();
    if !recurs(view, waits.iter().copied()) {
        return None;
    }
    let lost = per_step(view, reads.iter().map(|read| read.path_ns()).sum());
    let host = view.host();
    let counting: Vec<u32> =
        reads.iter().flat_map(|read| read.compaction.iter().copied()).collect();
    let counting_ns = counting.iter().map(|at| host.work_path(*at).run_ns).sum();
    let counting_ns = per_step(view, counting_ns);
    if is_small(view, lost + counting_ns) {
        return None;
    }
    let name = counting.first().and_then(|at| view.trace.work.get(*at as usize));
    let name = name.map_or(String::new(), |work| words::short_name(view.name(work)));
    let (mut least, mut most) = (Edits::default(), Edits::default());
    for read in &reads {
        value_read::remove_read(view, &mut least, read);
        value_read::remove_read(view, &mut most, read);
    }
    for at in &counting {
        if let Some(work) = view.trace.work.get(*at as usize) {
            remove_work(&mut least, *at, work);
            remove_work(&mut most, *at, work);
        }
    }
    for at in kernels_after(view, &waits) {
        if let Some(work) = view.trace.work.get(at as usize) {
            // The masked form writes the full size, and what follows reads it.
            least.work_ns.insert(at, work.duration_ns.saturating_add(work.duration_ns / 4));
            remove_work(&mut most, at, work);
        }
    }
    Some(Found {
        change: "select with a fixed size".to_owned(),
        text: format!(
            "{} the host waits for the number of elements that a selection left (after `{name}`): \
             the GPU has nothing to do for {} a step, and counting takes {}",
            words::times(reads.len(), view),
            words::time(lost),
            words::time(counting_ns),
        ),
        hint: hint(view.host().framework).to_owned(),
        least,
        most,
        work: counting,
        calls: waits.iter().map(|wait| wait.at).collect(),
        decides: None,
        is_bound: false,
    })
}

/// The first kernel that the thread of each wait launches after it: the one that gathers.
fn kernels_after(view: &View<'_>, waits: &[&HostCall]) -> Vec<u32> {
    let calls = &view.host().all;
    let next = waits.iter().filter_map(|wait| {
        let from = calls.partition_point(|call| call.at <= wait.at);
        let mut later = calls.get(from..)?.iter().filter(|call| call.thread == wait.thread);
        later.by_ref().take(20).find(|call| call.kind == CallKind::Launch)?.work
    });
    next.collect()
}

fn hint(framework: Framework) -> &'static str {
    match framework {
        Framework::Torch => {
            "in place of `x[mask]`, `nonzero`, `unique` or `masked_select` write \
             `torch.where(mask, x, 0)` and reduce that; give `repeat_interleave` its `output_size`"
        }
        Framework::Cupy => {
            "in place of `x[mask]` write `cp.where(mask, x, 0)` and reduce that: its size is known"
        }
        Framework::Jax => "use `jnp.where(mask, x, 0)`, or `jnp.nonzero(..., size=n)` within `jit`",
        Framework::Cuda => {
            "let the next kernel read the count from GPU memory (launch for the largest size), so \
             that the host need not know it"
        }
    }
}

#[cfg(test)]
mod tests;
