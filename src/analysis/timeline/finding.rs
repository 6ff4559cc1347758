//! Findings of a timeline: causes of much idle time, each with the next step.

use crate::analysis::Limits;
use crate::analysis::threshold::{NCCL_ALONE, Threshold, WAITING_SHARE};
use crate::model::timeline::WaitCause;
use crate::model::timeline::{DeviceTime, Timeline, WaitSum};
use crate::model::{Evidence, Finding};

/// The causes that a user can fix: cause, finding id, explanation, hint.
const CAUSES: &[(WaitCause, &str, &str, &str)] = &[
    (
        WaitCause::HostLate,
        "gpu_waits_for_host",
        "the host had not launched the next kernel",
        "move work of the host off the launching thread or ahead of the launches; queue several \
         steps before looking at a result; load modules and allocate before the loop",
    ),
    (
        WaitCause::LaunchLatency,
        "gpu_waits_for_launches",
        "the next launch was still on its way",
        "launch less often: fuse small kernels, batch the work, or capture the sequence in a CUDA \
         graph",
    ),
    (
        WaitCause::Synchronisation,
        "gpu_waits_after_synchronisation",
        "the host had waited for the GPU to finish before it launched on",
        "wait once after the loop, not after each step; order streams with events \
         (cudaStreamWaitEvent) instead of waiting on the host",
    ),
    (
        WaitCause::Copy,
        "gpu_waits_for_copies",
        "only copies ran",
        "copy from pinned memory with cudaMemcpyAsync on a stream of its own, so that the copy of \
         one step runs beside the kernels of another",
    ),
];

/// The findings of a timeline.
pub(crate) fn findings(timeline: &Timeline, limits: &Limits<'_>) -> Vec<Finding> {
    let several = timeline.devices.len() > 1;
    timeline
        .devices
        .iter()
        .flat_map(|device| {
            let waits = device.waiting.iter();
            let waits = waits.filter_map(|wait| waiting(device, wait, several, limits));
            waits.chain(nccl(device, several, limits)).collect::<Vec<_>>()
        })
        .collect()
}

fn waiting(
    device: &DeviceTime,
    wait: &WaitSum,
    several: bool,
    limits: &Limits<'_>,
) -> Option<Finding> {
    let threshold = limits.threshold(&WAITING_SHARE);
    let (_, id, explanation, hint) = CAUSES.iter().find(|(cause, ..)| *cause == wait.cause)?;
    let share = share(wait.total_ns, device)?;
    (share >= threshold.value).then(|| Finding {
        id: (*id).to_owned(),
        category: "host".to_owned(),
        priority: priority(share),
        launch: None,
        kernel: None,
        text: format!(
            "for {:.0} % of {:.2} ms {}runs no kernel because {explanation} ({})",
            100.0 * share,
            device.span_ns as f64 / 1e6,
            subject(device, several),
            counted(wait.gaps, "gap", "gaps"),
        ),
        hint: (*hint).to_owned(),
        evidence: vec![
            percent(&format!("timeline.{}", wait.cause), share, threshold),
            Evidence {
                metric: "timeline.kernel_ns".to_owned(),
                value: device.kernel_ns as f64,
                unit: "ns".to_owned(),
                threshold: device.span_ns as f64,
                source: "span of the trace".to_owned(),
            },
        ],
    })
}

fn nccl(device: &DeviceTime, several: bool, limits: &Limits<'_>) -> Option<Finding> {
    let threshold = limits.threshold(&NCCL_ALONE);
    let alone = share(device.nccl_alone_ns, device)?;
    (alone >= threshold.value).then(|| Finding {
        id: "nccl_not_hidden".to_owned(),
        category: "host".to_owned(),
        priority: priority(alone),
        launch: None,
        kernel: None,
        text: format!(
            "for {:.0} % of {:.2} ms {}runs nothing but NCCL ({})",
            100.0 * alone,
            device.span_ns as f64 / 1e6,
            subject(device, several),
            counted(device.nccl_launches, "launch", "launches"),
        ),
        hint: "start collectives earlier and on a stream of their own, in buckets, so that \
               computation runs beside them"
            .to_owned(),
        evidence: vec![percent("timeline.nccl_alone", alone, threshold)],
    })
}

fn subject(device: &DeviceTime, several: bool) -> String {
    if several { format!("GPU {} ", device.device) } else { "the GPU ".to_owned() }
}

/// `1 gap`, `2 gaps`.
fn counted(n: u64, one: &str, several: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { several })
}

fn share(ns: u64, device: &DeviceTime) -> Option<f64> {
    (device.span_ns > 0).then(|| ns as f64 / device.span_ns as f64)
}

/// The priority of a finding by its share of the time; 1 is the highest.
fn priority(share: f64) -> u8 {
    match share {
        share if share >= 0.33 => 1,
        share if share >= 0.2 => 2,
        _ => 3,
    }
}

fn percent(metric: &str, share: f64, threshold: Threshold) -> Evidence {
    Evidence {
        metric: metric.to_owned(),
        value: 100.0 * share,
        unit: "%".to_owned(),
        threshold: 100.0 * threshold.value,
        source: threshold.source.to_owned(),
    }
}
