//! Statistics of samples: median, its confidence interval and spread. The runner uses them to
//! decide when to stop sampling and `rgpu` to compare runs, so both must use the same definitions.
//!
//! Times of a GPU kernel are neither normal nor symmetric, so nothing here assumes a distribution.
//! The interval comes from order statistics: the number of samples below the true median is
//! binomial with p = 1/2, so `[x(k), x(n+1-k)]` covers it with probability
//! `1 - 2 P(Bin(n, 1/2) < k)`; `k` is the largest that keeps 95 % (Conover, *Practical
//! Nonparametric Statistics*, §3.2).

/// Statistics of a set of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The median of the samples.
    pub median: f64,
    /// The 95 % interval of the median. With fewer than 6 samples it is their full range, whose
    /// coverage is below 95 %.
    pub ci95: [f64; 2],
    /// The smallest sample, in the unit of the samples.
    pub min: f64,
    /// Median absolute deviation from the median, unscaled.
    pub mad: f64,
}

impl Summary {
    /// Computes the statistics of samples in any order; `None` when there are none.
    pub fn from_samples(samples: &[f64]) -> Option<Summary> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = median_of_sorted(&sorted)?;
        let mut distances: Vec<f64> = sorted.iter().map(|x| (x - median).abs()).collect();
        distances.sort_by(f64::total_cmp);
        let rank = interval_rank(sorted.len());
        Some(Summary {
            median,
            ci95: [sorted[rank - 1], sorted[sorted.len() - rank]],
            min: sorted[0],
            mad: median_of_sorted(&distances)?,
        })
    }

    /// As [`Summary::from_samples`], for samples in the order in which they were taken. The
    /// interval of order statistics assumes that a sample does not depend on the ones before it.
    /// That fails if the GPU changes its state meanwhile. So the interval is extended to the median
    /// of each quarter of the series whose own interval does not overlap that of all samples.
    pub fn from_series(samples: &[f64]) -> Option<Summary> {
        let mut all = Summary::from_samples(samples)?;
        let [low, high] = all.ci95;
        for quarter in samples.chunks(samples.len().div_ceil(4)) {
            let Some(part) = Summary::from_samples(quarter) else { continue };
            if part.ci95[0] > high || part.ci95[1] < low {
                all.ci95 = [all.ci95[0].min(part.median), all.ci95[1].max(part.median)];
            }
        }
        Some(all)
    }

    /// Half the interval's width as a fraction of the median.
    pub fn relative_half_width(&self) -> f64 {
        if self.median > 0.0 {
            (self.ci95[1] - self.ci95[0]) / 2.0 / self.median
        } else {
            f64::INFINITY
        }
    }
}

/// The samples whose index is not in `discarded`, which is in ascending order.
pub fn without_discarded(samples: &[f64], discarded: &[usize]) -> Vec<f64> {
    let is_kept = |&(i, _): &(usize, &f64)| discarded.binary_search(&i).is_err();
    samples.iter().enumerate().filter(is_kept).map(|(_, sample)| *sample).collect()
}

/// The median of values in any order; `None` when there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The rank `k` (from 1) of the interval's lower end; 1 when even the full range covers less than
/// 95 % (fewer than 6 samples).
fn interval_rank(n: usize) -> usize {
    // The terms are summed as logarithms: 2^-n underflows from n = 1075 on.
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut below = log_term.exp();
    let mut rank = 1;
    for k in 1..=n / 2 {
        // `below` is P(Bin < k); the interval of rank k covers 1 - 2 * below.
        if 2.0 * below > 0.05 {
            break;
        }
        rank = k;
        log_term += ((n - k + 1) as f64).ln() - (k as f64).ln();
        below += log_term.exp();
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks from tables of the sign test (Conover, "Practical Nonparametric Statistics").
    #[test]
    fn ranks_agree_with_published_tables() {
        for (n, rank) in
            [(5, 1), (6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (30, 10), (50, 18)]
        {
            assert_eq!(interval_rank(n), rank, "n = {n}");
        }
    }

    #[test]
    fn the_rank_of_many_samples_follows_the_normal_approximation() {
        let n = 10_000;
        let approximate = n as f64 / 2.0 - 1.96 * (n as f64).sqrt() / 2.0;
        assert!((interval_rank(n) as f64 - approximate).abs() < 2.0);
    }

    #[test]
    fn few_samples_give_their_whole_range() {
        let summary = Summary::from_samples(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!(summary.ci95, [1.0, 3.0]);
        assert_eq!((summary.median, summary.min, summary.mad), (2.0, 1.0, 1.0));
        assert_eq!(Summary::from_samples(&[]), None);
    }

    /// Deterministic noise of ±5 %.
    fn noise(n: usize) -> f64 {
        let x = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (x as f64 / f64::from(1 << 24) - 0.5) * 0.1
    }

    fn series(levels: &[(usize, f64)]) -> Vec<f64> {
        let levels = levels.iter().flat_map(|(n, level)| std::iter::repeat_n(*level, *n));
        levels.enumerate().map(|(n, level)| level * (1.0 + noise(n))).collect()
    }

    /// vecadd of 65,536 in a graph on an H200: after 211 of 472 samples, calls took 0.33 µs less.
    #[test]
    fn the_interval_of_a_series_covers_both_levels_of_a_step() {
        let stepped = series(&[(211, 2100.0), (261, 1765.0)]);
        let of_any_order = Summary::from_samples(&stepped).unwrap();
        let of_series = Summary::from_series(&stepped).unwrap();
        assert!(of_any_order.relative_half_width() < 0.03, "{of_any_order:?}");
        let [low, high] = of_series.ci95;
        assert!(low < 1790.0 && high > 2080.0, "{of_series:?}");
        assert_eq!(of_series.median, of_any_order.median);
    }

    #[test]
    fn a_steady_series_has_the_interval_of_its_samples() {
        for n in [1, 2, 3, 5, 30, 184, 480] {
            let steady = series(&[(n, 2100.0)]);
            assert_eq!(Summary::from_series(&steady), Summary::from_samples(&steady), "{n}");
        }
        assert_eq!(Summary::from_series(&[]), None);
    }

    #[test]
    fn discarded_samples_are_left_out() {
        assert_eq!(without_discarded(&[1.0, 2.0, 3.0, 4.0], &[0, 2]), [2.0, 4.0]);
        assert_eq!(without_discarded(&[], &[]), [0.0; 0]);
    }

    #[test]
    fn an_even_count_takes_the_mean_of_the_middle_pair() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }

    #[test]
    fn one_far_outlier_moves_neither_median_nor_interval() {
        let mut samples: Vec<f64> = (0..99).map(|i| 100.0 + f64::from(i % 3)).collect();
        let before = Summary::from_samples(&samples).unwrap();
        samples[50] = 1e9;
        let after = Summary::from_samples(&samples).unwrap();
        assert!((before.median - after.median).abs() <= 1.0);
        assert!(after.ci95[1] < 103.0);
        assert!(after.relative_half_width() < 0.02);
    }
}
