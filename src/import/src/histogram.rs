//! How the samples of a time are spread, in bins of one width.

use rgpu_model::profile::Histogram;

/// The number of bins.
const BINS: usize = 40;

/// Samples farther from the median than this many scaled deviations lie outside the bins, because a
/// single interruption would otherwise leave one bin for all others.
const MAX_DEVIATIONS: f64 = 8.0;

/// The median absolute deviation of a normal distribution, scaled to its standard deviation.
const MAD_SCALE: f64 = 1.4826;

/// The bins never lie closer around the median than this fraction of it.
const MIN_SPREAD: f64 = 0.001;

/// Counts samples in bins around their median; `None` with fewer than two samples.
pub(super) fn histogram(samples: &[f64], median_ns: f64, mad_ns: f64) -> Option<Histogram> {
    if samples.len() < 2 || !(median_ns.is_finite() && mad_ns.is_finite() && median_ns > 0.0) {
        return None;
    }
    let room = (MAX_DEVIATIONS * MAD_SCALE * mad_ns).max(MIN_SPREAD * median_ns);
    let within = |x: f64| (x - median_ns).abs() <= room;
    let inside: Vec<f64> = samples.iter().copied().filter(|x| within(*x)).collect();
    let low = inside.iter().copied().fold(f64::INFINITY, f64::min);
    let high = inside.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if low > high {
        return None;
    }
    // Equal samples get bins of some width, too.
    let margin = ((MIN_SPREAD * median_ns - (high - low)) / 2.0).max(0.0);
    let (low_ns, high_ns) = (low - margin, high + margin);
    let mut counts = vec![0; BINS];
    for x in &inside {
        let bin = (x - low_ns) / (high_ns - low_ns) * BINS as f64;
        counts[(bin as usize).min(BINS - 1)] += 1;
    }
    let outside = |is_there: fn(f64, f64) -> bool| {
        samples.iter().filter(|x| !within(**x) && is_there(**x, median_ns)).count() as u64
    };
    Some(Histogram {
        low_ns,
        high_ns,
        counts,
        below: outside(|x, median| x < median),
        above: outside(|x, median| x > median),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_far_sample_is_counted_outside_and_leaves_the_bins_to_the_others() {
        let mut samples: Vec<f64> = (0..100).map(|n| 1000.0 + f64::from(n % 10)).collect();
        samples.push(1e6);
        let found = histogram(&samples, 1004.5, 2.5).unwrap();
        assert_eq!((found.low_ns, found.high_ns), (1000.0, 1009.0));
        assert_eq!((found.below, found.above), (0, 1));
        assert_eq!(found.counts.iter().sum::<u64>(), 100);
        assert_eq!((found.counts.len(), found.counts[0], found.counts[BINS - 1]), (BINS, 10, 10));
    }

    #[test]
    fn equal_samples_stand_in_the_middle_and_one_alone_has_no_distribution() {
        let found = histogram(&[500.0; 7], 500.0, 0.0).unwrap();
        assert_eq!(found.counts[BINS / 2], 7);
        assert!(found.low_ns < 500.0 && found.high_ns > 500.0);
        assert_eq!(histogram(&[500.0], 500.0, 0.0), None);
        assert_eq!(histogram(&[f64::NAN, f64::NAN], f64::NAN, 0.0), None);
    }
}
