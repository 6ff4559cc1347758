//! Sums of matched collectives, with their rates.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rgpu_predict::hw;

use super::late::LateRanks;
use crate::device;
use rgpu_model::Profile;
use rgpu_model::rank_work::{JoinedRanks, MatchedCollective};
use rgpu_model::ranks::{ClockSource, CollectiveOperation, CollectiveSum};

/// Group, operation, bytes and number of ranks.
type Key<'a> = (&'a str, &'a CollectiveOperation, Option<u64>, u32);

/// The least durations of the calls of one key, and the time waited in them.
#[derive(Default)]
struct Calls {
    least_ns: Vec<u64>,
    waited_ns: u64,
}

pub(super) fn sums(
    profile: &Profile,
    joined: &JoinedRanks,
    late: &LateRanks,
) -> Vec<CollectiveSum> {
    let mut by_key: BTreeMap<Key<'_>, Calls> = BTreeMap::new();
    for (matched, waited_ns) in joined.collectives.iter().zip(&late.waited_in) {
        let ranks = u32::try_from(matched.calls.len()).unwrap_or(u32::MAX);
        let key = (&*matched.group, &matched.operation, matched.bytes, ranks);
        let calls = by_key.entry(key).or_default();
        calls.least_ns.push(durations(joined, matched).min().unwrap_or(0));
        calls.waited_ns += waited_ns;
    }
    let link = link_bytes_per_s(profile, joined);
    let mut sums: Vec<CollectiveSum> =
        by_key.into_iter().map(|(key, calls)| calls.into_sum(key, link)).collect();
    sums.sort_by_key(|sum| Reverse(sum.total_ns));
    sums
}

impl Calls {
    fn into_sum(mut self, key: Key<'_>, link: Option<f64>) -> CollectiveSum {
        let (group, operation, bytes, ranks) = key;
        self.least_ns.sort_unstable();
        let median_ns = self.least_ns.get(self.least_ns.len() / 2).copied().unwrap_or(0);
        let rate = bytes.filter(|_| median_ns > 0).map(|n| n as f64 * 1e9 / median_ns as f64);
        let bus = rate.zip(operation.bus_factor(ranks)).map(|(rate, factor)| rate * factor);
        CollectiveSum {
            operation: operation.clone(),
            group: group.to_owned(),
            ranks,
            bytes,
            calls: self.least_ns.len() as u64,
            median_ns,
            total_ns: self.least_ns.iter().sum(),
            waited_ns: self.waited_ns,
            algorithm_bytes_per_s: rate,
            bus_bytes_per_s: bus,
            link_share: bus.zip(link).map(|(bus, link)| bus / link),
        }
    }
}

/// The durations of a call on all ranks.
pub(super) fn durations<'a>(
    joined: &'a JoinedRanks,
    matched: &'a MatchedCollective,
) -> impl Iterator<Item = u64> + 'a {
    matched.calls.iter().map(|(rank, piece)| {
        let piece = &joined.ranks[*rank as usize].gpu_work[*piece as usize];
        piece.end_ns.abs_diff(piece.start_ns)
    })
}

/// The peak of NVLink of one GPU, one way. `None` between hosts, and for an unknown GPU.
fn link_bytes_per_s(profile: &Profile, joined: &JoinedRanks) -> Option<f64> {
    let host = &joined.ranks.first()?.location.host;
    let one_host = joined.clock.source == ClockSource::Report
        || (host.is_some() && joined.ranks.iter().all(|rank| rank.location.host == *host));
    let device = device::find_device(profile);
    let hardware = device.name.as_deref().and_then(hw::for_device).filter(|_| one_host)?;
    hardware.gpu().ok()?.nvlink.filter(|rate| *rate > 0.0)
}
