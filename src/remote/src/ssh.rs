//! Hosts reached over ssh. All uses of russh stay in this folder, because its interface changes
//! with most releases.
//!
//! One connection carries everything. Its settings come from measurements (no delays, quick
//! acknowledgements, AES-128-GCM first, a receive window of 32 MiB). The user's own `ssh` resolves
//! a host's name. Where russh cannot log in, the user's own `ssh` carries the same stream: with
//! `transport = "openssh"`, and automatically in cases where that is known to help.

mod address;
mod auth;
mod channel;
mod config_file;
mod connection;
mod error;
mod failure_kind;
mod host_key;
mod known_hosts;
mod openssh;
mod remote;
mod resolve;
mod socket;

pub use error::SshError;
pub use failure_kind::SshFailureKind;
pub use remote::KIND;
