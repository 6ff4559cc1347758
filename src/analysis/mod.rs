//! From a profile to what it means: verdicts with their evidence, and what to do next.
//!
//! Pure functions of the model: no file, no host, no tool. The rules stand in [`rule::RULES`], one
//! file each; [`mod@classify`] ranks what they say of a launch by the limits of [`threshold`];
//! [`roofline`] knows what the device could do.

pub mod classify;
pub mod compare;
mod concept;
mod datasheet;
mod device;
pub mod occupancy;
mod roofline;
pub mod rule;
pub mod threshold;

#[cfg(test)]
mod tests;

pub use classify::{analyze, analyze_with, classify, classify_with};
pub use threshold::{Limits, Thresholds};
