//! Boolean masks, `nonzero` and `unique` compact an array: flags are scanned, the host reads how
//! many are set, and the values are gathered.
//!
//! The signature is a kernel of the compaction (`getitem_mask`, `DeviceSelect`, `nonzero`) with the
//! scan or count before it, and a copy of a few bytes to the host between them that a call waits
//! for. Where only a sum or another fixed-size result is wanted, `where` needs one element-wise pass
//! in its place. The lower end keeps a pass as long as the compaction's own and the wait; the upper
//! end keeps nothing.

use std::collections::BTreeSet;

use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use super::Found;
use super::picked::{Changes, Framework, Picked, duration, has_name, lanes, names_that};
use crate::class::KernelFamily;
use crate::view::View;

/// Launches around the compaction that belong to it.
const NEAR: usize = 9;
/// Bytes of a count that is read back.
const MAX_COUNT_BYTES: u64 = 16;
/// Calls after the copy among which the wait is.
const MAX_CALLS_TO_WAIT: u32 = 4;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let names = names_that(view, |name| {
        ["getitem_mask", "DeviceSelect", "CompactInit", "nonzero", "UniqueByKey"]
            .iter()
            .any(|word| name.contains(word))
    });
    let (mut kernels, mut copies) = (BTreeSet::new(), BTreeSet::new());
    let mut compactions = Vec::new();
    for lane in &lanes(view) {
        for (position, (at, work)) in lane.iter().enumerate() {
            let is_near = |other: usize| {
                let from = other.saturating_sub(NEAR);
                let near = lane.get(from..other.saturating_add(NEAR).min(lane.len()));
                near.unwrap_or_default().iter().any(|(_, work)| has_name(&names, work))
            };
            if has_name(&names, work) {
                kernels.insert(*at);
                compactions.push(*at);
            } else if is_scan(view, work) && is_near(position) {
                kernels.insert(*at);
            } else if is_count(view, work) && is_near(position) {
                copies.insert(*at);
            }
        }
    }
    // Each compaction waits for its count.
    let all: Vec<u32> = kernels.iter().chain(&copies).copied().collect();
    let work = Picked::new(view, all.clone());
    if compactions.is_empty() || copies.len() * 4 < compactions.len() || !work.matters() {
        return None;
    }
    let changes = Changes::new(view);
    let mut most = changes.without(&all, 0.5);
    let mut calls = Vec::new();
    for copy in &copies {
        for wait in waits_after(view, *copy) {
            most.no_wait.insert(wait);
            most.call_ns.insert(wait, 0);
            calls.push(wait);
        }
    }
    let kernels: Vec<u32> = kernels.into_iter().collect();
    let mut least = changes.without(&kernels, 0.0);
    for at in &compactions {
        changes.scale(&mut least, *at, 1.0);
        if duration(view, *at) <= 0.0 {
            least.work_ns.remove(at);
        }
    }
    let hint = match Framework::of(view) {
        Framework::Cupy => {
            "`cp.where(mask, x, 0).sum()` in place of `x[mask].sum()`; \
                            `cp.count_nonzero(mask)` for a count"
        }
        Framework::Torch => {
            "`torch.where(mask, x, 0)` in place of `x[mask]` where a sum or a mean \
                             follows; `torch.nonzero_static(mask, size=n)` where the size is known"
        }
        _ => "keep the full size and multiply by the mask",
    };
    Some(Found {
        change: "use the mask without compacting".to_owned(),
        text: format!(
            "{:.0} times a step a mask is compacted: scan, read of the count, gather, which take {}",
            compactions.len() as f64 / view.step_count(),
            work.words()
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: work.at.clone(),
        calls,
        ..Found::default()
    })
}

/// Whether a kernel scans or counts flags for a compaction.
fn is_scan(view: &View<'_>, work: &TraceWork) -> bool {
    let by_library = matches!(view.family(work), KernelFamily::Cub | KernelFamily::Cupy);
    let name = view.name(work);
    let scans =
        ["scan", "Scan", "bsum", "select", "Compact"].iter().any(|word| name.contains(word));
    by_library && scans && matches!(view.class(work), AccountCause::Reduction | AccountCause::Sort)
}

/// Whether work is the copy of a count to the host.
fn is_count(view: &View<'_>, work: &TraceWork) -> bool {
    work.kind == TraceWorkKind::Copy
        && view.name(work).contains("DtoH")
        && work.bytes.is_some_and(|bytes| bytes <= MAX_COUNT_BYTES)
}

/// The waits that follow the call of a copy, before anything else is launched.
fn waits_after(view: &View<'_>, copy: u32) -> Vec<u32> {
    let Some(call) = view.trace.work.get(copy as usize).and_then(|work| work.call) else {
        return Vec::new();
    };
    let Some(thread) = view.trace.calls.get(call as usize).map(|call| call.thread) else {
        return Vec::new();
    };
    let next = call.saturating_add(1)..call.saturating_add(1 + MAX_CALLS_TO_WAIT);
    let next = next.filter_map(|at| Some((at, view.trace.calls.get(at as usize)?)));
    let own = next.filter(|(_, call)| call.thread == thread);
    own.take_while(|(_, call)| !view.call_name(call).contains("Launch"))
        .filter(|(_, call)| call.waits)
        .map(|(at, _)| at)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::test_view::StepScript;
    use super::*;

    #[test]
    fn compactions_are_found_and_where_is_silent() {
        let fault = StepScript::new()
            .kernel("cupy_less__float32_float_bool", 80.0)
            .kernel("cupy_bsum_shfl", 30.0)
            .kernel("cupy_scan_naive", 90.0)
            .copy("DtoH", 4, 1.4, Some(true))
            .wait("cudaStreamSynchronize")
            .kernel("cupy_getitem_mask", 80.0)
            .play(3);
        let found = fault.look(find).unwrap();
        assert!((fault.removed_ns(&found.most) - 201_400.0).abs() < 10.0);
        assert!((fault.removed_ns(&found.least) - 120_000.0).abs() < 10.0);
        assert_eq!(found.most.no_wait.len(), 2);
        let mended = StepScript::new()
            .kernel("cupy_less__float32_float_bool", 80.0)
            .kernel("cupy_where__bool_float32_float_float32", 80.0);
        assert!(mended.play(3).look(find).is_none());
        // A running sum is no compaction.
        let scan = StepScript::new().kernel("cupy_scan_naive", 90.0).copy("DtoH", 4, 1.0, None);
        assert!(scan.play(3).look(find).is_none());
    }
}
