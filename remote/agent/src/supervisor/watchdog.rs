//! The watchdog: a small process beside the supervisor of a job that holds a GPU, or that runs
//! longer than [`WATCHDOG_AFTER`].
//!
//! A supervisor can be killed (by the out-of-memory killer or an administrator) while no client is
//! connected to notice. The watchdog waits for the end of a pipe that only the supervisor holds,
//! kills the job's remaining processes, and writes the terminal event.

use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::host_fault::{HostFault, IoContext};
use crate::job::JobFolder;
use crate::job_state::{JobState, settle};

/// Shorter jobs that hold no GPU run without a watchdog: starting a process takes a millisecond or
/// two.
pub(crate) const WATCHDOG_AFTER: Duration = Duration::from_millis(500);

/// How long a killed supervisor may take to exit. The kernel frees its memory first.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The supervisor's handle on its watchdog.
#[derive(Debug)]
pub(crate) struct WatchdogProcess {
    pid: i32,
    /// The kernel closes this when the supervisor ends, for whatever reason.
    alarm: OwnedFd,
}

impl WatchdogProcess {
    /// Starts the watchdog of the job in `folder`. The watchdog keeps `files` open as long as it
    /// lives.
    pub(crate) fn start(folder: &Path, files: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let (watched, alarm) = pipe_with(PipeFlags::CLOEXEC)?;
        // This process has one thread, so no other program can inherit the files meanwhile.
        for file in files {
            rustix::io::fcntl_setfd(file, FdFlags::empty())?;
        }
        let child = Command::new("/proc/self/exe")
            .arg0("rgpu-agent")
            .arg("watchdog")
            .arg(folder)
            .current_dir("/")
            .stdin(watched)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        for file in files {
            rustix::io::fcntl_setfd(file, FdFlags::CLOEXEC)?;
        }
        Ok(Self { pid: child?.id() as i32, alarm })
    }

    /// Ends the watchdog without ending the job.
    pub(crate) fn dismiss(self) {
        // This fails only if the watchdog has already exited.
        let _ = rustix::io::write(&self.alarm, b"x");
    }

    /// The watchdog's process id. The watchdog is not one of the job's processes.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }
}

/// Waits until the supervisor of the job in `folder` has exited, and settles the job. Runs in a
/// process that was started for it.
pub fn run_watchdog(folder: PathBuf) -> Result<(), HostFault> {
    // A session of its own, so that signals to the supervisor's group do not reach the watchdog.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"rgpu-watchdog");
    let mut message = Vec::new();
    io::stdin().read_to_end(&mut message).context("watch", &folder)?;
    if !message.is_empty() {
        return Ok(());
    }
    // An exiting process closes its files one by one, so the job's lock may be held a little longer
    // than the pipe.
    let folder = JobFolder::at(folder);
    let start = Instant::now();
    while settle(&folder)? == JobState::Running && start.elapsed() < EXIT_TIMEOUT {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
