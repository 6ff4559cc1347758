//! Hosts reached over ssh.

mod error;

pub use error::SshError;
