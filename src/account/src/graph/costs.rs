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

/// Between two queued kernels of a stream, where the recording has too few.
const KERNEL_TURNAROUND_NS: i64 = 1_000;

/// The same where one of them is a copy or a fill.
const COPY_TURNAROUND_NS: i64 = 1_500;

/// Work counts as queued if its launch would have let it start this much before the work ahead of
/// it ended.
const QUEUED_MARGIN_NS: i64 = 2_000;

/// From the end of work on another stream to the start of work that waits for it by an event.
pub(super) const EVENT_NS: i64 = 1_500;

/// From the return of a long launch call to the start of its work on an idle stream.
pub(super) const AFTER_LONG_CALL_NS: i64 = 2_500;

/// Least delays in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    kernel_launch_ns: i64,
    copy_launch_ns: i64,
    kernel_turnaround_ns: i64,
    copy_turnaround_ns: i64,
    /// By index of a call's name: what it takes at least in most cases, and its usual time.
    calls: HashMap<u32, CallCost>,
}

/// Durations of the calls of one name, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallCost {
    /// The tenth percentile.
    pub(super) low_ns: i64,
    /// The median.
    pub(super) median_ns: i64,
}

impl Costs {
    /// Medians over the recording, or constants where it has too few cases.
    pub(super) fn measure(works: &[WorkNode], calls: &[CallNode]) -> Costs {
        let (kernel_launch_ns, copy_launch_ns) = measure_launches(works);
        let (mut kernel_gaps, mut copy_gaps) = (Vec::new(), Vec::new());
        for work in works {
            let Some(before) = work.previous.and_then(|at| works.get(at as usize)) else {
                continue;
            };
            let latency_ns = if work.is_copy { copy_launch_ns } else { kernel_launch_ns };
            let is_queued = work.launch_ns + latency_ns + QUEUED_MARGIN_NS <= before.end_ns;
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
            let median_ns = percentile(&mut values, 50)?;
            Some((name, CallCost { low_ns, median_ns }))
        });
        Costs {
            kernel_launch_ns,
            copy_launch_ns,
            kernel_turnaround_ns: quartile_or(kernel_gaps, KERNEL_TURNAROUND_NS),
            copy_turnaround_ns: quartile_or(copy_gaps, COPY_TURNAROUND_NS),
            calls: calls.collect(),
        }
    }

    /// From the start of the launch call to the start of the work on an idle stream.
    pub(super) fn launch_ns(&self, work: &WorkNode) -> i64 {
        if work.is_copy { self.copy_launch_ns } else { self.kernel_launch_ns }
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

/// From the start of a launch call to the start of a kernel, and of a copy or fill, on an idle GPU.
///
/// An idle stream does not do: its work may wait for another stream. The GPU is idle if all work
/// launched before has ended.
fn measure_launches(works: &[WorkNode]) -> (i64, i64) {
    let mut launched: Vec<&WorkNode> = works.iter().filter(|work| work.call.is_some()).collect();
    launched.sort_unstable_by_key(|work| (work.launch_ns, work.start_ns));
    let (mut kernels, mut copies) = (Vec::new(), Vec::new());
    let mut busy_until_ns = i64::MIN;
    for work in launched {
        if busy_until_ns <= work.launch_ns && work.start_ns >= work.launch_ns {
            let list = if work.is_copy { &mut copies } else { &mut kernels };
            list.push(work.start_ns - work.launch_ns);
        }
        busy_until_ns = busy_until_ns.max(work.end_ns);
    }
    (median_or(kernels, KERNEL_LAUNCH_NS), median_or(copies, COPY_LAUNCH_NS))
}

/// The median, or `otherwise` if there are too few values.
fn median_or(values: Vec<i64>, otherwise: i64) -> i64 {
    percentile_or(values, 50, otherwise)
}

/// The lower quartile, or `otherwise` if there are too few values. Of the gaps between queued work
/// some are waits for other streams.
fn quartile_or(values: Vec<i64>, otherwise: i64) -> i64 {
    percentile_or(values, 25, otherwise)
}

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
