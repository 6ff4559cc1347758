//! The units that a launch keeps busy, and what less work for some of them would give back.
//!
//! A launch takes at least as long as its busiest unit needs at its peak. If a change takes work
//! from some units, the busiest unit afterwards is the next roof. At best the launch then runs at
//! that roof. At worst it keeps that unit busy for [`REACHED`] of the time: less means that a launch
//! is bound by no unit, and the launches looked at here are bound by one.

use super::concept::{L1_THROUGHPUT, MEMORY_THROUGHPUT, SM_THROUGHPUT};
use rgpu_model::Launch;

/// The part of its peak from which a unit is what bounds a launch, as in ncu's rule SOLBottleneck.
const REACHED: f64 = 0.6;

/// A unit of the GPU, with its own peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// DRAM.
    Dram,
    /// The L2.
    L2,
    /// The L1 with shared memory, and the pipe that accesses them.
    L1,
    /// The memory system as a whole, where its levels are not known.
    Memory,
    /// The cache of indexed constants, and the pipe that addresses it.
    Constants,
    /// The queue for shared and global memory, constants and special functions.
    Queue,
    /// The issue slots of the schedulers.
    Issue,
    /// FP32 and FP16 arithmetic.
    Fma,
    /// Integers and logic.
    Alu,
    /// Special functions, such as `sin` and conversions.
    Special,
    /// Tensor cores and FP64, which share a pipe.
    Tensor,
    /// Branches and other pipes.
    Branch,
    /// The SMs as a whole, where their pipes are not known.
    Sm,
}

/// Units whose work goes with the number of executed instructions.
pub(super) const PER_INSTRUCTION: &[Unit] = &[
    Unit::Issue,
    Unit::Fma,
    Unit::Alu,
    Unit::Special,
    Unit::Tensor,
    Unit::Branch,
    Unit::Queue,
    Unit::Sm,
];

/// The part of a unit's work that a change leaves: the least and the most that it may be, 0 to 1.
pub(crate) type WorkLeft = (Unit, [f64; 2]);

/// What a change could give back, as parts of a launch's time, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gain {
    /// The upper end.
    pub(super) most: f64,
    /// The lower end; `None` if none is known.
    pub(super) least: Option<f64>,
}

impl Gain {
    /// A gain of which only the upper end is known.
    pub(super) fn up_to(most: f64) -> Gain {
        Gain { most: most.clamp(0.0, 1.0), least: None }
    }
}

const SUFFIX: &str = ".avg.pct_of_peak_sustained_elapsed";

/// The unit that a metric measures, by its name without [`SUFFIX`].
fn unit_of(name: &str) -> Option<Unit> {
    let unit = match name {
        "gpu__dram_throughput" | "dram__throughput" => Unit::Dram,
        "lts__throughput" => Unit::L2,
        "l1tex__throughput"
        | "l1tex__data_pipe_lsu_wavefronts"
        | "l1tex__lsuin_requests"
        | "sm__inst_executed_pipe_lsu"
        | "sm__inst_executed_pipe_tex" => Unit::L1,
        "idc__request_cycles_active" | "sm__inst_executed_pipe_adu" => Unit::Constants,
        "sm__mio_inst_issued" => Unit::Queue,
        "sm__issue_active" | "sm__inst_issued" | "sm__inst_executed" => Unit::Issue,
        _ => {
            let executed = name.strip_prefix("sm__inst_executed_pipe_");
            let active = || name.strip_prefix("sm__pipe_")?.strip_suffix("_cycles_active");
            let pipe = executed.or_else(active)?;
            match pipe.split('_').next().unwrap_or_default() {
                "fma" | "fmaheavy" | "fmalite" | "fp16" => Unit::Fma,
                "alu" => Unit::Alu,
                "xu" => Unit::Special,
                "tensor" | "tc" | "fp64" | "shared" => Unit::Tensor,
                _ => Unit::Branch,
            }
        }
    };
    Some(unit)
}

/// How busy the units of a launch are.
pub(super) struct Roofs {
    /// Parts of the units' peaks, 0 to 1. A unit can stand here several times.
    busy: Vec<(Unit, f64)>,
}

impl Roofs {
    pub(super) fn new(launch: &Launch) -> Roofs {
        let units = launch.metrics.iter().filter_map(|(id, metric)| {
            let unit = unit_of(id.strip_suffix(SUFFIX)?)?;
            Some((unit, metric.value.as_f64()?))
        });
        let mut busy: Vec<(Unit, f64)> = units.collect();
        let mut stands_in = |unit: Unit, ids: &[&'static str], parts: &[Unit]| {
            if !busy.iter().any(|(known, _)| parts.contains(known)) {
                busy.extend(launch.first_number(ids).map(|(_, percent)| (unit, percent)));
            }
        };
        stands_in(Unit::L1, L1_THROUGHPUT, &[Unit::L1]);
        stands_in(Unit::Memory, MEMORY_THROUGHPUT, &[Unit::Dram, Unit::L2]);
        stands_in(Unit::Sm, SM_THROUGHPUT, PER_INSTRUCTION);
        for (_, percent) in &mut busy {
            *percent = (*percent / 100.0).clamp(0.0, 1.0);
        }
        busy.retain(|(_, share)| share.is_finite());
        Roofs { busy }
    }

    /// The busiest of some units.
    pub(super) fn busiest(&self, among: impl Fn(Unit) -> bool) -> Option<(Unit, f64)> {
        let units = self.busy.iter().filter(|(unit, _)| among(*unit));
        units.max_by(|a, b| a.1.total_cmp(&b.1)).copied()
    }

    /// The gain of a change that leaves this work. `None` if no unit that it relieves is near its
    /// peak, or no other unit is known: then the next roof is not.
    pub(super) fn gain(&self, left: &[WorkLeft]) -> Option<Gain> {
        let relieves = |unit| left.iter().any(|(relieved, _)| *relieved == unit);
        let (_, relieved) = self.busiest(relieves)?;
        self.busiest(|unit| !relieves(unit))?;
        if relieved < REACHED {
            return None;
        }
        let next = |end: usize| {
            let after = self.busy.iter().map(|(unit, share)| {
                let ends = left.iter().find(|(relieved, _)| relieved == unit);
                share * ends.map_or(1.0, |(_, ends)| ends[end].clamp(0.0, 1.0))
            });
            after.fold(0.0, f64::max)
        };
        let most = 1.0 - next(0);
        let least = (1.0 - next(1) / REACHED).min(most);
        Some(Gain { most, least: Some(least).filter(|least| *least > 0.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn roofs(busy: &[(&str, f64)]) -> Roofs {
        let ids: Vec<String> = busy.iter().map(|(name, _)| format!("{name}{SUFFIX}")).collect();
        let metrics: Vec<(&str, f64)> =
            ids.iter().zip(busy).map(|(id, (_, percent))| (id.as_str(), *percent)).collect();
        Roofs::new(&Launch::from_numbers(&metrics))
    }

    /// A kernel whose warps run four branches each: with its items sorted, the program took 26 % of
    /// its time.
    #[test]
    fn the_next_roof_is_the_busiest_unit_after_a_change() {
        let kernel = roofs(&[
            ("sm__inst_executed_pipe_xu", 89.7),
            ("sm__issue_active", 76.1),
            ("lts__throughput", 4.3),
        ]);
        let quarter = |unit| (unit, [0.229, 0.229]);
        let left: Vec<WorkLeft> = PER_INSTRUCTION.iter().map(|unit| quarter(*unit)).collect();
        let gain = kernel.gain(&left).unwrap();
        assert!((gain.most - 0.795).abs() < 0.001, "{gain:?}");
        assert!((gain.least.unwrap() - 0.658).abs() < 0.001, "{gain:?}");
        let slots = kernel.gain(&[(Unit::Special, [0.0, 1.0])]).unwrap();
        assert!((slots.most - 0.239).abs() < 1e-9 && slots.least.is_none(), "{slots:?}");
    }

    #[test]
    fn without_a_unit_near_its_peak_there_is_no_next_roof() {
        let idle = roofs(&[("lts__throughput", 37.0), ("gpu__dram_throughput", 21.0)]);
        assert_eq!(idle.gain(&[(Unit::L2, [0.3, 0.3])]), None);
        assert_eq!(roofs(&[("lts__throughput", 90.0)]).gain(&[(Unit::L2, [0.3, 0.3])]), None);
        assert_eq!(roofs(&[]).gain(&[(Unit::L2, [0.3, 0.3])]), None);
    }

    #[test]
    fn whole_throughputs_stand_in_for_units_that_are_not_known() {
        let whole = Roofs::new(&Launch::from_numbers(&[
            (SM_THROUGHPUT[0], 30.0),
            (MEMORY_THROUGHPUT[0], 90.0),
        ]));
        let gain = whole.gain(&[(Unit::Memory, [0.0, 1.0])]).unwrap();
        assert!((gain.most - 0.7).abs() < 1e-9 && gain.least.is_none(), "{gain:?}");
    }

    proptest! {
        #[test]
        fn a_gain_is_an_interval_within_the_launch(
            busy in prop::array::uniform4(-10.0..2000.0_f64),
            left in prop::array::uniform4(-1.0..2.0_f64),
        ) {
            let names = ["gpu__dram_throughput", "lts__throughput", "sm__issue_active",
                "l1tex__throughput"];
            let kernel: Vec<(&str, f64)> = names.into_iter().zip(busy).collect();
            let left = [(Unit::L2, [left[0], left[1]]), (Unit::Issue, [left[2], left[3]])];
            if let Some(gain) = roofs(&kernel).gain(&left) {
                prop_assert!((0.0..=1.0).contains(&gain.most));
                prop_assert!(gain.least.is_none_or(|least| least > 0.0 && least <= gain.most));
            }
        }
    }
}
