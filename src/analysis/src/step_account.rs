//! The account of a profile's trace, with what the GPU reaches.

use rgpu_account::GpuFacts;
use rgpu_model::account::AccountCause;
use rgpu_model::finding::MIN_STEP_SHARE;
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
/// FP32, known by the names of kernels, and kernels as short as a launch; and, where the trace has
/// them, grids of few blocks.
const BY_NAME_OR_TIME: &[&str] = &["fp32_gemm", "launch_bound"];
const BY_SHAPE: &str = "small_grid";

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

/// The part of a step in CUDA graphs from which on their kernels are worth a second recording.
const GRAPHS_SHARE: f64 = 0.2;
/// Steps of which a second recording is long enough, and the least time for it in nanoseconds.
const ENOUGH_STEPS: u64 = 20;
const ENOUGH_NS: u64 = 2_000_000_000;

/// What a second recording of a program would add to the account of its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// Whether findings lack their place in the user's own code.
    pub places: bool,
    /// Whether CUDA graphs that were recorded as a whole hold much of a step.
    pub graph_nodes: bool,
    /// When enough steps are over, in nanoseconds since the first event.
    pub enough_ns: u64,
}

/// What the account of a trace lacks. `None` without steps, and if it lacks nothing.
pub fn unseen(trace: &Trace) -> Option<Unseen> {
    let (account, findings) = rgpu_account::account(trace, &GpuFacts::default())?;
    let step = account.step.as_ref()?;
    let is_worth = |finding: &Finding| {
        let share = finding.stake.as_ref().map(|stake| stake.share);
        finding.code.is_empty() && share.is_none_or(|share| share >= MIN_STEP_SHARE)
    };
    let graphs = account.parts.iter().filter(|part| part.cause == AccountCause::Graph);
    let steps_ns = step.median_ns.saturating_mul(ENOUGH_STEPS).max(ENOUGH_NS);
    let unseen = Unseen {
        places: trace.stacks.is_empty() && findings.iter().any(is_worth),
        graph_nodes: graphs.map(|part| part.share).sum::<f64>() >= GRAPHS_SHARE,
        enough_ns: step.first_start_ns.saturating_add(steps_ns).min(trace.span_ns),
    };
    (unseen.places || unseen.graph_nodes).then_some(unseen)
}

/// Leaves out what the account of the steps tells better, if there is one.
pub(super) fn leave_out_told(
    profile: &Profile,
    trace: Option<&Trace>,
    findings: &mut Vec<Finding>,
) {
    let account = profile.account.as_ref();
    if account.is_none_or(|account| account.no_gains.is_some()) {
        return;
    }
    let has_counters = profile.launches.iter().any(|launch| !launch.metrics.is_empty());
    let has_shapes = trace.is_some_and(|trace| !trace.shapes.is_empty());
    findings.retain(|finding| {
        let id = finding.id.as_str();
        let is_known = BY_NAME_OR_TIME.contains(&id) || has_shapes && id == BY_SHAPE;
        let is_by_name = !has_counters && is_known;
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
