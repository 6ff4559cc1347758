//! Changes of recordings, where it is known what they give.

use rgpu_model::trace::TraceWorkKind;

use super::machine::{CALL_NS, GAP_NS, LATENCY_NS, Machine, RETURN_NS, step_ns};
use crate::edits::Edits;
use crate::graph::Graph;

#[test]
fn faster_kernels_give_a_slow_host_nothing() {
    let mut machine = Machine::default();
    for _ in 0..20 {
        machine.launch(1, 7, 3_000);
        machine.host(1, 16_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    let mut edits = Edits::default();
    edits.work_ns.extend((0..20).map(|at| (at, 1_000)));
    assert_eq!(step_ns(&graph, 1, 20, &edits), 20_000.0);
    edits.host_before_ns.extend((0..20).map(|at| (at, 6_000)));
    assert_eq!(step_ns(&graph, 1, 20, &edits), 10_000.0);
}

#[test]
fn a_faster_host_gives_a_busy_gpu_nothing() {
    let mut machine = Machine::default();
    for _ in 0..20 {
        machine.launch(1, 7, 50_000);
        machine.host(1, 1_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    let mut edits = Edits::default();
    edits.host_before_ns.extend((0..20).map(|at| (at, 0)));
    assert_eq!(step_ns(&graph, 1, 20, &edits), 51_000.0);
    edits.work_ns.extend((0..20).map(|at| (at, 20_000)));
    assert_eq!(step_ns(&graph, 1, 20, &edits), 21_000.0);
    // Below the host's own time the host is the step, though the GPU still has work queued.
    edits.work_ns.extend((0..20).map(|at| (at, 500)));
    assert_eq!(step_ns(&graph, 1, 20, &edits), CALL_NS as f64);
}

#[test]
fn without_its_waits_a_host_runs_ahead() {
    let mut machine = Machine::default();
    let mut waits = Vec::new();
    for _ in 0..40 {
        machine.launch(1, 7, 40_000);
        waits.push(machine.synchronize(1, 7));
        machine.host(1, 9_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    let plain = step_ns(&graph, 1, 40, &Edits::default());
    assert_eq!(plain, (LATENCY_NS + 40_000 + RETURN_NS + 9_000) as f64);
    let edits = Edits { no_wait: waits.into_iter().collect(), ..Edits::default() };
    assert_eq!(step_ns(&graph, 1, 40, &edits), (40_000 + GAP_NS) as f64);
}

#[test]
fn a_wait_may_return_sooner() {
    let mut machine = Machine::default();
    let mut waits = Vec::new();
    for _ in 0..40 {
        machine.launch(1, 7, 40_000);
        waits.push(machine.synchronize(1, 7));
        machine.host(1, 9_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    let returns = |ns: u64| {
        let return_ns = waits.iter().map(|at| (*at, ns)).collect();
        step_ns(&graph, 1, 40, &Edits { return_ns, ..Edits::default() })
    };
    assert_eq!(returns(0), (LATENCY_NS + 40_000 + 9_000) as f64);
    // Never later than it did.
    assert_eq!(returns(1_000_000), (LATENCY_NS + 40_000 + RETURN_NS + 9_000) as f64);
}

#[test]
fn a_call_that_is_removed_neither_takes_time_nor_waits() {
    let mut machine = Machine::default();
    let mut waits = Vec::new();
    for _ in 0..40 {
        machine.launch(1, 7, 1_000);
        waits.push(machine.synchronize(1, 7));
        machine.host(1, 9_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    let edits =
        Edits { call_ns: waits.into_iter().map(|at| (at, 0)).collect(), ..Edits::default() };
    assert_eq!(step_ns(&graph, 1, 40, &edits), (CALL_NS + 9_000) as f64);
}

#[test]
fn work_that_is_removed_leaves_no_gap() {
    let mut machine = Machine::default();
    for _ in 0..40 {
        machine.launch(1, 7, 30_000);
        machine.launch(1, 7, 10_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    let odd = (0..80).filter(|at| at % 2 == 1);
    let edits = Edits { work_ns: odd.map(|at| (at, 0)).collect(), ..Edits::default() };
    assert_eq!(step_ns(&graph, 2, 80, &edits), (30_000 + GAP_NS) as f64);
}

#[test]
fn a_copy_on_a_stream_of_its_own_runs_beside_the_kernels() {
    let mut machine = Machine::default();
    for _ in 0..20 {
        let call = machine.call(1, "cudaMemcpyAsync", CALL_NS, false);
        machine.work(("HtoD", TraceWorkKind::Copy, Some(false)), 7, 30_000, call, 0);
        machine.launch(1, 7, 40_000);
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    assert_eq!(step_ns(&graph, 2, 40, &Edits::default()), (70_000 + 2 * GAP_NS) as f64);
    let mut edits = Edits::default();
    edits.own_stream.extend((0..40).step_by(2).map(|at| (at, Some(at + 1))));
    // Seen from the kernels: they follow each other.
    let replayed = graph.replay(&edits);
    let kernels: Vec<u32> = (1..40).step_by(2).collect();
    assert_eq!(replayed.step_ns(&kernels), Some((40_000 + GAP_NS) as f64));
    // Seen from the copies the step would be faster than its kernels are.
    let steps: Vec<u32> = (0..40).step_by(2).collect();
    assert!(replayed.step_ns(&steps).unwrap() < 40_000.0);
    assert_eq!(replayed.completion_ns(&steps), Some((40_000 + GAP_NS) as f64));
    // Copies follow each other on their engine.
    assert_eq!(replayed.work_start_ns[22] - replayed.work_start_ns[20], 30_000);
    // The first kernel waits for its copy.
    assert!(replayed.work_start_ns[1] >= replayed.work_end_ns[0]);
}

#[test]
fn work_of_a_cuda_graph_follows_at_once() {
    let mut machine = Machine::default();
    for _ in 0..20 {
        for _ in 0..5 {
            machine.launch(1, 7, 2_000);
            machine.host(1, 10_000);
        }
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    let mut edits = Edits::default();
    for at in (0..100).filter(|at| at % 5 != 0) {
        edits.in_graph.insert(at);
        edits.call_ns.insert(at, 0);
        edits.host_before_ns.insert(at, 0);
    }
    // One launch a step and the host's time before it, in which the five kernels fit.
    assert_eq!(step_ns(&graph, 5, 100, &edits), 14_000.0);
    let replayed = graph.replay(&edits);
    assert_eq!(replayed.work_start_ns[54] - replayed.work_start_ns[50], 8_000);
}

#[test]
fn steps_of_too_few_boundaries_have_no_time() {
    let mut machine = Machine::default();
    machine.launch(1, 7, 2_000);
    let graph = Graph::new(&machine.trace, &machine.order());
    let replayed = graph.replay(&Edits::default());
    assert_eq!(replayed.step_ns(&[]), None);
    assert_eq!(replayed.step_ns(&[0]), None);
    assert_eq!(replayed.step_ns(&[0, 7]), None);
}

#[test]
fn a_wait_that_takes_less_time_returns_sooner_after_its_work() {
    let mut machine = Machine::default();
    let mut waits = Vec::new();
    for _ in 0..40 {
        machine.launch(1, 7, 40_000);
        let start_ns = machine.now_ns(1);
        // It gives memory back to the system before it returns.
        let ns = machine.end_ns(7) + 500_000 - start_ns;
        waits.push(machine.call(1, "cudaStreamSynchronize", ns, true));
    }
    let graph = Graph::new(&machine.trace, &machine.order());
    let plain = step_ns(&graph, 1, 40, &Edits::default());
    assert_eq!(plain, (LATENCY_NS + 40_000 + 500_000) as f64);
    let edits =
        Edits { call_ns: waits.into_iter().map(|at| (at, 3_000)).collect(), ..Edits::default() };
    assert_eq!(step_ns(&graph, 1, 40, &edits), (LATENCY_NS + 40_000 + 3_000) as f64);
}
