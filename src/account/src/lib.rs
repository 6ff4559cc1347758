//! Where the time of a program goes, and what a change would give back.
//!
//! A [`Trace`] becomes a [`Graph`](graph::Graph) of points in time, the edges of which say what had
//! to happen first. [`steps`] finds the unit that repeats. [`path`] walks back along the critical
//! path, so that the causes of a step add up to its time. [`replay`](graph::Graph::replay) computes
//! the times again after a change of the graph. [`cause::CAUSES`] lists the causes, one file each:
//! each finds its signature in the steps and says which change would remove it.
//!
//! All functions are pure functions of the model: no file, no host, no tool.

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod benchmark;
mod between;
pub mod cause;
pub mod class;
mod code;
pub mod compare;
pub mod edits;
pub mod facts;
pub mod gains;
pub mod graph;
pub mod host_calls;
pub mod path;
mod program;
pub mod steps;
pub mod view;

use rgpu_model::{Account, Finding, Trace};

pub use facts::GpuFacts;

/// The account of a trace, and the findings whose gain is replayed, largest gain first. `None` if
/// no GPU work was traced.
pub fn account(trace: &Trace, facts: &GpuFacts) -> Option<(Account, Vec<Finding>)> {
    gains::account(trace, facts)
}
