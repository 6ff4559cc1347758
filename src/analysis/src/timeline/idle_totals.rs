//! Adds up idle time by where it is: cause, region and the kernel that ends the gap.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::host_work::{HostEvents, HostSums};
use super::idle::AttributedGap;
use super::sums::{Cause, Causes};
use rgpu_model::Trace;
use rgpu_model::timeline::{IdleGroup, LongGaps, WaitSum, display_path};

/// The maximum number of groups listed per GPU.
const MAX_LISTED_PLACES: usize = 30;

/// The share of a group's time that its long gaps hold at least, and of its gaps that they are at
/// most.
const LONG_GAPS_TIME: f64 = 0.9;
const MAX_LONG_GAPS: f64 = 0.25;

/// Cause, whether the gap is start-up, region, and name of the work that ends it.
type Key = (Cause, bool, Option<u32>, u32);

/// The idle time of one GPU, added up by cause, region and next kernel.
pub(super) struct IdleTotals<'a> {
    trace: &'a Trace,
    host: &'a HostEvents<'a>,
    by_key: BTreeMap<Key, IdleSum<'a>>,
    first_launches: Causes,
}

/// The gaps of one key.
#[derive(Debug, Default)]
struct IdleSum<'a> {
    /// Time of this cause in each gap.
    times: Vec<u64>,
    total_ns: u64,
    longest_ns: u64,
    /// Start and end of the gap with the longest time of this cause, and its call.
    gap: (u64, u64),
    call: Option<u32>,
    /// What the launching threads did in the time with the cause `host_late`.
    host: HostSums<'a>,
}

impl<'a> IdleTotals<'a> {
    pub(super) fn new(trace: &'a Trace, host: &'a HostEvents<'a>) -> IdleTotals<'a> {
        IdleTotals { trace, host, by_key: BTreeMap::new(), first_launches: Causes::default() }
    }

    /// Adds the time of one gap to its group of each cause.
    pub(super) fn add(&mut self, gap: &AttributedGap<'_>, is_start_up: bool) {
        let next = gap.next;
        let call = next.call.and_then(|call| self.trace.calls.get(call as usize));
        if is_start_up {
            self.first_launches.add(&gap.parts);
        }
        for (cause, ns) in gap.parts.iter() {
            let key = (cause, is_start_up, next.regions.first().copied(), next.name);
            let place = self.by_key.entry(key).or_default();
            place.times.push(ns);
            place.total_ns += ns;
            if ns > place.longest_ns {
                place.longest_ns = ns;
                place.gap = (gap.start_ns, gap.end_ns);
                place.call = next.call;
            }
            if let (Cause::HostLate, Some(call)) = (cause, call) {
                for part in &gap.host_late {
                    self.host.add(call.thread, *part, &mut place.host);
                }
            }
        }
    }

    /// The groups with the most time, and the sums of all gaps that are start-up.
    pub(super) fn finish(self) -> (Vec<IdleGroup>, Vec<WaitSum>) {
        let mut all: Vec<(Key, IdleSum<'_>)> = self.by_key.into_iter().collect();
        all.sort_by_key(|(_, place)| Reverse(place.total_ns));
        all.truncate(MAX_LISTED_PLACES);
        let trace = self.trace;
        let name = |index: u32| trace.names.get(index as usize).cloned().unwrap_or_default();
        let places = all.into_iter().map(|((cause, first_launch, region, before), place)| {
            let region = region.and_then(|index| trace.regions.get(index as usize));
            IdleGroup {
                cause: cause.name(),
                first_launch,
                region: region.map(|region| display_path(&region.path)),
                before: name(before),
                call: busiest_call(trace, &place).map(name).unwrap_or_default(),
                host: place.host.most(place.total_ns),
                gaps: place.times.len() as u64,
                long_gaps: long_gaps(place.times),
                total_ns: place.total_ns,
                longest_ns: place.longest_ns,
                longest_start_ns: place.gap.0,
            }
        });
        (places.collect(), self.first_launches.into_sums())
    }
}

/// The fewest of these gaps that hold most of their time; `None` unless they are few.
fn long_gaps(mut times: Vec<u64>) -> Option<LongGaps> {
    times.sort_unstable_by_key(|ns| Reverse(*ns));
    let enough_ns = times.iter().sum::<u64>() as f64 * LONG_GAPS_TIME;
    let mut total_ns = 0;
    let gaps = times.iter().take_while(|ns| {
        let is_less = (total_ns as f64) < enough_ns;
        total_ns += if is_less { **ns } else { 0 };
        is_less
    });
    let gaps = gaps.count();
    let are_few = gaps > 0 && gaps as f64 <= times.len() as f64 * MAX_LONG_GAPS;
    are_few.then_some(LongGaps { gaps: gaps as u64, total_ns })
}

/// The name of the call that took most of a gap, if it took at least half of it; else of the call
/// that launched the next kernel.
fn busiest_call(trace: &Trace, place: &IdleSum<'_>) -> Option<u32> {
    let launching = trace.calls.get(place.call? as usize)?;
    let (start, end) = place.gap;
    let until = trace.calls.partition_point(|call| call.start_ns < end);
    let of_thread = trace.calls[..until].iter().filter(|call| call.thread == launching.thread);
    let inside = of_thread.map(|call| {
        let call_end = call.start_ns.saturating_add(call.duration_ns);
        (call_end.min(end).saturating_sub(call.start_ns.max(start)), call.name)
    });
    let busiest = inside.max_by_key(|(ns, _)| *ns).filter(|(ns, _)| *ns * 2 >= end - start);
    Some(busiest.map_or(launching.name, |(_, name)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_gaps_that_hold_most_of_the_time_are_told_if_they_are_few() {
        let times = |long: usize, short: usize| {
            let all = [vec![45_000; long], vec![10; short]].concat();
            long_gaps(all).map(|long| (long.gaps, long.total_ns))
        };
        // Each new shape of a cache that grows, of 127 launches of its kernel.
        assert_eq!(times(15, 112), Some((14, 630_000)));
        assert_eq!(times(1, 3), Some((1, 45_000)));
        assert_eq!(times(1, 2), None, "a third of the gaps");
        assert_eq!(times(0, 100), None, "all alike");
        assert_eq!(times(0, 0), None);
        assert_eq!(long_gaps(vec![0; 8]), None);
    }
}
