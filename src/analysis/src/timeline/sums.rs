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

impl Cause {
    /// All causes, in their order.
    const ALL: [Cause; 6] = [
        Cause::HostLate,
        Cause::LaunchLatency,
        Cause::Synchronisation,
        Cause::Copy,
        Cause::Queued,
        Cause::Unknown,
    ];
}

/// Nanoseconds of one gap by cause. There may be a gap for each kernel, so it has no map.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CauseTimes([u64; Cause::ALL.len()]);

impl CauseTimes {
    pub(super) fn add(&mut self, cause: Cause, ns: u64) {
        let sum = &mut self.0[cause as usize];
        *sum = sum.saturating_add(ns);
    }

    /// The causes that have time, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Cause, u64)> + '_ {
        Cause::ALL.into_iter().zip(self.0).filter(|(_, ns)| *ns > 0)
    }

    /// The cause with the most time.
    pub(super) fn largest(&self) -> Option<Cause> {
        self.iter().max_by_key(|(cause, ns)| (*ns, Reverse(*cause))).map(|(cause, _)| cause)
    }
}

/// For each cause its nanoseconds, and the number of gaps of which it is the largest part.
#[derive(Clone, Debug, Default)]
pub(super) struct Causes {
    sums: BTreeMap<Cause, (u64, u64)>,
}

impl Causes {
    /// Adds the parts of one gap.
    pub(super) fn add(&mut self, parts: &CauseTimes) {
        for (cause, ns) in parts.iter() {
            self.sums.entry(cause).or_default().0 += ns;
        }
        if let Some(cause) = parts.largest() {
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
