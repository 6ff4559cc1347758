//! Busy, concurrent and overlap times of a GPU, measured in one sweep over starts and ends.

use super::computes;
use crate::known_kernel::is_collective;
use rgpu_model::Trace;
use rgpu_model::timeline::DeviceTime;
use rgpu_model::trace::TraceWork;

/// Adds the times of a part of the work to `time`.
pub(super) fn add(trace: &Trace, part: &[&TraceWork], time: &mut DeviceTime) {
    let kernels = part.iter().filter(|work| computes(work));
    let first = kernels.clone().map(|work| work.start_ns).min().unwrap_or(0);
    let last = kernels.map(|work| work.end_ns()).max().unwrap_or(0);
    // Times with the change of the counts: kernels, NCCL kernels, copies. Ends sort before starts.
    let mut changes: Vec<(u64, [i32; 3])> = Vec::with_capacity(part.len() * 2);
    for work in part {
        let (start, end) = (work.start_ns.clamp(first, last), work.end_ns().clamp(first, last));
        let nccl = is_nccl(trace, work);
        time.nccl_launches += u64::from(nccl);
        let change = if computes(work) { [1, i32::from(nccl), 0] } else { [0, 0, 1] };
        changes.push((start, change));
        changes.push((end, change.map(|n| -n)));
    }
    changes.sort_unstable();
    let mut now = [0i32; 3];
    let mut at = first;
    for (moment, change) in changes {
        let ns = moment - at;
        let [kernels, nccl, copies] = now;
        let spent = |holds: bool| if holds { ns } else { 0 };
        time.busy_ns += spent(kernels + copies > 0);
        time.kernel_ns += spent(kernels > 0);
        time.copy_ns += spent(copies > 0);
        time.overlap_ns += spent(kernels > 0 && copies > 0);
        time.concurrent_ns += spent(kernels > 1);
        time.nccl_ns += spent(nccl > 0);
        time.nccl_alone_ns += spent(nccl > 0 && kernels == nccl);
        at = moment;
        now.iter_mut().zip(change).for_each(|(count, change)| *count += change);
        time.most_at_once = time.most_at_once.max(u32::try_from(now[0]).unwrap_or(0));
    }
    time.span_ns += last - first;
}

fn is_nccl(trace: &Trace, work: &TraceWork) -> bool {
    let name = trace.names.get(work.name as usize).map_or("", String::as_str);
    computes(work) && is_collective(name)
}

/// The total length of all intervals; overlaps count once.
pub(super) fn union_ns(mut intervals: Vec<(u64, u64)>) -> u64 {
    intervals.sort_unstable();
    let (mut total, mut reached) = (0, 0);
    for (start, end) in intervals {
        total += end.saturating_sub(start.max(reached));
        reached = reached.max(end);
    }
    total
}

/// Intervals without overlaps, sorted. Those that touch are one.
pub(super) fn disjoint(mut intervals: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    intervals.sort_unstable();
    intervals.dedup_by(|next, last| {
        let is_joined = next.0 <= last.1;
        last.1 = if is_joined { last.1.max(next.1) } else { last.1 };
        is_joined
    });
    intervals
}

/// Nanoseconds from `start_ns` to `end_ns` that lie in these intervals, which are sorted and
/// disjoint.
pub(super) fn overlap_ns(intervals: &[(u64, u64)], (start_ns, end_ns): (u64, u64)) -> u64 {
    let first = intervals.partition_point(|(_, end)| *end <= start_ns);
    let inside = intervals[first..].iter().take_while(|(start, _)| *start < end_ns);
    inside.map(|(start, end)| end_ns.min(*end).saturating_sub(start_ns.max(*start))).sum()
}
