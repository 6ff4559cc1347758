//! The ranks of a program as tables, for the terminal and for Markdown.

use super::TextTable;
use super::quantity::{bytes, duration, per_second, percent};
use super::region_rows::short_region;
use rgpu_model::ranks::{ClockSource, RankClock, RankTime, Ranks};

/// Most rows of a table.
const MAX_ROWS: usize = 16;
const MAX_WAITS: usize = 5;

/// The clock in words.
pub(super) fn clock(clock: &RankClock) -> String {
    match &clock.source {
        ClockSource::Report => "one clock: a single report has all ranks".to_owned(),
        ClockSource::Host => "the clock of their host".to_owned(),
        ClockSource::Fitted => format!(
            "clocks aligned on {} collectives, accurate to {}",
            clock.collectives.unwrap_or(0),
            duration(clock.residual_ns.unwrap_or(0) as f64),
        ),
        ClockSource::None => "no common clock: durations are compared, not starts".to_owned(),
        ClockSource::Other(other) => other.clone(),
    }
}

/// The GPU of a rank: `GPU 1`, with several hosts `node0:1`.
fn gpu_name(rank: &RankTime, several_hosts: bool) -> String {
    let gpu = rank.location.gpu.map(|gpu| gpu.to_string()).unwrap_or_default();
    let host = rank.location.host.as_deref().filter(|_| several_hosts);
    let host = host.map(|host| host.split('.').next().unwrap_or(host));
    match (host, gpu.is_empty()) {
        (Some(host), true) => host.to_owned(),
        (Some(host), false) => format!("{host}:{gpu}"),
        (None, true) => String::new(),
        (None, false) => format!("GPU {gpu}"),
    }
}

/// The ranks of a table: the first, and the one that the others wait for longest.
fn shown(ranks: &Ranks) -> impl Iterator<Item = &RankTime> {
    let worst = ranks.stragglers.first().map(|straggler| straggler.rank);
    let (first, rest) = ranks.ranks.split_at(ranks.ranks.len().min(MAX_ROWS));
    first.iter().chain(rest.iter().filter(move |rank| Some(rank.location.rank) == worst))
}

/// The rows that tables leave out, in words. `None` if they have all.
pub(super) fn left_out(ranks: &Ranks) -> Option<String> {
    let parts = [
        (ranks.ranks.len() - shown(ranks).count(), "ranks"),
        (ranks.collectives.len().saturating_sub(MAX_ROWS), "collectives"),
        (ranks.waits.len().saturating_sub(MAX_WAITS), "of the longest waits"),
    ];
    let parts = parts.into_iter().filter(|(many, _)| *many > 0);
    let parts: Vec<String> = parts.map(|(many, what)| format!("{many} {what}")).collect();
    (!parts.is_empty()).then(|| format!("{} more in the JSON", parts.join(", ")))
}

/// How each rank spent its time, as shares of its span.
pub(super) fn times(ranks: &Ranks) -> TextTable {
    let mut table = TextTable::new(
        "rank: | GPU: | span: | compute: | exposed: | overlap: | copies: | idle: | waited: | last:",
    );
    let first = ranks.ranks.first().and_then(|rank| rank.location.host.as_ref());
    let several = ranks.ranks.iter().any(|rank| rank.location.host.as_ref() != first);
    for rank in shown(ranks) {
        let share = |ns: u64, of: u64| percent(100.0 * ns as f64 / of.max(1) as f64);
        let overlapped = share(rank.overlapped_ns, rank.communication_ns);
        table.add_row([
            rank.location.rank.to_string(),
            gpu_name(rank, several),
            duration(rank.span_ns as f64),
            share(rank.compute_ns, rank.span_ns),
            share(rank.exposed_ns, rank.span_ns),
            if rank.communication_ns > 0 { overlapped } else { String::new() },
            share(rank.copy_ns, rank.span_ns),
            share(rank.idle_ns, rank.span_ns),
            duration(rank.waited_ns as f64),
            if ranks.collectives.is_empty() { String::new() } else { rank.times_last.to_string() },
        ]);
    }
    table
}

/// The causes of idle time of each rank, as durations.
pub(super) fn idle(ranks: &Ranks) -> TextTable {
    let mut table = TextTable::new("rank: | host late: | launch: | waits for a rank: | other:");
    for rank in shown(ranks) {
        let of_cause = |cause: &str| {
            let found = rank.idle.iter().find(|idle| idle.cause.as_str() == cause);
            found.map(|idle| duration(idle.total_ns as f64)).unwrap_or_default()
        };
        let number = rank.location.rank.to_string();
        let causes = ["host_late", "launch", "rank", "other"].map(of_cause);
        let [late, launch, waits, other] = causes;
        table.add_row([number, late, launch, waits, other]);
    }
    table
}

/// Matched collectives with their rates.
pub(super) fn collectives(ranks: &Ranks) -> TextTable {
    let mut table = TextTable::new(
        "collective | ranks: | size: | calls: | median: | algo: | bus: | link: | waited:",
    );
    for sum in ranks.collectives.iter().take(MAX_ROWS) {
        let rate = |rate: Option<f64>| rate.map(|rate| per_second(rate, "B")).unwrap_or_default();
        table.add_row([
            sum.operation.replace('_', "-"),
            sum.ranks.to_string(),
            sum.bytes.map(|n| bytes(n as f64)).unwrap_or_default(),
            sum.calls.to_string(),
            duration(sum.median_ns as f64),
            rate(sum.algorithm_bytes_per_s),
            rate(sum.bus_bytes_per_s),
            sum.link_share.map(|share| percent(100.0 * share)).unwrap_or_default(),
            duration(sum.waited_ns as f64),
        ]);
    }
    table
}

/// The calls that waited longest for their last rank.
pub(super) fn waits(ranks: &Ranks) -> TextTable {
    let mut table = TextTable::new("collective | call: | last rank: | late by: | cause | region");
    for wait in ranks.waits.iter().take(MAX_WAITS) {
        table.add_row([
            wait.operation.replace('_', "-"),
            wait.number.to_string(),
            wait.last.to_string(),
            duration(wait.late_ns as f64),
            wait.cause.to_string(),
            wait.region.as_deref().map(|r| short_region(r).into_owned()).unwrap_or_default(),
        ]);
    }
    table
}

/// The step that took some rank longest, in words. `None` without steps.
pub(super) fn slowest_step(ranks: &Ranks) -> Option<String> {
    let steps = ranks.steps.as_ref()?;
    let longest = steps.longest.as_ref()?;
    Some(format!(
        "the longest of {} `{}` is number {} on rank {}: {} on the host (median {})",
        steps.steps.len() as u64 + steps.cut,
        steps.name,
        longest.number,
        longest.rank,
        duration(longest.host_ns as f64),
        duration(longest.median_ns as f64),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::ranks::{RankLocation, Straggler};

    #[test]
    fn the_straggler_is_shown_and_the_rest_is_counted() {
        let rank = |number| RankTime {
            location: RankLocation { rank: number, ..RankLocation::default() },
            ..RankTime::default()
        };
        let mut ranks = Ranks { ranks: (0..64).map(rank).collect(), ..Ranks::default() };
        let numbers =
            |ranks: &Ranks| -> Vec<u32> { shown(ranks).map(|r| r.location.rank).collect() };
        assert_eq!(numbers(&ranks), (0..16).collect::<Vec<_>>());
        ranks.stragglers = vec![Straggler { rank: 40, ..Straggler::default() }];
        assert_eq!(numbers(&ranks), (0..16).chain([40]).collect::<Vec<_>>());
        assert_eq!(left_out(&ranks).unwrap(), "47 ranks more in the JSON");
        ranks.ranks.truncate(16);
        assert_eq!(left_out(&ranks), None);
    }

    #[test]
    fn a_place_without_a_gpu_is_its_host() {
        let mut rank = RankTime::default();
        rank.location.host = Some("node0.cluster".to_owned());
        assert_eq!(gpu_name(&rank, true), "node0");
        assert_eq!(gpu_name(&rank, false), "");
        rank.location.gpu = Some(1);
        assert_eq!(gpu_name(&rank, true), "node0:1");
        assert_eq!(gpu_name(&rank, false), "GPU 1");
    }
}
