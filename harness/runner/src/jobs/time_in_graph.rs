//! Times short kernels a second time, inside a CUDA graph.
//!
//! Two events around a launch of a few microseconds also measure the gaps between event, launch and
//! event. In a graph the GPU starts each node by itself, as it does in the programs that such
//! kernels usually run in.
//!
//! One graph has [`LAUNCHES`] calls, with the same preparation before each as a timed call outside
//! a graph has: `inout` restored, outputs poisoned, L2 flushed. A second graph has the preparation
//! alone. Both are replayed in turn, so that a drift of the clocks affects both. A sample is the
//! difference of their times, divided by the number of calls: the kernel, and the step from one
//! node to the next. That step depends on a state of the GPU that changes seldom: on an H200 each
//! node took 0.35 µs longer in some sessions than in others, at the same clocks. The subtracted
//! preparation shows it, so the report has its time and its nodes. Lines that a kernel makes
//! persist in L2 are not reset, because that call cannot be captured.
//!
//! All of this comes after the last ordinary sample of the last case, and a failure is a gap of the
//! report: the ordinary times never depend on it.

use super::Session;
use super::output_watch::OutputWatch;
use super::session::{DeviceCase, LaunchTarget};
use super::time::prepare_target;
use crate::cuda::{Buffer, CudaEvent, Graph};
use crate::fault::{Fault, Result};
use crate::report_writer::print_progress;
use crate::sampling::{Sampling, describe_samples};
use rgpu_case::stats::{Summary, median, without_discarded};
use rgpu_case::{Case, ErrorClass, GraphTiming, Phase, TimingPlan, TimingSource};

/// Calls in the graph: enough that the resolution of events, 500 ns, is small for each.
const LAUNCHES: u32 = 32;

/// Replays of both graphs that are enqueued before the host waits.
const MAX_BATCH: usize = 8;

/// Sampling a case stops after this many seconds.
const MAX_SECONDS: f64 = 1.0;

/// Times the cases whose calls are short enough, by the median that the report has of them.
pub(super) fn run(session: &Session<'_>, target: &LaunchTarget<'_>, flush: Option<&Buffer<'_>>) {
    for case in &session.input.spec.cases {
        if !is_short(session, case) {
            continue;
        }
        match time_case(session, target, flush, case) {
            Ok(graph) => {
                print_progress!(
                    "time {} in a CUDA graph: {}",
                    case.name,
                    describe_samples(graph.median_ns, graph.ci95_ns, graph.samples)
                );
                session.report.update_case(&case.name, |report| {
                    if let Some(timing) = &mut report.timing {
                        timing.graph = Some(graph);
                    }
                });
            }
            Err(fault) => session.report.add_gap(format!(
                "`{}` was not timed in a CUDA graph: {}",
                case.name, fault.0.text
            )),
        }
        if session.gpu.is_lost() {
            break;
        }
    }
}

/// Whether the calls of a case were timed by events and are below the limit of the input.
fn is_short(session: &Session<'_>, case: &Case) -> bool {
    let below_ns = session.input.spec.timing.graph_below_ns;
    session
        .report
        .timing_of(&case.name)
        .is_some_and(|(source, median_ns)| source == TimingSource::Events && median_ns < below_ns)
}

fn time_case(
    session: &Session<'_>,
    target: &LaunchTarget<'_>,
    flush: Option<&Buffer<'_>>,
    case: &Case,
) -> Result<GraphTiming> {
    let gpu = &session.gpu;
    let setup = session.report.enter_phase(Phase::Setup, Some(case))?;
    let host = session.generate_case(case)?;
    let device = DeviceCase::new(gpu, &host, 0)?;
    device.fill_inputs()?;
    let (prepared, _) = prepare_target(session, target, &device)?;
    // This calls the kernel once. What a kernel loads at its first launch, a capture would refuse.
    let watch = OutputWatch::start(session, &device, &prepared)?;
    let prepare = || -> Result<()> {
        device.restore_inout()?;
        device.enqueue_poison()?;
        flush.map_or(Ok(()), |flush| flush.memset(0))
    };
    let preparation = Graph::capture(gpu, || (0..LAUNCHES).try_for_each(|_| prepare()))?;
    let calls = Graph::capture(gpu, || {
        (0..LAUNCHES).try_for_each(|_| {
            prepare()?;
            prepared.launch()
        })
    })?;
    if calls.nodes() <= preparation.nodes() {
        let text = "the call puts no work on the stream that it is given";
        return Err(Fault::new(ErrorClass::Cuda, text));
    }
    drop(setup);
    let timing = replay(session, case, &calls, &preparation)?;
    calls.launch()?;
    watch.enqueue_comparison()?;
    if watch.differing_words()? > 0 {
        watch.compare_current_values(&case.name)?;
    }
    Ok(timing)
}

/// Replays both graphs in turn until the interval is narrow enough.
fn replay(
    session: &Session<'_>,
    case: &Case,
    calls: &Graph<'_>,
    preparation: &Graph<'_>,
) -> Result<GraphTiming> {
    let plan = &session.input.spec.timing;
    let plan =
        TimingPlan { iters: None, max_seconds: plan.max_seconds.min(MAX_SECONDS), ..plan.clone() };
    let mut events = Vec::new();
    for _ in 0..MAX_BATCH {
        let event = || CudaEvent::new(&session.gpu);
        events.push([event()?, event()?, event()?]);
    }
    let _ranges = session.report.enter_phase(Phase::Timed, Some(case))?;
    // The first launch of a graph also sends it to the GPU.
    calls.launch()?;
    let mut sampling = Sampling::start(&plan);
    let mut prepare_ns = Vec::new();
    loop {
        let batch = sampling.next_batch_limit().min(MAX_BATCH);
        let Some(last) = batch.checked_sub(1) else { break };
        // Keeps the GPU busy while the host enqueues the first pair.
        preparation.launch()?;
        for [start, middle, end] in &events[..batch] {
            start.record()?;
            calls.launch()?;
            middle.record()?;
            preparation.launch()?;
            end.record()?;
        }
        let reading = session.nvml.as_ref().map(|nvml| nvml.reading());
        events[last][2].wait()?;
        let mut samples = Vec::with_capacity(batch);
        for [start, middle, end] in &events[..batch] {
            let between_ns = end.since_ns(middle)?;
            samples.push((middle.since_ns(start)? - between_ns) / f64::from(LAUNCHES));
            prepare_ns.push(between_ns / f64::from(LAUNCHES));
        }
        sampling.push(&samples, reading);
    }
    let sampled = sampling.finish(TimingSource::Events, None, None);
    let too_short = || {
        let text = "its time is smaller than the difference between two replays";
        Fault::new(ErrorClass::Cuda, text)
    };
    let timing = sampled.filter(|timing| timing.ci95_ns[0] > 0.0).ok_or_else(too_short)?;
    // The time of a node changes in steps with the state of the GPU, at times between two samples.
    let summary = Summary::from_series(&without_discarded(&timing.sample_ns, &timing.discarded))
        .ok_or_else(too_short)?;
    let converged = summary.relative_half_width() <= plan.ci_target;
    let per_call = |nodes: usize| u32::try_from(nodes).ok().map(|nodes| nodes / LAUNCHES);
    Ok(GraphTiming {
        median_ns: summary.median,
        ci95_ns: summary.ci95,
        samples: timing.samples,
        sample_ns: timing.sample_ns,
        discarded: timing.discarded,
        converged,
        launches: LAUNCHES,
        prepare_ns: median(&prepare_ns).unwrap_or(0.0),
        call_nodes: per_call(calls.nodes() - preparation.nodes()),
        prepare_nodes: per_call(preparation.nodes()),
    })
}
