//! Many runs: suites, the queue and the improvement loop.

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod loops;
pub mod own_command;
pub mod queue;
pub mod suite;
