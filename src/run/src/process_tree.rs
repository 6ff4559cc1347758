//! Ends whole trees of processes for `rgpu queue` and `rgpu loop`, by the agent's own code with
//! Linux's subreapers and pidfds. Other systems have none of these. There both commands are refused
//! (`src/cli/dispatch.rs`), and the functions here find nothing.

#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(not(target_os = "linux"))]
pub use other::*;

/// Whether process trees can be ended here.
pub const IS_SUPPORTED: bool = cfg!(target_os = "linux");

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::CStr;
    use std::os::fd::OwnedFd;

    pub use rgpu_agent::process::{Children, end_descendants, kill_marked, reap, start_time};
    use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

    /// Makes this process the parent of all orphans among its descendants.
    pub fn become_subreaper() {
        let _ = rustix::process::set_child_subreaper(Some(getpid()));
    }

    /// Sets the name that `ps` and `top` show.
    pub fn set_name(name: &CStr) {
        let _ = rustix::thread::set_name(name);
    }

    /// A handle that keeps meaning this process; `None` on old kernels.
    pub fn open_pidfd(pid: Pid) -> Option<OwnedFd> {
        pidfd_open(pid, PidfdFlags::empty()).ok()
    }

    /// Sends SIGTERM to the process of a handle, if it has not ended.
    pub fn terminate(pidfd: &OwnedFd) {
        let _ = pidfd_send_signal(pidfd, Signal::TERM);
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    use std::collections::BTreeSet;
    use std::ffi::CStr;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use rustix::process::{Pid, Signal, WaitStatus};

    /// Whether any child is left.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Children {
        /// Some children have not exited.
        Some,
        /// There are no children.
        None,
    }

    pub fn become_subreaper() {}

    pub fn set_name(_name: &CStr) {}

    pub fn open_pidfd(_pid: Pid) -> Option<OwnedFd> {
        None
    }

    pub fn terminate(_pidfd: &OwnedFd) {}

    pub fn start_time(_pid: i32) -> Option<u64> {
        None
    }

    pub fn kill_marked(_marker: &str) -> BTreeSet<i32> {
        BTreeSet::new()
    }

    pub fn reap(_each: impl FnMut((i32, WaitStatus))) -> Children {
        Children::None
    }

    pub fn end_descendants<E>(
        _watchdog: Option<i32>,
        _signals: &[Signal],
        _wait: impl FnMut(Option<Duration>) -> Result<Children, E>,
    ) -> Result<BTreeSet<i32>, E> {
        Ok(BTreeSet::new())
    }
}
