//! Launches that wait for work from before the graph: the queue of their stream is full of it.
//!
//! A stream holds about a thousand launches. A host that runs so far ahead waits in each launch for
//! the work that many places ahead, which a graph of a few steps does not have. That time is no work
//! of the host: with a faster GPU it is shorter by itself. It is found by the whole trace's queue:
//! so many launches of the stream that had not started, and a call much longer than the shortest
//! launches of the graph.

use std::collections::HashMap;

use rgpu_model::Trace;

use super::bounded_ns;
use super::calls::CallNode;
use super::waits::HostWait;
use super::works::WorkNode;

/// With fewer launches ahead than this a queue is not full.
const MIN_QUEUED: usize = 500;

/// A launch into a full queue takes at least this many times what the shortest launches take.
const MIN_TIMES_SHORTEST: i64 = 2;

/// A launch that waits for nothing takes at most this.
const MAX_LAUNCH_CALL_NS: i64 = 15_000;

/// Launch and start times of the work of one stream, each sorted.
#[derive(Default)]
struct Queue {
    launch_ns: Vec<i64>,
    start_ns: Vec<i64>,
}

/// Nanoseconds of each call that it waited for work from before the graph; 0 for most. `waits` are
/// the waits for work within the graph.
pub(super) fn find(
    trace: &Trace,
    works: &[WorkNode],
    calls: &[CallNode],
    waits: &[HostWait],
) -> Vec<i64> {
    let mut waited_ns = vec![0; calls.len()];
    let mut shortest: Vec<i64> = (calls.iter())
        .filter(|call| call.first_work.is_some())
        .map(CallNode::duration_ns)
        .collect();
    shortest.sort_unstable();
    // The tenth percentile, and a bound where most launches of the graph wait.
    let Some(own_ns) = shortest.get(shortest.len() / 10) else { return waited_ns };
    let own_ns = (*own_ns).min(MAX_LAUNCH_CALL_NS);
    let is_long = |call: &CallNode| {
        call.first_work.is_some() && call.duration_ns() >= own_ns * MIN_TIMES_SHORTEST
    };
    if !calls.iter().any(is_long) {
        return waited_ns;
    }
    let queues = queues(trace, works);
    for (call, waited) in calls.iter().zip(&mut waited_ns) {
        let Some(work) = call.first_work.and_then(|work| works.get(work as usize)) else {
            continue;
        };
        let Some(queue) = queues.get(&stream_of(trace, work.index)) else { continue };
        let launched = queue.launch_ns.partition_point(|ns| *ns < call.start_ns);
        let started = queue.start_ns.partition_point(|ns| *ns <= call.start_ns);
        if is_long(call) && launched.saturating_sub(started) >= MIN_QUEUED {
            *waited = call.duration_ns() - own_ns;
        }
    }
    for wait in waits {
        if let Some(waited) = waited_ns.get_mut(wait.call as usize) {
            *waited = 0;
        }
    }
    waited_ns
}

/// Rank, process, GPU and stream of work.
type StreamKey = (Option<u32>, u64, u32, u64);

fn stream_of(trace: &Trace, at: u32) -> Option<StreamKey> {
    let work = trace.work.get(at as usize)?;
    let call = trace.calls.get(work.call? as usize)?;
    Some((work.rank, crate::gains::process_of(call.thread), work.device, work.stream))
}

/// The queues of the streams that the graph's work is on, with all work of the trace.
fn queues(trace: &Trace, works: &[WorkNode]) -> HashMap<Option<StreamKey>, Queue> {
    let mut queues: HashMap<Option<StreamKey>, Queue> = HashMap::new();
    for work in works {
        let key = stream_of(trace, work.index);
        if key.is_some() {
            queues.entry(key).or_default();
        }
    }
    for (at, work) in (0_u32..).zip(&trace.work) {
        let Some(queue) = queues.get_mut(&stream_of(trace, at)) else { continue };
        let call = work.call.and_then(|call| trace.calls.get(call as usize));
        queue.launch_ns.push(bounded_ns(call.map_or(work.start_ns, |call| call.start_ns)));
        queue.start_ns.push(bounded_ns(work.start_ns));
    }
    for queue in queues.values_mut() {
        queue.launch_ns.sort_unstable();
        queue.start_ns.sort_unstable();
    }
    queues
}

#[cfg(test)]
mod tests {
    use rgpu_model::Trace;
    use rgpu_model::trace::{CallEvent, TraceWork};

    use crate::edits::Edits;
    use crate::graph::Graph;

    /// Kernels of 100 µs, launched as fast as a queue of 1,000 allows.
    fn full_queue(kernels: u64) -> Trace {
        let mut trace =
            Trace { names: vec!["cudaLaunchKernel".into(), "k".into()], ..Trace::default() };
        let mut now_ns = 0;
        for number in 0..kernels {
            let start_ns = 10_000 + number * 101_000;
            let free_ns =
                if number < 1000 { 0 } else { 10_000 + (number - 1000) * 101_000 + 100_000 };
            let end_ns = (now_ns + 5_000).max(free_ns);
            trace.calls.push(CallEvent {
                name: 0,
                start_ns: now_ns,
                duration_ns: end_ns - now_ns,
                thread: 1,
                waits: false,
                rank: None,
            });
            trace.work.push(TraceWork {
                name: 1,
                start_ns,
                duration_ns: 100_000,
                call: Some(number as u32),
                ..TraceWork::default()
            });
            now_ns = end_ns + 2_000;
        }
        trace
    }

    #[test]
    fn a_host_that_waits_for_an_earlier_steps_work_is_not_the_limit() {
        let trace = full_queue(3000);
        let window: Vec<u32> = (1500..1541).collect();
        let graph = Graph::new(&trace, &window);
        let boundaries: Vec<u32> = (0..5).map(|step| step * 10).collect();
        let step_ns = |edits: &Edits| graph.replay(edits).step_ns(&boundaries).unwrap();
        assert!((step_ns(&Edits::default()) - 1_010_000.0).abs() < 1.0);
        let mut half = Edits::default();
        half.work_ns.extend(window.iter().map(|at| (*at, 50_000)));
        assert!((step_ns(&half) - 510_000.0).abs() < 1_000.0, "{}", step_ns(&half));
        // The host's own launches are the limit then.
        let mut none = Edits::default();
        none.work_ns.extend(window.iter().map(|at| (*at, 1_000)));
        let host_ns = step_ns(&none);
        assert!((70_000.0..180_000.0).contains(&host_ns), "{host_ns}");
    }
}
