//! Names a process so that no later one is taken for it.

#![expect(clippy::disallowed_methods, reason = "files of /proc")]

use std::sync::OnceLock;

/// A process: its number, when it started, and the boot of the machine. Numbers are reused, and
/// start times count from the boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessId {
    /// The id of the boot, from the kernel.
    pub boot_id: String,
    /// The process id, reused by the kernel after the process ends.
    pub pid: i32,
    /// When it started, in clock ticks after the boot.
    pub start_time: i64,
}

impl ProcessId {
    /// The process that calls this, read once.
    pub fn own() -> &'static Self {
        static OWN: OnceLock<ProcessId> = OnceLock::new();
        OWN.get_or_init(|| {
            let pid = std::process::id().cast_signed();
            Self { boot_id: boot_id(), pid, start_time: start_time(pid).unwrap_or_default() }
        })
    }

    /// Whether the machine was restarted since.
    pub fn is_of_earlier_boot(&self) -> bool {
        self.boot_id != Self::own().boot_id
    }

    /// Whether this very process lives.
    pub fn is_alive(&self) -> bool {
        !self.is_of_earlier_boot() && start_time(self.pid) == Some(self.start_time)
    }
}

fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

fn start_time(pid: i32) -> Option<i64> {
    crate::process_tree::start_time(pid).and_then(|ticks| i64::try_from(ticks).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_number_and_an_earlier_boot_are_other_processes() {
        let own = ProcessId::own().clone();
        assert!(own.is_alive() && own.start_time > 0 && !own.boot_id.is_empty());
        assert!(!ProcessId { start_time: own.start_time - 1, ..own.clone() }.is_alive());
        let earlier = ProcessId { boot_id: "other".to_owned(), ..own };
        assert!(earlier.is_of_earlier_boot() && !earlier.is_alive());
    }
}
