//! Brings the times of several reports to one clock.
//!
//! No rank leaves a collective that synchronises long before another. So the ends of matched calls
//! are the same moments on two clocks: the offset is the median of their differences, and the drift
//! that of the slopes between pairs of points (Theil and Sen). What remains is the residual: no order
//! of events that is finer can be told.

use super::ReportRanks;
use crate::model::rank_work::{JoinedRanks, RankWork};
use crate::model::ranks::{ClockSource, RankClock};

/// Fewest collectives that a clock is fitted over.
const MIN_POINTS: usize = 3;
/// Fewest collectives, and the least time in nanoseconds that they span, for a drift.
const MIN_DRIFT_POINTS: usize = 20;
const MIN_DRIFT_SPAN_NS: i64 = 1_000_000_000;
/// Points that slopes are computed between. The number of pairs grows with its square.
const MAX_SLOPE_POINTS: usize = 128;
/// A larger drift is no clock's.
const MAX_DRIFT: f64 = 1e-3;
/// Times since 1970 in nanoseconds are larger than this, times since a boot or a capture are not.
const SINCE_1970_NS: i64 = 1_000_000_000_000_000_000;

/// Changes all times to those of one clock that begins at 0. Returns how that was done.
pub(super) fn align(joined: &mut JoinedRanks, reports: &[ReportRanks]) -> RankClock {
    let clock = match reports.iter().filter(|ranks| !ranks.is_empty()).count() {
        0 | 1 => RankClock { source: ClockSource::Report, ..RankClock::default() },
        _ => fit_all(joined, reports).unwrap_or_else(|| host_clock(&joined.ranks)),
    };
    if clock.source == ClockSource::None {
        for ranks in reports {
            begin_at_zero(&mut joined.ranks, ranks);
        }
    } else {
        let all: ReportRanks = (0..joined.ranks.len()).collect();
        begin_at_zero(&mut joined.ranks, &all);
    }
    clock
}

fn begin_at_zero(all: &mut [RankWork], ranks: &ReportRanks) {
    let first = ranks.iter().map(|at| all[*at].first_ns).min().unwrap_or(0);
    ranks.iter().for_each(|at| all[*at].shift(first.saturating_neg()));
}

/// The host's clock, if all ranks ran on one host and their reports have its time.
fn host_clock(ranks: &[RankWork]) -> RankClock {
    let host = ranks.first().and_then(|rank| rank.place.host.as_ref());
    let same = |rank: &RankWork| rank.place.host.as_ref() == host && rank.first_ns > SINCE_1970_NS;
    let is_shared = host.is_some() && ranks.iter().all(same);
    let source = if is_shared { ClockSource::Host } else { ClockSource::None };
    RankClock { source, ..RankClock::default() }
}

/// Fits every report's clock to that of the first. `None` if too few collectives join them.
fn fit_all(joined: &mut JoinedRanks, reports: &[ReportRanks]) -> Option<RankClock> {
    let mut clock = RankClock { source: ClockSource::Fitted, ..RankClock::default() };
    let with_work = || reports.iter().filter(|ranks| !ranks.is_empty());
    let mut known: ReportRanks = with_work().next()?.clone();
    let mut open: Vec<&ReportRanks> = with_work().skip(1).collect();
    let mut fits: Vec<(&ReportRanks, Fit)> = Vec::new();
    while !open.is_empty() {
        // Reports that share most collectives with the fitted ones come first.
        let points: Vec<Vec<(i64, i64)>> =
            open.iter().map(|ranks| common_ends(joined, &known, ranks, &fits)).collect();
        let best = (0..open.len()).max_by_key(|at| points[*at].len())?;
        let fit = Fit::over(&points[best])?;
        clock.residual_ns = clock.residual_ns.max(Some(fit.residual_ns));
        let many = points[best].len() as u64;
        clock.collectives = Some(clock.collectives.map_or(many, |least| least.min(many)));
        let ranks = open.remove(best);
        fits.push((ranks, fit));
        known.extend(ranks);
    }
    for (ranks, fit) in fits {
        ranks.iter().for_each(|at| joined.ranks[*at].map_times(|ns| fit.common(ns)));
    }
    Some(clock)
}

/// The ends of collectives that both sides took part in: on the common clock, and on that of
/// `ranks`.
fn common_ends(
    joined: &JoinedRanks,
    known: &ReportRanks,
    ranks: &ReportRanks,
    fits: &[(&ReportRanks, Fit)],
) -> Vec<(i64, i64)> {
    let end = |side: &ReportRanks, calls: &[(u32, u32)]| {
        let (rank, piece) = calls.iter().find(|(rank, _)| side.contains(&(*rank as usize)))?;
        let at = *rank as usize;
        let end_ns = joined.ranks[at].pieces[*piece as usize].end_ns;
        let fit = fits.iter().find(|(ranks, _)| ranks.contains(&at));
        Some(fit.map_or(end_ns, |(_, fit)| fit.common(end_ns)))
    };
    let synchronising = joined.collectives.iter().filter(|c| c.operation.synchronises());
    synchronising.filter_map(|c| Some((end(known, &c.calls)?, end(ranks, &c.calls)?))).collect()
}

/// A clock as a straight line of the common one.
#[derive(Clone, Copy, Debug)]
struct Fit {
    /// The time of the report's own clock that the line is relative to.
    at_ns: i64,
    /// What to take off at `at_ns`.
    offset_ns: i64,
    /// What to take off more for each nanosecond later.
    drift: f64,
    residual_ns: u64,
}

impl Fit {
    fn over(points: &[(i64, i64)]) -> Option<Fit> {
        if points.len() < MIN_POINTS {
            return None;
        }
        let (first_common, at_ns) = points[0];
        // Differences of times since 1970 fit no `f64` to the nanosecond, those of these do.
        let base = at_ns.saturating_sub(first_common);
        let relative: Vec<(f64, f64)> = points
            .iter()
            .map(|(common, own)| {
                let after = own.saturating_sub(at_ns) as f64;
                (after, own.saturating_sub(*common).saturating_sub(base) as f64)
            })
            .collect();
        let drift = drift(&relative);
        let mut offsets: Vec<f64> = relative.iter().map(|(after, by)| by - drift * after).collect();
        let offset = median(&mut offsets)?;
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

/// The median of the slopes between points; 0 if there are too few, or too close.
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
    median(&mut slopes).filter(|slope| slope.abs() <= MAX_DRIFT).unwrap_or(0.0)
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
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
        // One call in which a rank was held up is no clock.
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
