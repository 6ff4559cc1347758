//! Values read one by one.
//!
//! Signature: at least three reads (a copy of at most 64 kB to the host and a wait for it) of one
//! thread in a row with no kernel launched between: elements of one array read in a loop. Each
//! costs a copy call, the copy's latency, a wait and the framework's own time; one read brings all.
//! The first read of each row stays. At least, the host's own time between the reads stays by half
//! (it handles the elements); at most, it goes.

use super::common::{is_small, part, per_step, recurs};
use super::reads::{ValueRead, value_reads};
use super::{Found, value_read, words};
use crate::edits::Edits;
use crate::host_calls::{Framework, HostCall};
use crate::view::View;

/// Reads in a row from which on it is a loop.
const LEAST_READS: usize = 3;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let reads = value_reads(view);
    let rows = rows(&reads);
    let extra: Vec<&ValueRead<'_>> = rows.iter().flatten().copied().collect();
    let waits: Vec<&HostCall> =
        extra.iter().filter_map(|read| read.waits.first().copied()).collect();
    if !recurs(view, waits.iter().copied()) {
        return None;
    }
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let mut lost = 0_u64;
    for read in &extra {
        value_read::remove_read(view, &mut least, read);
        value_read::remove_read(view, &mut most, read);
        lost = lost.saturating_add(read.path_ns());
        let copy_calls =
            read.copies.iter().filter_map(|at| view.trace.work.get(*at as usize)?.call);
        for call in copy_calls.chain(read.waits.iter().map(|wait| wait.at)) {
            let Some(call) = view.host().call(call) else { continue };
            most.host_before_ns.insert(call.at, 0);
            least.host_before_ns.insert(call.at, part(call.before_ns, 0.5));
        }
    }
    let lost = per_step(view, lost);
    if is_small(view, lost) {
        return None;
    }
    let wait = waits.first()?;
    Some(Found {
        change: "read all values with one copy".to_owned(),
        text: format!(
            "the host reads {} values a step one by one from the GPU in {} rows, each with a copy \
             and a wait: {} a step in which the GPU has nothing to do{}",
            words::count(extra.len() + rows.len(), view),
            words::count(rows.len(), view),
            words::time(lost),
            words::place(view, wait),
        ),
        hint: match view.host().framework {
            Framework::Torch => {
                "call `values = tensor.tolist()` (or `.cpu()`) once and index the list; \
                 `tensor[i].item()` in a loop copies each element by itself"
            }
            Framework::Jax => "call `values = jax.device_get(array)` once and index that",
            Framework::Cupy => "call `values = array.get()` once and index that",
            Framework::Cuda => "copy the whole array with one `cudaMemcpyAsync` and wait once",
        }
        .to_owned(),
        least,
        most,
        work: extra.iter().flat_map(|read| read.copies.iter().copied()).collect(),
        calls: waits.iter().map(|wait| wait.at).collect(),
        decides: None,
        is_bound: false,
    })
}

/// The reads of each row after its first; only rows of at least [`LEAST_READS`].
fn rows<'r, 'v>(reads: &'r [ValueRead<'v>]) -> Vec<Vec<&'r ValueRead<'v>>> {
    let mut rows: Vec<Vec<&ValueRead<'v>>> = Vec::new();
    let mut row: Vec<&ValueRead<'v>> = Vec::new();
    for read in reads {
        if read.is_in_row {
            row.push(read);
        } else if !row.is_empty() {
            rows.push(std::mem::take(&mut row));
        }
    }
    rows.push(row);
    rows.retain(|row| row.len() + 1 >= LEAST_READS);
    rows
}

#[cfg(test)]
mod tests;
