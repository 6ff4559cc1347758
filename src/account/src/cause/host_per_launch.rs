//! Host work for each launch, where the sequence changes from step to step.
//!
//! Signature: as for a step limited by its launches, but the sequence is not the same in each step,
//! so that no CUDA graph can hold it: the host's own time between launches is spread evenly, and
//! takes at least a tenth of the critical path. That is the framework's time for an operation (5 to
//! 40 µs in Python). Fewer and larger operations are the remedy. At most a fifth of the host's time
//! is left, at least three fifths.

use super::common::{part, per_step, sum};
use super::launches::{EQUAL_SHARE, equal_share, launch_runs};
use super::{Found, words};
use crate::edits::Edits;
use crate::host_calls::{Framework, HostCall};
use crate::view::View;

/// See [`super::CAUSES`].
pub(super) fn find(view: &View<'_>) -> Option<Found> {
    // If each step has the same launches, a graph could hold them, or the waits that cut them are
    // what must go first: both are told by themselves.
    if equal_share(view) >= EQUAL_SHARE {
        return None;
    }
    let runs = launch_runs(view);
    let calls: Vec<&HostCall> = runs.iter().flat_map(|run| run.calls.iter().copied()).collect();
    let busy = view.busy_ns();
    let lost = per_step(view, sum(calls.iter().copied(), |call| call.before_path_ns));
    let lost = lost.min(view.step_ns() - busy);
    let works: u64 = runs.iter().map(|run| u64::from(run.works)).sum();
    if lost < 0.1 * view.step_ns() || (works as f64) < 20.0 * view.step_count() {
        return None;
    }
    let pause_ns = view.host().pause_ns();
    let (mut least, mut most) = (Edits::default(), Edits::default());
    for call in calls.iter().filter(|call| call.before_ns < pause_ns) {
        most.host_before_ns.insert(call.at, part(call.before_ns, 0.2));
        least.host_before_ns.insert(call.at, part(call.before_ns, 0.6));
    }
    let hint = match view.host().framework {
        Framework::Torch => {
            "`torch.compile(model)` (with `dynamic=True` for changing shapes), operations over \
             lists (`torch._foreach_*`), larger batches; pad to a few shapes and a CUDA graph is \
             possible"
        }
        Framework::Jax => "jit the whole step, so that one call launches it",
        Framework::Cupy => "fuse element-wise operations with `@cupy.fuse()` or a `RawKernel`",
        Framework::Cuda => "give each launch more work, or launch from several threads",
    };
    Some(Found {
        change: "give each launch more work".to_owned(),
        text: format!(
            "the host's own time between {} launches a step, {} each in the median, holds the GPU \
             up for {} of a step, in which the GPU works {}; {}",
            words::count(works as usize, view),
            words::time(view.host().median_before_launch_ns() as f64),
            words::time(lost),
            words::time(busy),
            why_no_graph(view),
        ),
        hint: hint.to_owned(),
        least,
        most,
        work: Vec::new(),
        calls: calls.iter().map(|call| call.at).collect(),
        decides: None,
        is_bound: false,
    })
}

/// Why no CUDA graph can hold the launches.
fn why_no_graph(view: &View<'_>) -> &'static str {
    let threads = view.host().threads();
    let launches = |thread: &&Vec<&HostCall>| {
        thread.iter().filter(|call| call.work.is_some()).count() as f64 >= view.step_count()
    };
    if threads.iter().filter(launches).count() > 1 {
        "several threads launch, and the order of their launches is not the same in each step"
    } else {
        "the sequence of launches, or their grids, are not the same in each step"
    }
}

#[cfg(test)]
mod tests;
