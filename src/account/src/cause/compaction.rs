//! A wait for the size of a selection.
//!
//! Signature: a kernel of CUB's select or scan, of `nonzero`, `unique` or a masked index among the
//! last eight before a small copy to the host and its wait, in each step: the host must know how
//! many elements were selected before it can launch what works on them (the reference's cause 2).
//! With a fixed size (`where` with a neutral value) nothing is counted and nobody waits. The
//! kernel that gathers the selection becomes the masked one, which reads as much. At most the
//! kernels that count go whole; at least half of their time goes, since what follows the selection
//! now works on all elements.

use super::common::{is_small, part, per_step, recurs};
use super::picked::Changes;
use super::reads::{ValueRead, value_reads};
use super::{Found, value_read, words};
use crate::edits::Edits;
use crate::host_calls::{Framework, HostCall};
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
    let changes = Changes::new(view);
    for at in &counting {
        if let Some(work) = view.trace.work.get(*at as usize) {
            least.work_ns.insert(*at, part(work.duration_ns, 0.5));
            changes.remove(&mut most, *at, 1.0);
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

fn hint(framework: Framework) -> &'static str {
    match framework {
        Framework::Torch => {
            "in place of `x[mask]`, `nonzero`, `unique` or `masked_select` write \
             `torch.where(mask, x, 0)` and reduce that; for many selections (experts, classes) sort \
             by the group once and read all sizes with one `.tolist()`; give `repeat_interleave` \
             its `output_size`"
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
