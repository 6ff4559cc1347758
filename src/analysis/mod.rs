//! From a profile to what it means: verdicts with their evidence, and what to do next.
//!
//! Pure functions of the model: no file, no host, no tool. The rules stand in [`rule::RULES`], one
//! file each; [`mod@classify`] ranks what they say of a launch.

pub mod classify;
mod concept;
pub mod occupancy;
pub mod rule;
mod threshold;

pub use classify::{analyze, classify};
