//! Each launch waits until its kernel is done.
//!
//! The signature is calls that launch a kernel and return only after it ended, nearly all of them: a
//! launch returns at once unless `CUDA_LAUNCH_BLOCKING=1` is set, a debugger is there, or a wrapper
//! waits in it. Then the host prepares nothing while the GPU works, and the GPU is idle from each
//! kernel to the next. A launch that returns at once takes what launches take, at most 5 µs.

use super::common::{is_small, per_step};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, HostCall};
use crate::view::View;

/// Launches that are enough to judge, and the part of them that waits.
const LEAST_LAUNCHES: usize = 20;
const LEAST_SHARE: f64 = 0.95;
/// A kernel of less may be over before its launch returns anyway, in nanoseconds.
const SHORTEST_NS: u64 = 8_000;
/// What a launch takes that does not wait, in nanoseconds.
const LAUNCH_NS: u64 = 5_000;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let launches = view.host().all.iter().filter(|call| call.kind == CallKind::Launch);
    let judged: Vec<(&HostCall, u64)> = launches
        .filter_map(|call| {
            let work = view.trace.work.get(call.work? as usize)?;
            (work.duration_ns >= SHORTEST_NS).then_some((call, work.end_ns()))
        })
        .collect();
    let waiting: Vec<&HostCall> = judged
        .iter()
        .filter(|(call, end_ns)| call.end_ns >= *end_ns)
        .map(|(call, _)| *call)
        .collect();
    let is_most = waiting.len() as f64 >= LEAST_SHARE * judged.len() as f64;
    // What the GPU loses: from the end of each kernel to the next one.
    let lost = view.step_ns() - view.busy_ns();
    if judged.len() < LEAST_LAUNCHES || !is_most || is_small(view, lost) {
        return None;
    }
    let mut edits = Edits::default();
    for call in &waiting {
        edits.call_ns.insert(call.at, LAUNCH_NS.min(call.duration_ns()));
        edits.no_wait.insert(call.at);
    }
    let held = per_step(view, waiting.iter().map(|call| call.duration_ns()).sum());
    Some(Found {
        change: "let launches return at once".to_owned(),
        text: format!(
            "each launch waits until its kernel is done ({} a step, {} in these calls), so the host \
             prepares nothing meanwhile and the GPU is idle for {} a step between kernels",
            words::count(waiting.len(), view),
            words::time(held),
            words::time(lost),
        ),
        hint: "unset `CUDA_LAUNCH_BLOCKING` in the environment and in the program (\
               `os.environ[\"CUDA_LAUNCH_BLOCKING\"]`), which is for finding faults; run without a \
               debugger; if a wrapper waits after each launch, wait once after the loop"
            .to_owned(),
        least: edits.clone(),
        most: edits,
        calls: waiting.iter().map(|call| call.at).collect(),
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    #[test]
    fn launches_that_wait_for_their_kernels_are_found() {
        let mut window = StepScript::new().kernels(12, names::MUL, 20.0).play(4);
        assert!(window.look(find).is_none());
        // Each call lasts until its kernel is over; the next one comes after it.
        let mut now_ns = 0;
        for at in 0..window.trace.work.len() {
            let call = &mut window.trace.calls[at];
            call.start_ns = now_ns + 2_000;
            let work = &mut window.trace.work[at];
            work.start_ns = call.start_ns + 6_000;
            call.duration_ns = work.end_ns() + 1_000 - call.start_ns;
            now_ns = call.start_ns + call.duration_ns;
        }
        let found = window.look(find).unwrap();
        assert!(found.hint.contains("CUDA_LAUNCH_BLOCKING"));
        assert!(found.most.call_ns.values().all(|ns| *ns == 5_000));
    }
}
