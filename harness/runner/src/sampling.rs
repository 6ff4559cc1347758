//! Decides when to stop sampling and which samples count, and summarises them.

use rgpu_case::stats::{Summary, median, without_discarded};
use rgpu_case::{ClockReading, Timing, TimingPlan, TimingSource};
use std::time::{Duration, Instant};

/// Sampling stops here; more samples only make the report longer.
const MAX_SAMPLES: usize = 10_000;

/// A batch is discarded when its SM clock is below this fraction of the run's median.
const SLOW_CLOCK_FRACTION: f64 = 0.95;

/// Samples taken so far.
pub(crate) struct Sampling<'a> {
    plan: &'a TimingPlan,
    samples: Vec<f64>,
    readings: Vec<ClockReading>,
    deadline: Instant,
}

impl<'a> Sampling<'a> {
    /// Starts the time limit.
    pub(crate) fn start(plan: &'a TimingPlan) -> Sampling<'a> {
        let limit = Duration::try_from_secs_f64(plan.max_seconds).unwrap_or(Duration::MAX);
        let now = Instant::now();
        Sampling {
            plan,
            samples: Vec::new(),
            readings: Vec::new(),
            deadline: now.checked_add(limit).unwrap_or(now + Duration::from_secs(86_400)),
        }
    }

    /// The maximum size of the next batch; 0 when sampling is done. A fixed count, set by the user,
    /// overrides the time limit.
    pub(crate) fn next_batch_limit(&self) -> usize {
        let taken = self.samples.len();
        match self.plan.iters {
            Some(iters) => (iters.max(1) as usize).saturating_sub(taken),
            None if taken > 0 && (Instant::now() >= self.deadline || self.converged()) => 0,
            None => MAX_SAMPLES.saturating_sub(taken),
        }
    }

    pub(crate) fn push(&mut self, batch: &[f64], reading: Option<ClockReading>) {
        if let Some(reading) = reading {
            self.readings.push(ClockReading { first_sample: self.samples.len(), ..reading });
        }
        self.samples.extend_from_slice(batch);
    }

    /// Typical duration so far, in nanoseconds.
    pub(crate) fn typical_ns(&self) -> Option<f64> {
        median(&self.samples)
    }

    fn converged(&self) -> bool {
        self.samples.len() >= (self.plan.min_iters.max(1) as usize)
            && Summary::from_samples(&without_discarded(&self.samples, &self.discarded()))
                .is_some_and(|s| s.relative_half_width() <= self.plan.ci_target)
    }

    /// Indices of samples taken at a slow clock or while throttled. Empty if that would be more
    /// than half: then this is the GPU's normal state, and the readings show it.
    fn discarded(&self) -> Vec<usize> {
        let clocks: Vec<f64> =
            self.readings.iter().filter_map(|r| r.sm_mhz).map(f64::from).collect();
        let usual = median(&clocks).unwrap_or(0.0);
        let mut discarded = Vec::new();
        for (i, reading) in self.readings.iter().enumerate() {
            let slow =
                reading.sm_mhz.is_some_and(|mhz| f64::from(mhz) < SLOW_CLOCK_FRACTION * usual);
            if slow || !reading.throttle.is_empty() {
                let next = self.readings.get(i + 1).map(|r| r.first_sample);
                discarded.extend(reading.first_sample..next.unwrap_or(self.samples.len()));
            }
        }
        if discarded.len() * 2 > self.samples.len() { Vec::new() } else { discarded }
    }

    /// The record for the report; `None` when no sample was taken.
    pub(crate) fn finish(
        self,
        source: TimingSource,
        overhead_ns: Option<f64>,
        flushed_bytes: Option<u64>,
    ) -> Option<Timing> {
        let discarded = self.discarded();
        let kept = without_discarded(&self.samples, &discarded);
        let summary = Summary::from_samples(&kept)?;
        let converged = summary.relative_half_width() <= self.plan.ci_target;
        Some(Timing {
            source,
            median_ns: summary.median,
            ci95_ns: summary.ci95,
            samples: kept.len(),
            min_ns: summary.min,
            mad_ns: summary.mad,
            sample_ns: self.samples,
            discarded,
            converged,
            overhead_ns,
            l2_flushed: flushed_bytes.is_some(),
            flushed_bytes,
            wall_ns: None,
            distinct_inputs: None,
            verified: None,
            repeated: None,
            clocks: self.readings,
            graph: None,
            cooling: None,
            trust: None,
            trust_reason: None,
            bound_ns: None,
            bound_range_ns: None,
            claimed_ns: None,
            needed_bytes: None,
        })
    }
}

/// Returns a line such as `median 12.3 us (95 % interval 12.2 to 12.4 us), 40 samples`.
pub(crate) fn describe_timing(timing: &Timing) -> String {
    let mut text = describe_samples(timing.median_ns, timing.ci95_ns, timing.samples);
    if !timing.discarded.is_empty() {
        text += &format!(", {} discarded", timing.discarded.len());
    }
    text
}

/// The median with its interval and the number of samples.
pub(crate) fn describe_samples(median_ns: f64, ci95_ns: [f64; 2], samples: usize) -> String {
    format!(
        "median {} (95 % interval {} to {}), {samples} samples",
        duration(median_ns),
        duration(ci95_ns[0]),
        duration(ci95_ns[1])
    )
}

fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.3} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.3} ms", ns / 1e6),
        ns => format!("{:.3} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(sm_mhz: u32, throttle: &[&str]) -> ClockReading {
        let throttle = throttle.iter().map(|&reason| reason.to_owned()).collect();
        ClockReading { sm_mhz: Some(sm_mhz), throttle, ..ClockReading::default() }
    }

    #[test]
    fn steady_samples_converge_at_the_least_count() {
        let plan = TimingPlan::default();
        let mut sampling = Sampling::start(&plan);
        assert_eq!(sampling.next_batch_limit(), MAX_SAMPLES);
        sampling.push(&[100.0; 29], None);
        assert!(sampling.next_batch_limit() > 0);
        sampling.push(&[100.0; 1], None);
        assert_eq!(sampling.next_batch_limit(), 0);
    }

    #[test]
    fn a_fixed_count_is_kept_whatever_the_samples_say() {
        let plan = TimingPlan { iters: Some(3), max_seconds: 0.0, ..TimingPlan::default() };
        let mut sampling = Sampling::start(&plan);
        sampling.push(&[100.0; 2], None);
        assert_eq!(sampling.next_batch_limit(), 1);
    }

    #[test]
    fn the_time_limit_ends_noisy_sampling_after_one_batch_at_least() {
        let plan = TimingPlan { max_seconds: 0.0, ..TimingPlan::default() };
        let mut sampling = Sampling::start(&plan);
        assert!(sampling.next_batch_limit() > 0);
        sampling.push(&[1.0, 100.0, 1000.0], None);
        assert_eq!(sampling.next_batch_limit(), 0);
        let timing = sampling.finish(TimingSource::Events, None, Some(1 << 20)).unwrap();
        assert!(!timing.converged);
        // The interval is in the line; nobody asked for a narrower one.
        assert!(describe_timing(&timing).ends_with("), 3 samples"), "{}", describe_timing(&timing));
    }

    #[test]
    fn batches_on_a_slow_clock_or_under_throttling_are_counted_out() {
        let plan = TimingPlan::default();
        let mut sampling = Sampling::start(&plan);
        sampling.push(&[100.0; 4], Some(reading(1980, &[])));
        sampling.push(&[150.0; 2], Some(reading(1200, &[])));
        sampling.push(&[100.0; 4], Some(reading(1980, &[])));
        sampling.push(&[130.0; 1], Some(reading(1980, &["hw_thermal"])));
        let timing = sampling.finish(TimingSource::Events, None, Some(1 << 20)).unwrap();
        assert_eq!(timing.discarded, [4, 5, 10]);
        assert_eq!((timing.samples, timing.ci95_ns), (8, [100.0, 100.0]));
        assert_eq!(timing.sample_ns.len(), 11);
    }

    #[test]
    fn a_gpu_that_throttles_all_along_keeps_its_samples() {
        let plan = TimingPlan::default();
        let mut sampling = Sampling::start(&plan);
        sampling.push(&[100.0; 9], Some(reading(1500, &["sw_power_cap"])));
        sampling.push(&[100.0; 1], Some(reading(1500, &[])));
        let timing = sampling.finish(TimingSource::Events, None, Some(1 << 20)).unwrap();
        assert_eq!((timing.samples, timing.discarded.len()), (10, 0));
    }

    #[test]
    fn durations_are_shown_in_a_fitting_unit() {
        assert_eq!(duration(950.0), "950 ns");
        assert_eq!(duration(12_345.0), "12.345 us");
        assert_eq!(duration(2.5e9), "2.500 s");
    }
}
