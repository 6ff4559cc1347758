//! Migrations of unified memory in the loop.
//!
//! Signature: migrations of unified memory (nsys's copy kinds 11 to 13) in the window's time, while
//! kernels run (a kernel that touches pages of the host waits for them) or while the host works on
//! pages of the GPU (the reference's cause 16). With the pages in place a kernel takes its time
//! without the migrations beside it: what equal launches without any take, where there are some.
//! Where the host touches pages one after another, each is a fault that takes longer than its move,
//! so the pause counts from its first move to its last. At most no migration is left; at least the
//! bytes are brought over the pinned bandwidth before the kernel (`cudaMemPrefetchAsync`), and the
//! host's time shrinks by half of that.

use std::collections::{BTreeMap, HashMap};

use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::common::{inside, is_small, overlap_ns, per_step, pinned_bytes_per_s, union};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::median;
use crate::view::View;

/// Moves in one pause of the host that are faults one after another.
const LEAST_FAULTS: usize = 2;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let moves = migrations(view);
    let spans = union(moves.iter().copied());
    let undisturbed = undisturbed_ns(view, &spans);
    let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
    let bytes = moves.iter().filter_map(|work| work.bytes).fold(0, u64::saturating_add);
    let moved_ns = spans.iter().map(|(start, end)| end - start).fold(0, u64::saturating_add);
    let host = view.host();
    let rate = pinned_bytes_per_s(view);
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let (mut in_kernels, mut in_host) = (0_u64, 0_u64);
    let (mut held, mut touching) = (Vec::new(), Vec::new());
    for (at, work) in view.work().filter(|(_, work)| work.kind == TraceWorkKind::Kernel) {
        let beside = overlap_ns(&spans, work.start_ns, work.end_ns());
        if beside == 0 {
            continue;
        }
        held.push(at);
        let path = host.work_path(at).run_ns;
        let alone_ns = undisturbed.get(&(work.name, work.shape)).copied();
        let alone_ns = alone_ns.filter(|ns| *ns < work.duration_ns);
        // Faults hold a kernel for longer than their moves take.
        let held_ns = alone_ns.map_or(beside, |ns| (work.duration_ns - ns).max(beside));
        in_kernels = in_kernels.saturating_add(held_ns.min(path));
        let of_name = waiting.entry(work.name).or_default();
        *of_name = of_name.saturating_add(held_ns.min(path));
        // The kernel's bytes as the part of all migrations that ran beside it.
        let share = beside as f64 / moved_ns.max(1) as f64;
        let fetch_ns = rate.map_or(beside as f64 / 2.0, |rate| bytes as f64 * share * 1e9 / rate);
        let rest_ns = work.duration_ns.saturating_sub(beside).max(work.duration_ns / 50);
        let alone_ns = alone_ns.map_or(rest_ns, |ns| ns.min(rest_ns));
        let fetched_ns = alone_ns.saturating_add(fetch_ns.round() as u64);
        most.work_ns.insert(at, alone_ns);
        least.work_ns.insert(at, fetched_ns.min(work.duration_ns));
    }
    for call in &host.all {
        let start_ns = call.start_ns.saturating_sub(call.before_ns);
        let beside = fault_ns(&spans, start_ns, call.start_ns).min(call.before_path_ns);
        if beside > 0 {
            touching.push(call.at);
            in_host = in_host.saturating_add(beside);
            most.host_before_ns.insert(call.at, call.before_ns - beside);
            least.host_before_ns.insert(call.at, call.before_ns - beside / 2);
        }
    }
    let (in_kernels, in_host) = (per_step(view, in_kernels), per_step(view, in_host));
    if is_small(view, in_kernels + in_host) {
        return None;
    }
    // The place is where most of the time goes: a launch, or what the host does before a call.
    if in_host > in_kernels {
        held.clear();
    } else {
        touching.clear();
    }
    Some(Found {
        change: "keep the pages where they are used".to_owned(),
        text: format!(
            "{} migrations of unified memory a step move {}: {} of a step in kernels that wait for \
             pages{}, and {} in which the host touches pages that lie on the GPU",
            words::count(moves.len(), view),
            words::size(per_step(view, bytes)),
            words::time(in_kernels),
            most_waiting(view, &waiting),
            words::time(in_host),
        ),
        hint: if in_host > in_kernels / 4.0 {
            "let a kernel gather what the host reads into a small buffer, and copy that \
             (`cudaMalloc` for the rest), so that the large arrays' pages stay on the GPU; else \
             `cudaMemPrefetchAsync(p, bytes, device, stream)` before the kernel, and \
             `cudaMemAdvise` (read-mostly, preferred location) for data that both sides read"
        } else {
            "call `cudaMemPrefetchAsync(p, bytes, device, stream)` before the kernel, \
             `cudaMemAdvise` (read-mostly, preferred location) for data that both sides read, or \
             use `cudaMalloc` and explicit copies for what only kernels touch"
        }
        .to_owned(),
        least,
        most,
        work: held,
        calls: touching,
        decides: None,
        is_bound: false,
    })
}

/// What equal launches without a migration beside them take: the median in nanoseconds, by name and
/// grid.
fn undisturbed_ns(view: &View<'_>, spans: &[(u64, u64)]) -> HashMap<(u32, Option<u32>), u64> {
    let mut times: HashMap<(u32, Option<u32>), Vec<u64>> = HashMap::new();
    for (_, work) in view.work().filter(|(_, work)| work.kind == TraceWorkKind::Kernel) {
        if work.shape.is_some() && overlap_ns(spans, work.start_ns, work.end_ns()) == 0 {
            times.entry((work.name, work.shape)).or_default().push(work.duration_ns);
        }
    }
    let enough = times.into_iter().filter(|(_, times)| times.len() >= 3);
    enough.map(|(key, times)| (key, median(times))).collect()
}

/// Nanoseconds of a pause of the host in which it waits for pages: from the first move in it to the
/// last if there are several, since each is a fault of its own.
fn fault_ns(spans: &[(u64, u64)], start_ns: u64, end_ns: u64) -> u64 {
    let moved_ns = overlap_ns(spans, start_ns, end_ns);
    let mut moves = inside(spans, start_ns, end_ns);
    let Some((first_ns, _)) = moves.next() else { return 0 };
    let (mut count, mut last_ns) = (1_usize, first_ns);
    for (_, move_end_ns) in moves {
        count += 1;
        last_ns = move_end_ns.min(end_ns);
    }
    let spread_ns = last_ns.saturating_sub(first_ns.max(start_ns));
    if count >= LEAST_FAULTS { spread_ns.max(moved_ns) } else { moved_ns }
}

/// The kernel that waits longest for pages.
fn most_waiting(view: &View<'_>, waiting: &BTreeMap<u32, u64>) -> String {
    let most = waiting.iter().max_by_key(|(_, ns)| **ns).filter(|(_, ns)| **ns > 0);
    let name = most.and_then(|(name, _)| view.trace.names.get(*name as usize));
    name.map_or(String::new(), |name| format!(" (most in `{}`)", words::short_name(name)))
}

/// Migrations within the time of the window, in order of start.
pub(super) fn migrations<'t>(view: &View<'t>) -> Vec<&'t TraceWork> {
    let window = view.window();
    let Some((first, last)) = window.first().zip(window.last()) else { return Vec::new() };
    let all = &view.trace.work;
    let rank = first.work.first().and_then(|at| all.get(*at as usize)).and_then(|work| work.rank);
    let from = all.partition_point(|work| work.start_ns < first.start_ns);
    let inside = all.get(from..).unwrap_or_default().iter();
    let inside = inside.take_while(|work| work.start_ns < last.end_ns);
    let moves = inside.filter(|work| {
        work.kind == TraceWorkKind::Copy
            && work.rank == rank
            && view.name(work).starts_with("unified")
    });
    moves.collect()
}

#[cfg(test)]
mod tests;
