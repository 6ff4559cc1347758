//! The share of the time that the GPUs were busy, defined once for all reports.

use super::quantity::duration;
use crate::model::Profile;

/// Busy time and the time from the first to the last kernel, each summed over the GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct BusyTime {
    /// Nanoseconds in which a GPU was busy, as the timeline's analysis counts them, less kernels that
    /// only tune if start-up is distinguished.
    pub(super) busy_ns: u64,
    /// Nanoseconds from the first kernel of a GPU to the end of its last.
    pub(super) span_ns: u64,
    /// The part of `span_ns` in which the host prepared launches for the first time; 0 if no finding
    /// says that it is much.
    pub(super) start_up_ns: u64,
}

impl BusyTime {
    /// The busy share of the time after start-up in percent.
    pub(super) fn percent(self) -> f64 {
        let steady_ns = self.span_ns.saturating_sub(self.start_up_ns);
        100.0 * self.busy_ns as f64 / steady_ns.max(1) as f64
    }

    /// `of the time`, or `of the time after start-up (2.00 s)`.
    pub(super) fn of_the_time(self) -> String {
        match self.start_up_ns {
            0 => "of the time".to_owned(),
            ns => format!("of the time after start-up ({})", duration(ns as f64)),
        }
    }
}

/// The busy time from the profile's timeline; `None` without a timeline.
pub(super) fn busy(profile: &Profile) -> Option<BusyTime> {
    let devices = &profile.timeline.as_ref()?.devices;
    let sum = |of: fn(&crate::model::timeline::DeviceTime) -> u64| devices.iter().map(of).sum();
    let starts_up = profile.findings.iter().any(|f| f.id == "gpu_waits_for_first_launches");
    let (tuning_ns, start_up_ns) = match starts_up {
        true => (sum(|d| d.tuning_ns), sum(|d| d.start_up_ns())),
        false => (0, 0),
    };
    let busy_ns: u64 = sum(|d| d.busy_ns);
    let busy = BusyTime {
        busy_ns: busy_ns.saturating_sub(tuning_ns),
        span_ns: sum(|d| d.span_ns),
        start_up_ns,
    };
    (busy.span_ns > 0).then_some(busy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Finding;
    use crate::model::timeline::{DeviceTime, Timeline, WaitCause, WaitSum};

    #[test]
    fn gpus_count_together_over_the_time_from_their_first_to_their_last_kernel() {
        let gpu = |busy_ns, span_ns| DeviceTime { busy_ns, span_ns, ..DeviceTime::default() };
        let timeline = Timeline { devices: vec![gpu(50, 100), gpu(30, 60)], ..Timeline::default() };
        let profile = Profile { timeline: Some(timeline), ..Profile::default() };
        assert_eq!(busy(&profile), Some(BusyTime { busy_ns: 80, span_ns: 160, start_up_ns: 0 }));
        assert_eq!(busy(&Profile::default()), None);
    }

    #[test]
    fn a_start_up_that_a_finding_names_is_told_apart() {
        let first_launches =
            vec![WaitSum { cause: WaitCause::HostLate, total_ns: 900_000_000, gaps: 1 }];
        let gpu = DeviceTime {
            busy_ns: 50_000_000,
            span_ns: 1_000_000_000,
            first_launches,
            ..DeviceTime::default()
        };
        let timeline = Timeline { devices: vec![gpu], ..Timeline::default() };
        let mut profile = Profile { timeline: Some(timeline), ..Profile::default() };
        let text = |profile: &Profile| {
            let busy = busy(profile).unwrap();
            format!("{:.0} % {}", busy.percent(), busy.of_the_time())
        };
        assert_eq!(text(&profile), "5 % of the time");
        let id = "gpu_waits_for_first_launches".to_owned();
        profile.findings = vec![Finding { id, ..Finding::default() }];
        assert_eq!(text(&profile), "50 % of the time after start-up (900 ms)");
        for device in profile.timeline.iter_mut().flat_map(|timeline| &mut timeline.devices) {
            device.tuning_ns = 40_000_000;
        }
        assert_eq!(text(&profile), "17 % of the time after start-up (940 ms)");
    }
}
