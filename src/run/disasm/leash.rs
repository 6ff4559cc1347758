//! A program that must not outlive its work: it ends with this process, whatever ends that, and
//! after so much processor time.
//!
//! Both are the kernel's business, so that they hold when rgpu is killed. To ask it for a signal at
//! the parent's death takes code in the child, which is unsafe from Rust: `setpriv` of util-linux
//! does it, where there is one. The time is a limit of the child's own, set from here.

use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

/// A command that ends with this process where the system has the means.
pub(super) fn command(program: &Path) -> Command {
    match system::keeper() {
        Some(keeper) => {
            let mut command = Command::new(keeper);
            command.args(system::KEEP).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Gives a child this much processor time, in whole seconds. One that has ended needs none.
pub(super) fn limit(child: &Child, time: Duration) {
    system::limit(child.id(), seconds(time));
}

/// A limit as it is set: whole seconds, one at least.
pub(super) fn seconds(time: Duration) -> u64 {
    time.as_secs().max(1)
}

/// Whether that limit ended it.
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

    /// What setpriv is told before the program.
    pub(super) const KEEP: [&str; 2] = ["--pdeathsig", "KILL"];

    /// setpriv, if it knows how: busybox has one that does not.
    pub(super) fn keeper() -> Option<&'static PathBuf> {
        static KEEPER: OnceLock<Option<PathBuf>> = OnceLock::new();
        let look = || {
            let path = which::which("setpriv").ok()?;
            let mut tried = Command::new(&path);
            tried.args(KEEP).arg("true").stdin(Stdio::null());
            let tried = tried.stdout(Stdio::null()).stderr(Stdio::null()).status();
            tried.is_ok_and(|status| status.success()).then_some(path)
        };
        KEEPER.get_or_init(look).as_ref()
    }

    pub(super) fn limit(child: u32, seconds: u64) {
        let pid = i32::try_from(child).ok().and_then(Pid::from_raw);
        // The second limit is for a program that does not end at the first one's signal. A lower
        // one that holds already may not be raised, and stays.
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

    pub(super) const KEEP: [&str; 0] = [];

    pub(super) fn keeper() -> Option<&'static PathBuf> {
        None
    }

    pub(super) fn limit(_: u32, _: u64) {}

    pub(super) fn overran(_: ExitStatus) -> bool {
        false
    }
}
