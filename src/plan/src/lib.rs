//! From kernels, programs and flags to plans and bundles for a host.

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod bundle;
pub mod exec;
pub mod kernel;
pub mod tool;
