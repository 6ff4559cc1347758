//! The selected part of a program: its regions, kernels and launches, and the data collected for
//! them.
//!
//! A profile of a part must not be mistaken for one of the whole. So the profile records the
//! request, its result on this host and the parts left out, with a fingerprint that tells whether
//! two selections measure the same thing.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;
use super::profile::Gap;

/// The selection of one run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Selection {
    /// Each `--regions` pattern with the regions that it matched, in the order given.
    #[serde(default)]
    pub regions: Vec<RegionChoice>,
    /// Every region that the first pass saw, as users write them; empty if there was no first pass.
    #[serde(default)]
    pub regions_seen: Vec<String>,
    /// The filters of `--kernel-name`.
    #[serde(default)]
    pub kernel_names: Vec<String>,
    /// The filters of `--kernel-exclude`.
    #[serde(default)]
    pub kernel_excludes: Vec<String>,
    /// Kernels chosen by GPU time, longest first (`--mode deep`).
    #[serde(default)]
    pub kernels: Vec<KernelChoice>,
    /// Share of the GPU time of all kernels that the chosen ones have, in percent (`--mode deep`).
    /// Launches of set-up, such as a compiler's benchmarks, do not count.
    pub covered_percent: Option<f64>,
    /// GPU time of each kernel's launches that are set-up, such as a compiler's benchmarks, in
    /// nanoseconds; kernels without any are left out (`--mode deep` of a whole program).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set_up_ns: BTreeMap<String, u64>,
    /// The section set that was collected, if any.
    pub set: Option<String>,
    /// Sections that were named one by one.
    #[serde(default)]
    pub sections: Vec<String>,
    /// Metrics that were named one by one.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// How passes were repeated: `kernel`, `application`, `range`, `app-range`. If an earlier mode
    /// failed, the one that gave the results.
    #[serde(default, skip_serializing_if = "ReplayMode::is_empty")]
    pub replay_mode: ReplayMode,
    /// Estimated cost of the collection, and the limit that it was fitted to (`--mode deep`).
    pub price: Option<Price>,
    /// How long the program ran under ncu (`--mode deep`); absent if ncu did not tell when it
    /// profiled each launch.
    pub ncu_time: Option<NcuTime>,
    /// Parts left out to stay within the limit, and parts that could not be selected.
    #[serde(default)]
    pub left_out: Vec<Gap>,
    /// sha256 of the source or binary, sizes, flags and tool versions: equal fingerprints mean the
    /// same measurement repeated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
}

/// A `--regions` pattern with the regions that it matched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegionChoice {
    /// The pattern as typed: a name, a glob, or `regex:…`.
    pub asked: String,
    /// The matching regions as users write them (`A`, `A::A1`, `domain@A`), without the ranges that
    /// rgpu's own runner adds around them.
    #[serde(default)]
    pub matched: Vec<String>,
}

/// A kernel chosen for detailed profiling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelChoice {
    /// Demangled name.
    pub kernel: String,
    /// The kernel filter given to the tool for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filter: String,
    /// GPU time in the first pass, in nanoseconds.
    pub total_ns: u64,
    /// Share of the GPU time of all kernels, in percent.
    pub percent: f64,
    /// Number of launches in the first pass.
    pub launches: u64,
    /// Number of launches profiled in detail; 0: left out to stay within the limit.
    pub profiled: u64,
    /// Number of launches skipped before the first profiled one.
    #[serde(default)]
    pub skipped: u64,
    /// Its launches in the first pass by geometry, in the order of their first launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub geometries: Vec<GeometrySum>,
}

/// The launches of a chosen kernel that have one geometry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GeometrySum {
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads of a block in each dimension.
    pub block: [u32; 3],
    /// Shared memory of a block in bytes, if the first pass recorded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
    /// Number of launches in the first pass.
    pub launches: u64,
    /// Their GPU time in the first pass, in nanoseconds.
    pub total_ns: u64,
}

/// Estimated cost of a collection.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// Estimated duration of the collection in seconds.
    pub seconds: f64,
    /// Estimated bytes of reports.
    pub bytes: u64,
    /// Estimated number of passes over each launch, from the sections.
    pub passes: u32,
    /// The limit in seconds.
    pub limit_seconds: Option<f64>,
    /// The limit in bytes.
    pub limit_bytes: Option<u64>,
}

/// The time of a program's runs under ncu. What is not spent in launches is the least that any
/// choice of launches takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NcuTime {
    /// Number of runs of the program.
    pub runs: u64,
    /// Seconds of these runs, with the start of ncu and the writing of its report.
    pub seconds: f64,
    /// Number of launches that ncu profiled.
    pub launches: u64,
    /// Seconds in which it profiled them.
    pub launches_seconds: f64,
}

open_enum! {
    /// How ncu repeats passes.
    pub enum ReplayMode {
        /// Each kernel is repeated by itself.
        Kernel = "kernel",
        /// The whole program is run again for each pass.
        Application = "application",
        /// Each range is repeated as a whole.
        Range = "range",
        /// Each range, with the program run again.
        AppRange = "app-range",
    }
}
