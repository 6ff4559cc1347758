//! Interprets a profile: verdicts with their evidence, and the next step for each.
//!
//! All functions are pure functions of the model: no file, no host, no tool. [`rule::RULES`] lists
//! the rules, one file each; [`mod@classify`] ranks their verdicts on a launch by the limits of
//! [`threshold`]; `roofline` computes the device's ceilings.

pub mod classify;
pub mod compare;
pub mod compare_remotes;
mod concept;
mod datasheet;
mod device;
mod geometric_mean;
pub mod lint;
pub mod occupancy;
mod roofline;
pub mod rule;
pub mod threshold;
pub mod timeline;

#[cfg(test)]
mod tests;

pub use classify::{analyze, analyze_with, classify, classify_with};
pub use threshold::{Limits, Thresholds};

use crate::model::{Profile, Sidecars};

/// Adds everything derived from a profile and its sidecar documents: classifications, the timeline
/// and findings.
pub fn analyze_all(profile: &mut Profile, sidecars: &Sidecars, thresholds: &Thresholds) {
    analyze_with(profile, thresholds);
    if let Some(trace) = &sidecars.trace {
        let limits = Limits::new(thresholds, None);
        timeline::analyze(profile, trace, &limits);
    }
}
