//! Brings the times of several reports to one clock.
//!
//! All ranks leave a synchronising collective at about the same time. So the ends of a matched call
//! are the same moment on two clocks. The offset is the median of the differences between the ends.
//! The drift is the median of the slopes between pairs of points (the Theil-Sen estimator). The
//! residual is the error that remains: events closer than that have no known order.

use std::collections::BTreeSet;

use rgpu_case::stats::median;

use super::ReportRanks;
use rgpu_model::rank_work::{JoinedRanks, RankWork};
use rgpu_model::ranks::{ClockSource, RankClock};

/// Collectives that a fit needs.
const MIN_POINTS: usize = 3;
/// Collectives that a fit of the drift needs, and the time in nanoseconds that they must span.
const MIN_DRIFT_POINTS: usize = 20;
const MIN_DRIFT_SPAN_NS: i64 = 1_000_000_000;
/// Points whose slopes are computed. The number of pairs grows with its square.
const MAX_SLOPE_POINTS: usize = 128;
/// Fits with a larger drift are rejected.
const MAX_DRIFT: f64 = 1e-3;
/// Times since 1970 in nanoseconds are larger than this, times since a boot or a capture are not.
const SINCE_1970_NS: i64 = 1_000_000_000_000_000_000;

/// The clock of one report. The analysis and `trace.json` convert their times with it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportClock {
    fit: Option<Fit>,
    /// The start of the common clock, on that clock before the start is subtracted.
    begin_ns: i64,
}

impl ReportClock {
    /// Converts a time of the report to the common clock.
    pub(super) fn common(&self, own_ns: i64) -> i64 {
        let fitted = self.fit.map_or(own_ns, |fit| fit.common(own_ns));
        fitted.saturating_sub(self.begin_ns)
    }
}

/// Converts all times to one clock that begins at 0. Returns the source of that clock, and the
/// clock of each report.
pub(super) fn align(
    joined: &mut JoinedRanks,
    reports: &[ReportRanks],
) -> (RankClock, Vec<ReportClock>) {
    let mut clocks = vec![ReportClock::default(); reports.len()];
    let clock = match reports.iter().filter(|ranks| !ranks.is_empty()).count() {
        0 | 1 => RankClock { source: ClockSource::Report, ..RankClock::default() },
        _ => fit_all(joined, reports, &mut clocks).unwrap_or_else(|| host_clock(&joined.ranks)),
    };
    if clock.source != ClockSource::Fitted {
        clocks.fill(ReportClock::default());
    }
    let firsts = reports.iter().zip(&clocks).map(|(ranks, of_report)| {
        ranks.iter().map(|at| of_report.common(joined.ranks[*at].first_ns)).min()
    });
    let firsts: Vec<Option<i64>> = firsts.collect();
    let first = firsts.iter().flatten().min().copied().unwrap_or(0);
    for ((ranks, of_report), own_first) in reports.iter().zip(&mut clocks).zip(firsts) {
        of_report.begin_ns = match own_first {
            // A report without work has no ranks. Its events keep their times.
            None => 0,
            Some(own_first) if clock.source == ClockSource::None => own_first,
            Some(_) => first,
        };
        ranks.iter().for_each(|at| joined.ranks[*at].map_times(|ns| of_report.common(ns)));
    }
    (clock, clocks)
}

/// The host's clock, if all ranks ran on one host and their reports have its time.
fn host_clock(ranks: &[RankWork]) -> RankClock {
    let host = ranks.first().and_then(|rank| rank.location.host.as_ref());
    let same =
        |rank: &RankWork| rank.location.host.as_ref() == host && rank.first_ns > SINCE_1970_NS;
    let is_shared = host.is_some() && ranks.iter().all(same);
    let source = if is_shared { ClockSource::Host } else { ClockSource::None };
    RankClock { source, ..RankClock::default() }
}

/// Fits every report's clock to that of the first. `None` if they share too few collectives.
fn fit_all(
    joined: &JoinedRanks,
    reports: &[ReportRanks],
    clocks: &mut [ReportClock],
) -> Option<RankClock> {
    let mut clock = RankClock { source: ClockSource::Fitted, ..RankClock::default() };
    let shared = SharedCollectives::new(joined, reports);
    let mut open: Vec<usize> = (0..reports.len()).filter(|at| !reports[*at].is_empty()).collect();
    let mut is_known = vec![false; reports.len()];
    // Whether a fitted report takes part in each collective, and how many of these each report
    // shares.
    let mut is_joined = vec![false; joined.collectives.len()];
    let mut points_of = vec![0_usize; reports.len()];
    let mut next = 0;
    loop {
        let report = open.remove(next);
        is_known[report] = true;
        for at in &shared.of_report[report] {
            if !std::mem::replace(&mut is_joined[*at], true) {
                shared.reports_in(*at).for_each(|(report, _)| points_of[report] += 1);
            }
        }
        // The report that shares most collectives with the fitted ones comes next.
        let Some(best) = (0..open.len()).max_by_key(|at| points_of[open[*at]]) else { break };
        let points = shared.common_ends(open[best], &is_known, clocks);
        let fit = Fit::over(&points)?;
        clock.residual_ns = clock.residual_ns.max(Some(fit.residual_ns));
        let point_count = points.len() as u64;
        clock.collectives =
            Some(clock.collectives.map_or(point_count, |least| least.min(point_count)));
        clocks[open[best]].fit = Some(fit);
        next = best;
    }
    Some(clock)
}

/// The collectives that synchronise, by report.
struct SharedCollectives<'a> {
    joined: &'a JoinedRanks,
    /// The report of each rank.
    report_of: Vec<usize>,
    /// Indexes of the collectives of each report.
    of_report: Vec<Vec<usize>>,
}

impl<'a> SharedCollectives<'a> {
    fn new(joined: &'a JoinedRanks, reports: &[ReportRanks]) -> SharedCollectives<'a> {
        let mut report_of = vec![0; joined.ranks.len()];
        for (report, ranks) in reports.iter().enumerate() {
            ranks.iter().for_each(|at| report_of[*at] = report);
        }
        let of_report = vec![Vec::new(); reports.len()];
        let mut shared = SharedCollectives { joined, report_of, of_report };
        for (at, collective) in joined.collectives.iter().enumerate() {
            if collective.operation.synchronises() {
                let reports: Vec<usize> = shared.reports_in(at).map(|(report, _)| report).collect();
                reports.into_iter().for_each(|report| shared.of_report[report].push(at));
            }
        }
        shared
    }

    /// The reports of a collective, each with the end of its first call.
    fn reports_in(&self, collective: usize) -> impl Iterator<Item = (usize, i64)> + '_ {
        let mut seen = BTreeSet::new();
        let calls = self.joined.collectives[collective].calls.iter();
        calls.filter_map(move |(rank, piece)| {
            let at = *rank as usize;
            let report = self.report_of[at];
            let end_ns = self.joined.ranks[at].gpu_work[*piece as usize].end_ns;
            seen.insert(report).then_some((report, end_ns))
        })
    }

    /// The ends of collectives that a report shares with known ones: on the common clock, and on
    /// its own. They are in order of time.
    fn common_ends(
        &self,
        report: usize,
        is_known: &[bool],
        clocks: &[ReportClock],
    ) -> Vec<(i64, i64)> {
        let ends = self.of_report[report].iter().filter_map(|at| {
            let known = self.reports_in(*at).find(|(other, _)| is_known[*other]);
            let own = self.reports_in(*at).find(|(other, _)| *other == report);
            let ((other, known_ns), (_, own_ns)) = (known?, own?);
            Some((clocks[other].common(known_ns), own_ns))
        });
        let mut ends: Vec<(i64, i64)> = ends.collect();
        ends.sort_by_key(|(_, own_ns)| *own_ns);
        ends
    }
}

/// A clock as a straight line of the common one.
#[derive(Clone, Copy, Debug)]
struct Fit {
    /// The time of the report's own clock that the line is relative to.
    at_ns: i64,
    /// Nanoseconds to subtract at `at_ns`.
    offset_ns: i64,
    /// Additional nanoseconds to subtract for each nanosecond after `at_ns`.
    drift: f64,
    residual_ns: u64,
}

impl Fit {
    fn over(points: &[(i64, i64)]) -> Option<Fit> {
        if points.len() < MIN_POINTS {
            return None;
        }
        let (first_common, at_ns) = points[0];
        // An `f64` cannot hold nanoseconds since 1970 exactly, but their differences to `base`.
        let base = at_ns.saturating_sub(first_common);
        let relative: Vec<(f64, f64)> = points
            .iter()
            .map(|(common, own)| {
                let after = own.saturating_sub(at_ns) as f64;
                (after, own.saturating_sub(*common).saturating_sub(base) as f64)
            })
            .collect();
        let drift = drift(&relative);
        let offsets: Vec<f64> = relative.iter().map(|(after, by)| by - drift * after).collect();
        let offset = median(&offsets)?;
        let mut left: Vec<f64> = offsets.iter().map(|by| (by - offset).abs()).collect();
        left.sort_by(f64::total_cmp);
        let residual = left[(left.len() - 1) * 95 / 100];
        Some(Fit {
            at_ns,
            offset_ns: base.saturating_add(offset.round() as i64),
            drift,
            residual_ns: residual.round() as u64,
        })
    }

    /// The time on the common clock.
    fn common(&self, own_ns: i64) -> i64 {
        let later = (self.drift * own_ns.saturating_sub(self.at_ns) as f64).round() as i64;
        own_ns.saturating_sub(self.offset_ns).saturating_sub(later)
    }
}

/// The median of the slopes between points; 0 if the points are too few or span too little time.
fn drift(points: &[(f64, f64)]) -> f64 {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return 0.0 };
    if points.len() < MIN_DRIFT_POINTS || last.0 - first.0 < MIN_DRIFT_SPAN_NS as f64 {
        return 0.0;
    }
    let every = points.len().div_ceil(MAX_SLOPE_POINTS);
    let sample: Vec<(f64, f64)> = points.iter().copied().step_by(every).collect();
    let mut slopes = Vec::new();
    for (at, a) in sample.iter().enumerate() {
        slopes.extend(
            sample[at + 1..].iter().filter(|b| b.0 > a.0).map(|b| (b.1 - a.1) / (b.0 - a.0)),
        );
    }
    median(&slopes).filter(|slope| slope.abs() <= MAX_DRIFT).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_ahead_and_fast_is_found_with_its_residual() {
        // 40 collectives over 4 s; the other clock is 7 s ahead, 20 ppm fast and jitters by 3 µs.
        let common = |k: i64| 1_790_000_000_000_000_000 + k * 100_000_000;
        let own = |k: i64| common(k) + 7_000_000_000 + k * 2_000 + (k % 3 - 1) * 3_000;
        let mut points: Vec<(i64, i64)> = (0..40).map(|k| (common(k), own(k))).collect();
        // An outlier: one rank was delayed in this call.
        points[20].1 += 50_000_000;
        let fit = Fit::over(&points).unwrap();
        assert!((fit.drift - 2e-5).abs() < 2e-6, "{fit:?}");
        for k in 0..40 {
            assert!((fit.common(own(k)) - common(k)).abs() < 8_000, "{k}: {fit:?}");
        }
        assert!((1_000..8_000).contains(&fit.residual_ns), "{fit:?}");
        assert!(Fit::over(&points[..2]).is_none());
    }
}
