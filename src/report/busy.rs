//! The share of the time that the GPUs were busy, defined once for all reports.

use crate::model::Profile;

/// Busy time and the time from the first to the last kernel, each summed over the GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct BusyTime {
    /// Nanoseconds in which a GPU was busy, as the timeline's analysis counts them.
    pub(super) busy_ns: u64,
    /// Nanoseconds from the first kernel of a GPU to the end of its last.
    pub(super) span_ns: u64,
}

impl BusyTime {
    /// The busy share in percent.
    pub(super) fn percent(self) -> f64 {
        100.0 * self.busy_ns as f64 / self.span_ns.max(1) as f64
    }
}

/// The busy time from the profile's timeline; `None` without a timeline.
pub(super) fn busy(profile: &Profile) -> Option<BusyTime> {
    let devices = &profile.timeline.as_ref()?.devices;
    let sum = |of: fn(&crate::model::timeline::DeviceTime) -> u64| devices.iter().map(of).sum();
    let busy = BusyTime { busy_ns: sum(|d| d.busy_ns), span_ns: sum(|d| d.span_ns) };
    (busy.span_ns > 0).then_some(busy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::timeline::{DeviceTime, Timeline};

    #[test]
    fn gpus_count_together_over_the_time_from_their_first_to_their_last_kernel() {
        let gpu = |busy_ns, span_ns| DeviceTime { busy_ns, span_ns, ..DeviceTime::default() };
        let timeline = Timeline { devices: vec![gpu(50, 100), gpu(30, 60)], ..Timeline::default() };
        let profile = Profile { timeline: Some(timeline), ..Profile::default() };
        assert_eq!(busy(&profile), Some(BusyTime { busy_ns: 80, span_ns: 160 }));
        assert_eq!(busy(&Profile::default()), None);
    }
}
