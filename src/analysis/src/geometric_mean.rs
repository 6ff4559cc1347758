//! Geometric means over several cases: of their medians and of their shares of the peaks.

use super::compare::mean;
use rgpu_model::profile::TimingClock;
use rgpu_model::profile::{CaseResult, GeometricMean};
use rgpu_model::{SpeedOfLight, Utilization};

/// The means over the cases that were timed on a GPU; `None` for fewer than two cases.
pub(super) fn from_cases(cases: &[CaseResult], speeds: &[SpeedOfLight]) -> Option<GeometricMean> {
    let timed: Vec<_> = cases
        .iter()
        .filter_map(|case| Some((case, case.timing.as_ref()?)))
        .filter(|(_, t)| t.median_ns > 0.0 && t.clock != TimingClock::CpuReference)
        .collect();
    if timed.len() < 2 {
        return None;
    }
    let medians: Vec<_> = timed
        .iter()
        .map(|(_, t)| (t.median_ns, (t.ci95_ns[0] > 0.0).then_some(t.ci95_ns)))
        .collect();
    let (median_ns, ci95_ns) = mean(&medians)?;
    let share = |side: fn(&SpeedOfLight) -> Option<&Utilization>| {
        let of_case = |name: &str| speeds.iter().find(|s| s.case == name).and_then(side);
        let all: Vec<&Utilization> =
            timed.iter().map(|(case, _)| of_case(&case.name)).collect::<Option<_>>()?;
        let alike = all.windows(2).all(|two| two[0].label == two[1].label);
        let shares: Vec<_> = all.iter().map(|u| (u.percent, None)).collect();
        alike.then(|| mean(&shares)).flatten().map(|(percent, _)| percent)
    };
    Some(GeometricMean {
        cases: timed.len() as u64,
        median_ns,
        ci95_ns,
        flops_percent: share(|s| s.flops.as_ref()),
        bytes_percent: share(|s| s.bytes.as_ref()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::profile::Timing;

    fn case(name: &str, median_ns: f64, clock: &str) -> CaseResult {
        let ci95_ns = [median_ns * 0.99, median_ns * 1.01];
        let timing = Timing { median_ns, ci95_ns, clock: clock.into(), ..Timing::default() };
        CaseResult { name: name.to_owned(), timing: Some(timing), ..CaseResult::default() }
    }

    fn speed(case: &str, percent: f64, label: &str) -> SpeedOfLight {
        let flops = Utilization { percent, label: label.to_owned(), ..Utilization::default() };
        SpeedOfLight { case: case.to_owned(), flops: Some(flops), ..SpeedOfLight::default() }
    }

    #[test]
    fn two_cases_have_a_mean_that_is_surer_than_each() {
        let cases = [case("a", 1e3, "cuda_events"), case("b", 4e3, "cuda_events")];
        let speeds = [speed("a", 20.0, "tensor bf16"), speed("b", 80.0, "tensor bf16")];
        let mean = from_cases(&cases, &speeds).unwrap();
        assert!((mean.median_ns - 2e3).abs() < 1e-6 && mean.cases == 2);
        let [low, high] = mean.ci95_ns.unwrap();
        assert!(low > 1.985e3 && low < 2e3 && high > 2e3 && high < 2.015e3, "{low} {high}");
        assert!((mean.flops_percent.unwrap() - 40.0).abs() < 1e-9);
        assert_eq!(mean.bytes_percent, None);
    }

    #[test]
    fn shares_of_unlike_peaks_and_times_of_a_cpu_have_none() {
        let cases = [case("a", 1e3, "cuda_events"), case("b", 4e3, "cuda_events")];
        let speeds = [speed("a", 20.0, "FP32"), speed("b", 80.0, "tensor bf16")];
        assert_eq!(from_cases(&cases, &speeds).unwrap().flops_percent, None);
        let cases = [case("a", 1e3, "cuda_events"), case("b", 4e3, "cpu_reference")];
        assert_eq!(from_cases(&cases, &[]), None);
    }
}
