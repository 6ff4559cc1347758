//! How busy the GPUs were, defined once for all reports.
//!
//! Each of several GPUs has its own share of its own time, and reports show the lowest and the
//! highest: sums over GPUs exceed the time that passed.

use super::quantity::{duration, join_with_unit, percent};
use rgpu_model::finding::START_UP;
use rgpu_model::timeline::{DeviceTime, WHOLE_GRAPHS};
use rgpu_model::{Profile, Stage};

/// Busy times of the GPUs, each from its first to its last kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BusyTime {
    gpus: Vec<GpuBusyTime>,
    /// Number of ranks that they belong to; 0 for one process.
    ranks: usize,
    /// The busy share of a step without torch's profiler.
    unprofiled: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GpuBusyTime {
    /// Nanoseconds in which the GPU was busy, as the timeline's analysis counts them, less kernels
    /// that only tune if start-up is distinguished.
    busy_ns: u64,
    /// Nanoseconds from its first kernel to the end of its last.
    span_ns: u64,
    /// The part of `span_ns` in which the host prepared launches for the first time; 0 if no
    /// finding says that it is much.
    start_up_ns: u64,
}

impl GpuBusyTime {
    fn new(device: &DeviceTime, starts_up: bool) -> Self {
        let (tuning_ns, start_up_ns) =
            if starts_up { (device.tuning_ns, device.start_up_ns()) } else { (0, 0) };
        Self {
            busy_ns: device.busy_ns.saturating_sub(tuning_ns),
            span_ns: device.span_ns,
            start_up_ns,
        }
    }

    /// Nanoseconds apart from start-up.
    fn steady_ns(self) -> u64 {
        self.span_ns.saturating_sub(self.start_up_ns)
    }

    /// The busy share of the time apart from start-up, 0 to 1.
    fn share(self) -> f64 {
        self.busy_ns as f64 / self.steady_ns().max(1) as f64
    }
}

impl BusyTime {
    /// `41 %`; of several GPUs `41 to 63 %`.
    pub(super) fn percent(&self) -> String {
        self.range(|gpu| 100.0 * gpu.share(), percent)
    }

    /// The lowest busy share of the GPUs, 0 to 1.
    pub(super) fn least_share(&self) -> f64 {
        self.gpus.iter().map(|gpu| gpu.share()).fold(1.0, f64::min)
    }

    /// `The GPU was busy 41 % of the time apart from start-up (2.00 s)`;
    /// `The 4 GPUs were busy 41 to 63 % of the time`.
    pub(super) fn sentence(&self) -> String {
        let subject = match (self.gpus.len(), self.ranks) {
            (1, _) => "The GPU was".to_owned(),
            (_, ranks) if ranks > 1 => format!("The GPUs of {ranks} ranks were"),
            (gpus, _) => format!("The {gpus} GPUs were"),
        };
        let after =
            self.start_up().map_or_else(String::new, |ns| format!(" apart from start-up ({ns})"));
        let share = self.percent();
        match &self.unprofiled {
            Some(step) => format!(
                "{subject} busy {step} of a step without torch's profiler, and {share} of the recorded \
                 time{after}"
            ),
            None => format!("{subject} busy {share} of the time{after}"),
        }
    }

    /// `from its first to its last kernel`; of several GPUs `each …`.
    pub(super) fn span_words(&self) -> &'static str {
        match self.gpus.len() {
            1 => "from its first to its last kernel",
            _ => "each from its first to its last kernel",
        }
    }

    /// `2.25 s`; of several GPUs `2.20 to 2.25 s`.
    pub(super) fn span(&self) -> String {
        self.range(|gpu| gpu.span_ns as f64, duration)
    }

    /// The time of start-up. `None` if no finding says that it is much.
    pub(super) fn start_up(&self) -> Option<String> {
        let starts_up = self.gpus.iter().any(|gpu| gpu.start_up_ns > 0);
        starts_up.then(|| self.range(|gpu| gpu.start_up_ns as f64, duration))
    }

    /// `41.0 ms of 100 ms from its first to its last kernel`, with the start-up that is left out.
    /// Of several GPUs without their busy times.
    pub(super) fn note(&self) -> String {
        let steady = self.range(|gpu| gpu.steady_ns() as f64, duration);
        let span = self.span_words();
        let after =
            self.start_up().map_or_else(String::new, |ns| format!(", apart from {ns} of start-up"));
        match &self.gpus[..] {
            [gpu] => format!("{} of {steady} {span}{after}", duration(gpu.busy_ns as f64)),
            _ => format!("of {steady}, {span}{after}"),
        }
    }

    /// The lowest and the highest value of the GPUs as texts, and their unit once.
    fn range(&self, value: impl Fn(GpuBusyTime) -> f64, text: fn(f64) -> String) -> String {
        let values = || self.gpus.iter().map(|gpu| value(*gpu));
        let low = text(values().fold(f64::INFINITY, f64::min));
        let high = text(values().fold(0.0, f64::max));
        if low == high { low } else { join_with_unit(&low, " to ", &high) }
    }
}

/// The busy times from the profile's timeline; `None` without a timeline.
pub(super) fn busy(profile: &Profile) -> Option<BusyTime> {
    let timeline = profile.timeline.as_ref()?;
    let starts_up = profile.findings.iter().any(|f| f.id == START_UP);
    let gpus = timeline.devices.iter().filter(|device| device.span_ns > 0);
    let gpus: Vec<_> = gpus.map(|device| GpuBusyTime::new(device, starts_up)).collect();
    let unprofiled = unprofiled(profile);
    (!gpus.is_empty()).then(|| BusyTime { gpus, ranks: timeline.ranks(), unprofiled })
}

/// What the busy share includes if CUDA graphs were traced without their kernels; `None` without
/// such graphs.
pub(super) fn graphs_note(profile: &Profile) -> Option<&'static str> {
    let is_there = profile.kernels.iter().any(|kernel| kernel.kernel == WHOLE_GRAPHS);
    is_there.then_some(
        "nsys traced CUDA graphs as a whole: each counts as busy from start to end, gaps between its \
         kernels included.",
    )
}

/// The busy share of a step without torch's profiler, if that is known of the only GPU: `67 %`.
fn unprofiled(profile: &Profile) -> Option<String> {
    let [device] = &profile.timeline.as_ref()?.devices[..] else { return None };
    let timed = |stage: &Stage| Some((stage.plain_ns? as f64, stage.instances));
    let (plain_ns, steps) = profile.stages.iter().find_map(timed)?;
    let busy_ns = device.kernel_ns as f64 / steps.max(1) as f64;
    // A host that runs ahead of the GPU ends its steps earlier than the GPU does.
    (busy_ns <= plain_ns).then(|| percent(100.0 * busy_ns / plain_ns))
}

/// The GPUs over which sums of a profile run: `4 GPUs`, `2 ranks`. `None` for a single one.
pub(super) fn several_gpus(profile: &Profile) -> Option<String> {
    let timeline = profile.timeline.as_ref()?;
    match (timeline.gpus(), timeline.ranks()) {
        (0 | 1, _) => None,
        (_, ranks) if ranks > 1 => Some(format!("{ranks} ranks")),
        (gpus, _) => Some(format!("{gpus} GPUs")),
    }
}

/// A title with the GPUs over which the times below it are summed: `kernels, summed over 4 GPUs`.
pub(super) fn sum_title(title: &str, profile: &Profile) -> String {
    match several_gpus(profile) {
        Some(gpus) => format!("{title}, summed over {gpus}"),
        None => title.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rgpu_model::Finding;
    use rgpu_model::timeline::{KernelSum, Timeline, WaitCause, WaitSum};

    fn profile(devices: Vec<DeviceTime>) -> Profile {
        let timeline = Timeline { devices, ..Timeline::default() };
        Profile { timeline: Some(timeline), ..Profile::default() }
    }

    #[test]
    fn each_gpu_has_its_share_of_the_time_from_its_first_to_its_last_kernel() {
        let gpu =
            |rank, busy_ns, span_ns| DeviceTime { rank, busy_ns, span_ns, ..DeviceTime::default() };
        let ms = 1_000_000;
        let two = profile(vec![gpu(None, 41 * ms, 100 * ms), gpu(None, 63 * ms, 100 * ms)]);
        let times = busy(&two).unwrap();
        assert_eq!(times.sentence(), "The 2 GPUs were busy 41 to 63 % of the time");
        assert_eq!(times.note(), "of 100 ms, each from its first to its last kernel");
        assert_eq!(several_gpus(&two).as_deref(), Some("2 GPUs"));
        assert_eq!(sum_title("kernels", &two), "kernels, summed over 2 GPUs");
        let ranks = profile((0..4).map(|rank| gpu(Some(rank), 9 * ms, 10 * ms)).collect());
        let times = busy(&ranks).unwrap();
        assert_eq!(times.sentence(), "The GPUs of 4 ranks were busy 90 % of the time");
        assert_eq!(several_gpus(&ranks).as_deref(), Some("4 ranks"));
        let one = profile(vec![gpu(None, 41 * ms, 100 * ms), gpu(None, 0, 0)]);
        let times = busy(&one).unwrap();
        assert_eq!(times.sentence(), "The GPU was busy 41 % of the time");
        assert_eq!(times.note(), "41.0 ms of 100 ms from its first to its last kernel");
        assert_eq!(several_gpus(&one), None);
        assert_eq!(busy(&Profile::default()), None);
    }

    #[test]
    fn gaps_inside_of_graphs_are_told_only_where_graphs_were_traced_as_a_whole() {
        let sum = |kernel: &str| KernelSum { kernel: kernel.to_owned(), ..KernelSum::default() };
        let note = |name| graphs_note(&Profile { kernels: vec![sum(name)], ..Profile::default() });
        assert_eq!(note("gemm"), None);
        assert!(note(WHOLE_GRAPHS).unwrap().contains("gaps between its kernels included"));
    }

    #[test]
    fn the_busy_share_of_a_step_without_the_profiler_is_told_where_it_is_known() {
        let ms = 1_000_000;
        let device = DeviceTime {
            kernel_ns: 39 * ms,
            busy_ns: 39 * ms,
            span_ns: 117 * ms,
            ..DeviceTime::default()
        };
        let sentence = |plain_ns| {
            let stages = vec![Stage { instances: 3, plain_ns, ..Stage::default() }];
            busy(&Profile { stages, ..profile(vec![device.clone()]) }).unwrap().sentence()
        };
        assert_eq!(
            sentence(Some(19_500_000)),
            "The GPU was busy 67 % of a step without torch's profiler, and 33 % of the recorded time"
        );
        for unknown in [Some(12 * ms), None] {
            assert_eq!(sentence(unknown), "The GPU was busy 33 % of the time");
        }
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
        let mut profile = profile(vec![gpu]);
        let text = |profile: &Profile| busy(profile).unwrap().sentence();
        assert_eq!(text(&profile), "The GPU was busy 5.00 % of the time");
        let id = START_UP.to_owned();
        profile.findings = vec![Finding { id, ..Finding::default() }];
        assert_eq!(
            text(&profile),
            "The GPU was busy 50 % of the time apart from start-up (900 ms)"
        );
        for device in profile.timeline.iter_mut().flat_map(|timeline| &mut timeline.devices) {
            device.tuning_ns = 40_000_000;
        }
        assert_eq!(
            text(&profile),
            "The GPU was busy 17 % of the time apart from start-up (940 ms)"
        );
        let timeline = profile.timeline.as_mut().unwrap();
        let mut second = timeline.devices[0].clone();
        second.first_launches[0].total_ns = 460_000_000;
        timeline.devices.push(second);
        let both =
            "The 2 GPUs were busy 2.00 to 17 % of the time apart from start-up (500 to 940 ms)";
        assert_eq!(text(&profile), both);
    }
}
