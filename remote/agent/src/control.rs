//! What a connection says to a job's supervisor, over the socket in the job's folder.
//!
//! Frames as on the wire. The other way go single bytes that mean "look at the event log": events
//! and output are read from files, so a slow reader never holds a job up and nothing is lost with
//! a connection.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// From a connection to a supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Control {
    /// The values of the plan's secrets. They exist in memory only.
    Secrets(BTreeMap<String, String>),
    /// Standard input for the running step; the bytes follow in one output frame unless there are
    /// none.
    Stdin {
        /// Bytes in the frame that follows.
        len: u64,
        /// Nothing more will come.
        eof: bool,
        /// Where in the whole input they stand; absent: behind all that came.
        #[serde(default)]
        offset: Option<u64>,
    },
    /// A client is there.
    Renew,
    /// The client goes away on purpose.
    Detach,
    /// Stop.
    Cancel,
}

/// Listens at `folder/name`.
pub(crate) fn listen(folder: &Path, name: &str) -> io::Result<UnixListener> {
    let dir = open_folder(folder)?;
    UnixListener::bind(short_path(&dir, name))
}

/// Connects to `folder/name`.
pub(crate) fn connect(folder: &Path, name: &str) -> io::Result<UnixStream> {
    let dir = open_folder(folder)?;
    UnixStream::connect(short_path(&dir, name))
}

fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
    Ok(rustix::fs::open(folder, flags, Mode::empty())?)
}

/// Socket addresses hold 107 bytes, paths of homes may be longer.
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
