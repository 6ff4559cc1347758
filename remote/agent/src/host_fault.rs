//! Failures of the host's file system and kernel, with the code for clients.

use std::io;
use std::path::Path;

use rgpu_protocol::Outcome;
use rustix::io::Errno;

/// The host could not do something that the agent needs.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {source}")]
pub struct HostFault {
    /// The failed action, with the path.
    action: String,
    source: io::Error,
}

impl HostFault {
    /// Creates a fault. `action` names the action and its object: "write `path`".
    pub fn new(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { action: action.into(), source: source.into() }
    }

    /// Returns the reason code: `disk_full`, `read_only`, `permission`, `too_many_files`,
    /// `too_many_processes`, `io`.
    pub fn code(&self) -> &'static str {
        match self.source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOSPC | Errno::DQUOT) => "disk_full",
            Some(Errno::ROFS) => "read_only",
            Some(Errno::ACCESS | Errno::PERM) => "permission",
            Some(Errno::MFILE | Errno::NFILE) => "too_many_files",
            Some(Errno::AGAIN) => "too_many_processes",
            _ => "io",
        }
    }

    /// Returns the kind of the I/O error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Returns the outcome of a job that ends with this fault.
    pub fn outcome(&self) -> Outcome {
        Outcome::HostError { code: self.code().into(), text: self.to_string() }
    }
}

/// Adds the failed action and its path to an I/O error.
pub trait IoContext<T> {
    /// Adds `verb` and the path in back quotes.
    fn context(self, verb: &str, path: &Path) -> Result<T, HostFault>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn context(self, verb: &str, path: &Path) -> Result<T, HostFault> {
        self.map_err(|e| HostFault::new(format!("{verb} `{}`", path.display()), e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_a_code_of_its_own() {
        let fault = HostFault::new("write `x`", Errno::NOSPC);
        assert_eq!(fault.code(), "disk_full");
        assert!(fault.to_string().starts_with("cannot write `x`: "));
    }
}
