//! Derives from the work of all ranks how each spent its time, and for which rank the others wait.
//!
//! Times are unions of intervals, never sums. A rank is judged by what it did itself between two
//! collectives, not by wall time: a collective makes wall times equal.

mod balance;
mod collectives;
mod finding;
mod host_regions;
mod intervals;
mod late;
mod on_all_cores;
mod shared_names;
mod steps;
mod time;

use super::Limits;
use intervals::Intervals;
use rgpu_model::rank_work::{GpuWorkKind, JoinedRanks, RankWork};
use rgpu_model::ranks::Ranks;
use rgpu_model::{Finding, Profile};

/// Most entries of lists in the profile.
const MAX_WAITS: usize = 20;
const MAX_REGIONS: usize = 20;
const MAX_STEPS: usize = 200;

/// When a rank computed, communicated and copied.
struct Activity {
    compute: Intervals,
    communication: Intervals,
    copies: Intervals,
    /// The union of the three.
    any: Intervals,
}

impl Activity {
    fn for_rank(rank: &RankWork) -> Activity {
        let of_kind = |kind: GpuWorkKind| {
            let pieces = rank.gpu_work.iter().filter(move |piece| piece.kind == kind);
            Intervals::union(pieces.map(|piece| (piece.start_ns, piece.end_ns)))
        };
        Activity {
            compute: of_kind(GpuWorkKind::Compute),
            communication: of_kind(GpuWorkKind::Collective),
            copies: of_kind(GpuWorkKind::Copy),
            any: Intervals::union(rank.gpu_work.iter().map(|p| (p.start_ns, p.end_ns))),
        }
    }
}

/// Adds the ranks to a profile and returns their findings.
pub(super) fn analyze(
    profile: &mut Profile,
    joined: &JoinedRanks,
    limits: &Limits<'_>,
) -> Vec<Finding> {
    if joined.ranks.is_empty() {
        return Vec::new();
    }
    let activities: Vec<Activity> = on_all_cores::map(&joined.ranks, Activity::for_rank);
    let late = late::find(joined, &activities);
    let ranks = Ranks {
        clock: joined.clock.clone(),
        ranks: time::rank_times(joined, &activities, &late),
        collectives: collectives::sums(profile, joined, &late),
        unmatched: joined.unmatched,
        waits: late.longest(joined),
        stragglers: late.stragglers(joined),
        regions: balance::region_balances(joined),
        steps: steps::find(joined),
    };
    let findings = finding::findings(&ranks, limits);
    profile.ranks = Some(ranks);
    findings
}
