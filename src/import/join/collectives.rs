//! Matches the calls of collectives between ranks: the k-th of a process group on one rank is the
//! k-th of that group on every other.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::rank_work::{MatchedCollective, RankCollective, RankWork};

/// The collectives of all ranks.
#[derive(Debug, Default)]
pub(super) struct MatchOutcome {
    pub(super) matched: Vec<MatchedCollective>,
    /// Number of calls without a match.
    pub(super) unmatched: u64,
    /// Groups whose ranks call different collectives.
    pub(super) different: Vec<Arc<str>>,
}

/// Matches all collectives. They are in order of start on their first rank.
pub(super) fn match_all(ranks: &[RankWork]) -> MatchOutcome {
    let mut groups: BTreeMap<Arc<str>, BTreeMap<u32, Vec<&RankCollective>>> = BTreeMap::new();
    for (rank, at) in ranks.iter().zip(0..) {
        for collective in &rank.collectives {
            let group = groups.entry(Arc::clone(&collective.group)).or_default();
            group.entry(at).or_default().push(collective);
        }
    }
    let mut outcome = MatchOutcome::default();
    for (group, by_rank) in groups {
        let told = by_rank.values().flatten().find_map(|collective| collective.ranks);
        let all: u64 = by_rank.values().map(|calls| calls.len() as u64).sum();
        if by_rank.len() < 2 || told.is_some_and(|told| by_rank.len() < told as usize) {
            outcome.unmatched += all;
            continue;
        }
        let common = by_rank.values().map(Vec::len).min().unwrap_or(0);
        let mut matched = 0;
        for number in 0..common {
            let calls: Vec<(u32, &RankCollective)> =
                by_rank.iter().map(|(rank, calls)| (*rank, calls[number])).collect();
            let operation = &calls[0].1.operation;
            if calls.iter().any(|(_, call)| call.operation != *operation) {
                outcome.different.push(Arc::clone(&group));
                break;
            }
            matched += calls.len() as u64;
            outcome.matched.push(MatchedCollective {
                group: Arc::clone(&group),
                operation: operation.clone(),
                number: number as u64,
                bytes: bytes(calls[0].1, calls.len() as u64),
                calls: calls.iter().map(|(rank, call)| (*rank, call.piece)).collect(),
            });
        }
        outcome.unmatched += all - matched;
    }
    let start = |matched: &MatchedCollective| {
        let (rank, piece) = matched.calls[0];
        ranks[rank as usize].pieces[piece as usize].start_ns
    };
    outcome.matched.sort_by_cached_key(start);
    outcome
}

/// The bytes by the convention of nccl-tests.
fn bytes(call: &RankCollective, ranks: u64) -> Option<u64> {
    let bytes = call.bytes.filter(|bytes| *bytes > 0)?;
    if call.bytes_of_rank { bytes.checked_mul(ranks) } else { Some(bytes) }
}
