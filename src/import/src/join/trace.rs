//! Joins the lists of single events of several reports.

use std::collections::{HashMap, HashSet};

use super::clock::ReportClock;
use crate::ImportedArtifact;
use crate::trace_events::NameTable;
use rgpu_model::ranks::RankLocation;
use rgpu_model::trace::SCHEMA;
use rgpu_model::{SharedList, Trace};

/// Converts the times of a report's events to the common clock.
pub(super) struct ReportTimes {
    pub(super) clock: ReportClock,
    /// The start of its list, on the report's own clock.
    pub(super) first_ns: i64,
}

impl ReportTimes {
    /// Converts a time in the list.
    fn common(&self, after_ns: u64) -> u64 {
        let own_ns = self.first_ns.saturating_add_unsigned(after_ns);
        u64::try_from(self.clock.common(own_ns)).unwrap_or(0)
    }

    /// Converts a start and the duration from there.
    fn change(&self, start_ns: &mut u64, duration_ns: &mut u64) {
        let end_ns = self.common(start_ns.saturating_add(*duration_ns));
        *start_ns = self.common(*start_ns);
        *duration_ns = end_ns.saturating_sub(*start_ns);
    }
}

/// One list of all events, in order of start. `numbers` are the ranks of each report. `None` if no
/// report has events.
pub(super) fn join<'a>(
    reports: &mut [ImportedArtifact],
    numbers: &[Vec<u32>],
    times: &[ReportTimes],
    places: impl Iterator<Item = &'a RankLocation>,
) -> Option<Trace> {
    let mut joined =
        Trace { schema: SCHEMA.to_owned(), ranks: places.cloned().collect(), ..Trace::default() };
    let mut names = NameTable::default();
    let mut has_events = false;
    let mut known_threads: HashSet<u64> = HashSet::new();
    let all = reports.iter_mut().zip(numbers).zip(times);
    for (((report, ranks), times), number) in all.zip(0_u64..) {
        let Some(trace) = report.sidecars.trace.take() else { continue };
        has_events = true;
        let name_of: Vec<u32> = trace.names.iter().map(|name| names.index(name)).collect();
        let name = |at: u32| name_of.get(at as usize).copied().unwrap_or(u32::MAX);
        let rank = |at: Option<u32>| at.and_then(|at| ranks.get(at as usize).copied());
        // Processes of two hosts or containers may have the same ids.
        let own_threads: HashSet<u64> = trace
            .ranges
            .iter()
            .map(|r| r.thread)
            .chain(trace.calls.iter().map(|c| c.thread))
            .chain(trace.host.iter().map(|h| h.thread))
            .collect();
        let thread = |id: u64| if known_threads.contains(&id) { id ^ (number << 56) } else { id };
        let (regions, calls) = (joined.regions.len() as u32, joined.calls.len() as u32);
        let shapes = joined.shapes.len() as u32;
        joined.shapes.extend(trace.shapes);
        let mut lists: HashMap<SharedList<u32>, SharedList<u32>> = HashMap::new();
        joined.span_ns = joined.span_ns.max(times.common(trace.span_ns));
        joined.regions.extend(trace.regions.into_iter().map(|mut region| {
            region.parent = region.parent.map(|at| at.saturating_add(regions));
            region
        }));
        joined.work.extend(trace.work.into_iter().map(|mut work| {
            work.name = name(work.name);
            times.change(&mut work.start_ns, &mut work.duration_ns);
            work.call = work.call.map(|at| at.saturating_add(calls));
            work.shape = work.shape.map(|at| at.saturating_add(shapes));
            if regions > 0 && !work.regions.is_empty() {
                // Pieces of work share their lists, also after this.
                let shifted = lists.entry(std::mem::take(&mut work.regions));
                let shift = |list: &SharedList<u32>| {
                    list.iter().map(|at| at.saturating_add(regions)).collect::<SharedList<u32>>()
                };
                work.regions = shifted.or_insert_with_key(shift).clone();
            }
            work.rank = rank(work.rank);
            work
        }));
        joined.ranges.extend(trace.ranges.into_iter().map(|mut range| {
            range.name = name(range.name);
            match &mut range.duration_ns {
                Some(duration_ns) => times.change(&mut range.start_ns, duration_ns),
                None => range.start_ns = times.common(range.start_ns),
            }
            range.region = range.region.map(|at| at.saturating_add(regions));
            range.rank = rank(range.rank);
            range.thread = thread(range.thread);
            range
        }));
        joined.calls.extend(trace.calls.into_iter().map(|mut call| {
            call.name = name(call.name);
            times.change(&mut call.start_ns, &mut call.duration_ns);
            call.rank = rank(call.rank);
            call.thread = thread(call.thread);
            call
        }));
        joined.stacks.add(&trace.stacks, |call| call.checked_add(calls));
        joined.host.extend(trace.host.into_iter().map(|mut event| {
            times.change(&mut event.start_ns, &mut event.duration_ns);
            event.thread = thread(event.thread);
            event
        }));
        joined.cut.work += trace.cut.work;
        joined.cut.ranges += trace.cut.ranges;
        joined.cut.calls += trace.cut.calls;
        known_threads.extend(own_threads);
        if joined.from.is_empty() {
            joined.from = trace.from;
        }
    }
    joined.names = names.into_vec();
    sort(&mut joined);
    has_events.then_some(joined)
}

/// Sorts all lists by start. Work refers to calls by index.
fn sort(trace: &mut Trace) {
    let mut order: Vec<u32> = (0..trace.calls.len() as u32).collect();
    order.sort_by_key(|at| trace.calls[*at as usize].start_ns);
    let mut moved = vec![0; order.len()];
    for (to, from) in (0..).zip(&order) {
        moved[*from as usize] = to;
    }
    trace.calls.sort_by_key(|call| call.start_ns);
    let stacks = trace.stacks.calls().iter();
    let stacks =
        stacks.filter_map(|(call, entry)| Some((*moved.get(*call as usize)?, *entry))).collect();
    trace.stacks.set_calls(stacks);
    for work in &mut trace.work {
        work.call = work.call.and_then(|at| moved.get(at as usize).copied());
    }
    trace.work.sort_by_key(|work| work.start_ns);
    trace.ranges.sort_by_key(|range| (range.start_ns, range.depth));
    trace.host.sort_by_key(|event| event.start_ns);
}
