//! Hosts reached over ssh. All of russh stays in this folder: its interface changes with most
//! releases.
//!
//! One connection carries everything; its settings are those that measurements settled (no delays,
//! quick acknowledgements, AES-128-GCM first, a receive window of 32 MiB). What a host's name means
//! is asked of the user's own `ssh`, and where russh cannot log in the user's own `ssh` carries the
//! same stream (`transport = "openssh"`, and on our own where that is known to help).

mod address;
mod auth;
mod channel;
mod config_file;
mod connection;
mod error;
mod host_key;
mod known_hosts;
mod openssh;
mod remote;
mod resolve;
mod socket;
mod trouble;

pub use error::SshError;
pub use remote::KIND;
pub use trouble::SshTrouble;
