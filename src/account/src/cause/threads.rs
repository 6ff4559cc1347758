//! Threads that hold each other up in the driver.
//!
//! Signature: at least two threads launch work, and calls that overlap a call of another thread
//! take longer than the median of their name without such an overlap (the reference's causes 49,
//! 52): the driver's lock, or Python's. At most each such call takes the median; at least, half of
//! what is above it goes.

use std::collections::HashMap;

use super::common::{is_small, per_step, recurs};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, Framework, HostCall, median};
use crate::view::View;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let calls = &view.host().all;
    let launching = view.host().threads();
    let launching = launching.iter().filter(|thread| {
        thread.iter().filter(|call| call.work.is_some()).count() as f64 >= view.step_count()
    });
    if launching.count() < 2 {
        return None;
    }
    let held = overlapping(calls);
    let mut alone: HashMap<u32, Vec<u64>> = HashMap::new();
    for (call, is_held) in calls.iter().zip(&held) {
        if !is_held && is_short(call) {
            alone.entry(call.name).or_default().push(call.duration_ns());
        }
    }
    let alone: HashMap<u32, u64> =
        alone.into_iter().map(|(name, times)| (name, median(times))).collect();
    let (mut least, mut most) = (Edits::default(), Edits::default());
    let mut slow: Vec<&HostCall> = Vec::new();
    let mut excess_ns = 0_u64;
    for (call, _) in calls.iter().zip(&held).filter(|(call, is_held)| **is_held && is_short(call)) {
        let Some(usual) = alone.get(&call.name) else { continue };
        let excess = call.duration_ns().saturating_sub(*usual);
        // A fifth above is the spread of calls that nobody holds up.
        if excess <= usual / 5 {
            continue;
        }
        excess_ns = excess_ns.saturating_add(excess.min(call.path_ns));
        most.call_ns.insert(call.at, *usual);
        least.call_ns.insert(call.at, usual.saturating_add(excess / 2));
        slow.push(call);
    }
    let lost = per_step(view, excess_ns);
    if !recurs(view, slow.iter().copied()) || is_small(view, lost) {
        return None;
    }
    let hint = match view.host().framework {
        Framework::Cuda => "launch from one thread, or capture each thread's work as a CUDA graph",
        _ => {
            "launch from one thread, or use processes in place of threads (Python's lock and the \
             driver's are per process)"
        }
    };
    Some(Found {
        change: "launch from one thread".to_owned(),
        text: format!(
            "{} calls a step overlap calls of other threads and take longer than alone: {} of a \
             step{}",
            words::count(slow.len(), view),
            words::time(lost),
            slow.first().map_or(String::new(), |call| words::place(view, call)),
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: Vec::new(),
        calls: slow.iter().map(|call| call.at).collect(),
        decides: None,
        is_bound: false,
    })
}

/// Calls whose length is their own: none that waits for the GPU.
fn is_short(call: &HostCall) -> bool {
    !call.waits && matches!(call.kind, CallKind::Launch | CallKind::Fill | CallKind::GraphLaunch)
}

/// For each call, whether one of another thread overlaps it.
fn overlapping(calls: &[HostCall]) -> Vec<bool> {
    let mut held = vec![false; calls.len()];
    // The calls with the latest ends so far, of two threads.
    let mut latest: Vec<(u64, u64, usize)> = Vec::new();
    for (pos, call) in calls.iter().enumerate() {
        for (thread, end_ns, other) in &latest {
            if *thread != call.thread && *end_ns > call.start_ns {
                for pos in [pos, *other] {
                    if let Some(is_held) = held.get_mut(pos) {
                        *is_held = true;
                    }
                }
            }
        }
        match latest.iter_mut().find(|(thread, _, _)| *thread == call.thread) {
            Some(known) => *known = (call.thread, call.end_ns, pos),
            None => {
                latest.push((call.thread, call.end_ns, pos));
                latest.sort_by_key(|(_, end_ns, _)| std::cmp::Reverse(*end_ns));
                latest.truncate(64);
            }
        }
    }
    held
}

#[cfg(test)]
mod tests;
