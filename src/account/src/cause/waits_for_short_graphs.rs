//! A host that waits for each short CUDA graph before it launches the next.
//!
//! Signature: a wait in most steps, and since the wait before it at most four graphs of together at
//! most 100 µs, while the GPU has nothing to do for at least a tenth of the step: the round trip
//! over the host costs as much as the graph. An iteration that tests convergence does so. A graph
//! recorded as a whole does not show whether it copies a value to the host, so the wait may be
//! needed, only not each time: several graphs in a row and one test after them do a few iterations
//! more at the end. At most one wait of sixteen stays, at least one of four.

use super::common::{is_small, per_step, recurs, remove_wait, sum};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{CallKind, HostCall};
use crate::view::View;
use rgpu_model::trace::TraceWorkKind;

/// GPU time between two waits up to which a round trip over the host counts, in nanoseconds.
const MOST_GPU_NS: u64 = 100_000;

/// Launches between two waits: with more of them the host is ahead of the GPU.
const MOST_LAUNCHES: u32 = 4;

/// The part of a step from which on the waits are a cause.
const LEAST_SHARE: f64 = 0.1;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let waits = waits(view);
    if !recurs(view, waits.iter().map(|wait| wait.call)) {
        return None;
    }
    let lost = per_step(view, sum(waits.iter().map(|wait| wait.call), |call| call.after_wait_ns));
    if is_small(view, lost) || lost < LEAST_SHARE * view.step_ns() {
        return None;
    }
    let (mut least, mut most) = (Edits::default(), Edits::default());
    for (number, wait) in waits.iter().enumerate() {
        if number % 16 != 0 {
            remove_wait(&mut most, wait.call.at);
        }
        if number % 4 != 0 {
            remove_wait(&mut least, wait.call.at);
        }
    }
    let gpu_ns = crate::host_calls::median(waits.iter().map(|wait| wait.gpu_ns).collect());
    let calls: Vec<&HostCall> = waits.iter().map(|wait| wait.call).collect();
    Some(Found {
        change: "launch several graphs before the host waits".to_owned(),
        text: format!(
            "the host waits {} for a CUDA graph of {} and launches the next one only then: the GPU \
             has nothing to do for {} of a step of {}",
            words::times(calls.len(), view),
            words::time(gpu_ns as f64),
            words::time(lost),
            words::time(view.step_ns()),
        ),
        hint: "test convergence every k iterations (8, say): launch k graphs, or one graph of k \
               iterations, then wait and look; a conditional node of the graph \
               (`cudaGraphConditionalHandleCreate`) tests on the GPU"
            .to_owned(),
        least,
        most,
        work: Vec::new(),
        calls: calls.iter().map(|call| call.at).collect(),
        decides: Some(
            "whether the host needs the result of each graph: if the next launch depends on it, \
             the test must move to the GPU"
                .to_owned(),
        ),
        is_bound: false,
    })
}

/// A wait for short graphs.
struct ShortWait<'v> {
    call: &'v HostCall,
    /// Time of the graphs in nanoseconds.
    gpu_ns: u64,
}

/// The waits with only short graphs since the thread's wait before.
fn waits<'v>(view: &'v View<'_>) -> Vec<ShortWait<'v>> {
    let mut waits = Vec::new();
    for thread in view.host().threads() {
        let (mut launches, mut gpu_ns, mut is_graphs) = (0_u32, 0_u64, true);
        for call in thread {
            if let Some(work) = call.work.and_then(|at| view.trace.work.get(at as usize)) {
                launches = launches.saturating_add(1);
                gpu_ns = gpu_ns.saturating_add(work.duration_ns);
                is_graphs &= work.kind == TraceWorkKind::Graph;
            }
            if call.kind != CallKind::Wait {
                continue;
            }
            let is_short = (1..=MOST_LAUNCHES).contains(&launches) && gpu_ns <= MOST_GPU_NS;
            if is_short && is_graphs && call.waits {
                waits.push(ShortWait { call, gpu_ns });
            }
            (launches, gpu_ns, is_graphs) = (0, 0, true);
        }
    }
    waits.sort_by_key(|wait| wait.call.at);
    waits
}

#[cfg(test)]
mod tests {
    use super::super::test_view::StepScript;
    use super::*;

    fn step(graph_us: f64) -> StepScript {
        StepScript::new()
            .call("cudaGraphExecKernelNodeSetParams", 3.0)
            .graph(graph_us)
            .wait("cudaStreamSynchronize")
    }

    #[test]
    fn a_round_trip_for_each_short_graph_is_found() {
        let window = step(15.0).play(9);
        let found = window.look(find).unwrap();
        assert!(found.text.contains("once a step"), "{}", found.text);
        // Eight steps: of their waits, one stays of sixteen, two of four.
        assert_eq!(found.most.no_wait.len(), 7);
        assert_eq!(found.least.no_wait.len(), 6);
        assert!(found.decides.is_some());
    }

    #[test]
    fn long_graphs_and_kernels_are_silent() {
        assert!(step(2_000.0).play(9).look(find).is_none());
        let kernels = StepScript::new().kernel("relax(float*)", 15.0).wait("cudaStreamSynchronize");
        assert!(kernels.play(9).look(find).is_none());
    }
}
