//! Finds the points of a history at which the time changed.
//!
//! Pettitt's test (A. N. Pettitt, *A non-parametric approach to the change-point problem*, Applied
//! Statistics 28, 1979) finds the split of a series whose sides differ most by rank, with its
//! approximate significance `2 exp(-6 K² / (n³ + n²))`. It assumes no distribution and one outlier
//! does not move it. Several changes are found by binary segmentation (A. J. Scott, M. Knott, *A
//! cluster analysis method for grouping means in the analysis of variance*, Biometrics 30, 1974):
//! both sides of a split are searched again. A change smaller than the least effect is none.
//!
//! The statistic of a split is the larger the nearer the split is to the middle, so a few high or
//! low values beside a change late or early in the series move it. Each split is therefore placed
//! once more, where the values are nearest to the medians of the two levels.

use rgpu_case::stats::median;

use rgpu_model::suite_history::ChangePoint;

/// Above this significance a split is chance.
const MAX_SIGNIFICANCE: f64 = 0.01;

/// The changes of a series by at least the fraction `least_effect`, in order.
pub fn change_points(values: &[f64], least_effect: f64) -> Vec<ChangePoint> {
    let mut splits = Vec::new();
    search(values, 0, least_effect, &mut splits);
    splits.sort_by_key(|(at, _)| *at);
    place_again(values, &mut splits);
    let ends = splits.iter().map(|(at, _)| *at).chain([values.len()]);
    let segments: Vec<f64> = std::iter::once(0)
        .chain(splits.iter().map(|(at, _)| *at))
        .zip(ends)
        .filter_map(|(from, to)| median(&values[from..to]))
        .collect();
    let changes = splits.iter().zip(segments.windows(2));
    changes
        .map(|((at, p), level)| ChangePoint { at: *at, before: level[0], after: level[1], p: *p })
        .collect()
}

/// Moves each split, in order, between its neighbours to where the distances of the values from the
/// medians of its two sides have the least sum.
fn place_again(values: &[f64], splits: &mut [(usize, f64)]) {
    let mut from = 0;
    for n in 0..splits.len() {
        let at = splits[n].0;
        let to = splits.get(n + 1).map_or(values.len(), |(next, _)| *next);
        if let (Some(a), Some(b)) = (median(&values[from..at]), median(&values[at..to])) {
            // The sum for a split behind each value, less the sum for a split before the first.
            let mut sum = 0.0;
            let sums: Vec<f64> = values[from..to]
                .iter()
                .map(|value| {
                    sum += (value - a).abs() - (value - b).abs();
                    sum
                })
                .collect();
            // Both sides keep a value. Of equal sums that of the statistic stays.
            let mut best = at;
            for split in from + 1..to {
                if sums[split - from - 1] < sums[best - from - 1] {
                    best = split;
                }
            }
            splits[n].0 = best;
        }
        from = splits[n].0;
    }
}

/// Adds the splits of `values`, which begin at `offset` of the whole series.
fn search(values: &[f64], offset: usize, least_effect: f64, splits: &mut Vec<(usize, f64)>) {
    let Some((at, p)) = strongest_split(values) else { return };
    let (left, right) = values.split_at(at);
    let change = match (median(left), median(right)) {
        (Some(a), Some(b)) if a > 0.0 => (b / a).max(a / b) - 1.0,
        _ => 0.0,
    };
    if p > MAX_SIGNIFICANCE || change < least_effect {
        return;
    }
    splits.push((offset + at, p));
    search(left, offset, least_effect, splits);
    search(right, offset + at, least_effect, splits);
}

/// The split with the largest rank statistic, and its significance; `None` for fewer than two
/// values.
fn strongest_split(values: &[f64]) -> Option<(usize, f64)> {
    let n = values.len();
    // Ranks, with their mean for equal values: then each split costs one addition.
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; n];
    let mut from = 0;
    while from < n {
        let mut to = from + 1;
        while to < n && values[order[to]] == values[order[from]] {
            to += 1;
        }
        for at in &order[from..to] {
            ranks[*at] = (from + to + 1) as f64 / 2.0;
        }
        from = to;
    }
    let mut sum = 0.0;
    let statistics = (1..n).map(|at| {
        sum += ranks[at - 1];
        (at, (2.0 * sum - at as f64 * (n as f64 + 1.0)).abs())
    });
    let (at, k) = statistics.max_by(|a, b| a.1.total_cmp(&b.1))?;
    let n = n as f64;
    Some((at, (2.0 * (-6.0 * k * k / (n.powi(3) + n.powi(2))).exp()).min(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::suite_history::MIN_POINTS;

    /// Noise of about ±0.5 % that depends on nothing but its number.
    fn noise(n: usize) -> f64 {
        let x = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (x as f64 / f64::from(1 << 24) - 0.5) * 0.01
    }

    fn series(levels: &[(usize, f64)]) -> Vec<f64> {
        let levels = levels.iter().flat_map(|(n, level)| std::iter::repeat_n(*level, *n));
        levels.enumerate().map(|(n, level)| level * (1.0 + noise(n))).collect()
    }

    #[test]
    fn a_step_is_found_where_it_is() {
        let values = series(&[(20, 100.0), (20, 105.0)]);
        let found = change_points(&values, 0.01);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].at, 20);
        assert!((found[0].after / found[0].before - 1.05).abs() < 0.005, "{found:?}");
        assert!(found[0].p < 0.001);
    }

    #[test]
    fn high_values_before_a_step_near_the_end_do_not_move_it() {
        let mut values = series(&[(30, 100.0), (10, 110.0)]);
        values[27..30].fill(101.0);
        assert_eq!(strongest_split(&values).unwrap().0, 27, "the statistic alone is early");
        assert_eq!(change_points(&values, 0.01)[0].at, 30);
        let mut values = series(&[(10, 110.0), (30, 100.0)]);
        values[10..13].fill(101.0);
        assert_eq!(change_points(&values, 0.01)[0].at, 10);
    }

    #[test]
    fn the_clearest_step_is_found_in_the_least_number_of_points_and_no_fewer() {
        let step = |points: usize| series(&[(points / 2, 100.0), (points - points / 2, 200.0)]);
        assert_eq!(change_points(&step(MIN_POINTS), 0.01).len(), 1);
        assert!(change_points(&step(MIN_POINTS - 1), 0.01).is_empty());
    }

    #[test]
    fn several_steps_are_found_and_noise_and_one_outlier_are_none() {
        let values = series(&[(30, 100.0), (30, 110.0), (30, 90.0)]);
        let at: Vec<usize> = change_points(&values, 0.01).iter().map(|c| c.at).collect();
        assert_eq!(at, [30, 60]);
        let mut flat = series(&[(100, 100.0)]);
        assert!(change_points(&flat, 0.01).is_empty());
        flat[50] = 300.0;
        assert!(change_points(&flat, 0.01).is_empty());
        assert!(change_points(&[], 0.01).is_empty());
        assert!(change_points(&[1.0; 50], 0.01).is_empty());
    }
}
