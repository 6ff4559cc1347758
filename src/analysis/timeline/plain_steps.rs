//! Limits findings about idle time to what the host's time without torch's profiler leaves of it.

use super::finding::{is_steady_idle, time};
use crate::analysis::Limits;
use crate::analysis::threshold::WAITING_SHARE;
use crate::model::timeline::Timeline;
use crate::model::{Evidence, Finding, Stage};

/// The findings, with the GPU's idle time of steps at most what remains of these steps without the
/// profiler when the GPU computes for as long. Those of which too little remains are left out: the
/// profiler caused them.
///
/// A host that runs ahead of the GPU ends a step before the GPU does. Then nothing remains, and that
/// is right: the GPU does not wait.
pub(super) fn limit(
    mut findings: Vec<Finding>,
    timeline: &Timeline,
    stages: &[Stage],
    limits: &Limits<'_>,
) -> Vec<Finding> {
    let timed = stages.iter().find_map(|stage| Some((stage.plain_ns?, stage.instances)));
    // Which of several GPUs a finding is about is not known here.
    let (Some((step_ns, steps)), [device]) = (timed, &timeline.devices[..]) else {
        return findings;
    };
    let plain_ns = step_ns.saturating_mul(steps);
    if steps == 0 || plain_ns == 0 {
        return findings;
    }
    let idle_ns = plain_ns.saturating_sub(device.kernel_ns);
    let is_much = idle_ns as f64 >= limits.threshold(&WAITING_SHARE).value * plain_ns as f64;
    findings.retain_mut(|finding| {
        let stake = finding.stake.as_mut().filter(|stake| stake.ns > idle_ns);
        let Some(stake) = stake.filter(|_| is_steady_idle(&finding.id)) else {
            return true;
        };
        stake.share *= idle_ns as f64 / stake.ns as f64;
        stake.ns = idle_ns;
        finding.text += &format!(
            "; a step takes {} without the profiler and {} with it",
            time(step_ns),
            time(device.span_ns / steps)
        );
        finding.evidence.push(Evidence::number("stage.plain", step_ns as f64, "ns"));
        is_much
    });
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Thresholds;
    use crate::model::finding::PotentialGain;
    use crate::model::timeline::DeviceTime;

    /// Findings after the limit, of three steps in 20.07 ms whose kernels take 7.99 ms.
    fn limited(plain_ns: Option<u64>, ids: &[&str]) -> Vec<Finding> {
        let device =
            DeviceTime { span_ns: 20_070_000, kernel_ns: 7_990_000, ..DeviceTime::default() };
        let timeline = Timeline { devices: vec![device], ..Timeline::default() };
        let stage = Stage { instances: 3, plain_ns, ..Stage::default() };
        let stake = PotentialGain { ns: 6_570_000, share: 0.3273, ..PotentialGain::default() };
        let finding = |id: &&str| Finding {
            id: (*id).to_owned(),
            text: "idle".to_owned(),
            stake: Some(stake.clone()),
            ..Finding::default()
        };
        let own = Thresholds::default();
        let findings = ids.iter().map(finding).collect();
        limit(findings, &timeline, &[stage], &Limits::new(&own, None))
    }

    /// Data-parallel training on one H200.
    #[test]
    fn idle_time_is_at_most_what_the_same_steps_have_without_the_profiler() {
        let shown = |plain_ns| {
            let findings = limited(plain_ns, &["gpu_waits_for_host"]);
            let stake = |f: &Finding| f.stake.as_ref().map(|stake| (stake.ns, stake.share));
            findings.into_iter().map(|f| (stake(&f).unwrap(), f.text)).collect::<Vec<_>>()
        };
        let [((ns, share), text)] = &shown(Some(4_000_000))[..] else { panic!() };
        assert_eq!((*ns, (share * 1e3).round()), (4_010_000, 200.0));
        assert_eq!(text, "idle; a step takes 4.00 ms without the profiler and 6.69 ms with it");
        let as_before = [((6_570_000, 0.3273), "idle".to_owned())];
        assert_eq!(shown(None), as_before);
        assert_eq!(shown(Some(6_000_000)), as_before, "the limit is higher");
        assert_eq!(shown(Some(2_900_000)), [], "8 % of the steps remain");
        assert_eq!(shown(Some(1_000_000)), [], "the host runs ahead of the GPU");
    }

    #[test]
    fn start_up_and_copies_have_no_limit() {
        let ids = ["gpu_waits_for_first_launches", "gpu_waits_for_copies", "fp32_gemm"];
        let all = limited(Some(1_000_000), &ids);
        assert!(all.iter().map(|finding| finding.id.as_str()).eq(ids));
    }
}
