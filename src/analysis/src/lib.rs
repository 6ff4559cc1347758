//! Interprets a profile: verdicts with their evidence, and the next step for each.
//!
//! All functions are pure functions of the model: no file, no host, no tool. [`rule::RULES`] lists
//! the rules, one file each; [`mod@classify`] ranks their verdicts on a launch by the limits of
//! [`threshold`]; `merge` makes one finding of each cause, and `stake` orders them by the time that
//! they could give back; `roofline` computes the device's ceilings; `roofs` knows which unit bounds a
//! launch after the one that does; `bound` holds times against
//! what `rgpu model` predicts at best.

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod bound;
pub mod classify;
pub mod compare;
pub mod compare_remotes;
mod concept;
pub mod counted_work;
pub mod credible;
mod datasheet;
mod device;
mod dominant;
mod geometric_mean;
mod geometry;
mod kernel_verdict;
mod known_kernel;
pub mod lint;
pub mod measured_rows;
mod merge;
mod ncu_estimate;
pub mod occupancy;
mod operator_products;
mod operator_rows;
mod ranks;
mod roofline;
mod roofs;
pub mod rule;
pub mod set_up;
mod stake;
mod step_account;
pub mod threshold;
pub mod timeline;
pub mod tuning;

#[cfg(test)]
mod tests;

pub use classify::{classify, classify_with};
pub use step_account::{Unseen, unseen};
pub use threshold::{Limits, Thresholds};

use timeline::Graphs;

use rgpu_model::{Profile, Sidecars};

/// [`analyze_all`] by the built-in thresholds, for a profile without sidecar documents.
pub fn analyze(profile: &mut Profile) {
    analyze_all(profile, &Sidecars::default(), &Thresholds::default());
}

/// Adds everything derived from a profile and its sidecar documents: ceilings and speeds of light,
/// classifications, the timeline, verdicts on the longest kernels, and findings.
pub fn analyze_all(profile: &mut Profile, sidecars: &Sidecars, thresholds: &Thresholds) {
    roofline::add(profile);
    credible::add_notes(profile);
    profile.bound = bound::shares(profile);
    let trace = sidecars.trace.as_ref();
    let limits = Limits::new(thresholds, None);
    let graphs = Graphs::new(profile, trace);
    let of_ranks = sidecars.ranks.as_ref();
    let of_ranks = of_ranks.map(|joined| ranks::analyze(profile, joined, &limits));
    // After the ranks: what a rank waits for others is no fault of its own collectives.
    let idle = trace.map(|trace| timeline::analyze(profile, trace, &graphs, &limits));
    let preparing = set_up::preparing_in(profile);
    set_up::mark_kernels(profile, &preparing);
    let verdicts = classify::classify_launches(profile, thresholds);
    let set_up = set_up::SetUp::from_profile(profile, &limits);
    let mut set_up_ids = set_up.as_ref().map(set_up::SetUp::ids).unwrap_or_default();
    set_up_ids.extend(preparing);
    let mut found = merge::findings(profile, &verdicts, &graphs, &set_up_ids);
    found.extend(idle.into_iter().chain(of_ranks).flatten());
    let only_set_up = set_up.map(|set_up| set_up.finding(profile, &limits));
    let mut of_steps = trace.map(|trace| step_account::add(profile, trace)).unwrap_or_default();
    dominant::explain(profile, &mut of_steps);
    step_account::leave_out_told(profile, trace, &mut found);
    profile.findings.extend(only_set_up);
    profile.findings.extend(of_steps);
    profile.findings.extend(found);
    profile.findings.extend(operator_products::near_peak(profile, &limits));
    // Of several GPUs, the one with the most steady time.
    let devices = profile.timeline.iter().flat_map(|timeline| &timeline.devices);
    let steady = devices.map(|device| (timeline::steady_ns(device, &limits), device.span_ns));
    let (steady_ns, span_ns) = steady.max().unwrap_or_default();
    let steady_share = limits.threshold(&threshold::WAITING_SHARE).value;
    let repeating_ns = stake::leading_ns(steady_ns, steady_share, span_ns);
    stake::sort(profile, repeating_ns);
    profile.kernel_verdicts = kernel_verdict::verdicts(profile, &limits);
    dominant::add_counters(profile);
}
