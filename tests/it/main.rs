//! Integration tests in one binary: they run the built programs against real servers.

mod architecture;
mod host;
mod local;
mod ssh;
mod ssh_cli;
mod sshd;
