//! Runs of launches between waits: what a CUDA graph could hold.

use super::common::part;
use crate::edits::Edits;
use crate::host_calls::{CallKind, HostCall};
use crate::view::View;

/// Works of a run from which on a graph pays.
const LEAST_WORKS: u32 = 5;
/// The part of a step's works that a run has at least, so that a graph of it is worth its code.
const LEAST_RUN_SHARE: f64 = 0.15;
/// The part of a step's works that such runs have at least together.
const LEAST_RUNS_SHARE: f64 = 0.5;
/// The part of works that is equal from step to step.
pub(super) const EQUAL_SHARE: f64 = 0.995;

/// Consecutive calls of one thread that launch work and do nothing that a capture forbids.
pub(super) struct LaunchRun<'v> {
    /// The calls.
    pub calls: Vec<&'v HostCall>,
    /// Number of pieces of work.
    pub works: u32,
}

/// The runs of the window. A wait, an allocation, a copy from or to the host, a graph and the end
/// of a step end a run; a long pause of the host too, since a graph does not remove it.
pub(super) fn launch_runs<'v>(view: &'v View<'_>) -> Vec<LaunchRun<'v>> {
    let host = view.host();
    let pause_ns = host.pause_ns();
    let mut runs = Vec::new();
    for thread in host.threads() {
        let mut calls: Vec<&HostCall> = Vec::new();
        let mut step = None;
        for call in thread {
            let is_inside = is_capturable(view, call);
            if !is_inside || call.before_ns >= pause_ns || step != Some(call.step) {
                finish(&mut runs, std::mem::take(&mut calls));
            }
            step = Some(call.step);
            if is_inside {
                calls.push(call);
            }
        }
        finish(&mut runs, calls);
    }
    runs
}

/// The runs that CUDA graphs could hold: each a large part of the step, together most of it. Empty
/// if waits, blocking copies or changing shapes leave none: what follows a wait may depend on what
/// was read.
pub(super) fn graph_runs<'v>(view: &'v View<'_>) -> Vec<LaunchRun<'v>> {
    let works = view.work().count() as f64;
    if equal_share(view) < EQUAL_SHARE {
        return Vec::new();
    }
    let mut runs = launch_runs(view);
    runs.retain(|run| f64::from(run.works) * view.step_count() >= LEAST_RUN_SHARE * works);
    let held: u64 = runs.iter().map(|run| u64::from(run.works)).sum();
    if held as f64 >= LEAST_RUNS_SHARE * works { runs } else { Vec::new() }
}

fn finish<'v>(runs: &mut Vec<LaunchRun<'v>>, calls: Vec<&'v HostCall>) {
    let works = calls.iter().map(|call| call.work_count).fold(0, u32::saturating_add);
    if works >= LEAST_WORKS {
        runs.push(LaunchRun { calls, works });
    }
}

fn is_capturable(view: &View<'_>, call: &HostCall) -> bool {
    let work = call.work.and_then(|at| view.trace.work.get(at as usize));
    let name = work.map_or("", |work| view.name(work));
    let is_of_host =
        call.kind == CallKind::Copy && (name.contains("DtoH") || name.contains("HtoD"));
    let is_allowed = matches!(
        call.kind,
        CallKind::Launch
            | CallKind::Copy
            | CallKind::Fill
            | CallKind::Record
            | CallKind::StreamWait
            | CallKind::Other
    );
    is_allowed && !call.waits && !is_of_host
}

/// The launches of `runs` as one graph each: the host's time and calls of all launches but the
/// first shrink to `host_share`, and the work follows without the host.
pub(super) fn as_graphs(view: &View<'_>, runs: &[LaunchRun<'_>], host_share: f64) -> Edits {
    let first_of: std::collections::HashSet<u32> =
        runs.iter().filter_map(|run| run.calls.iter().find_map(|call| call.work)).collect();
    let mut edits = Edits::default();
    let mut in_run = std::collections::HashSet::new();
    for run in runs {
        // A launch of a graph takes 2.5 µs, and about a nanosecond for each node.
        let launch_ns = 2_500_u64.saturating_add(u64::from(run.works));
        let mut is_first = true;
        for call in &run.calls {
            in_run.insert(call.at);
            if is_first && call.work.is_some() {
                is_first = false;
                edits.call_ns.insert(call.at, launch_ns.min(call.duration_ns()));
                continue;
            }
            edits.call_ns.insert(call.at, part(call.duration_ns(), host_share));
            if !is_first {
                edits.host_before_ns.insert(call.at, part(call.before_ns, host_share));
            }
        }
    }
    for (at, work) in view.work() {
        let call = work.call.and_then(|call| view.host().call(call));
        if call.is_some_and(|call| in_run.contains(&call.at)) && !first_of.contains(&at) {
            edits.in_graph.insert(at);
        }
    }
    edits
}

/// Nanoseconds of the window's path that go into launching: the host's time before the calls, the
/// calls, and the latency to the start of their work.
pub(super) fn path_ns(view: &View<'_>, runs: &[LaunchRun<'_>]) -> u64 {
    let mut ns = 0_u64;
    for call in runs.iter().flat_map(|run| &run.calls) {
        let latency = call.work.map_or(0, |at| view.host().work_path(at).launch_ns);
        ns = ns.saturating_add(call.before_path_ns).saturating_add(call.path_ns);
        ns = ns.saturating_add(latency);
    }
    ns
}

/// The part of the window's works that is equal from step to step, by name, grid and size, 0 to 1.
pub(super) fn equal_share(view: &View<'_>) -> f64 {
    let name = |at: &u32| {
        let work = view.trace.work.get(*at as usize)?;
        Some((work.name, work.shape, work.bytes))
    };
    let Some(first) = view.window().first() else { return 0.0 };
    let (mut equal, mut all) = (0_usize, 0_usize);
    for step in view.window() {
        let same = first.work.iter().zip(&step.work).filter(|(a, b)| name(a) == name(b));
        equal += same.count();
        all += first.work.len().max(step.work.len());
    }
    equal as f64 / all.max(1) as f64
}
