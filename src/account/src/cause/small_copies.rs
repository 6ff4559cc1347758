//! Many small copies.
//!
//! Signature: more than 20 copies of at most 64 kB a step in one direction (reads that the host
//! waits for one by one have a cause of their own). Each takes a call of 2 to 7 µs and about a
//! microsecond of the GPU whatever its size; packed into one buffer they are one copy (the
//! reference's cause 12). Of each direction one copy a step remains. At least the host's own time
//! before the removed copies stays by half (it packs); at most it goes with them.

use std::collections::{HashMap, HashSet};

use rgpu_model::trace::TraceWork;

use super::common::{Direction, direction, is_small, is_small_copy, part, per_step, remove_work};
use super::reads::value_reads;
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::Framework;
use crate::view::View;

/// Copies of a step in one direction from which on they are many.
const LEAST_COPIES: f64 = 20.0;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let reads = value_reads(view);
    let read: HashSet<u32> = reads.iter().flat_map(|read| read.copies.iter().copied()).collect();
    let mut by_direction: HashMap<Direction, Vec<(u32, &TraceWork)>> = HashMap::new();
    for (at, work) in view.work() {
        if let Some(way) = direction(view, work)
            && is_small_copy(work)
            && !read.contains(&at)
        {
            by_direction.entry(way).or_default().push((at, work));
        }
    }
    let (way, copies) = by_direction.into_iter().max_by_key(|(_, copies)| copies.len())?;
    if copies.len() as f64 <= LEAST_COPIES * view.step_count() {
        return None;
    }
    let host = view.host();
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let mut on_path = 0_u64;
    let mut seen_steps = HashSet::new();
    for (at, work) in &copies {
        let call = work.call.and_then(|call| host.call(call));
        let path = host.work_path(*at);
        on_path = on_path.saturating_add(path.run_ns).saturating_add(path.launch_ns);
        let Some(call) = call else { continue };
        on_path = on_path.saturating_add(call.path_ns).saturating_add(call.before_path_ns);
        if seen_steps.insert(call.step) {
            continue;
        }
        remove_work(&mut least, *at, work);
        remove_work(&mut most, *at, work);
        if call.before_ns < host.pause_ns() {
            least.host_before_ns.insert(call.at, part(call.before_ns, 0.5));
            most.host_before_ns.insert(call.at, 0);
        }
    }
    let lost = per_step(view, on_path);
    if is_small(view, lost) {
        return None;
    }
    let bytes = copies.iter().filter_map(|(_, work)| work.bytes).fold(0, u64::saturating_add);
    let (_, first) = copies.first()?;
    let hint = match (view.host().framework, way) {
        (Framework::Torch, Direction::Device) => {
            "write all pieces with one operation (`torch.cat`, `torch.stack`, index_copy, or \
             `torch._foreach_copy_` for a list)"
        }
        (Framework::Torch, _) => {
            "collect the values in one pinned tensor on the host and copy that once; split it on \
             the GPU with views"
        }
        (Framework::Jax, _) => "stack the values in one NumPy array and call `jax.device_put` once",
        (Framework::Cupy, _) => "stack the values in one NumPy array and call `cp.asarray` once",
        (Framework::Cuda, _) => {
            "pack the pieces into one buffer and copy it once, or use `cudaMemcpyBatchAsync`"
        }
    };
    Some(Found {
        change: "pack the small copies into one".to_owned(),
        text: format!(
            "{} copies {} a step of at most 64 kB, {} in all, take {} of a step",
            words::count(copies.len(), view),
            view.name(first),
            words::size(per_step(view, bytes)),
            words::time(lost),
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
