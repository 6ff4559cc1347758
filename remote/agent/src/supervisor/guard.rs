//! The guard: a tiny process beside the supervisor of a job that lives longer than a moment.
//!
//! A supervisor can be killed (the out-of-memory killer, an administrator) while no client is
//! connected that would notice. The guard does: it waits for the end of a pipe that only the
//! supervisor holds, ends what the job left behind, and writes the job's last words.

use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::FdFlags;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::host_fault::{DoingContext, HostFault};
use crate::job::JobFolder;
use crate::job_state::{JobState, settle};

/// Jobs shorter than this do without: starting a process takes a millisecond or two.
pub(crate) const GUARD_AFTER: Duration = Duration::from_millis(500);

/// How long a supervisor that was killed may take to be gone: the memory that it had goes first.
const EXIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The supervisor's hold on its guard.
#[derive(Debug)]
pub(crate) struct Guard {
    pid: i32,
    /// Closed by the kernel when this process ends, however that comes.
    alarm: OwnedFd,
}

impl Guard {
    /// Starts the guard of the job in `folder`; `files` stay open in it for as long as it lives.
    pub(crate) fn start(folder: &Path, files: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let (heard, alarm) = pipe_with(PipeFlags::CLOEXEC)?;
        // This process has one thread, so no other program is started meanwhile.
        for file in files {
            rustix::io::fcntl_setfd(file, FdFlags::empty())?;
        }
        let child = Command::new("/proc/self/exe")
            .arg0("rgpu-agent")
            .arg("guard")
            .arg(folder)
            .current_dir("/")
            .stdin(heard)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        for file in files {
            rustix::io::fcntl_setfd(file, FdFlags::CLOEXEC)?;
        }
        Ok(Self { pid: child?.id() as i32, alarm })
    }

    /// Sends the guard away: this process lives on.
    pub(crate) fn dismiss(self) {
        // One that is gone already needs no word.
        let _ = rustix::io::write(&self.alarm, b"x");
    }

    /// The guard's process, which is not one of the job's.
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }
}

/// Waits until the supervisor of the job in `folder` is gone, and settles the job. Called in a
/// process that was started for it.
///
/// # Errors
/// When the job's files cannot be read or written.
pub fn guard(folder: PathBuf) -> Result<(), HostFault> {
    // Signals to the supervisor's group are not for us.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"rgpu-guard");
    let mut word = Vec::new();
    io::stdin().read_to_end(&mut word).doing("watch", &folder)?;
    if !word.is_empty() {
        return Ok(());
    }
    // A dying process gives back its files one by one: the job's lock may be held a moment longer
    // than the pipe.
    let folder = JobFolder::at(folder);
    let start = Instant::now();
    while settle(&folder)? == JobState::Running && start.elapsed() < EXIT_TIMEOUT {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
