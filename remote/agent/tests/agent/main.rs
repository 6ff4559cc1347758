//! Tests the agent as its clients use it: the real binary, over pipes.

// Clippy's exception for tests covers test functions only, not their shared client.
#![allow(clippy::unwrap_used)]

mod artifacts;
mod client;
mod faults;
mod follow;
mod gpu;
mod long_way;
mod mail;
mod steps;
mod trees;
