//! The part of a trace that is written into `trace.json`.
//!
//! In memory a trace has millions of events, so that the analysis sees all of them. The document,
//! and the pages that are made of it, list the first: GPU work and ranges in order of start, the
//! calls that launched this work, and the first waits and the first other calls.

use std::collections::{BTreeSet, HashMap};

use super::{Trace, TraceRegion, UnlistedEvents};

/// Longest list of GPU work in the document of one report. As many ranges are listed, as many
/// calls that wait, and as many other calls besides those that launched listed work.
pub const MAX_LISTED: usize = 20_000;

impl Trace {
    /// Number of events of each kind that the document leaves out.
    pub fn unlisted(&self) -> UnlistedEvents {
        let most = self.max_listed();
        let more = |count: usize| count.saturating_sub(most) as u64;
        let calls = self.listed_calls(most);
        let unlisted_calls = calls.iter().filter(|is_listed| !**is_listed).count() as u64;
        UnlistedEvents {
            work: self.cut.work.saturating_add(more(self.work.len())),
            ranges: self.cut.ranges.saturating_add(more(self.ranges.len())),
            calls: self.cut.calls.saturating_add(unlisted_calls),
        }
    }

    /// Leaves only the events of the document, and counts the others in `cut`. Call this after the
    /// analysis and before the trace is written or shown.
    pub fn cut_to_document(&mut self) {
        let most = self.max_listed();
        let listed = self.listed_calls(most);
        let has_all = self.work.len() <= most && self.ranges.len() <= most;
        if has_all && listed.iter().all(|is_listed| *is_listed) {
            return;
        }
        self.cut = self.unlisted();
        self.work.truncate(most);
        self.work.shrink_to_fit();
        self.ranges.truncate(most);
        self.ranges.shrink_to_fit();
        self.keep_calls(&listed);
        self.keep_used_names();
        self.keep_used_regions();
    }

    /// Most events of a kind: [`MAX_LISTED`] for each report that the trace was joined from.
    fn max_listed(&self) -> usize {
        let reports: BTreeSet<&str> = self.ranks.iter().map(|rank| rank.from.as_str()).collect();
        MAX_LISTED.saturating_mul(reports.len().max(1))
    }

    /// For each call whether the document lists it.
    fn listed_calls(&self, most: usize) -> Vec<bool> {
        let mut listed = vec![false; self.calls.len()];
        for at in self.work.iter().take(most).filter_map(|work| work.call) {
            if let Some(is_listed) = listed.get_mut(at as usize) {
                *is_listed = true;
            }
        }
        let (mut waits, mut others) = (0, 0);
        for (call, is_listed) in self.calls.iter().zip(&mut listed) {
            if !*is_listed {
                let count = if call.waits { &mut waits } else { &mut others };
                *count += 1;
                *is_listed = *count <= most;
            }
        }
        listed
    }

    /// Removes the other calls. Work refers to calls by index.
    fn keep_calls(&mut self, listed: &[bool]) {
        let mut next = 0;
        let numbers: Vec<Option<u32>> = listed
            .iter()
            .map(|is_listed| {
                let number = is_listed.then_some(next);
                next += u32::from(*is_listed);
                number
            })
            .collect();
        let mut keep = listed.iter();
        self.calls.retain(|_| keep.next().is_some_and(|is_listed| *is_listed));
        self.calls.shrink_to_fit();
        let number = |at: u32| numbers.get(at as usize).copied().flatten();
        for work in &mut self.work {
            work.call = work.call.and_then(number);
        }
        let stacks = self.stacks.calls().iter();
        let stacks = stacks.filter_map(|(call, entry)| Some((number(*call)?, *entry))).collect();
        self.stacks.set_calls(stacks);
    }

    /// Removes names that no event has. Others are numbered in order of their first use: by calls,
    /// by ranges, then by work.
    fn keep_used_names(&mut self) {
        let names = std::mem::take(&mut self.names);
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        let calls = self.calls.iter_mut().map(|call| &mut call.name);
        let ranges = self.ranges.iter_mut().map(|range| &mut range.name);
        let work = self.work.iter_mut().map(|work| &mut work.name);
        for name in calls.chain(ranges).chain(work) {
            let old = *name;
            *name = *numbers.entry(old).or_insert_with(|| {
                let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
                self.names.push(names.get(old as usize).cloned().unwrap_or_default());
                number
            });
        }
    }

    /// Removes regions that no event is in. Others are numbered in order of their first use: by
    /// ranges, then by work; parents come before their children.
    fn keep_used_regions(&mut self) {
        let mut regions =
            UsedRegions { all: std::mem::take(&mut self.regions), ..UsedRegions::default() };
        for range in &mut self.ranges {
            range.region = range.region.and_then(|at| regions.number(at));
        }
        for work in &mut self.work {
            work.regions = work.regions.iter().filter_map(|at| regions.number(*at)).collect();
        }
        self.regions = regions.used;
    }
}

/// The regions of a trace, and those in use with their new numbers.
#[derive(Default)]
struct UsedRegions {
    all: Vec<TraceRegion>,
    used: Vec<TraceRegion>,
    numbers: HashMap<u32, u32>,
}

impl UsedRegions {
    /// The new number of a region. `None` if there is no such region.
    fn number(&mut self, at: u32) -> Option<u32> {
        if let Some(number) = self.numbers.get(&at) {
            return Some(*number);
        }
        // The region and its ancestors without a number, innermost first. A parent comes before its
        // children in a sound trace; any other is not followed, so that this ends.
        let mut new = vec![at];
        while let Some(parent) = new.last().and_then(|inner| self.parent(*inner)) {
            if self.numbers.contains_key(&parent) {
                break;
            }
            new.push(parent);
        }
        for old in new.into_iter().rev() {
            let parent = self.parent(old).and_then(|parent| self.numbers.get(&parent).copied());
            let region = self.all.get(old as usize)?;
            let number = u32::try_from(self.used.len()).unwrap_or(u32::MAX);
            self.used.push(TraceRegion { parent, ..region.clone() });
            self.numbers.insert(old, number);
        }
        self.numbers.get(&at).copied()
    }

    fn parent(&self, at: u32) -> Option<u32> {
        self.all.get(at as usize)?.parent.filter(|parent| *parent < at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::RankLocation;
    use crate::trace::{CallEvent, RangeEvent, TraceWork};

    fn call(name: u32, start_ns: u64, waits: bool) -> CallEvent {
        CallEvent { name, start_ns, duration_ns: 5, thread: 1, waits, rank: None }
    }

    fn range(name: u32, start_ns: u64, region: u32) -> RangeEvent {
        RangeEvent {
            name,
            start_ns,
            duration_ns: Some(9),
            thread: 1,
            depth: 0,
            start_end: false,
            region: Some(region),
            rank: None,
        }
    }

    /// Work number `n` is launched by call `2 n`; a call after it launches none.
    fn long_trace(work: u32) -> Trace {
        let region = |path: &[&str], parent| TraceRegion {
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            parent,
            start_end: false,
        };
        let names = ["unused", "late", "kernel", "range", "launch", "wait", "query"];
        let is_late = |n: u32| n as usize >= MAX_LISTED;
        Trace {
            names: names.map(str::to_owned).to_vec(),
            regions: vec![
                region(&["late"], None),
                region(&["a"], None),
                region(&["a", "b"], Some(1)),
            ],
            work: (0..work)
                .map(|n| TraceWork {
                    name: if is_late(n) { 1 } else { 2 },
                    start_ns: u64::from(n) * 10,
                    call: Some(2 * n),
                    regions: vec![if is_late(n) { 0 } else { 2 }].into(),
                    shape: Some(n),
                    ..TraceWork::default()
                })
                .collect(),
            ranges: vec![range(3, 0, 2)],
            calls: (0..work)
                .flat_map(|n| {
                    let at = u64::from(n) * 10;
                    let name = if n % 2 == 0 { 5 } else { 6 };
                    [call(4, at, false), call(name, at + 5, n % 2 == 0)]
                })
                .collect(),
            ..Trace::default()
        }
    }

    #[test]
    fn a_short_trace_is_its_own_document() {
        let mut trace = long_trace(20_000);
        let whole = trace.clone();
        assert_eq!(trace.unlisted(), UnlistedEvents::default());
        trace.cut_to_document();
        assert_eq!(trace, whole);
    }

    #[test]
    fn the_document_has_the_first_events_with_the_calls_names_and_regions_that_they_use() {
        let mut trace = long_trace(50_000);
        trace.cut.calls = 7;
        let told = trace.unlisted();
        trace.cut_to_document();
        assert_eq!(trace.cut, told);
        // 20,000 calls launched the listed work. 20,000 of 25,000 waits stay, and the first 20,000
        // of all other calls.
        assert_eq!(told.work, 30_000);
        assert_eq!(told.ranges, 0);
        assert_eq!(trace.work.len(), MAX_LISTED);
        let waits = trace.calls.iter().filter(|call| call.waits).count();
        assert_eq!(waits, 20_000);
        assert_eq!(trace.calls.len(), 60_000);
        assert_eq!(told.calls, 7 + 100_000 - 60_000);
        assert_eq!(trace.names, ["launch", "wait", "query", "range", "kernel"]);
        let paths: Vec<_> =
            trace.regions.iter().map(|region| (&*region.path, region.parent)).collect();
        assert_eq!(
            paths,
            [(&["a".to_owned()][..], None), (&["a".to_owned(), "b".to_owned()], Some(0))]
        );
        assert_eq!(trace.ranges[0].region, Some(1));
        for work in &trace.work {
            let call = &trace.calls[work.call.unwrap() as usize];
            assert_eq!((call.start_ns, call.name), (work.start_ns, 0));
            assert_eq!((&work.regions[..], work.name), (&[1][..], 4));
        }
        let again = trace.clone();
        trace.cut_to_document();
        assert_eq!(trace, again, "a document is not cut again");
    }

    #[test]
    fn a_trace_of_several_reports_has_as_many_lists() {
        let mut trace = long_trace(50_000);
        let rank = |from: &str| RankLocation { from: from.to_owned(), ..RankLocation::default() };
        trace.ranks = vec![rank("a"), rank("b"), rank("b")];
        trace.cut_to_document();
        assert_eq!(trace.work.len(), 2 * MAX_LISTED);
    }

    #[test]
    fn indexes_out_of_range_and_parents_in_a_circle_are_dropped() {
        let mut trace = long_trace(20_001);
        trace.regions[1].parent = Some(2);
        trace.work[0].call = Some(u32::MAX);
        trace.work[1].name = 99;
        trace.work[2].regions = vec![77, 2].into();
        trace.cut_to_document();
        assert_eq!(trace.work[0].call, None);
        assert_eq!(trace.names[trace.work[1].name as usize], "");
        assert_eq!(trace.work[2].regions[..], [1]);
    }
}
