//! Turns facts about the GPU into warnings that measurements on it may be unreliable. Does no I/O.
//! `--strict` makes each of them an error.

use rgpu_case::{ClockPolicy, ClockReading, HostWarning, WarningKind};

/// Allowed relative difference from a locked clock (NVML rounds to the GPU's steps of 7.5 or 15
/// MHz).
const CLOCK_TOLERANCE: f64 = 0.02;

/// NVML's readings before the runner uses the GPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct GpuFacts {
    pub(crate) mig: bool,
    pub(crate) is_virtual: Option<bool>,
    /// Enforced and default limit, in mW.
    pub(crate) power_limits: Option<(u32, u32)>,
    pub(crate) other_processes: Vec<u32>,
}

/// Warnings about the GPU before anything runs on it.
pub(crate) fn warnings_before_launch(facts: &GpuFacts) -> Vec<HostWarning> {
    let mut warnings = Vec::new();
    let mut warn = |kind, text: String| warnings.push(HostWarning { kind, text });
    if facts.mig {
        warn(
            WarningKind::MigSlice,
            "the device is a MIG instance: it shares clocks and power with the other instances"
                .into(),
        );
    }
    if facts.is_virtual == Some(true) {
        let text = "the GPU is virtual: others may share its time";
        warn(WarningKind::VirtualGpu, text.into());
    }
    if let Some((enforced, default)) = facts.power_limits
        && enforced < default
    {
        warn(
            WarningKind::PowerLimit,
            format!(
                "the power limit is {} W, below the default of {} W",
                enforced / 1000,
                default / 1000
            ),
        );
    }
    if !facts.other_processes.is_empty() {
        let pids: Vec<String> = facts.other_processes.iter().map(u32::to_string).collect();
        warn(
            WarningKind::OtherProcesses,
            format!("other processes use the GPU: {}", pids.join(", ")),
        );
    }
    warnings
}

/// Warnings about a reading taken while the kernel runs.
pub(crate) fn warnings_under_load(
    reading: &ClockReading,
    policy: &ClockPolicy,
) -> Vec<HostWarning> {
    let mut warnings = Vec::new();
    let mut warn = |kind, text: String| warnings.push(HostWarning { kind, text });
    let to_clock = reading.sm_mhz.map(|mhz| format!(" to {mhz} MHz")).unwrap_or_default();
    for reason in &reading.throttle {
        let (kind, cause) = match reason.as_str() {
            "sw_power_cap" => (WarningKind::PowerLimit, "the power cap limits"),
            "hw_power_brake" => (WarningKind::PowerLimit, "an external power brake limits"),
            "sw_thermal" | "hw_thermal" => (WarningKind::ThermalLimit, "the temperature limits"),
            "hw_slowdown" => (WarningKind::Clocks, "a hardware slowdown limits"),
            _ => (WarningKind::Clocks, "the driver limits"),
        };
        warn(kind, format!("{cause} the SM clock{to_clock} under load (`{reason}`)"));
    }
    if let (ClockPolicy::Locked { sm_mhz: expected_mhz }, Some(found)) = (policy, reading.sm_mhz) {
        let deviation =
            (f64::from(found) - f64::from(*expected_mhz)).abs() / f64::from((*expected_mhz).max(1));
        if deviation > CLOCK_TOLERANCE {
            let text = format!(
                "the SM clock is {found} MHz under load, but {expected_mhz} MHz was \
                         requested"
            );
            warn(WarningKind::Clocks, text);
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(warnings: &[HostWarning]) -> Vec<WarningKind> {
        warnings.iter().map(|warning| warning.kind).collect()
    }

    #[test]
    fn a_whole_idle_gpu_at_its_default_limit_raises_nothing() {
        let facts = GpuFacts {
            is_virtual: Some(false),
            power_limits: Some((700_000, 700_000)),
            ..GpuFacts::default()
        };
        assert_eq!(warnings_before_launch(&facts), []);
        let reading = ClockReading { sm_mhz: Some(1980), ..ClockReading::default() };
        assert_eq!(warnings_under_load(&reading, &ClockPolicy::AsFound), []);
    }

    #[test]
    fn each_defect_has_its_own_kind_and_its_values() {
        let facts = GpuFacts {
            mig: true,
            is_virtual: Some(true),
            power_limits: Some((300_000, 700_000)),
            other_processes: vec![17, 23],
        };
        let warnings = warnings_before_launch(&facts);
        use WarningKind::*;
        assert_eq!(kinds(&warnings), [MigSlice, VirtualGpu, PowerLimit, OtherProcesses]);
        assert!(warnings[2].text.contains("300 W") && warnings[3].text.contains("17, 23"));
    }

    #[test]
    fn throttling_and_a_clock_off_the_policy_are_told_apart() {
        let reading = ClockReading {
            sm_mhz: Some(1200),
            throttle: vec!["sw_power_cap".into(), "hw_thermal".into(), "hw_slowdown".into()],
            ..ClockReading::default()
        };
        let warnings = warnings_under_load(&reading, &ClockPolicy::Locked { sm_mhz: 1500 });
        use WarningKind::*;
        assert_eq!(kinds(&warnings), [PowerLimit, ThermalLimit, Clocks, Clocks]);
        let steps = ClockReading { sm_mhz: Some(1485), ..ClockReading::default() };
        assert_eq!(warnings_under_load(&steps, &ClockPolicy::Locked { sm_mhz: 1500 }), []);
    }
}
