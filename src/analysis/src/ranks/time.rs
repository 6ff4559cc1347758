//! How each rank spent its time.

use super::Activity;
use super::intervals::Intervals;
use super::late::LateRanks;
use super::on_all_cores;
use rgpu_model::rank_work::{JoinedRanks, RankWork};
use rgpu_model::ranks::{RankIdle, RankIdleCause, RankTime};

/// Beginnings of the names of ranges in which a host waits for other ranks: torch's for gloo, and
/// MPI's.
const HOST_COLLECTIVES: &[&str] = &["gloo:", "MPI_", "mpi:"];

pub(super) fn rank_times(
    joined: &JoinedRanks,
    activities: &[Activity],
    late: &LateRanks,
) -> Vec<RankTime> {
    let all: Vec<(usize, (&RankWork, &Activity))> =
        joined.ranks.iter().zip(activities).enumerate().collect();
    on_all_cores::map(&all, |(at, (rank, activity))| rank_time(rank, activity, *at, late))
}

fn rank_time(rank: &RankWork, activity: &Activity, at: usize, late: &LateRanks) -> RankTime {
    let (first, last) = activity.any.span().unwrap_or((0, 0));
    let span_ns = last.abs_diff(first);
    let overlapped_ns = activity.communication.and(&activity.compute).ns();
    let exposed_ns = activity.communication.ns() - overlapped_ns;
    let compute_ns = activity.compute.ns();
    let idle_ns = span_ns - activity.any.ns();
    let (times_last, late_ns) = late.lateness(at);
    RankTime {
        location: rank.location.clone(),
        span_ns,
        compute_ns,
        communication_ns: activity.communication.ns(),
        exposed_ns,
        overlapped_ns,
        copy_ns: span_ns - idle_ns - compute_ns - exposed_ns,
        idle_ns,
        idle: idle(rank, &activity.any),
        waited_ns: late.waited_ns(at),
        times_last,
        late_ns,
    }
}

/// Idle time by cause, in nanoseconds.
#[derive(Default)]
struct IdleTimes {
    host_late: u64,
    launch: u64,
    rank: u64,
    unexplained: u64,
}

/// The causes of a rank's idle times. Until the call that launches the next work, the host is late;
/// from then on, the launch takes the time.
fn idle(rank: &RankWork, any: &Intervals) -> Vec<RankIdle> {
    let waits = |name: &str| HOST_COLLECTIVES.iter().any(|start| name.starts_with(start));
    let waiting = rank.ranges.iter().filter(|range| waits(rank.name(range.name)));
    let waiting = Intervals::union(waiting.map(|range| (range.start_ns, range.end_ns)));
    let mut times = IdleTimes::default();
    let mut work = rank.gpu_work.iter().peekable();
    for (start, end) in any.gaps() {
        let waited = waiting.ns_within(start, end);
        // Gaps and work are in order of time.
        while work.next_if(|piece| piece.start_ns < end).is_some() {}
        match work.peek().and_then(|piece| piece.called_ns) {
            Some(called) if called > start => {
                let called = called.min(end);
                let waited = waiting.ns_within(start, called);
                times.host_late += called.abs_diff(start) - waited;
                times.launch += end.abs_diff(called);
                times.rank += waited;
            }
            _ => {
                times.rank += waited;
                times.unexplained += end.abs_diff(start) - waited;
            }
        }
    }
    let all = [
        (RankIdleCause::HostLate, times.host_late),
        (RankIdleCause::Launch, times.launch),
        (RankIdleCause::Rank, times.rank),
        (RankIdleCause::Unexplained, times.unexplained),
    ];
    let all = all.into_iter().filter(|(_, ns)| *ns > 0);
    let mut all: Vec<RankIdle> =
        all.map(|(cause, total_ns)| RankIdle { cause, total_ns }).collect();
    all.sort_by_key(|idle| std::cmp::Reverse(idle.total_ns));
    all
}
