//! Integration tests in one binary: they run the built programs against real servers.

#![allow(clippy::unwrap_used, reason = "an unwrap tells a test failure well enough")]

mod architecture;
mod host;
mod local;
mod ssh;
mod ssh_cli;
mod sshd;
