//! A value that the host reads from the GPU in each step.
//!
//! Signature: a copy of at most 64 kB to the host, and a wait of the same thread for it, at the
//! same place of each step: what `item()`, `float(x)`, `if x:`, `print(x)` and a check of gradients
//! on the host become (the reference's causes 1, 3, 4, 72, 75). Reads after a compaction and reads
//! in a row have causes of their own. Without the wait the host runs ahead and hides its own time
//! behind the GPU's. At least: where a step reads several values, one read remains; where it reads
//! one, every second step still reads.

use std::collections::HashSet;

use super::common::{is_small, per_step, remove_wait, remove_work};
use super::picked::{has_name, lanes, names_that};
use super::reads::{ValueRead, value_reads};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{Framework, HostCall};
use crate::view::View;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let reads = value_reads(view);
    let reads: Vec<&ValueRead<'_>> =
        reads.iter().filter(|read| read.compaction.is_empty() && !read.is_in_row).collect();
    let waits: Vec<&HostCall> =
        reads.iter().filter_map(|read| read.waits.first().copied()).collect();
    if !super::common::recurs(view, waits.iter().copied()) {
        return None;
    }
    let lost = per_step(view, reads.iter().map(|read| read.path_ns()).sum());
    if is_small(view, lost) {
        return None;
    }
    let costly = reads.iter().max_by_key(|read| read.path_ns())?;
    let wait = costly.waits.first()?;
    let bytes = reads.iter().flat_map(|read| &read.copies);
    let bytes = bytes.filter_map(|at| view.trace.work.get(*at as usize)?.bytes).max().unwrap_or(0);
    let (least, most) = edits_of(view, &reads);
    let hint = hint(view.host().framework);
    let checks = checks_before(view, &reads);
    let hint = if checks * 2 >= reads.len() {
        format!("{CHECK_HINT}; else {hint}")
    } else {
        hint.to_owned()
    };
    Some(Found {
        change: "read no value of the GPU in the loop".to_owned(),
        text: format!(
            "the host reads a value of at most {} from the GPU {} and waits for it; the GPU then \
             has nothing to do for {} a step (most{})",
            words::size(bytes as f64),
            words::times(reads.len(), view),
            words::time(lost),
            words::place(view, wait),
        ),
        hint,
        least,
        most,
        work: reads.iter().flat_map(|read| read.copies.iter().copied()).collect(),
        calls: reads.iter().flat_map(|read| read.waits.iter().map(|wait| wait.at)).collect(),
        decides: None,
        is_bound: false,
    })
}

/// Launches before a read among which a check is looked for.
const CHECK_NEAR: usize = 4;
/// The next step where what is read is the result of a check.
const CHECK_HINT: &str = "most of these reads are the result of a check over a whole tensor (all, any, \
     finite): `validate_args=False` for `torch.distributions`, `torch.autograd.set_detect_anomaly` \
     off, `error_if_nonfinite=False`, and `torch._assert_async` in place of `assert`";

/// How many reads are of the result of a check: `all`, `any`, or a search for values not finite.
fn checks_before(view: &View<'_>, reads: &[&ValueRead<'_>]) -> usize {
    let checks = names_that(view, |name| {
        ["and_kernel", "or_kernel", "non_finite_check", "isfinite", "isnan"]
            .iter()
            .any(|word| name.contains(word))
    });
    let copies: HashSet<u32> = reads.iter().flat_map(|read| read.copies.iter().copied()).collect();
    let mut count = 0;
    for lane in &lanes(view) {
        for (position, (at, _)) in lane.iter().enumerate() {
            let before = lane.get(position.saturating_sub(CHECK_NEAR)..position);
            let mut before = before.unwrap_or_default().iter();
            if copies.contains(at) && before.any(|(_, work)| has_name(&checks, work)) {
                count += 1;
            }
        }
    }
    count
}

/// Edits that remove all reads but some, and all.
pub(super) fn edits_of(view: &View<'_>, reads: &[&ValueRead<'_>]) -> (Edits, Edits) {
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let is_one_a_step = (reads.len() as f64) < 1.5 * view.step_count();
    for (number, read) in reads.iter().enumerate() {
        remove_read(view, &mut most, read);
        let is_last = reads.get(number + 1).is_none_or(|next| next.step() != read.step());
        let is_kept = if is_one_a_step { number % 2 == 1 } else { is_last };
        if !is_kept {
            remove_read(view, &mut least, read);
        }
    }
    (least, most)
}

/// Removes the waits and the copies of a read.
pub(super) fn remove_read(view: &View<'_>, edits: &mut Edits, read: &ValueRead<'_>) {
    for wait in &read.waits {
        remove_wait(edits, wait.at);
    }
    for at in &read.copies {
        if let Some(work) = view.trace.work.get(*at as usize) {
            remove_work(edits, *at, work);
        }
    }
}

fn hint(framework: Framework) -> &'static str {
    match framework {
        Framework::Torch => {
            "keep the value on the GPU (`total += loss.detach()`, `torch.where` in place of `if`) \
             and call `.item()` once after the loop or every 100 steps; \
             `torch.cuda.set_sync_debug_mode(\"warn\")` names the line"
        }
        Framework::Jax => {
            "return the value from the jitted step and read it (`float`, `np.asarray`, \
             `block_until_ready`) one step later or every 100 steps"
        }
        Framework::Cupy => {
            "keep the value as a CuPy array (`cp.where` in place of `if`) and read it with \
             `float(x)` or `.get()` once after the loop"
        }
        Framework::Cuda => {
            "keep the value in GPU memory, let the next kernel read it there, and copy it to the \
             host once after the loop; if the loop ends by it, test it every N steps"
        }
    }
}

#[cfg(test)]
mod tests;
