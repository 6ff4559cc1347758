//! Which rank comes last to collectives, by how much, and what it did meanwhile.
//!
//! On a common clock, the last rank is the one that starts last by more than the error of the
//! clock. Without a common clock it is the one with the shortest call: the others wait inside the
//! collective.
//!
//! Its cause is found by comparing it with the other ranks between the end of the group's previous
//! collective, which all leave together, and its start of this one. A rank whose idle time ends
//! with the first launch of a kernel starts up, which happens once: that makes it no straggler.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::host_regions::HostRegions;
use super::intervals::Intervals;
use super::shared_names::SharedNames;
use super::{Activity, MAX_WAITS, on_all_cores};
use rgpu_model::rank_work::{GpuWorkKind, JoinedRanks, MatchedCollective, RankWork};
use rgpu_model::ranks::{ClockSource, CollectiveWait, LateCause, Straggler};
use rgpu_model::timeline::display_path;

/// A smaller difference between ranks is jitter of their launches.
const MIN_LATE_NS: u64 = 1_000;

/// The late calls of all ranks, and how long the others waited.
pub(super) struct LateRanks {
    /// Calls with a last rank.
    late: Vec<LateCall>,
    /// Time that all ranks together waited in each matched collective.
    pub(super) waited_in: Vec<u64>,
    /// Time in which each rank waited.
    waited: Vec<u64>,
}

/// A collective that waited for a rank.
struct LateCall {
    /// Index of the matched collective.
    collective: usize,
    /// Index of the rank that came last.
    rank: usize,
    late_ns: u64,
    /// The main cause of its lateness, with the time that the others did not need for it.
    cause: LateCause,
    cause_ns: u64,
    region: Option<String>,
    kernel: Option<String>,
}

pub(super) fn find(joined: &JoinedRanks, activities: &[Activity]) -> LateRanks {
    let mut all = LateRanks {
        late: Vec::new(),
        waited_in: Vec::with_capacity(joined.collectives.len()),
        waited: Vec::new(),
    };
    let mut waiting: Vec<Vec<(i64, i64)>> = vec![Vec::new(); joined.ranks.len()];
    let shared = SharedNames::new(joined);
    let with_activities: Vec<(&RankWork, &Activity)> =
        joined.ranks.iter().zip(activities).collect();
    let ranks = on_all_cores::map(&with_activities, |(rank, activity)| RankTables {
        rank,
        activity,
        shared: &shared,
        names: shared.names_of(rank),
        regions: shared.regions_of(rank),
        first_starts: first_starts(rank),
        host_regions: OnceLock::new(),
    });
    let mut last_calls: Vec<LastCall<'_>> = Vec::new();
    // The last call of each group.
    let mut before: BTreeMap<&str, &MatchedCollective> = BTreeMap::new();
    for (index, matched) in joined.collectives.iter().enumerate() {
        let previous = before.insert(&matched.group, matched);
        if !matched.operation.synchronises() {
            all.waited_in.push(0);
            continue;
        }
        let waits = waits(joined, matched);
        all.waited_in.push(waits.iter().sum());
        for ((rank, piece), wait) in matched.calls.iter().zip(&waits) {
            let at = *rank as usize;
            let start = joined.ranks[at].gpu_work[*piece as usize].start_ns;
            waiting[at].push((start, start.saturating_add_unsigned(*wait)));
        }
        let Some((position, late_ns)) = find_last(joined, matched, &waits) else { continue };
        let previous = previous.filter(|earlier| earlier.number + 1 == matched.number);
        last_calls.push(LastCall { collective: index, matched, previous, position, late_ns });
    }
    all.late = on_all_cores::map(&last_calls, |call| {
        let reason = call
            .previous
            .and_then(|earlier| find_reason(&ranks, earlier, call.matched, call.position))
            .unwrap_or_default();
        LateCall {
            collective: call.collective,
            rank: call.matched.calls[call.position].0 as usize,
            late_ns: call.late_ns,
            cause: reason.cause,
            cause_ns: reason.cause_ns,
            region: reason.region,
            kernel: reason.kernel,
        }
    });
    // Collectives of several groups may wait at the same time, and start in another order here than
    // on the first rank.
    let union = |mut times: Vec<(i64, i64)>| {
        times.sort_unstable();
        Intervals::union(times.into_iter()).ns()
    };
    all.waited = waiting.into_iter().map(union).collect();
    all
}

/// A collective that a rank came last to.
struct LastCall<'a> {
    /// Index of the matched collective.
    collective: usize,
    matched: &'a MatchedCollective,
    /// The call before it in its group.
    previous: Option<&'a MatchedCollective>,
    /// The last rank's position among the calls.
    position: usize,
    late_ns: u64,
}

/// A rank with what is looked up in it.
struct RankTables<'a> {
    rank: &'a RankWork,
    activity: &'a Activity,
    shared: &'a SharedNames<'a>,
    /// The shared number of each of its names and regions.
    names: Vec<usize>,
    regions: Vec<usize>,
    /// Start of the first work of each name.
    first_starts: Vec<i64>,
    host_regions: OnceLock<HostRegions>,
}

fn first_starts(rank: &RankWork) -> Vec<i64> {
    let mut first = vec![i64::MAX; rank.names.len()];
    for piece in &rank.gpu_work {
        if let Some(first) = first.get_mut(piece.name as usize) {
            *first = piece.start_ns.min(*first);
        }
    }
    first
}

fn starts(joined: &JoinedRanks, matched: &MatchedCollective) -> Vec<i64> {
    let start = |(rank, piece): &(u32, u32)| {
        joined.ranks[*rank as usize].gpu_work[*piece as usize].start_ns
    };
    matched.calls.iter().map(start).collect()
}

/// How long each rank waited for the last.
fn waits(joined: &JoinedRanks, matched: &MatchedCollective) -> Vec<u64> {
    let durations: Vec<u64> = super::collectives::durations(joined, matched).collect();
    let least = durations.iter().min().copied().unwrap_or(0);
    if joined.clock.source == ClockSource::None {
        return durations.iter().map(|ns| ns - least).collect();
    }
    let starts = starts(joined, matched);
    let latest = starts.iter().max().copied().unwrap_or(0);
    let wait = |(start, ns): (&i64, &u64)| latest.abs_diff(*start).min(*ns);
    starts.iter().zip(&durations).map(wait).collect()
}

/// The position of the last rank among the calls, and by how much it is later than the median of
/// the others. `None` if that is too little to tell.
fn find_last(
    joined: &JoinedRanks,
    matched: &MatchedCollective,
    waits: &[u64],
) -> Option<(usize, u64)> {
    let (position, least) = waits.iter().enumerate().min_by_key(|(_, wait)| **wait)?;
    let mut others: Vec<u64> = waits.to_vec();
    others.remove(position);
    others.sort_unstable();
    let late_ns = others.get(others.len() / 2)?.saturating_sub(*least);
    // Each of the two clocks has this error.
    let err_ns = joined.clock.residual_ns.unwrap_or(0).saturating_mul(2);
    (late_ns > err_ns.max(MIN_LATE_NS) && matched.number > 0).then_some((position, late_ns))
}

/// Why a rank came late: what it did while the others waited.
#[derive(Default)]
struct LateReason {
    cause: LateCause,
    cause_ns: u64,
    region: Option<String>,
    kernel: Option<String>,
}

/// How a rank spent a window, in nanoseconds. The four add up to at most the window.
#[derive(Clone, Copy)]
struct WindowTimes {
    compute: u64,
    /// Communication without computing.
    communication: u64,
    /// Copies without computing and communication.
    copy: u64,
    idle: u64,
}

impl WindowTimes {
    /// The times with the causes that they are for a late rank, in the order in which ties are
    /// broken: the last one wins.
    fn by_cause(self) -> [(LateCause, u64); 4] {
        [
            (LateCause::Compute, self.compute),
            (LateCause::Communication, self.communication),
            (LateCause::Copy, self.copy),
            (LateCause::Host, self.idle),
        ]
    }
}

/// The shared numbers of a kernel's name and of its region.
type KernelKey = (usize, Option<usize>);

/// A rank between two collectives.
#[derive(Clone, Copy)]
struct Window<'a> {
    of: &'a RankTables<'a>,
    from: i64,
    until: i64,
}

impl Window<'_> {
    /// How the rank spent the window.
    fn times(&self) -> WindowTimes {
        let (from, until) = (self.from, self.until);
        let busy = self.of.activity.any.ns_within(from, until);
        let compute = self.of.activity.compute.ns_within(from, until);
        let communication = self.of.activity.communication.ns_within(from, until);
        // Communication that overlaps computing counts as computing.
        let alone = communication.min(busy.saturating_sub(compute));
        let copies = busy.saturating_sub(compute + alone);
        let idle = until.abs_diff(from).saturating_sub(busy);
        WindowTimes {
            compute,
            communication: alone,
            copy: copies.min(self.of.activity.copies.ns_within(from, until)),
            idle,
        }
    }

    /// Computing time by kernel and region, in order of these.
    fn kernels(&self) -> Vec<(KernelKey, u64)> {
        let mut by_kernel: Vec<(KernelKey, u64)> = Vec::new();
        let first = self.of.rank.gpu_work.partition_point(|piece| piece.start_ns < self.from);
        let inside = self.of.rank.gpu_work[first..].iter();
        for piece in inside.take_while(|piece| piece.start_ns < self.until) {
            if piece.kind == GpuWorkKind::Compute {
                let Some(name) = self.of.names.get(piece.name as usize) else { continue };
                let region = piece.region.and_then(|at| self.of.regions.get(at as usize));
                let key = (*name, region.copied());
                by_kernel.push((key, piece.end_ns.abs_diff(piece.start_ns)));
            }
        }
        by_kernel.sort_unstable();
        by_kernel.dedup_by(|next, sum| {
            let is_same = next.0 == sum.0;
            sum.1 += if is_same { next.1 } else { 0 };
            is_same
        });
        by_kernel
    }

    /// The longest idle time.
    fn longest_idle(&self) -> Option<(i64, i64)> {
        self.of.activity.any.longest_gap_within(self.from, self.until)
    }

    /// Whether the first launch of a kernel ended the longest idle time.
    fn starts_up(&self) -> bool {
        let Some((_, end)) = self.longest_idle() else { return false };
        let at = self.of.rank.gpu_work.partition_point(|piece| piece.start_ns < end);
        let next = self.of.rank.gpu_work.get(at);
        next.is_some_and(|next| {
            self.of.first_starts.get(next.name as usize) == Some(&next.start_ns)
        })
    }

    /// The region of the host in the middle of the longest idle time, else that of the work that
    /// ended it.
    fn idle_region(&self) -> Option<String> {
        let (start, end) = self.longest_idle()?;
        let middle = start + (end - start) / 2;
        let host_regions = self.of.host_regions.get_or_init(|| HostRegions::for_rank(self.of.rank));
        let next = || {
            let at = self.of.rank.gpu_work.partition_point(|piece| piece.start_ns < end);
            self.of.rank.gpu_work.get(at)?.region
        };
        let region = host_regions.at(middle).or_else(next)?;
        self.of.rank.regions.get(region as usize).map(|path| display_path(path))
    }
}

/// Compares the last rank with the others between two collectives.
fn find_reason(
    ranks: &[RankTables<'_>],
    earlier: &MatchedCollective,
    matched: &MatchedCollective,
    position: usize,
) -> Option<LateReason> {
    let window = |(rank, piece): &(u32, u32)| {
        let (_, before) = earlier.calls.iter().find(|(other, _)| other == rank)?;
        let of = &ranks[*rank as usize];
        let from = of.rank.gpu_work[*before as usize].end_ns;
        let until = of.rank.gpu_work[*piece as usize].start_ns;
        Some(Window { of, from, until: until.max(from) })
    };
    let last = window(&matched.calls[position])?;
    let mut others: Vec<Window<'_>> = Vec::new();
    for (_, call) in matched.calls.iter().enumerate().filter(|(at, _)| *at != position) {
        others.push(window(call)?);
    }
    let of_others: Vec<_> = others.iter().map(|window| window.times().by_cause()).collect();
    let excess = |(at, (cause, own_ns)): (usize, (LateCause, u64))| {
        let mut times: Vec<u64> = of_others.iter().map(|times| times[at].1).collect();
        times.sort_unstable();
        (cause, own_ns.saturating_sub(times.get(times.len() / 2).copied().unwrap_or(0)))
    };
    let excesses = last.times().by_cause().into_iter().enumerate().map(excess);
    let (cause, cause_ns) = excesses.max_by_key(|(_, ns)| *ns)?;
    if cause_ns == 0 {
        return Some(LateReason { cause: LateCause::Unknown, ..LateReason::default() });
    }
    // The other rank that came first shows what the window takes without the delay.
    let other = others.iter().min_by_key(|window| window.until.saturating_sub(window.from))?;
    let mut reason = LateReason { cause, cause_ns, ..LateReason::default() };
    match reason.cause {
        LateCause::Compute => {
            let usual = other.kernels();
            let more = last.kernels().into_iter().map(|(key, ns)| {
                let found = usual.binary_search_by_key(&key, |(usual, _)| *usual);
                (ns.saturating_sub(found.map_or(0, |at| usual[at].1)), key)
            });
            if let Some((_, (kernel, region))) = more.max() {
                let shared = last.of.shared;
                reason.kernel = shared.name(kernel).map(str::to_owned);
                reason.region = region.and_then(|at| shared.region(at)).map(display_path);
            }
        }
        LateCause::Host => {
            reason.region = last.idle_region();
            if last.starts_up() {
                reason.cause = LateCause::StartUp;
            }
        }
        _ => {}
    }
    Some(reason)
}

/// Time of one cause in one region, with its kernels.
#[derive(Default)]
struct CauseTime<'a> {
    ns: u64,
    kernels: BTreeMap<&'a str, u64>,
}

impl LateRanks {
    /// How often a rank came last, and by how much in total.
    pub(super) fn lateness(&self, rank: usize) -> (u64, u64) {
        let of_it = self.late.iter().filter(|late| late.rank == rank);
        of_it.fold((0, 0), |(many, ns), late| (many + 1, ns + late.late_ns))
    }

    /// Time in which a rank waited for others.
    pub(super) fn waited_ns(&self, rank: usize) -> u64 {
        self.waited.get(rank).copied().unwrap_or(0)
    }

    /// The calls that waited longest.
    pub(super) fn longest(&self, joined: &JoinedRanks) -> Vec<CollectiveWait> {
        let mut all: Vec<&LateCall> = self.late.iter().collect();
        all.sort_by_key(|late| std::cmp::Reverse(late.late_ns));
        all.truncate(MAX_WAITS);
        let waits = all.into_iter().map(|late| {
            let matched = &joined.collectives[late.collective];
            let mut start_ns = vec![None; joined.ranks.len()];
            let mut duration_ns = start_ns.clone();
            for (rank, piece) in &matched.calls {
                let at = *rank as usize;
                let piece = &joined.ranks[at].gpu_work[*piece as usize];
                start_ns[at] = u64::try_from(piece.start_ns).ok();
                duration_ns[at] = Some(piece.end_ns.abs_diff(piece.start_ns));
            }
            CollectiveWait {
                operation: matched.operation.clone(),
                group: matched.group.to_string(),
                number: matched.number,
                start_ns,
                duration_ns,
                last: joined.ranks[late.rank].location.rank,
                late_ns: late.late_ns,
                cause: late.cause.clone(),
                region: late.region.clone(),
            }
        });
        waits.collect()
    }

    /// The ranks that came last after their start-up, most time first.
    pub(super) fn stragglers(&self, joined: &JoinedRanks) -> Vec<Straggler> {
        let stragglers = joined.ranks.iter().enumerate().filter_map(|(at, rank)| {
            let of_it = self.late.iter().filter(|late| late.rank == at);
            let of_it: Vec<&LateCall> =
                of_it.filter(|late| late.cause != LateCause::StartUp).collect();
            let mut causes: BTreeMap<(&LateCause, Option<&str>), CauseTime<'_>> = BTreeMap::new();
            for late in &of_it {
                let time = causes.entry((&late.cause, late.region.as_deref())).or_default();
                time.ns += late.cause_ns;
                if let Some(kernel) = late.kernel.as_deref() {
                    *time.kernels.entry(kernel).or_default() += late.cause_ns;
                }
            }
            let ((cause, region), time) = causes.into_iter().max_by_key(|(_, time)| time.ns)?;
            let kernel = time.kernels.into_iter().max_by_key(|(_, ns)| *ns);
            Some(Straggler {
                rank: rank.location.rank,
                times_last: of_it.len() as u64,
                late_ns: of_it.iter().map(|late| late.late_ns).sum(),
                cause: cause.clone(),
                cause_ns: time.ns,
                region: region.map(str::to_owned),
                kernel: kernel.map(|(kernel, _)| kernel.to_owned()),
            })
        });
        let mut stragglers: Vec<Straggler> = stragglers.collect();
        stragglers.sort_by_key(|straggler| std::cmp::Reverse(straggler.late_ns));
        stragglers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straggler_has_a_kernel_of_its_region_and_no_start_up() {
        let late = |cause, region: &str, kernel: &str, cause_ns: u64| LateCall {
            collective: 0,
            rank: 0,
            late_ns: cause_ns,
            cause,
            cause_ns,
            region: Some(region.to_owned()),
            kernel: Some(kernel.to_owned()),
        };
        // Most of all is `copy`, but the region with most does not have it.
        let late = vec![
            late(LateCause::Compute, "forward", "gemm", 30),
            late(LateCause::Compute, "forward", "norm", 25),
            late(LateCause::Compute, "backward", "copy", 40),
            late(LateCause::StartUp, "load", "fill", 1_000),
        ];
        let all = LateRanks { late, waited_in: Vec::new(), waited: vec![0] };
        let joined = JoinedRanks { ranks: vec![RankWork::default()], ..JoinedRanks::default() };
        let stragglers = all.stragglers(&joined);
        assert_eq!(stragglers.len(), 1);
        let straggler = &stragglers[0];
        assert_eq!(straggler.region.as_deref(), Some("forward"));
        assert_eq!(straggler.kernel.as_deref(), Some("gemm"));
        assert_eq!((straggler.cause_ns, straggler.late_ns, straggler.times_last), (55, 95, 3));
    }
}
