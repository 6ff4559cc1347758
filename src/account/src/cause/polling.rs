//! A host that asks again and again whether the GPU is done.
//!
//! Signature: at least ten `cudaEventQuery` or `cudaStreamQuery` in a row of a thread, several
//! times a step, on the critical path (the reference's cause 8). What it costs is the time from the
//! work's end to the next question; the rest is the GPU's own time. At least the last question of
//! each row goes, at most the time between two questions as well.

use super::common::{is_small, per_step, recurs, remove_wait, sum};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, HostCall};
use crate::view::View;

/// Questions in a row from which on it is polling.
const LEAST_QUERIES: usize = 10;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let mut all: Vec<&HostCall> = Vec::new();
    let mut last: Vec<&HostCall> = Vec::new();
    for thread in view.host().threads() {
        for row in thread.chunk_by(|a, b| a.kind == b.kind) {
            let is_polling = row.first().is_some_and(|call| call.kind == CallKind::Query);
            if is_polling && row.len() >= LEAST_QUERIES {
                all.extend(row);
                last.extend(row.last());
            }
        }
    }
    let lost = sum(all.iter().copied(), |call| call.path_ns.saturating_add(call.before_path_ns));
    let lost = per_step(view, lost);
    if !recurs(view, all.iter().copied()) || is_small(view, lost) {
        return None;
    }
    let (mut least, mut most) = (Edits::default(), Edits::default());
    for call in &last {
        remove_wait(&mut least, call.at);
        remove_wait(&mut most, call.at);
        most.host_before_ns.insert(call.at, 0);
    }
    Some(Found {
        change: "wait for the event in place of polling".to_owned(),
        text: format!(
            "the host asks {} whether the GPU is done; of a step {} lie in such questions",
            words::times(all.len(), view),
            words::time(lost),
        ),
        hint: "wait with `cudaEventSynchronize` (`cudaEventBlockingSync` frees the core), or let \
               the stream call the host with `cudaLaunchHostFunc`"
            .to_owned(),
        least,
        most,
        work: Vec::new(),
        calls: last.iter().map(|call| call.at).collect(),
        decides: None,
        is_bound: false,
    })
}

#[cfg(test)]
mod tests;
