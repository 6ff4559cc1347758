//! Splits times without a kernel into parts by cause.
//!
//! A gap lies between the end of all kernels so far and the start of the next. Each point in time
//! of a gap has one cause, the first that applies:
//!
//! 1. a copy or a fill runs: `copy`
//! 2. the trace has no call for the next kernel: `unknown`
//! 3. that call had returned before the gap: `queued`
//! 4. it was under way when the gap began: `launch_latency`
//! 5. its thread waits for the GPU: `synchronisation`, or `copy` in a blocking copy
//! 6. the call has not begun: `host_late`
//! 7. the call has begun: `launch_latency`. But if the thread had begun to wait while a kernel or a
//!    copy ran, that wait emptied the queue and exposed the latency: the cause of the wait

use std::collections::{BTreeSet, HashMap};

use super::measure::disjoint;
use super::sums::{Cause, CauseTimes};
use super::{ancestry, computes};
use rgpu_model::Trace;
use rgpu_model::timeline::{IdleGap, WaitSum};
use rgpu_model::trace::TraceWork;

/// Calls that wait for the GPU, by thread and time, without overlaps: in a call inside of another
/// the outer one waits.
pub(super) struct BlockingCalls {
    by_thread: HashMap<u64, Vec<Wait>>,
}

#[derive(Clone, Copy)]
struct Wait {
    start_ns: u64,
    end_ns: u64,
    cause: Cause,
    name: u32,
}

impl BlockingCalls {
    pub(super) fn new(trace: &Trace) -> BlockingCalls {
        let mut by_thread: HashMap<u64, Vec<Wait>> = HashMap::new();
        for call in trace.calls.iter().filter(|call| call.waits) {
            let copies = trace.names.get(call.name as usize).is_some_and(|n| n.contains("Memcpy"));
            by_thread.entry(call.thread).or_default().push(Wait {
                start_ns: call.start_ns,
                end_ns: call.start_ns.saturating_add(call.duration_ns),
                cause: if copies { Cause::Copy } else { Cause::Synchronisation },
                name: call.name,
            });
        }
        for waits in by_thread.values_mut() {
            waits.sort_by_key(|wait| wait.start_ns);
            let mut reached = 0;
            waits.retain_mut(|wait| {
                wait.start_ns = wait.start_ns.max(reached);
                reached = reached.max(wait.end_ns);
                wait.start_ns < wait.end_ns
            });
        }
        BlockingCalls { by_thread }
    }

    /// The waits of a thread that overlap the time from `from` to `until`.
    fn within(&self, thread: u64, from: u64, until: u64) -> &[Wait] {
        let all = self.by_thread.get(&thread).map_or(&[][..], Vec::as_slice);
        let first = all.partition_point(|wait| wait.end_ns <= from);
        let rest = &all[first..];
        &rest[..rest.partition_point(|wait| wait.start_ns < until)]
    }
}

/// A time without a kernel, with its parts by cause.
pub(super) struct AttributedGap<'a> {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) parts: CauseTimes,
    /// Start and end of each part with the cause `host_late`.
    pub(super) host_late: Vec<(u64, u64)>,
    call: &'a str,
    /// The kernels around the gap.
    pub(super) previous: &'a TraceWork,
    pub(super) next: &'a TraceWork,
}

impl AttributedGap<'_> {
    /// The regions in which the kernel that ended the gap was launched.
    pub(super) fn regions(&self, trace: &Trace) -> BTreeSet<u32> {
        ancestry(trace, self.next)
    }

    pub(super) fn to_model(&self, trace: &Trace) -> IdleGap {
        let cause = self.parts.largest().unwrap_or(Cause::Unknown);
        let part =
            |(cause, ns): (Cause, u64)| WaitSum { cause: cause.name(), total_ns: ns, gaps: 1 };
        let name = |work: &TraceWork| trace.names.get(work.name as usize).cloned();
        IdleGap {
            start_ns: self.start_ns,
            duration_ns: self.end_ns - self.start_ns,
            cause: cause.name(),
            parts: self.parts.iter().map(part).collect(),
            after: name(self.previous).unwrap_or_default(),
            before: name(self.next).unwrap_or_default(),
            call: self.call.to_owned(),
        }
    }
}

/// All times without a kernel in a part of the work, which must be sorted by start.
pub(super) fn gaps<'a>(
    trace: &'a Trace,
    part: &[&'a TraceWork],
    waits: &BlockingCalls,
) -> Vec<AttributedGap<'a>> {
    let copies = part.iter().filter(|work| !computes(work));
    let copies = disjoint(copies.map(|work| (work.start_ns, work.end_ns())).collect());
    let mut gaps = Vec::new();
    let mut last: Option<&'a TraceWork> = None;
    // Copies that end before a gap are irrelevant for all later gaps.
    let mut first_copy = 0;
    for work in part.iter().filter(|work| computes(work)) {
        if let Some(earlier) = last.filter(|earlier| earlier.end_ns() < work.start_ns) {
            let gap = (earlier.end_ns(), work.start_ns);
            while copies.get(first_copy).is_some_and(|(_, end)| *end <= gap.0) {
                first_copy += 1;
            }
            gaps.push(explain(trace, gap, earlier, work, &copies[first_copy..], waits));
        }
        if last.is_none_or(|earlier| earlier.end_ns() < work.end_ns()) {
            last = Some(work);
        }
    }
    gaps
}

fn explain<'a>(
    trace: &'a Trace,
    (start, end): (u64, u64),
    previous: &'a TraceWork,
    next: &'a TraceWork,
    copies: &[(u64, u64)],
    waits: &BlockingCalls,
) -> AttributedGap<'a> {
    let name = |index: u32| trace.names.get(index as usize).map_or("", String::as_str);
    let mut timeline = Pieces::new(start, end);
    let copies = &copies[..copies.partition_point(|(from, _)| *from < end)];
    timeline.assign(copies.iter().map(|(from, until)| (*from, *until, Cause::Copy)));
    let mut blocking_call = "";
    match next.call.and_then(|call| trace.calls.get(call as usize)) {
        None => timeline.rest(Cause::Unknown),
        Some(call) => {
            blocking_call = name(call.name);
            let called = call.start_ns;
            let returned = called.saturating_add(call.duration_ns);
            if returned <= start {
                timeline.rest(Cause::Queued);
            } else if called <= start {
                timeline.rest(Cause::LaunchLatency);
            } else {
                let waited = waits.within(call.thread, start, called.min(end));
                let copied = |at: u64| {
                    let next = copies.partition_point(|(_, until)| *until <= at);
                    copies.get(next).is_some_and(|(from, _)| *from <= at)
                };
                let emptying_wait =
                    waited.iter().find(|w| w.start_ns <= start || copied(w.start_ns));
                timeline.assign(waited.iter().map(|wait| (wait.start_ns, wait.end_ns, wait.cause)));
                timeline.assign([(start, called, Cause::HostLate)].into_iter());
                timeline.rest(emptying_wait.map_or(Cause::LaunchLatency, |wait| wait.cause));
                if let Some(wait) = emptying_wait {
                    blocking_call = name(wait.name);
                }
            }
        }
    }
    AttributedGap {
        start_ns: start,
        end_ns: end,
        parts: timeline.taken,
        host_late: timeline.host_late,
        call: blocking_call,
        previous,
        next,
    }
}

/// The parts of a gap: intervals without a cause yet, and the time assigned to each cause.
struct Pieces {
    free: Vec<(u64, u64)>,
    taken: CauseTimes,
    host_late: Vec<(u64, u64)>,
}

impl Pieces {
    fn new(start: u64, end: u64) -> Pieces {
        Pieces { free: vec![(start, end)], taken: CauseTimes::default(), host_late: Vec::new() }
    }

    /// Assigns causes to all free time in these intervals, which are sorted and disjoint.
    fn assign(&mut self, intervals: impl Iterator<Item = (u64, u64, Cause)>) {
        let mut intervals = intervals.peekable();
        let mut left = Vec::new();
        for (start, end) in std::mem::take(&mut self.free) {
            let mut reached = start;
            while let Some((from, until, cause)) =
                intervals.peek().copied().filter(|(from, ..)| *from < end)
            {
                let (a, b) = (from.max(reached), until.min(end));
                if a < b {
                    self.taken.add(cause, b - a);
                    if cause == Cause::HostLate {
                        self.host_late.push((a, b));
                    }
                    left.extend((reached < a).then_some((reached, a)));
                    reached = b;
                }
                // It may go on in the next free interval.
                if until > end {
                    break;
                }
                intervals.next();
            }
            left.extend((reached < end).then_some((reached, end)));
        }
        self.free = left;
    }

    /// Assigns a cause to all time that is still free.
    fn rest(&mut self, cause: Cause) {
        self.assign([(0, u64::MAX, cause)].into_iter());
    }
}
