//! Limits findings about idle time to what the host's time without torch's profiler leaves of it.

use super::finding::{IDLE_BECAUSE, is_steady_idle, percent, steady_idle_ns, time};
use crate::Limits;
use crate::threshold::WAITING_SHARE;
use rgpu_model::finding::{GainScope, PotentialGain};
use rgpu_model::timeline::Timeline;
use rgpu_model::{Evidence, Finding, Stage};

/// The findings, with the GPU's idle time of steps at most what remains of these steps without the
/// profiler when the GPU computes for as long. Those of which too little remains are left out: the
/// profiler caused them.
///
/// A host that runs ahead of the GPU ends a step before the GPU does. Then nothing remains, and
/// that is right: the GPU does not wait.
pub(super) fn limit(
    mut findings: Vec<Finding>,
    timeline: &Timeline,
    stages: &[Stage],
    limits: &Limits<'_>,
) -> Vec<Finding> {
    let timed = stages.iter().find_map(|stage| Some((stage, stage.plain_ns?)));
    // Which of several GPUs a finding is about is not known here.
    let (Some((stage, step_ns)), [device]) = (timed, &timeline.devices[..]) else {
        return findings;
    };
    let plain_ns = step_ns.saturating_mul(stage.instances);
    let idle_ns = plain_ns.saturating_sub(device.kernel_ns);
    let recorded_ns = steady_idle_ns(device);
    if plain_ns == 0 || recorded_ns <= idle_ns {
        return findings;
    }
    let remains = idle_ns as f64 / recorded_ns as f64;
    let threshold = limits.threshold(&WAITING_SHARE);
    findings.retain_mut(|finding| {
        let stake = finding.stake.as_mut().filter(|_| is_steady_idle(&finding.id));
        // The text begins with the share of the recorded time.
        let rest = finding.text.split_once(IDLE_BECAUSE);
        let (Some(stake), Some((_, cause))) = (stake, rest) else { return true };
        let ns = (stake.ns as f64 * remains) as u64;
        let share = ns as f64 / plain_ns as f64;
        let region = Some(stage.region.clone());
        *stake = PotentialGain { region, ..PotentialGain::bound(ns, GainScope::Region, share) };
        finding.text = format!(
            "for {} of a step the GPU {IDLE_BECAUSE}{cause}; the share, not the gaps, leaves out the profiler's \
             time: a step takes {} without it, and {} with it",
            percent(share),
            time(step_ns),
            time(stage.mean_ns as u64)
        );
        finding.evidence = vec![
            threshold.share_evidence("stage.waiting", share, ""),
            Evidence::number("stage.plain", step_ns as f64, "ns"),
        ];
        share >= threshold.value
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Thresholds;
    use rgpu_model::timeline::{DeviceTime, WaitCause, WaitSum};

    /// Findings after the limit, of three steps in 20.07 ms whose kernels take 7.99 ms.
    fn limited(plain_ns: Option<u64>, found: &[(&str, u64)]) -> Vec<(String, u64, String)> {
        let waiting = found.iter().map(|(id, total_ns)| WaitSum {
            cause: match *id {
                "gpu_waits_for_host" => WaitCause::HostLate,
                "gpu_waits_for_launches" => WaitCause::LaunchLatency,
                _ => WaitCause::Copy,
            },
            total_ns: *total_ns,
            ..WaitSum::default()
        });
        let (waiting, kernel_ns) = (waiting.collect(), 7_990_000);
        let device = DeviceTime { kernel_ns, waiting, ..DeviceTime::default() };
        let timeline = Timeline { devices: vec![device], ..Timeline::default() };
        let (region, mean_ns) = ("torch@step".to_owned(), 6_690_000.0);
        let stage = Stage { instances: 3, mean_ns, region, plain_ns, ..Stage::default() };
        let finding = |(id, ns): &(&str, u64)| Finding {
            id: (*id).to_owned(),
            text: "for 33 % of 20.07 ms the GPU runs no kernel because X".to_owned(),
            stake: Some(PotentialGain { ns: *ns, ..PotentialGain::default() }),
            ..Finding::default()
        };
        let own = Thresholds::default();
        let findings = found.iter().map(finding).collect();
        let limited = limit(findings, &timeline, &[stage], &Limits::new(&own, None));
        limited.into_iter().map(|f| (f.id, f.stake.unwrap().ns, f.text)).collect()
    }

    /// Data-parallel training on one H200.
    #[test]
    fn idle_time_is_at_most_what_the_same_steps_have_without_the_profiler() {
        let host = ("gpu_waits_for_host", 6_570_000);
        let [(_, ns, text)] = &limited(Some(4_000_000), &[host])[..] else { panic!() };
        assert_eq!(*ns, 4_010_000);
        assert_eq!(
            text,
            "for 33 % of a step the GPU runs no kernel because X; the share, not the gaps, leaves \
             out the profiler's time: a step takes 4.00 ms without it, and 6.69 ms with it"
        );
        let shown = |plain_ns| {
            let all = limited(plain_ns, &[host]);
            all.first().map(|(_, ns, text)| (*ns, text.starts_with("for 33 % of 20.07 ms")))
        };
        assert_eq!(shown(None), Some((6_570_000, true)));
        assert_eq!(shown(Some(6_000_000)), Some((6_570_000, true)), "the limit is higher");
        assert_eq!(shown(Some(2_900_000)), None, "8 % of the steps remain");
        assert_eq!(shown(Some(1_000_000)), None, "the host runs ahead of the GPU");
    }

    #[test]
    fn several_causes_share_what_remains() {
        let both = [("gpu_waits_for_host", 6_000_000), ("gpu_waits_for_launches", 3_000_000)];
        let both = limited(Some(4_000_000), &both);
        assert_eq!(both.iter().map(|(_, ns, _)| *ns).collect::<Vec<_>>(), [2_673_333, 1_336_666]);
    }

    #[test]
    fn start_up_and_copies_have_no_limit() {
        let ids = ["gpu_waits_for_first_launches", "gpu_waits_for_copies", "fp32_gemm"];
        let all = limited(Some(1_000_000), &ids.map(|id| (id, 6_570_000)));
        assert!(all.iter().all(|(_, ns, _)| *ns == 6_570_000));
        assert!(all.iter().map(|(id, ..)| id.as_str()).eq(ids));
    }
}
