//! Confidence intervals of medians and of ratios of medians, and the verdict derived from one.
//!
//! Times of a kernel are neither normally nor symmetrically distributed, so no distribution is
//! assumed.
//!
//! - **A median** has its order-statistic interval ([`rgpu_case::stats`]). Five samples, the fewest
//!   that are used, give their whole range, which covers 93.75 %.
//! - **A ratio of two medians** measured apart has the interval that MOVER recovers from those of
//!   the two (Zou & Donner, *Construction of confidence limits about effect measures: a general
//!   approach*, Statistics in Medicine 27, 2008), on logarithms: the distances from estimate to
//!   limit add as squares. It needs no samples, only what a saved run holds; it never leaves the
//!   positive numbers, and swapping the sides gives exactly the reciprocal.
//! - **Interleaved calls** (`abba`) need neither: each round gives one ratio
//!   `sqrt(a1 a2 / (b1 b2))`, in which a steady drift of the clocks cancels, and the median of the
//!   rounds has the order-statistic interval of the first point. The runner computes it.
//!
//! The verdict is FASTER or SLOWER when the whole interval lies beyond the threshold, SAME when it
//! lies within, else AMBIGUOUS. There is no random sampling: the same input gives the same verdict.

use rgpu_case::stats::Summary;

use rgpu_model::comparison::{SideTime, TimeVerdict};

/// The minimum number of launches for an interval.
pub(super) const MIN_LAUNCHES: usize = 5;

/// The median of samples and its 95 % interval; `None` for no samples.
pub(super) fn side_time(samples: &[f64]) -> Option<SideTime> {
    let finite: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    let summary = Summary::from_samples(&finite)?;
    let ci95_ns = (finite.len() >= MIN_LAUNCHES).then_some(summary.ci95);
    Some(SideTime { median_ns: summary.median, ci95_ns, samples: finite.len() as u64 })
}

/// The speedup `a / b`, with its interval if both medians have one. `None` if a median is not
/// positive.
pub(super) fn speedup(a: &SideTime, b: &SideTime) -> Option<(f64, Option<[f64; 2]>)> {
    if !(a.median_ns > 0.0 && b.median_ns > 0.0) {
        return None;
    }
    let ratio = a.median_ns / b.median_ns;
    let interval = match (a.ci95_ns, b.ci95_ns) {
        (Some(ca), Some(cb)) if ca[0] > 0.0 && cb[0] > 0.0 => {
            let (ma, mb) = (a.median_ns.ln(), b.median_ns.ln());
            let down = (ma - ca[0].ln()).hypot(cb[1].ln() - mb);
            let up = (ca[1].ln() - ma).hypot(mb - cb[0].ln());
            Some([(ratio.ln() - down).exp(), (ratio.ln() + up).exp()])
        }
        _ => None,
    };
    Some((ratio, interval))
}

/// The geometric mean of speedups or of medians, with its MOVER interval.
pub(crate) fn mean(all: &[(f64, Option<[f64; 2]>)]) -> Option<(f64, Option<[f64; 2]>)> {
    let n = all.len() as f64;
    if all.is_empty() {
        return None;
    }
    let center = all.iter().map(|(x, _)| x.ln()).sum::<f64>() / n;
    let distance = |side: usize| {
        let squares = all.iter().map(|(x, ci)| ci.map(|ci| (ci[side].ln() - x.ln()).powi(2)));
        squares.sum::<Option<f64>>().map(|sum| sum.sqrt() / n)
    };
    let interval = match (distance(0), distance(1)) {
        (Some(down), Some(up)) => Some([(center - down).exp(), (center + up).exp()]),
        _ => None,
    };
    Some((center.exp(), interval))
}

/// The verdict for the interval of a speedup; `threshold` is a fraction.
pub(super) fn verdict(interval: Option<[f64; 2]>, threshold: f64) -> TimeVerdict {
    let (slow, fast) = (1.0 / (1.0 + threshold), 1.0 + threshold);
    match interval {
        Some([low, _]) if low > fast => TimeVerdict::Faster,
        Some([_, high]) if high < slow => TimeVerdict::Slower,
        Some([low, high]) if low >= slow && high <= fast => TimeVerdict::Same,
        _ => TimeVerdict::Ambiguous,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(median_ns: f64, low: f64, high: f64) -> SideTime {
        SideTime { median_ns, ci95_ns: Some([low, high]), samples: 30 }
    }

    #[test]
    fn five_launches_give_their_range_and_four_none() {
        let five = side_time(&[5.0, 1.0, 3.0, 2.0, 4.0]).unwrap();
        assert_eq!((five.median_ns, five.ci95_ns), (3.0, Some([1.0, 5.0])));
        assert_eq!(side_time(&[1.0; 4]).unwrap().ci95_ns, None);
        assert_eq!(side_time(&[]), None);
    }

    #[test]
    fn swapping_the_sides_gives_the_reciprocal_and_the_opposite_verdict() {
        let (a, b) = (side(200.0, 198.0, 203.0), side(100.0, 99.0, 100.5));
        let (there, Some([low, high])) = speedup(&a, &b).unwrap() else { panic!() };
        let (back, Some([low_back, high_back])) = speedup(&b, &a).unwrap() else { panic!() };
        assert!((there * back - 1.0).abs() < 1e-12);
        assert!((low * high_back - 1.0).abs() < 1e-12 && (high * low_back - 1.0).abs() < 1e-12);
        assert!(low < 2.0 && high > 2.0);
        assert_eq!(verdict(Some([low, high]), 0.01), TimeVerdict::Faster);
        assert_eq!(verdict(Some([low_back, high_back]), 0.01), TimeVerdict::Slower);
    }

    #[test]
    fn only_a_whole_interval_decides() {
        for (interval, expected) in [
            (Some([0.995, 1.005]), TimeVerdict::Same),
            (Some([0.985, 1.005]), TimeVerdict::Ambiguous),
            (Some([1.005, 1.05]), TimeVerdict::Ambiguous),
            (Some([1.011, 1.05]), TimeVerdict::Faster),
            (Some([0.5, 0.98]), TimeVerdict::Slower),
            (None, TimeVerdict::Ambiguous),
        ] {
            assert_eq!(verdict(interval, 0.01), expected, "{interval:?}");
        }
    }

    #[test]
    fn a_mean_over_cases_is_surer_than_each_of_them() {
        let one = (2.0, Some([1.9, 2.1]));
        let (center, interval) = mean(&[one, one, one, one]).unwrap();
        assert!((center - 2.0).abs() < 1e-12);
        assert!(interval.unwrap()[0] > 1.94 && interval.unwrap()[1] < 2.06);
        assert_eq!(mean(&[one, (3.0, None)]).unwrap().1, None);
    }
}
