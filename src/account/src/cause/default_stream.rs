//! Work on the legacy default stream that keeps other streams from running side by side.
//!
//! Signature: work on one stream between work of at least two others of the GPU, which never
//! overlaps any of them, and in at least half of the cases begins or ends within 10 µs of theirs
//! though it was launched earlier; and the other streams hardly overlap each other. Work on the
//! legacy default stream waits for all blocking streams and holds them back (the reference's cause
//! 54). On the streams' own the others run side by side. Kernels beside each other share the GPU:
//! at least each takes a fifth longer, at most none does. It is a bound: whether they fit beside
//! each other is not in the trace.

use std::collections::BTreeMap;

use rgpu_model::trace::TraceWork;

use super::common::{is_small, part, per_step};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, Framework, median};
use crate::view::View;

/// From the end of work to the start of what waited for it, in nanoseconds, at most.
const FOLLOWS_NS: u64 = 10_000;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let mut by_stream: BTreeMap<(u32, u64), Vec<(u32, &TraceWork)>> = BTreeMap::new();
    for (at, work) in view.work() {
        by_stream.entry((work.device, work.stream)).or_default().push((at, work));
    }
    // The null stream is the first that a context makes; others come later and are numbered so.
    let ((device, stream), of_null) = by_stream.iter().find(|(_, works)| !works.is_empty())?;
    let others: Vec<&(u32, &TraceWork)> = by_stream
        .iter()
        .filter(|((other, number), _)| other == device && number != stream)
        .flat_map(|(_, works)| works)
        .collect();
    let streams = by_stream.keys().filter(|(other, _)| other == device).count();
    let is_usual = of_null.len() as f64 >= 2.0 * view.step_count();
    if streams < 3 || !is_usual || !serialises(view, of_null, &others) {
        return None;
    }
    let busy_ns: u64 = others.iter().map(|(_, work)| work.duration_ns).fold(0, u64::saturating_add);
    let host = view.host();
    let path_ns = others.iter().copied().chain(of_null).map(|(at, _)| {
        let path = host.work_path(*at);
        path.run_ns.saturating_add(path.event_ns)
    });
    let path_ns = per_step(view, path_ns.fold(0, u64::saturating_add));
    if is_small(view, path_ns) {
        return None;
    }
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let launches = others.iter().filter_map(|(_, work)| host.call(work.call?));
    let launches = launches.filter(|call| call.kind == CallKind::Launch);
    let usual_ns = median(launches.map(|call| call.duration_ns()).collect());
    for (at, work) in others.iter().copied().chain(of_null) {
        for edits in [&mut least, &mut most] {
            edits.no_event.insert(*at);
        }
        least.work_ns.insert(*at, part(work.duration_ns, 1.2));
        // A launch into the default stream may hold the host while others are queued.
        if let Some(call) = work.call.and_then(|call| host.call(call))
            && call.kind == CallKind::Launch
            && call.duration_ns() > usual_ns
            && usual_ns > 0
        {
            for edits in [&mut least, &mut most] {
                edits.call_ns.insert(call.at, usual_ns);
                edits.no_wait.insert(call.at);
            }
        }
    }
    let (_, first) = of_null.first()?;
    let hint = match host.framework {
        Framework::Torch => {
            "run this work within `with torch.cuda.stream(s):` of the stream that needs it"
        }
        Framework::Cupy => {
            "launch it within `with stream:`, or use `cp.cuda.Stream(non_blocking=True)`"
        }
        _ => {
            "launch it on the stream that needs it (`kernel<<<grid, block, 0, stream>>>`), make \
             the streams with `cudaStreamNonBlocking`, or compile with \
             `--default-stream per-thread`"
        }
    };
    Some(Found {
        change: "launch nothing on the default stream".to_owned(),
        text: format!(
            "{} pieces of work a step (first `{}`) run on stream {stream}, the default stream: it \
             waits for the {} other streams and holds them back, so that their work ({} a step) \
             runs one after another",
            words::count(of_null.len(), view),
            words::short_name(view.name(first)),
            streams - 1,
            words::time(per_step(view, busy_ns)),
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: of_null.iter().map(|(at, _)| *at).collect(),
        calls: of_null.iter().filter_map(|(_, work)| work.call).collect(),
        decides: None,
        is_bound: true,
    })
}

/// Whether the work of one stream never overlaps that of the others, follows or precedes it at
/// once, and the others hardly overlap each other.
fn serialises(
    view: &View<'_>,
    of_null: &[(u32, &TraceWork)],
    others: &[&(u32, &TraceWork)],
) -> bool {
    let mut sorted: Vec<&TraceWork> = others.iter().map(|(_, work)| *work).collect();
    sorted.sort_by_key(|work| work.start_ns);
    // Latest end among the others up to each, to find what ran at a time.
    let mut ends: Vec<u64> = Vec::with_capacity(sorted.len());
    let (mut busy, mut covered, mut end) = (0_u64, 0_u64, 0_u64);
    for work in &sorted {
        busy = busy.saturating_add(work.duration_ns);
        let new_ns = work.end_ns().saturating_sub(work.start_ns.max(end));
        covered = covered.saturating_add(new_ns);
        end = end.max(work.end_ns());
        ends.push(end);
    }
    let (mut apart, mut held) = (0_usize, 0_usize);
    for (_, work) in of_null {
        let pos = sorted.partition_point(|other| other.start_ns < work.start_ns);
        let before_ns = pos.checked_sub(1).and_then(|pos| ends.get(pos)).copied().unwrap_or(0);
        let after_ns = sorted.get(pos).map_or(u64::MAX, |other| other.start_ns);
        if before_ns <= work.start_ns && after_ns >= work.end_ns() {
            apart += 1;
        }
        let launched_ns = |work: &TraceWork| {
            let call = work.call.and_then(|call| view.trace.calls.get(call as usize));
            call.map_or(u64::MAX, |call| call.start_ns)
        };
        let is_late =
            work.start_ns.saturating_sub(before_ns) <= FOLLOWS_NS && launched_ns(work) < before_ns;
        let is_early = after_ns.saturating_sub(work.end_ns()) <= FOLLOWS_NS
            && sorted.get(pos).is_some_and(|other| launched_ns(other) < work.end_ns());
        if is_late || is_early {
            held += 1;
        }
    }
    let all = of_null.len();
    apart * 20 >= all * 19 && held * 2 >= all && covered as f64 >= 0.9 * busy as f64
}

#[cfg(test)]
mod tests;
