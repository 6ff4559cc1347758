//! From a profile to what it means: verdicts with their evidence, and what to do next.
//!
//! Pure functions of the model: no file, no host, no tool. The rules stand in [`rule::RULES`], one
//! file each; [`mod@classify`] ranks what they say of a launch by the limits of [`threshold`];
//! `roofline` knows what the device could do.

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

/// Fills in all that follows from a profile and the documents beside it: classifications, the
/// timeline, findings.
pub fn analyze_all(profile: &mut Profile, sidecars: &Sidecars, thresholds: &Thresholds) {
    analyze_with(profile, thresholds);
    if let Some(trace) = &sidecars.trace {
        let limits = Limits::new(thresholds, None);
        timeline::analyze(profile, trace, &limits);
    }
}
