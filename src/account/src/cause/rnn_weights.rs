//! The weights of a recurrent network are copied into one buffer in each call.
//!
//! cuDNN wants the weights of all layers in one buffer. torch makes it so once; after `p.data = …`, a
//! copy of the module or a load that replaces the storage, each call copies all weights into a new
//! buffer. The signature is a row of at least eight copies within the GPU at one place of the step,
//! two sizes or more among them (matrices and biases), and cuDNN's kernels of recurrent cells in the
//! same step. With the weights in one buffer the copies go, with what the host does for them and the
//! fill of the buffer; at least half of the host's pause before them stays.

use std::collections::BTreeSet;

use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::Found;
use super::common::part;
use super::picked::{Changes, Picked, duration, lanes, names_that, runs};
use crate::edits::Edits;
use crate::host_calls::HostCall;
use crate::view::View;

/// Copies in a row.
const LEAST_COPIES: usize = 8;
/// A fill of the buffer takes this much of what the copies take, at least.
const LEAST_FILL_SHARE: f64 = 0.2;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let cells = names_that(view, |name| {
        ["RNNcell", "RNN_block", "LSTM_elementWise", "GRU_elementWise", "rnn_persist"]
            .iter()
            .any(|word| name.contains(word))
    });
    let has_cells = view.work().any(|(_, work)| super::picked::has_name(&cells, work));
    if !has_cells {
        return None;
    }
    let is_copy = |work: &TraceWork| {
        work.kind == TraceWorkKind::Copy && view.class(work) == AccountCause::CopyDevice
    };
    let lanes = lanes(view);
    let rows = lanes.iter().flat_map(|lane| runs(lane, LEAST_COPIES, is_copy)).filter(|row| {
        let sizes: BTreeSet<Option<u64>> = row.iter().map(|(_, work)| work.bytes).collect();
        sizes.len() >= 2
    });
    let rows: Vec<Vec<u32>> = rows.map(|row| row.iter().map(|(at, _)| *at).collect()).collect();
    if (rows.len() as f64) * 2.0 < view.step_count() {
        return None;
    }
    let copies = Picked::new(view, rows.concat());
    let copies_ns = copies.ns();
    let fills = view.work().filter(|(at, work)| {
        view.class(work) == AccountCause::Fill
            && duration(view, *at) >= LEAST_FILL_SHARE * copies_ns
    });
    let fills: Vec<u32> = fills.map(|(at, _)| at).collect();
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
            "the weights of a recurrent network ({}) are copied into one buffer in each call: {}, \
             and the host prepares it meanwhile",
            super::words::size(bytes as f64 / view.step_count()),
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
        let without = StepScript::new().then(step(16)).kernel(names::ADD, 3.0);
        assert!(without.play(4).look(find).is_some());
        let other = (0..12).fold(StepScript::new(), |step, number| {
            step.copy("DtoD", 1 << (10 + number % 2), 5.0, None)
        });
        assert!(other.kernel(names::PRODUCT, 40.0).play(4).look(find).is_none());
    }
}
