//! Launches that find the queue of their stream full: they return when work ahead has ended.

use super::calls::CallNode;
use super::costs::Costs;
use super::edges::EdgeKind;
use super::position;
use super::waits::{HostWait, last_ended};
use super::works::{Stream, WorkNode};

/// A queue holds about 1,000 launches. With fewer ahead than this it is not full.
const MIN_QUEUED: usize = 500;

/// A launch into a full queue takes at least this many times what launches of its name take at
/// least. Where most launches wait, their median is no measure.
const MIN_TIMES_LOW: i64 = 3;

/// A launch that is shorter than this has not waited.
const MIN_WAIT_NS: i64 = 5_000;

/// Finds launches into a full queue. Each waited for the work of its stream that ended last within
/// it.
pub(super) fn find(
    works: &[WorkNode],
    streams: &[Stream],
    calls: &[CallNode],
    costs: &Costs,
    is_blocked: &[bool],
    list: &mut Vec<HostWait>,
) {
    let launches: Vec<Vec<i64>> =
        streams.iter().map(|stream| launch_times(works, stream)).collect();
    for (at, (call, is_blocked)) in calls.iter().zip(is_blocked).enumerate() {
        let Some(first) = call.first_work.and_then(|work| works.get(work as usize)) else {
            continue;
        };
        let low_ns = costs.call(call.name).map_or(0, |cost| cost.low_ns);
        let least_ns = MIN_WAIT_NS.max(low_ns.saturating_mul(MIN_TIMES_LOW));
        if *is_blocked || call.duration_ns() < least_ns {
            continue;
        }
        let stream = first.stream as usize;
        let (Some(stream), Some(launches)) = (streams.get(stream), launches.get(stream)) else {
            continue;
        };
        let launched = launches.partition_point(|launch_ns| *launch_ns < call.start_ns);
        let started = stream.partition_point(|at| {
            works.get(*at as usize).is_some_and(|work| work.start_ns <= call.start_ns)
        });
        if launched.saturating_sub(started) < MIN_QUEUED {
            continue;
        }
        if let Some(work) = last_ended(works, stream, call) {
            list.push(HostWait { call: position(at), work, kind: EdgeKind::QueueFull });
        }
    }
}

/// When the work of a stream was launched, in order.
fn launch_times(works: &[WorkNode], stream: &Stream) -> Vec<i64> {
    let mut times: Vec<i64> =
        stream.iter().filter_map(|at| works.get(*at as usize).map(|work| work.launch_ns)).collect();
    times.sort_unstable();
    times
}
