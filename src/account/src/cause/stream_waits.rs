//! Streams that wait for each other too often.
//!
//! Signature: a `cudaStreamWaitEvent` for every second piece of work or more, in a window whose work
//! alternates between streams, with latency between streams on the critical path (the reference's
//! cause 56). Each hand-over costs one to three microseconds of the GPU and two calls of the host.
//! What the waits protect is not in the trace, so it is a bound: at most no work waits for another
//! stream, at least every second hand-over stays, and the work keeps its time.

use super::common::{is_small, per_step, sum};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, HostCall};
use crate::view::View;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let host = view.host();
    let waits: Vec<&HostCall> =
        host.all.iter().filter(|call| call.kind == CallKind::StreamWait).collect();
    let works: usize = view.window().iter().map(|step| step.work.len()).sum();
    if waits.len() * 2 < works || (waits.len() as f64) < 4.0 * view.step_count() {
        return None;
    }
    let followed: Vec<(u32, u64)> = view
        .work()
        .map(|(at, _)| (at, host.work_path(at).event_ns))
        .filter(|(_, event_ns)| *event_ns > 0)
        .collect();
    let calls: Vec<&HostCall> = host
        .all
        .iter()
        .filter(|call| matches!(call.kind, CallKind::StreamWait | CallKind::Record))
        .collect();
    let event_ns: u64 = followed.iter().map(|(_, ns)| *ns).fold(0, u64::saturating_add);
    let call_ns = sum(calls.iter().copied(), |call| call.path_ns);
    let lost = per_step(view, event_ns.saturating_add(call_ns));
    if is_small(view, lost) {
        return None;
    }
    let (mut least, mut most) = (Edits::default(), Edits::default());
    for (number, (at, _)) in followed.iter().enumerate() {
        most.no_event.insert(*at);
        if number % 2 == 0 {
            least.no_event.insert(*at);
        }
    }
    for (number, call) in calls.iter().enumerate() {
        most.call_ns.insert(call.at, 0);
        if number % 2 == 0 {
            least.call_ns.insert(call.at, 0);
        }
    }
    Some(Found {
        change: "let the streams wait for each other less often".to_owned(),
        text: format!(
            "streams wait for each other {} for {} pieces of work a step: {} of a step in hand-overs \
             between streams and their calls",
            words::times(waits.len(), view),
            words::count(works, view),
            words::time(lost),
        ),
        hint: "put work that depends on each other on one stream, and record one event after a \
               group of launches, not after each"
            .to_owned(),
        least,
        most,
        work: followed.iter().map(|(at, _)| *at).collect(),
        calls: calls.iter().map(|call| call.at).collect(),
        decides: None,
        is_bound: true,
    })
}

#[cfg(test)]
mod tests;
