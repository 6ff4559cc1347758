//! The weights of a recurrent network are copied into one buffer in each call.
//!
//! cuDNN wants the weights of all layers in one buffer. torch makes it so once; after `p.data = …`, a
//! copy of the module or a load that replaces the storage, each call fills a new buffer and copies
//! all weights into it. The signature is a row of copies within the GPU at one place of the step,
//! two sizes or more among them (matrices and biases), and kernels of recurrent cells in the same
//! step. A layer has four tensors, so four copies right after a fill are enough; without a fill it
//! takes eight. Where types or layouts differ, as under autocast, the copies are kernels. With the
//! weights in one buffer the copies go, with what the host does for them and the fill of the buffer;
//! at least half of the host's pause before them stays.

use std::collections::BTreeSet;

use rgpu_model::account::AccountCause;
use rgpu_model::trace::TraceWork;

use super::Found;
use super::common::part;
use super::picked::{Changes, Picked, lanes, names_that};
use crate::edits::Edits;
use crate::host_calls::HostCall;
use crate::view::View;

/// Copies in a row: right after a fill of their buffer, and without one.
const LEAST_COPIES_FILLED: usize = 4;
const LEAST_COPIES: usize = 8;
/// Launches before the copies among which the fill is.
const NEAR: usize = 2;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let cells = names_that(view, is_cell);
    let has_cells = view.work().any(|(_, work)| super::picked::has_name(&cells, work));
    if !has_cells {
        return None;
    }
    let lanes = lanes(view);
    let (mut rows, mut fills) = (Vec::new(), Vec::new());
    for lane in &lanes {
        let (of_lane, of_fills) = rows_of_copies(view, lane);
        rows.extend(of_lane);
        fills.extend(of_fills);
    }
    if (rows.len() as f64) * 2.0 < view.step_count() {
        return None;
    }
    let copies = Picked::new(view, rows.concat());
    let changes = Changes::new(view);
    let mut least = changes.without(&copies.at, 1.0);
    let mut most: Edits = changes.without(&[copies.at.clone(), fills].concat(), 1.0);
    for first in rows.iter().filter_map(|row| row.first()) {
        let Some(call) = view.trace.work.get(*first as usize).and_then(|work| work.call) else {
            continue;
        };
        for before in calls_before(view, call) {
            most.host_before_ns.insert(before.at, 0);
            least.host_before_ns.insert(before.at, part(before.before_ns, 0.5));
        }
    }
    let bytes: u64 = copies
        .at
        .iter()
        .filter_map(|at| view.trace.work.get(*at as usize)?.bytes)
        .fold(0, u64::saturating_add);
    Some(Found {
        change: "keep the weights in one buffer".to_owned(),
        text: format!(
            "the weights of a recurrent network{} are copied into one buffer in each call: {}, and \
             the host prepares it meanwhile",
            if bytes == 0 {
                String::new()
            } else {
                format!(" ({})", super::words::size(bytes as f64 / view.step_count()))
            },
            copies.words()
        ),
        hint: "call `rnn.flatten_parameters()` once after weights were loaded, replaced or moved \
               (`p.data = …`, `copy.deepcopy`, `load_state_dict(assign=True)`)"
            .to_owned(),
        least,
        most,
        work: copies.at,
        ..Found::default()
    })
}

/// Whether a kernel is of a recurrent network: cuDNN's, and torch's own cells.
fn is_cell(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    ["rnn", "lstm", "gru_"].iter().any(|word| lower.contains(word))
}

/// The rows of copies of a lane that may be weights, and the fills right before them.
fn rows_of_copies(view: &View<'_>, lane: &[(u32, &TraceWork)]) -> (Vec<Vec<u32>>, Vec<u32>) {
    let is_copy = |work: &TraceWork| {
        matches!(
            view.class(work),
            AccountCause::CopyDevice | AccountCause::Layout | AccountCause::Cast
        )
    };
    let is_fill = |(_, work): &(u32, &TraceWork)| view.class(work) == AccountCause::Fill;
    let (mut rows, mut fills, mut from) = (Vec::new(), Vec::new(), 0);
    for run in lane.chunk_by(|(_, a), (_, b)| is_copy(a) == is_copy(b)) {
        let before = lane.get(from - NEAR.min(from)..from).unwrap_or_default();
        from += run.len();
        let sizes: BTreeSet<(u32, Option<u64>, Option<u32>)> =
            run.iter().map(|(_, work)| (work.name, work.bytes, work.shape)).collect();
        let fill = before.iter().rev().find(|work| is_fill(work));
        let least = if fill.is_some() { LEAST_COPIES_FILLED } else { LEAST_COPIES };
        let is_row = run.first().is_some_and(|(_, work)| is_copy(work));
        if is_row && run.len() >= least && sizes.len() >= 2 {
            rows.push(run.iter().map(|(at, _)| *at).collect());
            fills.extend(fill.map(|(at, _)| *at));
        }
    }
    (rows, fills)
}

/// A call, and those of its thread before it that launch nothing: in their pauses the host prepares
/// the copies.
fn calls_before<'v>(view: &'v View<'_>, call: u32) -> impl Iterator<Item = &'v HostCall> {
    let calls = &view.host().all;
    let end = calls.partition_point(|other| other.at <= call);
    // The copy's call may be one within another, which is listed.
    let thread = view.trace.calls.get(call as usize).map(|call| call.thread);
    let before = calls.get(..end).unwrap_or_default().iter().rev();
    let mut own = before.take(200).filter(move |other| Some(other.thread) == thread);
    let first = own.next();
    first.into_iter().chain(own.take_while(|other| other.work.is_none() && !other.waits))
}

#[cfg(test)]
mod tests {
    use super::super::test_view::{StepScript, names};
    use super::*;

    const CELL: &str = "void elemWiseRNNcell<__half, __half, float, (cudnnRNNMode_t)2, (cudnnRNNBiasMode_t)2>(int)";

    fn step(copies: usize) -> StepScript {
        let copies = (0..copies).fold(StepScript::new(), |step, number| {
            let bytes = if number % 4 < 2 { 1 << 24 } else { 12_288 };
            step.copy("DtoD", bytes, 10.0, None)
        });
        copies.kernel(names::PRODUCT, 40.0).kernel(CELL, 3.0)
    }

    #[test]
    fn weights_that_are_copied_in_each_call_are_found() {
        let fault = step(16).play(4);
        let found = fault.look(find).unwrap();
        assert!(found.hint.contains("flatten_parameters"));
        assert!((fault.removed_ns(&found.most) - 160_000.0).abs() < 1.0);
        assert!(step(2).play(4).look(find).is_none());
        // One layer: four copies after the fill of their buffer, as casts under autocast.
        let cast = |shape| StepScript::new().shaped(shape).kernel(names::CAST, 8.0);
        let layer = [1, 1, 2, 2]
            .into_iter()
            .fold(StepScript::new().set(1 << 24, 5.0), |all, shape| all.then(cast(shape)));
        let lstm = "void LSTM_elementWise_fp<__half, float, (cudnnRNNBiasMode_t)2>(int)";
        let one = layer.clone().kernel(names::PRODUCT, 40.0).kernel(lstm, 3.0).play(4);
        assert!((one.removed_ns(&one.look(find).unwrap().most) - 37_000.0).abs() < 1.0);
        assert!(layer.kernel(names::PRODUCT, 40.0).play(4).look(find).is_none());
        let without = StepScript::new().then(step(16)).kernel(names::ADD, 3.0);
        assert!(without.play(4).look(find).is_some());
        let other = (0..12).fold(StepScript::new(), |step, number| {
            step.copy("DtoD", 1 << (10 + number % 2), 5.0, None)
        });
        assert!(other.kernel(names::PRODUCT, 40.0).play(4).look(find).is_none());
    }
}
