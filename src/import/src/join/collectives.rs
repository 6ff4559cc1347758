//! Matches the calls of a collective between ranks: the k-th call of a process group on one rank is
//! the k-th of that group on every other. Point-to-point calls are left out, because only two ranks
//! make them.
//!
//! The [`RankWork`] of each rank's report comes in. The matched calls align the clocks of the
//! reports (`clock`), and show which rank came late.

use std::collections::BTreeMap;
use std::sync::Arc;

use rgpu_model::rank_work::{MatchedCollective, RankCollective, RankWork};

/// The matched collectives of all ranks, and what could not be matched.
#[derive(Debug, Default)]
pub(super) struct MatchOutcome {
    pub(super) matched: Vec<MatchedCollective>,
    /// Number of calls without a match.
    pub(super) unmatched: u64,
    /// For each group whose ranks made different calls: the difference, as a sentence.
    pub(super) mismatches: Vec<String>,
}

/// Matches all collectives, group by group.
pub(super) fn match_all(ranks: &[RankWork]) -> MatchOutcome {
    let mut groups: BTreeMap<Arc<str>, BTreeMap<u32, Vec<&RankCollective>>> = BTreeMap::new();
    for (rank, rank_index) in ranks.iter().zip(0..) {
        let collectives = rank.collectives.iter();
        for collective in collectives.filter(|call| !call.operation.is_point_to_point()) {
            let group = groups.entry(Arc::clone(&collective.group)).or_default();
            group.entry(rank_index).or_default().push(collective);
        }
    }
    let mut outcome = MatchOutcome::default();
    for (group, by_rank) in groups {
        let stated_ranks = by_rank.values().flatten().find_map(|collective| collective.ranks);
        let all: u64 = by_rank.values().map(|calls| calls.len() as u64).sum();
        let caller_count = by_rank.len();
        if caller_count < 2
            || stated_ranks.is_some_and(|stated_ranks| caller_count != stated_ranks as usize)
        {
            if let Some(stated_ranks) =
                stated_ranks.filter(|stated_ranks| caller_count > *stated_ranks as usize)
            {
                outcome.mismatches.push(format!(
                    "{caller_count} ranks call collectives of {group}, which has {stated_ranks}: several groups \
                     have this name, so their calls are not matched"
                ));
            }
            outcome.unmatched += all;
            continue;
        }
        let matched = match_group(&group, &by_rank, &mut outcome);
        outcome.unmatched += all - matched;
    }
    outcome
}

/// Matches the calls of one group until they differ. Returns how many were matched.
fn match_group(
    group: &Arc<str>,
    by_rank: &BTreeMap<u32, Vec<&RankCollective>>,
    outcome: &mut MatchOutcome,
) -> u64 {
    let least = by_rank.values().map(Vec::len).min().unwrap_or(0);
    let most = by_rank.values().map(Vec::len).max().unwrap_or(0);
    let mut matched = 0;
    for number in 0..least {
        let calls: Vec<(u32, &RankCollective)> =
            by_rank.iter().map(|(rank, calls)| (*rank, calls[number])).collect();
        let operation = &calls[0].1.operation;
        if calls.iter().any(|(_, call)| call.operation != *operation) {
            outcome.mismatches.push(format!(
                "the ranks of {group} do not call the same collectives in the same order; its \
                 calls are matched until they differ"
            ));
            return matched;
        }
        let ranks = calls.len() as u64;
        let mut sizes = calls.iter().filter_map(|(_, call)| bytes(call, ranks));
        if let Some(size) = sizes.next()
            && operation.has_equal_sizes()
            && let Some(other) = sizes.find(|other| *other != size)
        {
            outcome.mismatches.push(format!(
                "the ranks of {group} have {size} and {other} bytes in their call {number}; its \
                 calls are matched up to this one"
            ));
            return matched;
        }
        matched += ranks;
        outcome.matched.push(MatchedCollective {
            group: Arc::clone(group),
            operation: operation.clone(),
            number: number as u64,
            bytes: bytes(calls[0].1, ranks),
            calls: calls.iter().map(|(rank, call)| (*rank, call.gpu_work)).collect(),
        });
    }
    if least < most {
        outcome.mismatches.push(format!(
            "the ranks of {group} call between {least} and {most} collectives; the first {least} \
             of each are matched"
        ));
    }
    matched
}

/// Sorts matched collectives by start on their first rank.
pub(super) fn sort_by_start(matched: &mut [MatchedCollective], ranks: &[RankWork]) {
    matched.sort_by_cached_key(|matched| {
        let (rank, gpu_work) = matched.calls[0];
        ranks[rank as usize].gpu_work[gpu_work as usize].start_ns
    });
}

/// The size of a call as nccl-tests counts it: the data of all ranks of an all-gather or
/// reduce-scatter. `None` if the report gives no size.
fn bytes(call: &RankCollective, ranks: u64) -> Option<u64> {
    let bytes = call.bytes.filter(|bytes| *bytes > 0)?;
    if call.bytes_are_per_rank { bytes.checked_mul(ranks) } else { Some(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::rank_work::{GpuWork, GpuWorkKind};
    use rgpu_model::ranks::CollectiveOperation;

    /// A rank of the group `dp` with these operations and bytes.
    fn rank(calls: &[(CollectiveOperation, Option<u64>)], stated_ranks: Option<u32>) -> RankWork {
        let mut work = RankWork::default();
        for ((operation, bytes), gpu_work) in calls.iter().zip(0..) {
            work.gpu_work.push(GpuWork {
                start_ns: i64::from(gpu_work) * 100,
                end_ns: i64::from(gpu_work) * 100 + 50,
                called_ns: None,
                name: 0,
                region: None,
                kind: GpuWorkKind::Collective,
            });
            work.collectives.push(RankCollective {
                gpu_work,
                group: Arc::from("dp"),
                operation: operation.clone(),
                bytes: *bytes,
                bytes_are_per_rank: false,
                ranks: stated_ranks,
            });
        }
        work
    }

    const REDUCE: (CollectiveOperation, Option<u64>) = (CollectiveOperation::AllReduce, Some(64));

    fn gpu_work(outcome: &MatchOutcome) -> Vec<Vec<u32>> {
        let of_call = |matched: &MatchedCollective| matched.calls.iter().map(|c| c.1).collect();
        outcome.matched.iter().map(of_call).collect()
    }

    #[test]
    fn calls_from_point_to_point_are_not_counted() {
        let send = || (CollectiveOperation::from_name("send"), None);
        let receive = || (CollectiveOperation::SendRecv, None);
        let first = rank(&[send(), send(), REDUCE, REDUCE], None);
        let second = rank(&[REDUCE, receive(), REDUCE], None);
        let outcome = match_all(&[first, second]);
        assert_eq!(gpu_work(&outcome), [[2, 0], [3, 2]]);
        assert_eq!((outcome.unmatched, outcome.mismatches.len()), (0, 0), "{outcome:?}");
    }

    #[test]
    fn a_different_size_ends_the_matching_of_its_group() {
        let other = (CollectiveOperation::AllReduce, Some(128));
        let unknown = (CollectiveOperation::AllReduce, None);
        let first = rank(&[REDUCE, REDUCE, REDUCE, REDUCE], None);
        let outcome = match_all(&[first, rank(&[REDUCE, unknown, other, REDUCE], None)]);
        assert_eq!(gpu_work(&outcome), [[0, 0], [1, 1]]);
        assert_eq!(outcome.unmatched, 4);
        assert_eq!(
            outcome.mismatches,
            ["the ranks of dp have 64 and 128 bytes in their call 2; its calls are matched up to \
              this one"]
        );
        // Ranks may give each other parts of different sizes.
        let parts = |bytes| rank(&[(CollectiveOperation::AllToAll, Some(bytes))], None);
        let outcome = match_all(&[parts(10), parts(20)]);
        assert_eq!((outcome.matched.len(), outcome.mismatches.len()), (1, 0));
    }

    #[test]
    fn ranks_with_fewer_calls_are_a_mismatch() {
        let outcome = match_all(&[rank(&[REDUCE, REDUCE, REDUCE], None), rank(&[REDUCE], None)]);
        assert_eq!((outcome.matched.len(), outcome.unmatched), (1, 2));
        assert!(outcome.mismatches[0].contains("between 1 and 3"), "{outcome:?}");
    }

    #[test]
    fn groups_with_the_same_name_are_not_matched() {
        let ranks: Vec<RankWork> = (0..4).map(|_| rank(&[REDUCE], Some(2))).collect();
        let outcome = match_all(&ranks);
        assert_eq!((outcome.matched.len(), outcome.unmatched), (0, 4));
        assert!(outcome.mismatches[0].starts_with("4 ranks"), "{outcome:?}");
        // A report of one rank is missing.
        let outcome = match_all(&[rank(&[REDUCE], Some(3)), rank(&[REDUCE], Some(3))]);
        assert_eq!((outcome.unmatched, outcome.mismatches.len()), (2, 0));
    }
}
