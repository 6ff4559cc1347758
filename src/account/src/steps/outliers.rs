//! Steps that took much longer than the others, and why.

use std::cmp::Reverse;
use std::collections::HashMap;

use rgpu_model::Trace;
use rgpu_model::account::{AccountCause, StepOutlier};
use rgpu_model::trace::CallEvent;

use super::Step;
use super::typical::Limits;
use crate::class;

/// The most outliers that are named.
const MOST: usize = 5;
/// The most calls that are looked at before a gap, and in it.
const CALLS: usize = 5_000;

/// The steps that took much longer than the median, longest first, each compared with `typical`.
pub(super) fn find(
    trace: &Trace,
    steps: &[Step],
    typical: &Step,
    limits: &Limits,
) -> Vec<StepOutlier> {
    let slow = steps.iter().enumerate().filter(|(_, s)| limits.is_outlier(s.duration_ns()));
    let mut slow: Vec<_> = slow.collect();
    slow.sort_by_key(|(_, step)| Reverse(step.duration_ns()));
    slow.truncate(MOST);
    let usual = if slow.is_empty() { Spent::default() } else { Spent::new(trace, typical) };
    let named = slow.into_iter().map(|(number, step)| {
        let (cause, name) = reason(trace, step, &usual);
        StepOutlier {
            step: number as u64,
            start_ns: step.start_ns,
            duration_ns: step.duration_ns(),
            cause,
            name,
        }
    });
    named.collect()
}

/// What took most of the time above the usual: the kernels of one name, or the call in the longest
/// time without GPU work.
fn reason(trace: &Trace, step: &Step, usual: &Spent) -> (AccountCause, String) {
    let spent = Spent::new(trace, step);
    let above = |name: &u32, ns: u64| ns.saturating_sub(*usual.work_ns.get(name).unwrap_or(&0));
    let slowest = spent.work_ns.iter().map(|(name, ns)| (above(name, *ns), Reverse(*name)));
    let slowest = slowest.max();
    let idle_ns = spent.idle_ns.saturating_sub(usual.idle_ns);
    if let Some((ns, Reverse(name))) = slowest.filter(|(ns, _)| *ns >= idle_ns && *ns > 0) {
        let of_name = |at: &&u32| trace.work.get(**at as usize).is_some_and(|w| w.name == name);
        let work = step.work.iter().find(of_name).and_then(|at| trace.work.get(*at as usize));
        let cause = work.map(|work| class::of_work(trace, work)).filter(|_| ns > 0);
        return (cause.unwrap_or(AccountCause::OtherKernel), text(trace, name));
    }
    let rank = step.work.first().and_then(|at| trace.work.get(*at as usize)?.rank);
    match call_in(trace, rank, spent.longest_gap) {
        Some(call) => {
            let name = text(trace, call.name);
            let cause =
                if call.waits { AccountCause::Synchronisation } else { class::of_call(&name) };
            (cause, name)
        }
        None => (AccountCause::Host, "host between calls".to_owned()),
    }
}

fn text(trace: &Trace, name: u32) -> String {
    trace.names.get(name as usize).cloned().unwrap_or_default()
}

/// The GPU's time of a step.
#[derive(Default)]
struct Spent {
    /// By the index of the name, in nanoseconds.
    work_ns: HashMap<u32, u64>,
    /// Time without work, in nanoseconds.
    idle_ns: u64,
    /// The longest time without work, as its start and end.
    longest_gap: (u64, u64),
}

impl Spent {
    fn new(trace: &Trace, step: &Step) -> Spent {
        let mut spent = Spent::default();
        let work = step.work.iter().filter_map(|at| trace.work.get(*at as usize));
        let mut times = Vec::with_capacity(step.work.len() + 1);
        for work in work {
            let ns = spent.work_ns.entry(work.name).or_default();
            *ns = ns.saturating_add(work.duration_ns.min(step.duration_ns()));
            times.push((work.start_ns, work.end_ns()));
        }
        times.sort_unstable();
        times.push((step.end_ns, step.end_ns));
        let mut busy_until = step.start_ns;
        for (start, end) in times {
            let start = start.min(step.end_ns);
            let gap = start.saturating_sub(busy_until);
            spent.idle_ns = spent.idle_ns.saturating_add(gap);
            if gap > spent.longest_gap.1.saturating_sub(spent.longest_gap.0) {
                spent.longest_gap = (busy_until, start);
            }
            busy_until = busy_until.max(end);
        }
        spent
    }
}

/// The call that covers most of a time, if it covers at least a third; one that does not wait
/// wins over one that waits.
fn call_in(trace: &Trace, rank: Option<u32>, (from, to): (u64, u64)) -> Option<&CallEvent> {
    let begin = trace.calls.partition_point(|call| call.start_ns < from);
    let near = trace.calls.iter().skip(begin.saturating_sub(CALLS)).take(2 * CALLS);
    let covered = |call: &CallEvent| {
        let end = call.start_ns.saturating_add(call.duration_ns).min(to);
        end.saturating_sub(call.start_ns.max(from))
    };
    let near = near.filter(|c| c.rank == rank && covered(c) >= (to.saturating_sub(from)) / 3);
    near.filter(|call| covered(call) > 0).max_by_key(|call| (!call.waits, covered(call)))
}
