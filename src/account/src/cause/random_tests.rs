//! What holds for every cause and every recording, also for corrupt ones.

use proptest::prelude::*;
use rgpu_model::Trace;
use rgpu_model::trace::{CallEvent, TraceWork, TraceWorkKind};

use super::CAUSES;
use super::test_view::{StepScript, play};
use crate::facts::GpuFacts;
use crate::graph::Graph;
use crate::path;
use crate::steps::{Step, Steps};
use crate::view::View;

/// Names of work and calls alike: a corrupt trace may mix them.
const NAMES: [&str; 30] = [
    "HtoD",
    "DtoH",
    "DtoD",
    "unified HtoD",
    "memset",
    "graph",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)",
    "cupy_scan_naive",
    "loop_add_fusion",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "sgemm_largek_lds64",
    "cudaLaunchKernel",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventQuery",
    "cudaEventRecord",
    "cudaStreamWaitEvent",
    "cudaMalloc_v3020",
    "cudaMallocAsync",
    "cudaFree",
    "cudaHostRegister",
    "cudaStreamBeginCapture",
    "cudaStreamEndCapture",
    "cudaGraphInstantiate",
    "cudaGraphLaunch",
    "cudaGraphExecDestroy",
    "cuModuleLoadData",
    "cuKernelGetName",
];

fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..4_000_000_u64, 1 => any::<u64>()]
}

fn any_call() -> impl Strategy<Value = CallEvent> {
    let thread = prop_oneof![0..3_u64, Just(1 << 30)];
    (0..32_u32, any_time(), any_time(), thread, any::<bool>()).prop_map(
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
        3 => Just(TraceWorkKind::Kernel),
        3 => Just(TraceWorkKind::Copy),
        1 => Just(TraceWorkKind::Set),
        1 => Just(TraceWorkKind::Graph)
    ];
    let call = proptest::option::weighted(0.9, 0..60_u32);
    let pageable = proptest::option::of(any::<bool>());
    let bytes = proptest::option::of(prop_oneof![0..100_000_000_u64, any::<u64>()]);
    (kind, 0..32_u32, any_time(), any_time(), 0..3_u64, call, pageable, bytes).prop_map(
        |(kind, name, start_ns, duration_ns, stream, call, pageable, bytes)| TraceWork {
            kind,
            name,
            start_ns,
            duration_ns,
            stream,
            call,
            pageable,
            bytes,
            regions: vec![name].into(),
            ..TraceWork::default()
        },
    )
}

/// A trace whose steps are pieces of a list of its work, or of numbers outside.
fn any_trace() -> impl Strategy<Value = (Trace, Steps)> {
    let calls = proptest::collection::vec(any_call(), 0..60);
    let work = proptest::collection::vec(any_work(), 1..60);
    let window = (0..6_usize, 0..8_usize);
    (calls, work, 1..12_usize, window, any::<bool>()).prop_map(
        |(mut calls, work, length, (from, count), is_sorted)| {
            if is_sorted {
                calls.sort_by_key(|call| call.start_ns);
            }
            let names = NAMES.map(str::to_owned).to_vec();
            let order: Vec<u32> = (0..work.len() as u32 + 2).collect();
            let start = |at: u32| work.get(at as usize).map_or(0, |work| work.start_ns);
            let all: Vec<Step> = (order.chunks(length))
                .map(|part| Step {
                    work: part.to_vec(),
                    start_ns: start(part[0]),
                    end_ns: start(part[part.len() - 1]),
                })
                .collect();
            let steps = Steps { window: from..from + count, all, ..Steps::default() };
            (Trace { names, calls, work, ..Trace::default() }, steps)
        },
    )
}

/// Steps that a program could have: a list of actions, the same in each step.
fn any_step() -> impl Strategy<Value = StepScript> {
    let action = (0..12_u32, 1..40_usize, 1.0..3000.0_f64);
    proptest::collection::vec(action, 1..12).prop_map(|actions| {
        let add = |step: StepScript, (what, count, us): (u32, usize, f64)| match what {
            0 => step.kernels(count, NAMES[6], us / 100.0),
            1 => step.kernels(count, NAMES[8], us / 1000.0),
            2 => step.copy("DtoH", 4, 1.5, Some(true)).wait("cudaStreamSynchronize"),
            3 => step.copy("HtoD", 5_000_000, us, Some(count % 2 == 0)),
            4 => step.copy("DtoH", 5_000_000, us, Some(count % 2 == 0)),
            5 => step.host(us),
            6 => step.wait("cudaDeviceSynchronize"),
            7 => step.call("cudaMalloc", us).wait("cudaFree"),
            8 => step.call("cudaStreamBeginCapture", 5.0).call("cudaGraphInstantiate", us),
            9 => step.on_stream(7 + (count % 4) as u64),
            10 => step.kernels(count, NAMES[9], us / 10.0),
            _ => step.on_thread(count as u64 % 2),
        };
        actions.into_iter().fold(StepScript::new().kernel("first(int)", 5.0), add)
    })
}

/// Looks for all causes; what each found must be about the trace and readable.
fn check(view: &View<'_>) -> Result<(), TestCaseError> {
    for cause in CAUSES {
        let Some(found) = (cause.find)(view) else { continue };
        prop_assert!(!found.change.is_empty() && !found.hint.is_empty(), "{}", cause.id);
        for word in ["NaN", "inf ", "-"] {
            let has_word = found.text.split(' ').any(|part| part == word.trim());
            prop_assert!(!has_word, "{}: {}", cause.id, found.text);
        }
        let (work, calls) = (view.trace.work.len(), view.trace.calls.len());
        for edits in [&found.least, &found.most] {
            prop_assert!(edits.work_ns.keys().all(|at| (*at as usize) < work), "{}", cause.id);
            prop_assert!(edits.no_event.iter().all(|at| (*at as usize) < work), "{}", cause.id);
            let of_calls = edits.host_before_ns.keys().chain(&edits.no_wait);
            prop_assert!(of_calls.into_iter().all(|at| (*at as usize) < calls), "{}", cause.id);
            // A replay of the edits ends, whatever they are.
            view.graph.replay(edits);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn causes_bear_corrupt_traces((trace, steps) in any_trace()) {
        let order: Vec<u32> = (0..trace.work.len() as u32).collect();
        let graph = Graph::new(&trace, &order);
        let path = path::walk(&graph, order.len() as u32 - 1, true, 0);
        let facts = GpuFacts { pinned_bytes_per_s: Some(5e10), ..GpuFacts::default() };
        check(&View::new(&trace, &facts, &steps, &graph, &path))?;
    }

    #[test]
    fn what_is_found_is_of_the_trace(step in any_step(), other in any_step(), mix in 0..5_usize) {
        let scripts: Vec<StepScript> =
            (0..5).map(|at| if at < mix { step.clone() } else { other.clone() }).collect();
        play(&scripts).look(check)?;
    }
}
