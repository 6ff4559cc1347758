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
    let first = ranks.ranks.first().and_then(|rank| rank.location.host.as_ref());
    let several = ranks.ranks.iter().any(|rank| rank.location.host.as_ref() != first);
    let share = |ns: u64, of: u64| percent(100.0 * ns as f64 / of.max(1) as f64);
    let given = |is_known: bool, text: String| if is_known { text } else { String::new() };
    TextTable::of(
        shown(ranks),
        &[
            ("rank:", &|r| r.location.rank.to_string()),
            ("GPU:", &|r| gpu_name(r, several)),
            ("span:", &|r| duration(r.span_ns as f64)),
            ("compute:", &|r| share(r.compute_ns, r.span_ns)),
            ("exposed:", &|r| share(r.exposed_ns, r.span_ns)),
            ("overlap:", &|r| {
                given(r.communication_ns > 0, share(r.overlapped_ns, r.communication_ns))
            }),
            ("copies:", &|r| share(r.copy_ns, r.span_ns)),
            ("idle:", &|r| share(r.idle_ns, r.span_ns)),
            ("waited:", &|r| duration(r.waited_ns as f64)),
            ("last:", &|r| given(!ranks.collectives.is_empty(), r.times_last.to_string())),
        ],
    )
}

/// The causes of idle time of each rank, as durations.
pub(super) fn idle(ranks: &Ranks) -> TextTable {
    let of_cause = |rank: &RankTime, cause: &str| {
        let found = rank.idle.iter().find(|idle| idle.cause.as_str() == cause);
        found.map(|idle| duration(idle.total_ns as f64)).unwrap_or_default()
    };
    TextTable::of(
        shown(ranks),
        &[
            ("rank:", &|rank| rank.location.rank.to_string()),
            ("host late:", &|rank| of_cause(rank, "host_late")),
            ("launch:", &|rank| of_cause(rank, "launch")),
            ("waits for a rank:", &|rank| of_cause(rank, "rank")),
            ("other:", &|rank| of_cause(rank, "other")),
        ],
    )
}

/// Matched collectives with their rates.
pub(super) fn collectives(ranks: &Ranks) -> TextTable {
    let rate = |rate: Option<f64>| rate.map(|rate| per_second(rate, "B")).unwrap_or_default();
    TextTable::of(
        ranks.collectives.iter().take(MAX_ROWS),
        &[
            ("collective", &|sum| sum.operation.replace('_', "-")),
            ("ranks:", &|sum| sum.ranks.to_string()),
            ("size:", &|sum| sum.bytes.map(|n| bytes(n as f64)).unwrap_or_default()),
            ("calls:", &|sum| sum.calls.to_string()),
            ("median:", &|sum| duration(sum.median_ns as f64)),
            ("algo:", &|sum| rate(sum.algorithm_bytes_per_s)),
            ("bus:", &|sum| rate(sum.bus_bytes_per_s)),
            ("link:", &|sum| {
                sum.link_share.map(|share| percent(100.0 * share)).unwrap_or_default()
            }),
            ("waited:", &|sum| duration(sum.waited_ns as f64)),
        ],
    )
}

/// The calls that waited longest for their last rank.
pub(super) fn waits(ranks: &Ranks) -> TextTable {
    TextTable::of(
        ranks.waits.iter().take(MAX_WAITS),
        &[
            ("collective", &|wait| wait.operation.replace('_', "-")),
            ("call:", &|wait| wait.number.to_string()),
            ("last rank:", &|wait| wait.last.to_string()),
            ("late by:", &|wait| duration(wait.late_ns as f64)),
            ("cause", &|wait| wait.cause.to_string()),
            ("region", &|wait| {
                short_region(wait.region.as_deref().unwrap_or_default()).into_owned()
            }),
        ],
    )
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
