//! Migrations of unified memory in the loop.
//!
//! Signature: migrations of unified memory (nsys's copy kinds 11 to 13) in the window's time, while
//! kernels run (a kernel that touches pages of the host waits for them) or while the host works on
//! pages of the GPU (the reference's cause 16). With the pages in place a kernel takes its time
//! without the migrations beside it. At most no migration is left; at least the bytes are brought
//! over the pinned bandwidth before the kernel (`cudaMemPrefetchAsync`), and the host's time
//! shrinks by half of the migrations in it.

use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::common::{is_small, per_step, pinned_bytes_per_s};
use super::{Found, words};
use crate::edits::Edits;
use crate::view::View;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let moves = migrations(view);
    let spans = union(&moves);
    let bytes = moves.iter().filter_map(|work| work.bytes).fold(0, u64::saturating_add);
    let moved_ns = spans.iter().map(|(start, end)| end - start).fold(0, u64::saturating_add);
    let host = view.host();
    let rate = pinned_bytes_per_s(view);
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let (mut in_kernels, mut in_host) = (0_u64, 0_u64);
    for (at, work) in view.work().filter(|(_, work)| work.kind == TraceWorkKind::Kernel) {
        let beside = overlap_ns(&spans, work.start_ns, work.end_ns());
        if beside == 0 {
            continue;
        }
        let path = host.work_path(at).run_ns;
        in_kernels = in_kernels.saturating_add(beside.min(path));
        // The kernel's bytes as the part of all migrations that ran beside it.
        let share = beside as f64 / moved_ns.max(1) as f64;
        let fetch_ns = rate.map_or(beside as f64 / 2.0, |rate| bytes as f64 * share * 1e9 / rate);
        let alone_ns = work.duration_ns.saturating_sub(beside).max(work.duration_ns / 50);
        let fetched_ns = alone_ns.saturating_add(fetch_ns.round() as u64);
        most.work_ns.insert(at, alone_ns);
        least.work_ns.insert(at, fetched_ns.min(work.duration_ns));
    }
    for call in &host.all {
        let start_ns = call.start_ns.saturating_sub(call.before_ns);
        let beside = overlap_ns(&spans, start_ns, call.start_ns).min(call.before_path_ns);
        if beside > 0 {
            in_host = in_host.saturating_add(beside);
            most.host_before_ns.insert(call.at, call.before_ns - beside);
            least.host_before_ns.insert(call.at, call.before_ns - beside / 2);
        }
    }
    let (in_kernels, in_host) = (per_step(view, in_kernels), per_step(view, in_host));
    if is_small(view, in_kernels + in_host) {
        return None;
    }
    Some(Found {
        change: "keep the pages where they are used".to_owned(),
        text: format!(
            "{} migrations of unified memory a step move {}: {} of a step in kernels that wait for \
             pages, and {} in the host's work",
            words::count(moves.len(), view),
            words::size(per_step(view, bytes)),
            words::time(in_kernels),
            words::time(in_host),
        ),
        hint: "call `cudaMemPrefetchAsync(p, bytes, device, stream)` before the kernel, \
               `cudaMemAdvise` (read-mostly, preferred location) for data that both sides read, or \
               use `cudaMalloc` and explicit copies for what only kernels touch"
            .to_owned(),
        least,
        most,
        work: Vec::new(),
        calls: Vec::new(),
        decides: None,
        is_bound: false,
    })
}

/// Migrations within the time of the window, in order of start.
fn migrations<'t>(view: &View<'t>) -> Vec<&'t TraceWork> {
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

/// The time that `moves` cover, as spans in order that do not overlap.
fn union(moves: &[&TraceWork]) -> Vec<(u64, u64)> {
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for work in moves {
        match spans.last_mut() {
            Some((_, end)) if work.start_ns <= *end => *end = work.end_ns().max(*end),
            _ => spans.push((work.start_ns, work.end_ns())),
        }
    }
    spans
}

/// Nanoseconds of `start_ns` to `end_ns` that the spans cover.
fn overlap_ns(spans: &[(u64, u64)], start_ns: u64, end_ns: u64) -> u64 {
    let from = spans.partition_point(|(_, end)| *end <= start_ns);
    let inside = spans.get(from..).unwrap_or_default().iter();
    let inside = inside.take_while(|(start, _)| *start < end_ns);
    let parts = inside.map(|(start, end)| (*end).min(end_ns) - (*start).max(start_ns));
    parts.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
