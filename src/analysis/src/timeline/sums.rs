//! Causes of idle time with their sums.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rgpu_model::timeline::WaitCause;
use rgpu_model::timeline::WaitSum;

/// Why no kernel ran. The module `idle` defines each cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    HostLate,
    LaunchLatency,
    Synchronisation,
    Copy,
    Queued,
    Unknown,
}

impl Cause {
    pub(super) fn name(self) -> WaitCause {
        match self {
            Cause::HostLate => WaitCause::HostLate,
            Cause::LaunchLatency => WaitCause::LaunchLatency,
            Cause::Synchronisation => WaitCause::Synchronisation,
            Cause::Copy => WaitCause::Copy,
            Cause::Queued => WaitCause::Queued,
            Cause::Unknown => WaitCause::Unknown,
        }
    }
}

/// For each cause its nanoseconds, and the number of gaps of which it is the largest part.
#[derive(Clone, Debug, Default)]
pub(super) struct Causes {
    sums: BTreeMap<Cause, (u64, u64)>,
}

impl Causes {
    /// Adds the parts of one gap.
    pub(super) fn add(&mut self, parts: &BTreeMap<Cause, u64>) {
        for (cause, ns) in parts {
            self.sums.entry(*cause).or_default().0 += ns;
        }
        if let Some(cause) = largest(parts) {
            self.sums.entry(cause).or_default().1 += 1;
        }
    }

    /// The sums, largest time first.
    pub(super) fn into_sums(self) -> Vec<WaitSum> {
        let mut all: Vec<WaitSum> = self
            .sums
            .into_iter()
            .map(|(cause, (total_ns, gaps))| WaitSum { cause: cause.name(), total_ns, gaps })
            .collect();
        all.sort_by_key(|sum| Reverse(sum.total_ns));
        all
    }
}

/// The cause with the most time.
pub(super) fn largest(parts: &BTreeMap<Cause, u64>) -> Option<Cause> {
    parts.iter().max_by_key(|(cause, ns)| (**ns, Reverse(**cause))).map(|(cause, _)| *cause)
}
