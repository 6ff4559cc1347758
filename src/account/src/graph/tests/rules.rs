//! Each kind of edge: the path through a recording that shows it.

use std::collections::BTreeMap;

use rgpu_model::trace::TraceWorkKind;

use super::machine::{CALL_NS, GAP_NS, LATENCY_NS, Machine, RETURN_NS, assert_replays, path_ns};
use crate::edits::Edits;
use crate::graph::{Graph, Label};
use crate::path::walk;

const KERNEL: (&str, TraceWorkKind, Option<bool>) = ("kernel", TraceWorkKind::Kernel, None);

fn sums(list: &[(&'static str, u64)]) -> BTreeMap<&'static str, u64> {
    list.iter().copied().collect()
}

#[test]
fn a_host_that_launches_too_slowly_is_the_path() {
    let mut machine = Machine::default();
    for _ in 0..20 {
        machine.launch(1, 7, 3_000);
        machine.host(1, 16_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    assert_replays(&graph);
    // Ten launches: each its call and the host's time; the latency at the end is cut off at the
    // start, where it lies before the first work.
    let expected = sums(&[
        ("call", 10 * CALL_NS - LATENCY_NS.min(CALL_NS)),
        ("host", 10 * 16_000 - (LATENCY_NS - CALL_NS)),
        ("latency", LATENCY_NS),
    ]);
    assert_eq!(path_ns(&graph, 5, 15), expected);
}

#[test]
fn work_that_is_queued_is_the_path() {
    let mut machine = Machine::default();
    for _ in 0..20 {
        machine.launch(1, 7, 50_000);
        machine.host(1, 1_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    assert_replays(&graph);
    let expected = sums(&[("work", 10 * 50_000), ("turnaround", 10 * GAP_NS)]);
    assert_eq!(path_ns(&graph, 5, 15), expected);
    assert_eq!(graph.work_before(15), Some((14, Label::Turnaround(15))));
    assert_eq!(graph.residual_ns(15), Some(0));
}

#[test]
fn a_synchronisation_waits_for_the_last_work_before_it() {
    let mut machine = Machine::default();
    let mut waits = Vec::new();
    for _ in 0..10 {
        machine.launch(1, 7, 40_000);
        waits.push(machine.synchronize(1, 7));
        machine.host(1, 9_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    assert_replays(&graph);
    let expected = sums(&[
        ("work", 5 * 40_000),
        ("return", 5 * RETURN_NS),
        ("host", 5 * 9_000),
        ("latency", 5 * LATENCY_NS),
    ]);
    assert_eq!(path_ns(&graph, 2, 7), expected);
    assert_eq!(graph.awaited_work(waits[3]), Some(3));
    assert_eq!(graph.awaited_work(0), None);
}

#[test]
fn an_asynchronous_copy_from_pageable_memory_returns_after_the_copy() {
    let mut machine = Machine::default();
    for _ in 0..10 {
        machine.launch(1, 7, 30_000);
        let start_ns = machine.now_ns(1);
        let call = machine.add_call(1, "cudaMemcpyAsync", start_ns, 0, false);
        let copy = ("HtoD", TraceWorkKind::Copy, Some(true));
        let copy = machine.work(copy, 7, 100_000, call, 0);
        let end_ns = machine.trace.work[copy as usize].end_ns() + RETURN_NS;
        machine.trace.calls[call as usize].duration_ns = end_ns - start_ns;
        machine.wait_until(1, end_ns);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    assert_replays(&graph);
    let path = path_ns(&graph, 4, 14);
    assert_eq!(path["return"], 5 * RETURN_NS);
    assert_eq!(path["work"], 5 * 130_000);
    assert_eq!(graph.awaited_work(machine.trace.work[5].call.unwrap()), Some(5));
}

#[test]
fn a_thread_that_pauses_while_another_launches_follows_it() {
    let mut machine = Machine::default();
    let mut first_of_step = Vec::new();
    for _ in 0..8 {
        // The first thread launches, then waits for the second, which launches ten times.
        first_of_step.push(machine.launch(1, 7, 2_000));
        machine.host(1, 60_000);
        machine.launch(1, 7, 2_000);
        let end_ns = machine.now_ns(1);
        machine.wait_until(2, end_ns + 5_000);
        for _ in 0..10 {
            machine.launch(2, 7, 2_000);
            machine.host(2, 10_000);
        }
        let end_ns = machine.now_ns(2);
        machine.wait_until(1, end_ns);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    assert_replays(&graph);
    let path = path_ns(&graph, first_of_step[2], first_of_step[6]);
    // Twelve calls a step, not two: the path goes through the second thread.
    assert_eq!(path["call"], 4 * 12 * CALL_NS - CALL_NS);
    // Without the second thread's host time the step is shorter by it.
    let mut edits = Edits::default();
    for (at, call) in machine.trace.calls.iter().enumerate() {
        if call.thread == 2 {
            edits.host_before_ns.insert(at as u32, 0);
        }
    }
    let plain = graph.replay(&Edits::default());
    let faster = graph.replay(&edits);
    let step = |times: &[i64]| times[first_of_step[6] as usize] - times[first_of_step[5] as usize];
    let gain = step(&plain.work_start_ns) - step(&faster.work_start_ns);
    // Nine times between launches, and the handover to the thread; the way back stays.
    assert_eq!(gain, 9 * 10_000 + 5_000);
}

#[test]
fn a_thread_that_works_by_itself_is_not_explained_by_another() {
    let mut machine = Machine::default();
    for _ in 0..5 {
        machine.launch(1, 7, 2_000);
        let now_ns = machine.now_ns(1);
        // The other is done at once; the first works on for long.
        machine.wait_until(2, now_ns);
        machine.launch(2, 8, 2_000);
        machine.host(1, 900_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    let path = path_ns(&graph, 2, 8);
    assert_eq!(path["host"], 3 * 900_000 - (LATENCY_NS - CALL_NS));
}

#[test]
fn work_that_starts_when_another_stream_ends_waited_for_it() {
    let mut machine = Machine::default();
    for _ in 0..10 {
        machine.launch(1, 7, 60_000);
        let call = machine.call(1, "cudaLaunchKernel", CALL_NS, false);
        let end_ns = machine.end_ns(7);
        machine.work(KERNEL, 8, 20_000, call, end_ns + 1_500);
        // And back to the first stream.
        machine.host(1, 1_000);
        let call = machine.call(1, "cudaLaunchKernel", CALL_NS, false);
        let end_ns = machine.end_ns(8);
        machine.work(KERNEL, 7, 5_000, call, end_ns + 1_500);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    assert_replays(&graph);
    assert_eq!(graph.work_before(13), Some((12, Label::Event(13))));
    let path = path_ns(&graph, 6, 21);
    assert_eq!(path["event"], 5 * 2 * 1_500);
    assert_eq!(path["work"], 5 * 85_000);
    // Without the wait the second stream runs beside the first.
    let mut edits = Edits::default();
    edits.no_event.extend(0..30);
    let replayed = graph.replay(&edits);
    assert!(replayed.work_start_ns[13] < machine.trace.work[13].start_ns as i64);
}

#[test]
fn work_that_overlaps_the_work_before_follows_its_start() {
    let mut machine = Machine::default();
    for at in 0..10_u64 {
        let call = machine.call(1, "cudaLaunchKernelExC", CALL_NS, false);
        // Each starts 1 µs before the one before ends.
        machine.add_work(KERNEL, 7, 20_000 + at * 29_000, 30_000, Some(call));
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    assert_replays(&graph);
    assert_eq!(path_ns(&graph, 2, 8), sums(&[("work", 6 * 29_000)]));
    // A shorter one lets the next start as much earlier.
    let mut edits = Edits::default();
    edits.work_ns.insert(4, 20_000);
    let replayed = graph.replay(&edits);
    assert_eq!(replayed.work_start_ns[5], 20_000 + 5 * 29_000 - 10_000);
}

#[test]
fn launches_into_a_full_queue_wait_for_the_gpu() {
    let mut machine = Machine::default();
    let mut ends: Vec<u64> = Vec::new();
    for at in 0..2_000_usize {
        let start_ns = machine.now_ns(1);
        // The queue holds 1,000: the call returns when the work that far ahead has ended.
        let room_ns = at.checked_sub(1_000).map_or(0, |ahead| ends[ahead] + 500);
        let ns = room_ns.saturating_sub(start_ns).max(CALL_NS);
        let call = machine.call(1, "cudaLaunchKernel", ns, false);
        let work = machine.work(KERNEL, 7, 30_000, call, 0);
        ends.push(machine.trace.work[work as usize].end_ns());
        machine.host(1, 1_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    assert_replays(&graph);
    let late = machine.trace.work[1_900].call.unwrap();
    assert_eq!(graph.awaited_work(late), Some(900));
    assert_eq!(graph.awaited_work(machine.trace.work[300].call.unwrap()), None);
    // Faster kernels therefore let the host go on: the step is then theirs.
    let mut edits = Edits::default();
    edits.work_ns.extend((0..2_000).map(|at| (at, 10_000)));
    let boundaries: Vec<u32> = (0..2_000).step_by(10).collect();
    let step = graph.replay(&edits).step_ns(&boundaries).unwrap();
    assert_eq!(step, 10.0 * 11_000.0);
}

#[test]
fn calls_within_calls_are_part_of_them() {
    let mut machine = Machine::default();
    let mut inner = Vec::new();
    for _ in 0..8 {
        let start_ns = machine.now_ns(1);
        machine.call(1, "cudaLaunchKernel", 10_000, false);
        let call = machine.add_call(1, "cuLaunchKernel", start_ns + 5_000, 4_000, false);
        machine.work(KERNEL, 7, 3_000, call, 0);
        inner.push(call);
        machine.host(1, 20_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    assert_replays(&graph);
    assert_eq!(graph.outermost_call(inner[3]), Some(inner[3] - 1));
    assert_eq!(graph.launch_call(3), Some(inner[3] - 1));
    let path = path_ns(&graph, 2, 6);
    // The launch is 5 µs after the start of the outermost call, whose time that is.
    assert_eq!(path["latency"], LATENCY_NS);
    assert_eq!(path["host"] + path["call"], 4 * 30_000 - LATENCY_NS);
}

#[test]
fn a_launch_that_loads_code_first_is_no_latency() {
    let mut machine = Machine::default();
    for at in 0..10 {
        let start_ns = machine.now_ns(1);
        let ns = if at == 6 { 400_000 } else { CALL_NS };
        let call = machine.call(1, "cudaLaunchKernel", ns, false);
        machine.work(KERNEL, 7, 3_000, call, start_ns + ns + 2_000);
        machine.host(1, 20_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    let segments = walk(&graph, 6, false, machine.trace.work[5].start_ns);
    let loading = segments.iter().find(|s| s.label == Label::Call(6)).unwrap();
    // The work started 2 µs after the return, the latency before that is the launch's.
    assert_eq!(loading.end_ns - loading.start_ns, 400_000 + 2_000 - LATENCY_NS);
    assert_eq!(segments.last().unwrap().label, Label::LaunchLatency(6));
    // Without the loading the work starts as much earlier.
    let edits = Edits { call_ns: [(6, CALL_NS)].into(), ..Edits::default() };
    let replayed = graph.replay(&edits);
    let start_ns = machine.trace.work[6].start_ns as i64;
    assert_eq!(replayed.work_start_ns[6], start_ns - 402_000 + (LATENCY_NS + CALL_NS) as i64);
}

#[test]
fn calls_of_another_process_are_left_out() {
    let mut machine = Machine::default();
    let (own, other) = (0x0100_0b30_0003_0001, 0x0100_0b40_0004_0001);
    for _ in 0..4 {
        machine.launch(own, 7, 3_000);
        machine.host(own, 10_000);
        machine.call(other, "cudaStreamSynchronize", 14_000, true);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    assert_eq!(graph.outermost_call(0), Some(0));
    assert_eq!(graph.outermost_call(1), None);
}

#[test]
fn work_and_calls_without_order_give_a_graph() {
    let mut machine = Machine::default();
    machine.launch(1, 7, 3_000);
    let graph = Graph::new(&machine.trace, &[5, 0, 0, u32::MAX]);
    let replayed = graph.replay(&Edits::default());
    assert_eq!(replayed.work_start_ns, [0, 6_000, 0, 0]);
    assert!(Graph::new(&machine.trace, &[]).replay(&Edits::default()).work_start_ns.is_empty());
    assert_eq!(walk(&graph, 9, false, 0), []);
}
