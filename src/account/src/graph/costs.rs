//! What launches, turnarounds and calls take in this recording.

use std::collections::HashMap;

use super::calls::CallNode;
use super::works::WorkNode;

/// Least number of values for a median that is used in place of a constant.
const MIN_VALUES: usize = 5;

/// From the start of a launch call to the start of a kernel on an idle stream, where the recording
/// has too few: 5.0 to 10 µs were seen.
const KERNEL_LAUNCH_NS: i64 = 6_500;

/// The same for copies and fills.
const COPY_LAUNCH_NS: i64 = 8_000;

/// The same for CUDA graphs.
const GRAPH_LAUNCH_NS: i64 = 10_000;

/// A median of launches above this is not used: something else is in it.
const MAX_LAUNCH_NS: i64 = 15_000;

/// The same for turnarounds. Where streams take turns, the gaps of each are the others' work.
const MAX_TURNAROUND_NS: i64 = 4_000;

/// Between two queued kernels of a stream, where the recording has too few.
const KERNEL_TURNAROUND_NS: i64 = 1_000;

/// The same where one of them is a copy or a fill.
const COPY_TURNAROUND_NS: i64 = 1_500;

/// Work counts as queued if its launch would have let it start this much before the work ahead of
/// it ended.
const QUEUED_MARGIN_NS: i64 = 2_000;

/// From the end of work on another stream to the start of work that waits for it by an event.
pub(super) const EVENT_NS: i64 = 1_500;

/// Least delays in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    launch_ns: LaunchCosts,
    kernel_turnaround_ns: i64,
    copy_turnaround_ns: i64,
    /// By index of a call's name: what it takes at least in most cases.
    calls: HashMap<u32, CallCost>,
}

/// Durations of the calls of one name, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallCost {
    /// The tenth percentile.
    pub(super) low_ns: i64,
}

/// From the start of the launch call to the start of work on an idle GPU, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct LaunchCosts {
    kernel_ns: i64,
    copy_ns: i64,
    graph_ns: i64,
}

impl LaunchCosts {
    fn of(&self, work: &WorkNode) -> i64 {
        if work.is_graph {
            self.graph_ns
        } else if work.is_copy {
            self.copy_ns
        } else {
            self.kernel_ns
        }
    }
}

impl Costs {
    /// Medians over the recording, or constants where it has too few cases.
    pub(super) fn measure(works: &[WorkNode], calls: &[CallNode]) -> Costs {
        let launch_ns = measure_launches(works);
        // The lower quartile of the gaps: some of them are waits for other streams.
        let (mut kernel_gaps, mut copy_gaps) = (Vec::new(), Vec::new());
        for work in works {
            let Some(before) = work.previous.and_then(|at| works.get(at as usize)) else {
                continue;
            };
            let is_queued = work.launch_ns + launch_ns.of(work) + QUEUED_MARGIN_NS <= before.end_ns;
            if is_queued && work.start_ns >= before.end_ns {
                let is_copy = work.is_copy || before.is_copy;
                let list = if is_copy { &mut copy_gaps } else { &mut kernel_gaps };
                list.push(work.start_ns - before.end_ns);
            }
        }
        let mut durations: HashMap<u32, Vec<i64>> = HashMap::new();
        for call in calls {
            durations.entry(call.name).or_default().push(call.duration_ns());
        }
        let calls = durations.into_iter().filter_map(|(name, mut values)| {
            let low_ns = percentile(&mut values, 10)?;
            Some((name, CallCost { low_ns }))
        });
        Costs {
            launch_ns,
            kernel_turnaround_ns: percentile_or(kernel_gaps, 25, KERNEL_TURNAROUND_NS)
                .min(MAX_TURNAROUND_NS),
            copy_turnaround_ns: percentile_or(copy_gaps, 25, COPY_TURNAROUND_NS)
                .min(MAX_TURNAROUND_NS),
            calls: calls.collect(),
        }
    }

    /// From the start of the launch call to the start of the work on an idle stream.
    pub(super) fn launch_ns(&self, work: &WorkNode) -> i64 {
        self.launch_ns.of(work)
    }

    /// From the end of `before` to the start of `work` behind it in the same stream.
    pub(super) fn turnaround_ns(&self, before: &WorkNode, work: &WorkNode) -> i64 {
        if before.is_copy || work.is_copy {
            self.copy_turnaround_ns
        } else {
            self.kernel_turnaround_ns
        }
    }

    /// Durations of the calls of a name. `None` if there are none.
    pub(super) fn call(&self, name: u32) -> Option<CallCost> {
        self.calls.get(&name).copied()
    }
}

/// Medians of launches on an idle GPU.
///
/// An idle stream does not do: its work may wait for another stream. The GPU is idle if all work
/// launched before has ended.
fn measure_launches(works: &[WorkNode]) -> LaunchCosts {
    let mut launched: Vec<&WorkNode> = works.iter().filter(|work| work.call.is_some()).collect();
    launched.sort_unstable_by_key(|work| (work.launch_ns, work.start_ns));
    let (mut kernels, mut copies, mut graphs) = (Vec::new(), Vec::new(), Vec::new());
    let mut busy_until_ns = i64::MIN;
    for work in launched {
        if busy_until_ns <= work.launch_ns && work.start_ns >= work.launch_ns {
            let list = if work.is_graph {
                &mut graphs
            } else if work.is_copy {
                &mut copies
            } else {
                &mut kernels
            };
            list.push(work.start_ns - work.launch_ns);
        }
        busy_until_ns = busy_until_ns.max(work.end_ns);
    }
    LaunchCosts {
        kernel_ns: percentile_or(kernels, 50, KERNEL_LAUNCH_NS).min(MAX_LAUNCH_NS),
        copy_ns: percentile_or(copies, 50, COPY_LAUNCH_NS).min(MAX_LAUNCH_NS),
        graph_ns: percentile_or(graphs, 50, GRAPH_LAUNCH_NS).min(MAX_LAUNCH_NS),
    }
}

/// A percentile, or `otherwise` if there are too few values.
fn percentile_or(mut values: Vec<i64>, percent: usize, otherwise: i64) -> i64 {
    if values.len() < MIN_VALUES {
        return otherwise;
    }
    percentile(&mut values, percent).unwrap_or(otherwise)
}

/// The value below which `percent` of the values are; `None` without values. Reorders them.
pub(super) fn percentile(values: &mut [i64], percent: usize) -> Option<i64> {
    let last = values.len().checked_sub(1)?;
    let (_, value, _) = values.select_nth_unstable(last * percent / 100);
    Some(*value)
}
