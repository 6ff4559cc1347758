//! Messages from a connection to a job's supervisor, over the socket in the job's folder.
//!
//! They travel in frames as on the wire. In the other direction the supervisor sends single bytes
//! that mean "read the event log". Events and output come from files, so a slow reader never blocks
//! a job, and a lost connection loses nothing.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// A message from a connection to a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Control {
    /// The values of the plan's secrets. They exist in memory only.
    Secrets(BTreeMap<String, String>),
    /// Standard input for the running step. The bytes follow in one output frame, unless `len` is
    /// 0.
    Stdin {
        /// Number of bytes in the frame that follows.
        len: u64,
        /// Whether the input ends here.
        eof: bool,
        /// Offset of the bytes in the whole input; `None`: after those received so far.
        #[serde(default)]
        offset: Option<u64>,
    },
    /// A client is there: the lease starts again.
    Renew,
    /// The client disconnects on purpose.
    Detach,
    Cancel,
}

/// Listens at `folder/name`. The path may be longer than a socket's name can be.
pub(crate) fn listen(folder: &Path, name: &str) -> io::Result<UnixListener> {
    let dir = open_folder(folder)?;
    UnixListener::bind(short_path(&dir, name))
}

/// Connects to `folder/name`, with a path of any length as [`listen`].
pub(crate) fn connect(folder: &Path, name: &str) -> io::Result<UnixStream> {
    let dir = open_folder(folder)?;
    UnixStream::connect(short_path(&dir, name))
}

fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
    Ok(rustix::fs::open(folder, flags, Mode::empty())?)
}

/// Socket addresses hold 107 bytes, but paths in homes may be longer.
fn short_path(dir: &OwnedFd, name: &str) -> PathBuf {
    format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_works_below_a_path_longer_than_its_address() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("x".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        let listener = listen(&deep, "sock").unwrap();
        connect(&deep, "sock").unwrap();
        listener.accept().unwrap();
    }
}
