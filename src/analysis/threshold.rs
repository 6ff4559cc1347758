//! Every threshold of the rules in one table, each with its source.
//!
//! `ncu` is the constant of the rule of that name in the sections that ncu 2025.3 installs; they
//! hold for every architecture from Volta on. `rgpu` is a choice made here.

use crate::model::Evidence;

/// A limit and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Threshold {
    pub(super) value: f64,
    pub(super) source: &'static str,
}

impl Threshold {
    /// The number that was held against this threshold.
    pub(super) fn evidence(self, metric: &str, value: f64, unit: &str) -> Evidence {
        Evidence {
            metric: metric.to_owned(),
            value,
            unit: unit.to_owned(),
            threshold: self.value,
            source: self.source.to_owned(),
        }
    }
}

const fn ncu(value: f64, source: &'static str) -> Threshold {
    Threshold { value, source }
}

/// Below it neither compute nor memory is what bounds a kernel, in % of peak.
pub(super) const THROUGHPUT_LOW: Threshold = ncu(60.0, "ncu SOLBottleneck");
/// Points by which one throughput must exceed the other to be the bound alone.
pub(super) const THROUGHPUT_APART: Threshold = ncu(10.0, "ncu SOLBottleneck");
/// Theoretical occupancy, in %.
pub(super) const OCCUPANCY_THEORETICAL: Threshold = ncu(80.0, "ncu TheoreticalOccupancy");
/// Points between theoretical and achieved occupancy.
pub(super) const OCCUPANCY_GAP: Threshold = ncu(10.0, "ncu AchievedOccupancy");
/// Waves of blocks below which SMs stay empty.
pub(super) const WAVES_FULL: Threshold = ncu(1.0, "ncu SOLBottleneck");
/// Share of the time that a last, partial wave may cost.
pub(super) const TAIL_SHARE: Threshold = ncu(0.2, "ncu TailEffect");
/// Share of the time that is really lost, given how full the last wave is.
pub(super) const TAIL_LOST: Threshold = Threshold { value: 0.05, source: "rgpu" };
/// Instructions issued per cycle and scheduler, below which warps wait too much.
pub(super) const ISSUE_ACTIVE: Threshold = ncu(0.8, "ncu CPIStall");
/// Share of one stall reason among all cycles between two issues.
pub(super) const STALL_SHARE: Threshold = ncu(0.3, "ncu CPIStall");
/// Share of shared-memory wavefronts that are there because of bank conflicts.
pub(super) const BANK_CONFLICTS: Threshold = ncu(0.1, "ncu SharedMemoryConflicts");
/// Active threads of a warp of 32.
pub(super) const ACTIVE_THREADS: Threshold = ncu(24.0, "ncu ThreadDivergence");
/// Share by which the busiest unit exceeds the average one.
pub(super) const IMBALANCE: Threshold = ncu(0.05, "ncu WorkloadImbalance");
/// Share of sectors that a better access pattern would not move.
pub(super) const EXCESS_SECTORS: Threshold = Threshold { value: 0.1, source: "rgpu" };
/// Spilled requests to local memory, in % of all local requests.
pub(super) const SPILLS: Threshold = Threshold { value: 0.0, source: "rgpu" };
/// Nanoseconds below which a launch's own overhead is as long as the kernel.
pub(super) const LAUNCH_NS: Threshold = Threshold { value: 4000.0, source: "rgpu" };
