//! The selected regions of a run: the document `regions/report.json` (`rgpu.regions/1`).
//!
//! The profile has every region; this document has the selected ones, each with its launches, its
//! metrics and a folder of its own. `regions/<folder>/region.json` is the same document with that
//! one region.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::profile::Gap;
use super::timeline::WaitSum;
use super::{Metric, Region, RungId, Selection, SharedText};

/// The schema name that every document carries.
pub const SCHEMA: &str = "rgpu.regions/1";

/// Selected regions of one run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionsDocument {
    /// Name and version of this schema: `rgpu.regions/1`.
    pub schema: String,
    /// The id of the run.
    pub run: String,
    /// The kernel or program.
    pub kernel: String,
    /// Mode: `ncu`, `nsys` …
    pub mode: String,
    /// Id of the rung whose results these are.
    pub rung: RungId,
    /// Name of the GPU, if known.
    pub device: Option<String>,
    /// The selection that was requested, with its matches and the sections and metrics collected.
    pub selection: Option<Selection>,
    /// Patterns of `--regions` that no region of the program matches.
    #[serde(default)]
    pub no_match: Vec<String>,
    /// Sums over the whole run, to compare regions with.
    pub totals: RegionTotals,
    /// The selection's fingerprint (sha256): equal if the same measurement was repeated.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
    /// The regions that were selected.
    pub regions: Vec<RegionEntry>,
    /// Missing data, each with the reason.
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

/// Sums over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegionTotals {
    /// Number of regions in the document.
    pub regions: u64,
    /// Number of kernels launched in the run, as far as the tool saw them.
    pub launches: u64,
    /// GPU time of these kernels in nanoseconds, as the tool measured it.
    pub kernel_ns: u64,
}

/// A selected region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionEntry {
    /// Name as users write it, without the ranges of rgpu's own runner. If the run has several
    /// cases, it begins with the case.
    pub name: String,
    /// Name of its folder under `regions/`. Empty: only the 500 regions with the most GPU time have
    /// one.
    pub folder: String,
    /// The region's entry in the profile.
    pub region: Region,
    /// Time of its kernels as a share of the time of all kernels, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// Its launches, inner regions included.
    #[serde(default)]
    pub launches: Vec<RegionLaunch>,
    /// Number of launches that are not listed.
    #[serde(default)]
    pub more_launches: u64,
    /// Time without a kernel that ended with a kernel of this region, by cause.
    #[serde(default)]
    pub waiting: Vec<WaitSum>,
    /// Identifiers of the sections collected for its launches.
    #[serde(default)]
    pub sections: Vec<String>,
}

/// One launch in a region, or one result for the region as a whole.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionLaunch {
    /// Id of the launch in the profile.
    pub launch: u32,
    /// Demangled name.
    pub kernel: String,
    /// Blocks in x, y, z.
    #[serde(default, skip_serializing_if = "super::launch::unmeasured")]
    pub grid: [u32; 3],
    /// Threads per block in x, y, z.
    #[serde(default, skip_serializing_if = "super::launch::unmeasured")]
    pub block: [u32; 3],
    /// Duration in nanoseconds as the tool measured it.
    pub duration_ns: Option<f64>,
    /// Primary verdict on what limits it.
    pub bound_by: Option<String>,
    /// Metrics by NVIDIA's metric name.
    #[serde(default)]
    pub metrics: BTreeMap<SharedText, Metric>,
}
