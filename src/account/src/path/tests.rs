//! The parts of paths of small recordings.

use std::sync::Arc;

use rgpu_model::Trace;
use rgpu_model::account::{AccountCause, AccountPart};
use rgpu_model::trace::{CallEvent, HostEvent, TraceRegion, TraceWork, TraceWorkKind};

use super::{Segment, parts, walk};
use crate::graph::{Graph, Label};

/// Three steps of a launch (4 µs), host work (16 µs) and a kernel (3 µs) that starts 6 µs after its
/// launch; beside each a copy of 8 µs on another stream that nothing waits for.
fn recording() -> Trace {
    let names = ["sgemm_128x64", "HtoD", "cudaLaunchKernel", "cudaMemcpyAsync"];
    let mut trace = Trace { names: names.map(str::to_owned).to_vec(), ..Trace::default() };
    trace.regions = vec![TraceRegion {
        path: vec!["train".to_owned(), "forward".to_owned()],
        ..TraceRegion::default()
    }];
    for step in 0..4_u64 {
        let start_ns = step * 24_000;
        for (name, after_ns) in [(2, 0), (3, 4_000)] {
            trace.calls.push(CallEvent {
                name,
                start_ns: start_ns + after_ns,
                duration_ns: 4_000,
                thread: 1,
                waits: false,
                rank: None,
            });
        }
        trace.work.push(TraceWork {
            start_ns: start_ns + 6_000,
            duration_ns: 3_000,
            call: Some(2 * step as u32),
            regions: vec![0].into(),
            ..TraceWork::default()
        });
        trace.work.push(TraceWork {
            kind: TraceWorkKind::Copy,
            name: 1,
            start_ns: start_ns + 12_000,
            duration_ns: 8_000,
            stream: 9,
            pageable: Some(false),
            call: Some(2 * step as u32 + 1),
            ..TraceWork::default()
        });
    }
    trace
}

fn part(parts: &[AccountPart], cause: AccountCause) -> &AccountPart {
    parts.iter().find(|part| part.cause == cause).unwrap()
}

#[test]
fn parts_add_up_and_name_what_runs_beside_the_path() {
    let trace = recording();
    let graph = Graph::new(&trace, &(0..8).collect::<Vec<_>>());
    let segments = walk(&graph, 6, false, 6_000);
    let parts = parts(&graph, &segments, 3.0);
    assert_eq!(parts.iter().map(|part| part.ns).sum::<u64>(), 24_000);
    assert!((parts.iter().map(|part| part.share).sum::<f64>() - 1.0).abs() < 1e-12);
    // The first launch began before the time that is looked at.
    let host = part(&parts, AccountCause::Host);
    assert_eq!(host.ns, 16_000);
    assert_eq!(host.rows[0].name, "before cudaLaunchKernel");
    assert_eq!(host.rows[0].place.as_deref(), Some("train::forward"));
    let latency = part(&parts, AccountCause::LaunchLatency);
    assert_eq!((latency.ns, latency.count), (2_000, 1.0 / 3.0));
    assert_eq!(latency.rows[0].name, "sgemm_128x64");
    let calls = part(&parts, AccountCause::LaunchCall);
    assert_eq!(calls.ns, 6_000);
    // Nothing waits for kernel and copy: both are hidden, and named.
    let product = part(&parts, AccountCause::MatrixProduct);
    assert_eq!((product.ns, product.hidden_ns, product.count), (0, 3_000, 1.0));
    let copy = part(&parts, AccountCause::CopyPinned);
    assert_eq!((copy.ns, copy.hidden_ns, copy.count), (0, 8_000, 1.0));
}

#[test]
fn rounded_parts_add_up_to_the_rounded_time() {
    let trace = recording();
    let graph = Graph::new(&trace, &[0, 2, 4, 6]);
    let labels = [Label::Work(0), Label::HostBefore(0), Label::Call(0)];
    let segments: Vec<Segment> = labels
        .into_iter()
        .zip(0..)
        .map(|(label, at)| Segment { start_ns: at * 100, end_ns: at * 100 + 100, label })
        .collect();
    let parts = parts(&graph, &segments, 7.0);
    // 300 / 7 is 42.86; each part is 14.29.
    assert_eq!(parts.iter().map(|part| part.ns).sum::<u64>(), 43);
    assert_eq!(parts.iter().filter(|part| part.ns == 14).count(), 2);
}

#[test]
fn the_host_is_named_by_the_innermost_operator_that_covers_most_of_the_time() {
    let mut trace = recording();
    let event = |name: &str, start_ns, duration_ns| HostEvent {
        operator: Some(Arc::from(name)),
        function: Some(Arc::from("train.py(12): forward")),
        start_ns,
        duration_ns,
        thread: 1,
    };
    // The host's own time of the second step is 32 to 48 µs.
    trace.host = vec![
        event("outer", 0, 96_000),
        event("aten::linear", 30_000, 17_000),
        event("aten::t", 33_000, 4_000),
        event("aten::view", 38_000, 3_000),
    ];
    let graph = Graph::new(&trace, &(0..8).collect::<Vec<_>>());
    let segments = walk(&graph, 4, false, 30_000);
    let parts = parts(&graph, &segments, 1.0);
    let host = part(&parts, AccountCause::Host);
    assert_eq!(host.rows[0].name, "aten::linear");
    assert_eq!(host.rows[0].place.as_deref(), Some("train.py(12): forward"));
}

#[test]
fn no_segments_have_no_parts() {
    let trace = recording();
    let graph = Graph::new(&trace, &[]);
    assert_eq!(parts(&graph, &[], 1.0), []);
    assert_eq!(walk(&graph, 0, true, 0), []);
}
