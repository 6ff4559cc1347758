//! Compares runs of one plan on several remotes: one row per run, and times relative to the first
//! run that has one, by the rules of [`super::compare`].
//!
//! These runs are expected to differ in GPU and driver. Times of different kinds of clocks are not
//! compared: the time of a reference on a CPU says nothing about the kernel.

use super::compare::{CompareOptions, compare};
use rgpu_model::comparison::TimeVerdict;
use rgpu_model::fan_out::{FanOutCase, FanOutRow};
use rgpu_model::metric::{self, MainMetric};
use rgpu_model::profile::Timing;
use rgpu_model::profile::TimingClock;
use rgpu_model::{Launch, Profile};

/// The smallest relevant effect, as a fraction: the default of `rgpu compare`.
const THRESHOLD: f64 = 0.01;

/// The row for a profile. The caller fills in remote, run and outcome.
pub fn row(profile: &Profile) -> FanOutRow {
    let longest = longest(profile);
    // Times of a sanitizer run are ignored: without a GPU they are those of the reference.
    let timing = profile.timing.as_ref().filter(|_| times(profile));
    let share = |of: MainMetric| Some(longest?.first_number(of.ids)?.1);
    FanOutRow {
        device: device(profile),
        rung: Some(profile.rung.clone()).filter(|rung| !rung.is_empty()),
        median_ns: timing.map(|t| t.median_ns),
        clock: timing.map(|t| t.clock.clone()),
        correctness: profile.correctness.as_ref().map(|c| c.verdict.clone()),
        cases: profile
            .cases
            .iter()
            .filter(|_| times(profile))
            .filter_map(|case| {
                let median_ns = case.timing.as_ref()?.median_ns;
                Some(FanOutCase { name: case.name.clone(), median_ns })
            })
            .collect(),
        sm_percent: share(metric::SM_THROUGHPUT),
        memory_percent: share(metric::MEMORY_THROUGHPUT),
        occupancy_percent: share(metric::OCCUPANCY),
        bound_by: longest
            .and_then(|launch| launch.classification.as_ref())
            .map(|class| class.primary.clone()),
        ..FanOutRow::default()
    }
}

/// Whether the run measures times.
fn times(profile: &Profile) -> bool {
    profile.run.mode != "sanitizer"
}

/// The longest launch with metrics; without durations the first launch with metrics.
fn longest(profile: &Profile) -> Option<&Launch> {
    let measured = || profile.launches.iter().filter(|launch| !launch.metrics.is_empty());
    let timed = measured().filter_map(|launch| Some((launch.duration_ns?, launch)));
    timed.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, launch)| launch).or_else(|| measured().next())
}

fn device(profile: &Profile) -> Option<String> {
    let gpus = profile.host.iter().flat_map(|host| &host.gpus);
    let mut named = gpus.filter(|gpu| Some(&gpu.uuid) == profile.gpu.as_ref());
    named.next().map(|gpu| gpu.name.clone()).or_else(|| profile.device.clone())
}

/// Compares all times with the first profile that has one and fills in `against_base`. Returns that
/// profile's remote, if there is one, and a one-sentence summary.
pub fn compare_with_first(
    rows: &mut [FanOutRow],
    profiles: &[Option<Profile>],
) -> (Option<String>, String) {
    // A time of the reference on a CPU says nothing about the kernel.
    let timed = |profile: &&Profile| {
        let on_gpu = |timing: &Timing| timing.clock != TimingClock::CpuReference;
        times(profile) && profile.timing.as_ref().is_some_and(on_gpu)
    };
    let base = profiles.iter().position(|p| p.as_ref().filter(timed).is_some());
    let Some((at, base)) = base.and_then(|at| Some((at, profiles[at].as_ref()?))) else {
        let on_cpu = profiles.iter().flatten().any(|p| times(p) && p.has_cpu_reference_time());
        return (
            None,
            (if on_cpu {
                "no GPU was measured: these are times of the reference on each CPU"
            } else {
                "no remote has a time to compare the others with"
            })
            .to_owned(),
        );
    };
    let name = rows[at].remote.clone();
    for (row, profile) in rows.iter_mut().zip(profiles).skip(at + 1) {
        let Some(profile) = profile.as_ref().filter(timed) else { continue };
        if row.clock.as_deref() != base.timing.as_ref().map(|t| t.clock.as_str()) {
            continue;
        }
        let names = [name.as_str(), row.remote.as_str()];
        let options = CompareOptions { names, threshold: THRESHOLD, paired: &[] };
        row.against_base = compare(base, profile, &options).time;
    }
    let summary = summary(&name, rows);
    (Some(name), summary)
}

fn summary(base: &str, rows: &[FanOutRow]) -> String {
    let compared = || rows.iter().filter_map(|row| Some((row, row.against_base.as_ref()?)));
    if compared().next().is_none() {
        return format!("only `{base}` has a time; there is nothing to compare it with");
    }
    let fastest = compared().max_by(|a, b| a.1.speedup.total_cmp(&b.1.speedup));
    let interval = |ci: Option<[f64; 2]>| {
        ci.map_or(String::new(), |[low, high]| format!(" (95 %: {low:.3} to {high:.3})"))
    };
    match fastest {
        Some((row, time)) if time.verdict == TimeVerdict::Faster => {
            let (name, times, ci) = (&row.remote, time.speedup, interval(time.ci95));
            format!("`{name}` is {times:.3} times as fast as `{base}`{ci}")
        }
        _ if compared().all(|(_, time)| time.verdict == TimeVerdict::Slower) => {
            format!("`{base}` is the fastest")
        }
        _ if compared().all(|(_, time)| time.verdict == TimeVerdict::Same) => {
            "all are equally fast, within 1 %".to_owned()
        }
        _ => format!("no remote is faster than `{base}` with certainty"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(median_ns: f64, clock: &str) -> Option<Profile> {
        let ci95_ns = [median_ns * 0.999, median_ns * 1.001];
        let timing =
            Timing { median_ns, ci95_ns, samples: 50, clock: clock.into(), ..Timing::default() };
        Some(Profile { timing: Some(timing), ..Profile::default() })
    }

    fn compared(profiles: &[Option<Profile>]) -> (Vec<FanOutRow>, Option<String>, String) {
        let mut rows: Vec<FanOutRow> = profiles
            .iter()
            .zip(["x", "y", "z"])
            .map(|(profile, remote)| FanOutRow {
                remote: remote.to_owned(),
                ..profile.as_ref().map(row).unwrap_or_default()
            })
            .collect();
        let (base, summary) = compare_with_first(&mut rows, profiles);
        (rows, base, summary)
    }

    #[test]
    fn the_first_that_has_a_time_is_the_base() {
        let (rows, base, summary) =
            compared(&[None, timed(2000.0, "cuda_events"), timed(1000.0, "cuda_events")]);
        assert_eq!(base.as_deref(), Some("y"));
        assert!(rows[0].against_base.is_none() && rows[1].against_base.is_none());
        let time = rows[2].against_base.as_ref().unwrap();
        assert!((time.speedup - 2.0).abs() < 1e-9, "{time:?}");
        assert!(summary.starts_with("`z` is 2.000 times as fast as `y` (95 %: "), "{summary}");
    }

    #[test]
    fn clocks_of_different_kinds_are_not_held_against_each_other() {
        let (rows, _, summary) =
            compared(&[timed(2000.0, "cuda_events"), timed(9e6, "cpu_reference"), None]);
        assert!(rows.iter().all(|row| row.against_base.is_none()));
        assert_eq!(summary, "only `x` has a time; there is nothing to compare it with");
    }

    #[test]
    fn a_run_that_looks_for_faults_has_no_time() {
        let mut profile = timed(9e6, "cpu_reference");
        if let Some(profile) = &mut profile {
            profile.run.mode = "sanitizer".to_owned();
        }
        let (rows, base, summary) = compared(&[profile, None]);
        assert_eq!((rows[0].median_ns, rows[0].clock.as_deref(), base), (None, None, None));
        assert!(!summary.contains("CPU"), "{summary}");
    }

    #[test]
    fn slower_and_equal_ones_are_said_so() {
        let (.., summary) = compared(&[timed(1000.0, "cuda_events"), timed(3000.0, "cuda_events")]);
        assert_eq!(summary, "`x` is the fastest");
        let (.., summary) = compared(&[timed(1000.0, "cuda_events"), timed(1000.5, "cuda_events")]);
        assert_eq!(summary, "all are equally fast, within 1 %");
        let (_, base, summary) = compared(&[None, None]);
        assert_eq!((base, summary.contains("no remote has a time")), (None, true));
    }
}
