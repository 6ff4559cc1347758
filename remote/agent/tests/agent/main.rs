//! The agent as its clients see it: the real binary, driven over pipes.

// The exception for tests covers test functions only, not the client they share.
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
