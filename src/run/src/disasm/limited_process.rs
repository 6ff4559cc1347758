//! Runs a program that ends when this process does, however that ends, and after a limit of
//! processor time.
//!
//! The kernel enforces both, so that they hold even if rgpu is killed. Requesting a signal at the
//! parent's death needs code in the child, which is unsafe from Rust, so `setpriv` of util-linux is
//! used if there is one. The time limit is set on the child from here.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// A command that ends with this process, if the system supports it.
pub(super) fn command(program: &Path) -> Command {
    match system::setpriv() {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(system::KILL_WITH_PARENT_ARGS).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Limits a child's processor time, in whole seconds. Does nothing for a child that has ended.
pub(super) fn limit(child: &Child, time: Duration) {
    system::limit(child.id(), seconds(time));
}

/// The limit in whole seconds, at least one.
pub(super) fn seconds(time: Duration) -> u64 {
    time.as_secs().max(1)
}

/// Whether the child was ended by the limit.
pub(super) fn overran(status: ExitStatus) -> bool {
    system::overran(status)
}

#[cfg(target_os = "linux")]
mod system {
    use std::os::unix::process::ExitStatusExt;
    use std::path::PathBuf;
    use std::process::{Command, ExitStatus, Stdio};
    use std::sync::OnceLock;

    use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

    /// Arguments of setpriv before the program.
    pub(super) const KILL_WITH_PARENT_ARGS: [&str; 2] = ["--pdeathsig", "KILL"];

    /// Finds a setpriv that supports them; that of busybox does not.
    pub(super) fn setpriv() -> Option<&'static PathBuf> {
        static SETPRIV: OnceLock<Option<PathBuf>> = OnceLock::new();
        let find_setpriv = || {
            let path = which::which("setpriv").ok()?;
            let mut trial = Command::new(&path);
            trial.args(KILL_WITH_PARENT_ARGS).arg("true").stdin(Stdio::null());
            let trial = trial.stdout(Stdio::null()).stderr(Stdio::null()).status();
            trial.is_ok_and(|status| status.success()).then_some(path)
        };
        SETPRIV.get_or_init(find_setpriv).as_ref()
    }

    pub(super) fn limit(child: u32, seconds: u64) {
        let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
        // The hard limit kills a program that ignores the soft limit's signal. An existing lower
        // hard limit cannot be raised, so the call may fail.
        let limit = Rlimit { current: Some(seconds), maximum: Some(seconds + 1) };
        let _ = pid.map(|pid| prlimit(Some(pid), Resource::Cpu, limit));
    }

    pub(super) fn overran(status: ExitStatus) -> bool {
        status.signal() == Some(Signal::XCPU.as_raw())
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::path::PathBuf;
    use std::process::ExitStatus;

    pub(super) const KILL_WITH_PARENT_ARGS: [&str; 0] = [];

    pub(super) fn setpriv() -> Option<&'static PathBuf> {
        None
    }

    pub(super) fn limit(_: u32, _: u64) {}

    pub(super) fn overran(_: ExitStatus) -> bool {
        false
    }
}
