//! All thresholds of the rules in one table, each with its source.
//!
//! A source `ncu NAME` is the constant of that rule in the sections that ncu 2025.3 installs; these
//! apply to every architecture from Volta on. `rgpu` is our own choice; `rgpu, unmeasured` is a
//! choice that no recording of that architecture has confirmed yet. A row may have other values for
//! newer architectures. The user's own values (`[analysis]` in rgpu.toml) override both.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use rgpu_model::Evidence;

/// A limit that applies to one launch, with its source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// The limit, in the unit of the number it is compared with.
    pub value: f64,
    /// Where it comes from.
    pub source: &'static str,
}

impl Threshold {
    /// Evidence for a number that was compared with this threshold.
    pub(super) fn evidence(self, metric: &str, value: f64, unit: &str) -> Evidence {
        Evidence {
            threshold: Some(self.value),
            source: self.source.to_owned(),
            ..Evidence::number(metric, value, unit)
        }
    }

    /// Evidence for a share between 0 and 1 that was compared with this threshold, in percent: `of`
    /// says of what, as in `of the sectors`.
    pub(super) fn share_evidence(self, metric: &str, share: f64, of: &str) -> Evidence {
        let unit = format!("% {of}");
        let percent = Threshold { value: 100.0 * self.value, ..self };
        percent.evidence(metric, 100.0 * share, unit.trim_end())
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct ThresholdRow {
    /// The key in `[analysis]`.
    pub key: &'static str,
    /// The built-in limit, in the unit that `what` names.
    pub value: f64,
    /// The source of `value`.
    pub source: &'static str,
    /// Other limits, each from a major compute capability on, oldest first.
    pub newer: &'static [(u32, Threshold)],
    /// The quantity that is compared with the limit, with its unit.
    pub what: &'static str,
}

const fn row(
    key: &'static str,
    value: f64,
    source: &'static str,
    what: &'static str,
) -> ThresholdRow {
    ThresholdRow { key, value, source, newer: &[], what }
}

macro_rules! table {
    ($($name:ident = $row:expr;)*) => {
        $(pub(super) static $name: ThresholdRow = $row;)*

        /// Every row of this table.
        pub static TABLE: &[&ThresholdRow] = &[$(&$name),*];
    };
}

const UNMEASURED: &str = "rgpu, unmeasured";

table! {
    THROUGHPUT_LOW = row("throughput_low", 60.0, "ncu SOLBottleneck",
        "% of peak below which neither compute nor memory is what bounds a kernel");
    THROUGHPUT_APART = row("throughput_apart", 10.0, "ncu SOLBottleneck",
        "points by which one throughput must exceed the other to be the bound alone");
    OCCUPANCY_THEORETICAL = row("occupancy_theoretical", 80.0, "ncu TheoreticalOccupancy",
        "% of theoretical occupancy below which it limits the kernel");
    OCCUPANCY_GAP = row("occupancy_gap", 10.0, "ncu AchievedOccupancy",
        "points between theoretical and achieved occupancy");
    WAVES_FULL = row("waves_full", 1.0, "ncu SOLBottleneck",
        "waves of blocks below which SMs stay empty");
    TAIL_SHARE = row("tail_share", 0.2, "ncu TailEffect",
        "share of the time that a last, partial wave may cost");
    TAIL_LOST = row("tail_lost", 0.05, "rgpu",
        "share of the time that is really lost, given how full the last wave is");
    ISSUE_ACTIVE = row("issue_active", 0.8, "ncu CPIStall",
        "instructions a cycle and scheduler below which warps wait too much");
    ISSUE_SLOTS = row("issue_slots", 0.6, "ncu IssueSlotUtilization",
        "instructions a cycle and scheduler below which issue slots go unused");
    STALL_SHARE = row("stall_share", 0.3, "ncu CPIStall",
        "share of one stall reason among all cycles between two issues");
    BANK_CONFLICTS = row("bank_conflicts", 0.1, "ncu SharedMemoryConflicts",
        "share of shared-memory wavefronts that bank conflicts cause");
    ACTIVE_THREADS = row("active_threads", 24.0, "ncu ThreadDivergence",
        "active threads of a warp of 32");
    IMBALANCE = row("imbalance", 0.05, "ncu WorkloadImbalance",
        "share by which the busiest unit exceeds the average one");
    EXCESS_SECTORS = row("excess_sectors", 0.1, "rgpu",
        "share of sectors that a better access pattern would not move");
    ATOMIC_SECTORS = row("atomic_sectors", 4.0, "rgpu",
        "sectors of an average atomic request; 32 lanes on neighbouring words need 4");
    SPILLS = row("spills", 0.0, "rgpu",
        "executed instructions that move spilled registers");
    LOCAL_MEMORY = row("local_memory", 0.02, "rgpu",
        "share of executed instructions that go to local memory without spills");
    LOCAL_TRAFFIC = row("local_traffic", 0.1, "rgpu",
        "share of what L1 or L2 can move that accesses to local memory take without spills");
    CONSTANT_BUSY = row("constant_busy", 50.0, "rgpu",
        "% of peak of the cache of indexed constants from which it counts");
    CONSTANT_REQUESTS = row("constant_requests", 0.5, "rgpu",
        "requests to that cache for each executed instruction of any kind from which loads of constants must take several: lanes that load one address together make one request");
    ATOMIC_SLICE = row("atomic_slice", 50.0, UNMEASURED,
        "% of peak of the busiest L2 slice's atomic unit from which atomics wait for one another");
    ATOMIC_SPREAD = row("atomic_spread", 0.25, UNMEASURED,
        "mean use of the atomic units, as a share of the busiest one's, below which few addresses take the atomics");
    LAUNCH_NS = row("launch_ns", 4000.0, "rgpu",
        "nanoseconds below which a launch's own overhead is as long as the kernel");
    L2_HIT_RATE = row("l2_hit_rate", 25.0, "rgpu",
        "% of sectors found in L2 below which a reused working set does not fit");
    L2_FOOTPRINT = row("l2_footprint", 1.0, "rgpu",
        "DRAM reads, in multiples of the L2 size, from which the working set exceeds the L2");
    INSTRUCTION_STALL = row("instruction_stall", 0.1, "rgpu",
        "share of the cycles between two issues spent waiting for instructions");
    FP64_RATIO = row("fp64_ratio", 16.0, "rgpu",
        "FP32 operations in the time of one FP64 operation from which the FP64 units are slow");
    FP64_BUSY = row("fp64_busy", 20.0, "ncu HighPipeUtilization",
        "% of peak of the FP64 pipe from which it counts");
    TENSOR_LOW = ThresholdRow {
        newer: &[(10, Threshold { value: 20.0, source: UNMEASURED })],
        ..row("tensor_low", 20.0, "ncu HighPipeUtilization",
            "% of peak below which a tensor pipe that is used at all is used little")
    };
    TENSOR_USED = ThresholdRow {
        newer: &[(10, Threshold { value: 2.0, source: UNMEASURED })],
        ..row("tensor_used", 2.0, "rgpu",
            "% of peak from which a tensor pipe does matrix products: constants go through it too")
    };
    TENSOR_UNCOUNTED = row("tensor_uncounted", 10.0, "rgpu",
        "% of peak from which a tensor pipe is taken to do matrix products where none are counted");
    TENSOR_BUSY = row("tensor_busy", 60.0, "ncu HighPipeUtilization",
        "% of peak from which the tensor cores are what bounds a matrix product");
    TENSOR_PEAK = row("tensor_peak", 80.0, "rgpu",
        "% of peak from which a matrix product leaves little to gain on the tensor cores");
    TENSOR_RATE = row("tensor_rate", 70.0, "rgpu",
        "% of the datasheet's peak from which a matrix product without counters leaves little to gain: under such a load the clock is below the datasheet's");
    TF32_GAIN = row("tf32_gain", 4.0, "rgpu",
        "times by which TF32 on the tensor cores is taken to beat FP32 (the peaks differ 7 to 8 times)");
    SETUP_SHARE = row("setup_share", 0.5, "rgpu",
        "share of the time in kernels of random numbers, conversions or autotuning from which launches are a program's set-up");
    STRAGGLER_SHARE = row("straggler_share", 0.02, "rgpu",
        "share of the time that the ranks wait for one of them");
    RANK_IMBALANCE = row("rank_imbalance", 0.1, "rgpu",
        "share by which a rank computes longer in a region than the mean of the ranks");
    KERNEL_SHARE = row("kernel_share", 0.05, "rgpu",
        "share of the GPU time from which a kernel's verdict is shown");
    FMA_BUSY = row("fma_busy", 60.0, "ncu HighPipeUtilization",
        "% of peak of the FMA pipe from which the kernel counts as arithmetic");
    TMEM_BUSY = row("tmem_busy", 60.0, UNMEASURED,
        "% of peak from which Blackwell's tensor memory is the bound");
    WAITING_SHARE = row("waiting_share", 0.1, "rgpu",
        "share of the time from the first kernel to the last in which no kernel runs for one cause; a large start-up is left out");
    PAGEABLE_SHARE = row("pageable_share", 0.05, "rgpu",
        "share of that time in which no kernel runs but a large copy from or to pageable memory");
    FUSIBLE_SHARE = row("fusible_share", 0.1, "rgpu",
        "share of the GPU time that element-wise kernels could give back if those that follow one another were fused");
    PREPARATIONS = row("preparations", 8.0, "rgpu",
        "number of gaps before one kernel, caused by loading or compiling code, above which the loading counts as repeated");
    ONE_OFF_NS = row("one_off_ns", 5e6, "rgpu",
        "nanoseconds from which a single gap before a kernel may be a program's start-up");
    NCCL_ALONE = row("nccl_alone", 0.1, "rgpu",
        "share of that time in which nothing but NCCL runs");
    CLUSTER_PAIR = row("cluster_pair", 2.0, UNMEASURED,
        "blocks of a cluster from which Blackwell's tensor cores can share operands");
}

/// A key of `[analysis]` that exists in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(&'static str);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let name = String::deserialize(input)?;
        let row = TABLE.iter().find(|row| row.key == name);
        row.map(|row| Self(row.key)).ok_or_else(|| serde::de::Error::custom(UnknownKey(&name)))
    }
}

/// The error message for a key that is not in the table.
struct UnknownKey<'a>(&'a str);

impl fmt::Display for UnknownKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no threshold `{}`; there are ", self.0)?;
        for (index, row) in TABLE.iter().enumerate() {
            write!(f, "{}`{}`", if index == 0 { "" } else { ", " }, row.key)?;
        }
        Ok(())
    }
}

/// The user's own thresholds, by key.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Thresholds {
    own: BTreeMap<Key, f64>,
}

impl Thresholds {
    /// Merges two sets: values of `self` override those of `below`.
    #[must_use]
    pub fn with_fallback(mut self, below: Thresholds) -> Thresholds {
        for (key, value) in below.own {
            self.own.entry(key).or_insert(value);
        }
        self
    }

    /// Iterates over keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.own.iter().map(|(key, value)| (key.0, *value))
    }
}

/// The thresholds that apply to one launch.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    own: &'a Thresholds,
    major: Option<u32>,
    sms: Option<u32>,
}

impl<'a> Limits<'a> {
    /// The thresholds for a launch on a GPU of major compute capability `major`; `None` if unknown.
    pub fn new(own: &'a Thresholds, major: Option<u32>) -> Limits<'a> {
        Limits { own, major, sms: None }
    }

    /// The same with the number of SMs, for launches whose report does not have it.
    #[must_use]
    pub(super) fn with_sms(self, sms: Option<u32>) -> Limits<'a> {
        Limits { sms, ..self }
    }

    /// The number of SMs.
    pub(super) fn sms(&self) -> Option<u32> {
        self.sms
    }

    /// The major compute capability.
    pub(super) fn major(&self) -> Option<u32> {
        self.major
    }

    /// The value of one threshold for this launch.
    pub(super) fn threshold(&self, row: &'static ThresholdRow) -> Threshold {
        if let Some(value) = self.own.own.get(&Key(row.key)) {
            return Threshold { value: *value, source: "rgpu.toml" };
        }
        let newer = row.newer.iter().rev().find(|(major, _)| self.major >= Some(*major));
        newer.map_or(Threshold { value: row.value, source: row.source }, |(_, newer)| *newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_snake_case_and_stands_once() {
        let mut keys: Vec<_> = TABLE.iter().map(|row| row.key).collect();
        assert!(keys.iter().all(|key| {
            key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        }));
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn the_users_value_wins_and_says_so() {
        let own: Thresholds = toml::from_str("throughput_low = 70\nissue_slots = 0.5").unwrap();
        let limits = Limits::new(&own, Some(9));
        let expected = Threshold { value: 70.0, source: "rgpu.toml" };
        assert_eq!(limits.threshold(&THROUGHPUT_LOW), expected);
        assert_eq!(limits.threshold(&THROUGHPUT_APART).source, "ncu SOLBottleneck");
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = toml::from_str::<Thresholds>("issue_slots = 1\nslow = 3\n").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("line 2") && text.contains("no threshold `slow`"), "{text}");
    }

    #[test]
    fn what_no_recording_confirms_is_labelled() {
        let own = Thresholds::default();
        assert_eq!(Limits::new(&own, Some(10)).threshold(&TENSOR_LOW).source, UNMEASURED);
        assert_eq!(
            Limits::new(&own, Some(9)).threshold(&TENSOR_LOW).source,
            "ncu HighPipeUtilization"
        );
        assert_eq!(
            Limits::new(&own, None).threshold(&TENSOR_LOW).source,
            "ncu HighPipeUtilization"
        );
    }
}
