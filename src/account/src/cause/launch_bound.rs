//! A step that is limited by launching its kernels.
//!
//! Signature: at least five pieces of work a step in runs without a wait, an allocation or a copy
//! from or to the host between, each a large part of the step and of equal grids in each, whose
//! launches (the host's time before them, the calls, and the latency to the work's start) take at
//! least 5 % of the critical path while the GPU is idle, and the same sequence in each step (the
//! reference's cause 17; XLA without command buffers, 76). A CUDA graph launches
//! such a run with one call of 2.5 µs and a nanosecond for each node, and its nodes follow each
//! other without the host. At most nothing else of the host is left in a run; at least a fifth is
//! (inputs to copy, checks of the framework). Long pauses of the host stay.

use std::collections::BTreeMap;

use super::common::per_step;
use super::launches::{LaunchRun, as_graphs, graph_runs, path_ns};
use super::{Found, words};
use crate::host_calls::{Framework, median};
use crate::view::View;

/// The part of a step from which on launching is a cause.
const LEAST_SHARE: f64 = 0.05;
/// Pieces of work of a step.
const LEAST_WORKS: f64 = 5.0;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    let runs = graph_runs(view);
    let works: u64 = runs.iter().map(|run| u64::from(run.works)).sum();
    // The host may be on the path while the GPU works on: what it lost is no more than it idled.
    let busy = view.busy_ns();
    let lost = per_step(view, path_ns(view, &runs)).min(view.step_ns() - busy);
    let is_enough = works as f64 >= LEAST_WORKS * view.step_count();
    if !is_enough || lost < LEAST_SHARE * view.step_ns() {
        return None;
    }
    let calls = runs.iter().flat_map(|run| &run.calls);
    let launched = calls.filter_map(|call| view.trace.work.get(call.work? as usize));
    let kernel_ns = median(launched.map(|work| work.duration_ns).collect());
    let parts = words::count(runs.len(), view);
    let hint = match view.host().framework {
        Framework::Torch => {
            "`torch.compile(model, mode=\"reduce-overhead\")`, or capture the step with \
             `torch.cuda.graph` (`torch.cuda.make_graphed_callables`); a larger batch gives each \
             launch more to do"
        }
        Framework::Jax => {
            "jit the whole step (`jax.jit` around loop body and update); let XLA use command \
             buffers: `XLA_FLAGS=--xla_gpu_graph_min_graph_size=1`"
        }
        Framework::Cupy => {
            "fuse element-wise operations with `@cupy.fuse()`, or capture the sequence with \
             `stream.begin_capture()` and launch the graph"
        }
        Framework::Cuda => {
            "capture the sequence once (`cudaStreamBeginCapture`, `cudaGraphInstantiate`) and call \
             `cudaGraphLaunch` in each step"
        }
    };
    Some(Found {
        change: "launch the sequence as a CUDA graph".to_owned(),
        text: format!(
            "{} kernels, copies and fills a step ({} in the median) are launched one by one in \
             {parts} runs{}: for {} of a step as recorded the GPU waits for the next launch, and its \
             own work takes {} of {}",
            words::count(works as usize, view),
            words::time(kernel_ns as f64),
            calls_between(view, &runs),
            words::time(lost),
            words::time(busy),
            words::time(view.step_ns()),
        ),
        hint: hint.to_owned(),
        least: as_graphs(view, &runs, 0.2),
        most: as_graphs(view, &runs, 0.0),
        work: Vec::new(),
        calls: runs.iter().flat_map(|run| run.calls.iter().map(|call| call.at)).collect(),
        decides: Some(format!(
            "the step's time without the profiler, which takes time in each call: near {} the GPU's \
             own work is the limit, and no launch",
            words::time(busy)
        )),
        is_bound: false,
    })
}

/// The calls that launch nothing, where they are more than the launches.
fn calls_between(view: &View<'_>, runs: &[LaunchRun<'_>]) -> String {
    let calls = || runs.iter().flat_map(|run| &run.calls);
    let mut names: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
    for call in calls().filter(|call| call.work.is_none()) {
        let sum = names.entry(call.name).or_default();
        *sum = (sum.0.saturating_add(call.duration_ns()), sum.1.saturating_add(1));
    }
    let others: usize = names.values().map(|(_, count)| count).sum();
    let launches = calls().filter(|call| call.work.is_some()).count();
    let costly = names.into_iter().max_by_key(|(_, (ns, _))| *ns);
    let name = costly.and_then(|(name, _)| view.trace.names.get(name as usize));
    let Some(name) = name.filter(|_| others > launches) else { return String::new() };
    format!(
        ", with {} other calls between (`{}` with most time)",
        words::count(others, view),
        words::call_name(name)
    )
}

#[cfg(test)]
mod tests;
