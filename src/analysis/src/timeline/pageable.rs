//! Adds up large copies from and to pageable memory while no kernel runs, and makes their finding.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::finding::{MIN_REPEATED_GAPS, part_of, share, stake, steady_ns, subject, time};
use super::measure::overlap_ns;
use crate::Limits;
use crate::threshold::PAGEABLE_SHARE;
use rgpu_model::number_form::{by_number, counted};
use rgpu_model::timeline::{DeviceTime, PageableCopies};
use rgpu_model::trace::{TraceWork, TraceWorkKind};
use rgpu_model::{Evidence, Finding, Trace};

/// Id of the finding.
pub(super) const ID: &str = "pageable_copies";

/// Bytes up to which a copy from pageable memory does not wait for its transfer ("API
/// synchronization behavior" in the manual of CUDA's runtime).
const MAX_SMALL_BYTES: u64 = 64 * 1024;

/// Sums of the large copies from and to pageable memory by kind, most time first. Only their time
/// in `gaps`, which have no kernel, counts: a kernel hides the rest.
pub(super) fn sums(
    trace: &Trace,
    parts: &[Vec<&TraceWork>],
    mut gaps: Vec<(u64, u64)>,
) -> Vec<PageableCopies> {
    gaps.sort_unstable();
    let mut by_kind: BTreeMap<u32, PageableCopies> = BTreeMap::new();
    for work in parts.iter().flatten() {
        let bytes = work.bytes.unwrap_or(0);
        let is_large = work.kind == TraceWorkKind::Copy && bytes > MAX_SMALL_BYTES;
        if !is_large || work.pageable != Some(true) {
            continue;
        }
        let ns = overlap_ns(&gaps, (work.start_ns, work.end_ns()));
        if ns == 0 {
            continue;
        }
        let call = work.call.and_then(|call| trace.calls.get(call as usize));
        let called = |start_ns: u64, ns: u64| (start_ns, start_ns.saturating_add(ns));
        let sum = by_kind
            .entry(work.name)
            .or_insert_with(|| PageableCopies { min_bytes: u64::MAX, ..PageableCopies::default() });
        sum.copies += 1;
        sum.min_bytes = sum.min_bytes.min(bytes);
        sum.max_bytes = sum.max_bytes.max(bytes);
        sum.total_ns += ns;
        sum.call_ns +=
            call.map_or(0, |call| overlap_ns(&gaps, called(call.start_ns, call.duration_ns)));
    }
    let named = by_kind.into_iter().map(|(name, sum)| {
        let kind = trace.names.get(name as usize).cloned().unwrap_or_default();
        PageableCopies { kind, ..sum }
    });
    let mut all: Vec<PageableCopies> = named.collect();
    all.sort_by_key(|sum| Reverse(sum.total_ns));
    all
}

/// The finding about the kind of copies with the most time, if that is enough to tell.
pub(super) fn finding(device: &DeviceTime, several: bool, limits: &Limits<'_>) -> Option<Finding> {
    let copies = device.pageable_copies.first()?;
    let threshold = limits.threshold(&PAGEABLE_SHARE);
    let whole_ns =
        if copies.copies < MIN_REPEATED_GAPS { device.span_ns } else { steady_ns(device, limits) };
    let share = share(copies.total_ns, whole_ns).filter(|share| *share >= threshold.value)?;
    Some(Finding {
        id: ID.to_owned(),
        category: "host".to_owned(),
        stake: Some(stake(copies.total_ns, device)),
        text: format!(
            "{} {}runs no kernel while it copies {} pageable memory ({})",
            part_of(share, whole_ns, device),
            subject(device, several),
            direction(copies),
            amount(copies),
        ),
        hint: hint(copies),
        evidence: vec![
            threshold.share_evidence("timeline.pageable_copies", share, ""),
            Evidence::number("timeline.pageable_copies.call_ns", copies.call_ns as f64, "ns"),
        ],
        ..Finding::default()
    })
}

fn direction(copies: &PageableCopies) -> &'static str {
    if copies.kind == "DtoH" { "to" } else { "from" }
}

/// `20 copies of 16.8 MB each; their calls hold the host for 50.31 ms`.
fn amount(copies: &PageableCopies) -> String {
    let size = match (megabytes(copies.min_bytes), megabytes(copies.max_bytes)) {
        (least, most) if least == most => most,
        (least, most) => format!("{least} to {most}"),
    };
    let count = counted(copies.copies, "copy", "copies");
    let each = by_number(copies.copies, "", " each");
    if copies.call_ns == 0 {
        return format!("{count} of {size}{each}");
    }
    let calls = by_number(copies.copies, "its call holds", "their calls hold");
    format!("{count} of {size}{each}; {calls} the host for {}", time(copies.call_ns))
}

/// `; 20 copies of 16.8 MB each from pageable memory, …`, for a finding about all copies.
pub(super) fn clause(copies: &PageableCopies) -> String {
    format!(
        "; {} of it {} pageable memory: {}",
        time(copies.total_ns),
        direction(copies),
        amount(copies)
    )
}

/// How to copy from or to pinned memory.
pub(super) fn hint(copies: &PageableCopies) -> String {
    let before_reading = match direction(copies) {
        "to" => ", and wait for the copy before the host reads it",
        _ => "",
    };
    format!(
        "pin the host's memory and copy asynchronously, so that copies overlap kernels: in torch \
         `pin_memory=True` (data loader) or `Tensor.pin_memory()`, with `non_blocking=True`; \
         elsewhere `cudaMallocHost` and `cudaMemcpyAsync` on a stream of its own{before_reading}"
    )
}

/// `16.8 MB`; below 10 MB with two decimals.
fn megabytes(bytes: u64) -> String {
    match bytes as f64 / 1e6 {
        mb if mb < 10.0 => format!("{mb:.2} MB"),
        mb => format!("{mb:.1} MB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Thresholds;
    use crate::timeline::{Graphs, timeline};
    use rgpu_model::trace::CallEvent;

    const NAMES: [&str; 5] = ["gemm", "HtoD", "DtoH", "cudaLaunchKernel", "cudaMemcpyAsync"];

    /// Fifteen steps of 1 ms with a kernel of 100 µs. In each, a copy of this kind begins 150 µs
    /// after the kernel and 50 µs after its call, and takes as long as given.
    fn steps(copy: u32, bytes: u64, pageable: Option<bool>, copy_us: u64) -> Trace {
        let mut trace = Trace { names: NAMES.map(str::to_owned).to_vec(), ..Trace::default() };
        let work = |kind, name, start_ns, us: u64, call| TraceWork {
            kind,
            name,
            start_ns,
            duration_ns: us * 1000,
            device: 0,
            stream: 7,
            bytes: None,
            pageable: None,
            call: Some(call),
            launch: None,
            regions: Default::default(),
            rank: None,
            shape: None,
        };
        for step in 0..15 {
            let at = step * 1_000_000;
            let mut call = |name, start_ns, us: u64| {
                let duration_ns = us * 1000;
                let call =
                    CallEvent { name, start_ns, duration_ns, thread: 1, waits: false, rank: None };
                trace.calls.push(call);
                trace.calls.len() as u32 - 1
            };
            let launch = call(3, at, 5);
            trace.work.push(work(TraceWorkKind::Kernel, 0, at + 10_000, 100, launch));
            let copied = call(4, at + 210_000, 50 + copy_us);
            let copy = work(TraceWorkKind::Copy, copy, at + 260_000, copy_us, copied);
            trace.work.push(TraceWork { bytes: Some(bytes), pageable, ..copy });
        }
        trace
    }

    fn found(trace: &Trace) -> Vec<Finding> {
        let own = Thresholds::default();
        let limits = Limits::new(&own, None);
        let timeline = timeline(trace, &limits).unwrap();
        super::super::finding::findings(&timeline, None, &Graphs::default(), &limits)
    }

    fn pageable(trace: &Trace) -> Option<Finding> {
        found(trace).into_iter().find(|finding| finding.id == "pageable_copies")
    }

    const BATCH: u64 = 16_777_216;

    #[test]
    fn large_copies_from_pageable_memory_are_told_with_their_number_size_and_time() {
        let finding = pageable(&steps(1, BATCH, Some(true), 80)).unwrap();
        assert_eq!(
            finding.text,
            "for 8 % of 14.10 ms the GPU runs no kernel while it copies from pageable memory \
             (14 copies of 16.8 MB each; their calls hold the host for 1.82 ms)"
        );
        assert_eq!(finding.stake.unwrap().ns, 14 * 80_000);
        assert!(finding.hint.contains("`pin_memory=True`"), "{}", finding.hint);
        let to_host = pageable(&steps(2, BATCH, Some(true), 80)).unwrap();
        assert!(to_host.text.contains("copies to pageable memory"), "{}", to_host.text);
        assert!(to_host.hint.ends_with("before the host reads it"), "{}", to_host.hint);
    }

    #[test]
    fn small_pinned_and_short_copies_are_no_finding() {
        assert_eq!(pageable(&steps(2, 64, Some(true), 80)), None);
        assert_eq!(pageable(&steps(1, BATCH, Some(false), 80)), None);
        assert_eq!(pageable(&steps(1, BATCH, None, 80)), None);
        assert_eq!(pageable(&steps(1, BATCH, Some(true), 30)), None);
    }

    #[test]
    fn time_under_a_kernel_does_not_count() {
        let mut trace = steps(1, BATCH, Some(true), 80);
        let kernels = trace.work.iter_mut().filter(|work| work.kind == TraceWorkKind::Kernel);
        kernels.for_each(|work| work.duration_ns = 400_000);
        assert_eq!(pageable(&trace), None);
    }

    #[test]
    fn a_finding_about_all_copies_says_which_memory_is_pageable() {
        let all = found(&steps(1, BATCH, Some(true), 600));
        let copies = all.iter().find(|finding| finding.id == "gpu_waits_for_copies").unwrap();
        assert!(
            copies.text.ends_with(
                "(14 gaps; 8.40 ms of it from pageable memory: 14 copies of 16.8 MB each; their \
                 calls hold the host for 9.10 ms)"
            ),
            "{}",
            copies.text
        );
        assert!(copies.hint.contains("`pin_memory=True`"), "{}", copies.hint);
        assert!(all.iter().all(|finding| finding.id != "pageable_copies"));
    }
}
