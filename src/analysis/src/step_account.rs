//! The account of a profile's trace, with what the GPU reaches.

use rgpu_account::GpuFacts;
use rgpu_model::{Finding, Profile, Trace};

use super::datasheet;
use super::device::find_device;
use super::timeline::is_told_by_account;

/// The parts of a datasheet's peaks that good kernels reach on an H200: 4.1 of 4.8 TB/s in copies,
/// 715 to 790 of 989 TFLOP/s in products of bf16.
const REACHED_DRAM: f64 = 0.85;
const REACHED_TENSOR: f64 = 0.75;
const REACHED_FP32: f64 = 0.8;
/// Bytes per second of a copy from pinned memory: PCIe 5 with 16 lanes, and PCIe 4 before Hopper.
const PCIE_5: f64 = 52e9;
const PCIE_4: f64 = 25e9;
/// Nanoseconds that nsys and the CUPTI collector add to each call: programs with and without nsys on
/// one H200 differ by 0.5 to 5 µs a call, those of torch by more than those of C++.
const TOOL_NS: (u64, u64) = (1_000, 5_000);

/// Rules that need no counters, and whose causes the account has with a replayed gain: products in
/// FP32, known by the names of kernels, and kernels as short as a launch.
const BY_NAME_OR_TIME: &[&str] = &["fp32_gemm", "launch_bound"];

/// Causes by which small kernels of several streams run one after another: together they would fill
/// the GPU, so that their grids are no fault.
const HOLD_STREAMS_BACK: &[&str] = &["default_stream", "streams_wait_too_often"];

/// Adds the account of a trace to the profile, and returns its findings: with their gains if the
/// steps could be replayed.
pub(super) fn add(profile: &mut Profile, trace: &Trace) -> Vec<Finding> {
    let plain_step_ns = profile.stages.iter().find_map(|stage| stage.plain_ns);
    let facts = GpuFacts { plain_step_ns, tool_ns: Some(TOOL_NS), ..facts(profile) };
    let Some((account, findings)) = rgpu_account::account(trace, &facts) else {
        return Vec::new();
    };
    profile.account = Some(account);
    findings
}

/// Leaves out what the account of the steps tells better, if there is one. `of_steps` are its
/// findings.
pub(super) fn leave_out_told(profile: &Profile, of_steps: &[Finding], findings: &mut Vec<Finding>) {
    let account = profile.account.as_ref();
    if account.is_none_or(|account| account.no_gains.is_some()) {
        return;
    }
    let has_counters = profile.launches.iter().any(|launch| !launch.metrics.is_empty());
    let is_held_back = of_steps.iter().any(|f| HOLD_STREAMS_BACK.contains(&f.id.as_str()));
    findings.retain(|finding| {
        if !has_counters && is_held_back && finding.id == "small_grid" {
            return false;
        }
        let is_by_name = !has_counters && BY_NAME_OR_TIME.contains(&finding.id.as_str());
        !is_by_name && !is_told_by_account(&finding.id)
    });
}

fn facts(profile: &Profile) -> GpuFacts {
    let device = find_device(profile);
    let Some(peaks) = device.name.as_deref().and_then(datasheet::peaks) else {
        return GpuFacts::default();
    };
    let rate = |label: &str, reached: f64| {
        let (_, rate) = peaks.compute.iter().find(|(name, _)| *name == label)?;
        Some(rate * 1e12 * reached).filter(|rate| *rate > 0.0)
    };
    GpuFacts {
        sms: Some(peaks.sms),
        memory_bytes_per_s: Some(peaks.dram * 1e12 * REACHED_DRAM),
        pinned_bytes_per_s: Some(if peaks.major >= 9 { PCIE_5 } else { PCIE_4 }),
        fp32_flops: rate("FP32", REACHED_FP32),
        tf32_flops: rate("tensor tf32", REACHED_TENSOR),
        bf16_flops: rate("tensor bf16", REACHED_TENSOR),
        ..GpuFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_a_known_gpu_are_what_kernels_reach() {
        let profile = Profile { device: Some("NVIDIA H200".to_owned()), ..Profile::default() };
        let facts = facts(&profile);
        assert_eq!(facts.sms, Some(132));
        assert!(facts.memory_bytes_per_s.is_some_and(|rate| (4e12..4.2e12).contains(&rate)));
        assert!(facts.bf16_flops.is_some_and(|rate| (7e14..8e14).contains(&rate)));
        let unknown = Profile { device: Some("Quadro".to_owned()), ..Profile::default() };
        assert_eq!(super::facts(&unknown), GpuFacts::default());
    }
}
