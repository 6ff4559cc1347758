//! What holds for every recording, also for corrupt ones.

use proptest::prelude::*;
use rgpu_model::Trace;
use rgpu_model::trace::{CallEvent, TraceWork, TraceWorkKind};

use crate::edits::Edits;
use crate::graph::Graph;
use crate::path::{parts, walk};

/// Times that are often equal and sometimes huge.
fn any_time() -> impl Strategy<Value = u64> {
    let micros = (0..40_u64).prop_map(|us| us * 1_000);
    prop_oneof![20 => 0..400_000_u64, 10 => micros, 1 => any::<u64>()]
}

fn any_duration() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..60_000_u64, 5 => Just(0_u64), 1 => any::<u64>()]
}

fn any_call() -> impl Strategy<Value = CallEvent> {
    (0..9_u32, any_time(), any_duration(), 0..4_u64, any::<bool>()).prop_map(
        |(name, start_ns, duration_ns, thread, waits)| CallEvent {
            name,
            start_ns,
            duration_ns,
            thread,
            waits,
            rank: None,
        },
    )
}

fn any_work() -> impl Strategy<Value = TraceWork> {
    let kind = prop_oneof![
        Just(TraceWorkKind::Kernel),
        Just(TraceWorkKind::Copy),
        Just(TraceWorkKind::Set),
        Just(TraceWorkKind::Graph)
    ];
    let call = proptest::option::weighted(0.9, 0..45_u32);
    let pageable = proptest::option::of(any::<bool>());
    (kind, 0..9_u32, any_time(), any_duration(), 0..3_u64, call, pageable, 0..4_u32).prop_map(
        |(kind, name, start_ns, duration_ns, stream, call, pageable, region)| TraceWork {
            kind,
            name,
            start_ns,
            duration_ns,
            stream,
            call,
            pageable,
            regions: vec![region].into(),
            ..TraceWork::default()
        },
    )
}

fn any_trace() -> impl Strategy<Value = Trace> {
    let calls = proptest::collection::vec(any_call(), 0..40);
    let work = proptest::collection::vec(any_work(), 1..40);
    (calls, work).prop_map(|(calls, work)| {
        let names = ["HtoD", "DtoH", "cudaLaunchKernel", "cudaDeviceSynchronize", "kernel"];
        let names = names.map(str::to_owned).to_vec();
        Trace { names, calls, work, ..Trace::default() }
    })
}

/// Latest time of a graph.
const LAST_NS: u64 = 1 << 60;

proptest! {
    #[test]
    fn the_path_covers_the_time_without_holes(
        trace in any_trace(),
        end in 0..40_u32,
        to_end in any::<bool>(),
        from_ns in any_time(),
        steps in 1..7_u32,
    ) {
        let order: Vec<u32> = (0..45).collect();
        let graph = Graph::new(&trace, &order);
        let segments = walk(&graph, end, to_end, from_ns);
        let Some(work) = trace.work.get(end as usize) else {
            prop_assert!(segments.is_empty());
            return Ok(());
        };
        let end_ns = if to_end { work.end_ns() } else { work.start_ns }.min(LAST_NS);
        let mut at_ns = from_ns;
        for segment in &segments {
            prop_assert_eq!(segment.start_ns, at_ns);
            prop_assert!(segment.end_ns > segment.start_ns);
            at_ns = segment.end_ns;
        }
        prop_assert_eq!(at_ns, end_ns.max(from_ns));
        let parts = parts(&graph, &segments, f64::from(steps));
        let walked_ns = end_ns.saturating_sub(from_ns);
        let sum: u64 = parts.iter().map(|part| part.ns).sum();
        let expected = walked_ns as f64 / f64::from(steps);
        prop_assert!((sum as f64 - expected).abs() <= 0.5 + expected * 1e-12);
        let shares: f64 = parts.iter().map(|part| part.share).sum();
        prop_assert!(walked_ns == 0 || (shares - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_unchanged_replay_is_the_recording(trace in any_trace()) {
        let order: Vec<u32> = (0..trace.work.len() as u32).collect();
        let replayed = Graph::new(&trace, &order).replay(&Edits::default());
        for (at, work) in trace.work.iter().enumerate() {
            prop_assert_eq!(replayed.work_start_ns[at], work.start_ns.min(LAST_NS) as i64);
            prop_assert_eq!(replayed.work_end_ns[at], work.end_ns().min(LAST_NS) as i64);
        }
    }

    #[test]
    fn less_work_and_fewer_calls_make_nothing_later(
        trace in any_trace(),
        removed in proptest::collection::btree_map(0..45_u32, Just(0_u64), 0..20),
        calls in proptest::collection::btree_map(0..45_u32, Just(0_u64), 0..20),
        no_wait in proptest::collection::btree_set(0..45_u32, 0..20),
        no_event in proptest::collection::btree_set(0..45_u32, 0..20),
        in_graph in proptest::collection::btree_set(0..45_u32, 0..20),
    ) {
        let order: Vec<u32> = (0..trace.work.len() as u32).collect();
        let graph = Graph::new(&trace, &order);
        let before = graph.replay(&Edits::default());
        let edits = Edits {
            work_ns: removed,
            host_before_ns: calls.clone(),
            call_ns: calls,
            no_wait,
            no_event,
            in_graph,
            ..Edits::default()
        };
        let after = graph.replay(&edits);
        for (at, work) in trace.work.iter().enumerate() {
            // Work that is removed has no start of its own.
            if edits.work_ns.contains_key(&(at as u32)) {
                continue;
            }
            prop_assert!(
                after.work_start_ns[at] <= before.work_start_ns[at],
                "work {at} {work:?}: {} after {}",
                after.work_start_ns[at],
                before.work_start_ns[at]
            );
        }
    }

    #[test]
    fn any_change_of_any_recording_gives_times(
        trace in any_trace(),
        work_ns in proptest::collection::btree_map(0..45_u32, any::<u64>(), 0..9),
        call_ns in proptest::collection::btree_map(0..45_u32, any::<u64>(), 0..9),
        host_before_ns in proptest::collection::btree_map(0..45_u32, any::<u64>(), 0..9),
        own_stream in proptest::collection::btree_map(
            0..45_u32,
            proptest::option::of(0..45_u32),
            0..9,
        ),
    ) {
        let order: Vec<u32> = (0..trace.work.len() as u32).collect();
        let edits = Edits { work_ns, call_ns, host_before_ns, own_stream, ..Edits::default() };
        let replayed = Graph::new(&trace, &order).replay(&edits);
        prop_assert_eq!(replayed.work_start_ns.len(), trace.work.len());
        for (start_ns, end_ns) in replayed.work_start_ns.iter().zip(&replayed.work_end_ns) {
            prop_assert!(start_ns <= end_ns);
        }
    }
}
