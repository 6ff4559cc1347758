//! The regions of a run on their own: the document `regions/report.json` (`rgpu.regions/1`).
//!
//! The profile has every region; this has those that were selected, each with its launches, its
//! metrics and the folder that holds the same for it alone. `regions/<folder>/region.json` is the
//! same document with one region.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::profile::Gap;
use super::timeline::WaitSum;
use super::{Metric, Region, Selection};

/// The schema's name, in every document.
pub const SCHEMA: &str = "rgpu.regions/1";

/// Regions of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionsDocument {
    /// [`SCHEMA`].
    pub schema: String,
    /// Run id.
    pub run: String,
    /// The kernel or program.
    pub kernel: String,
    /// `ncu`, `nsys` …
    pub mode: String,
    /// The rung that gave the numbers.
    pub rung: String,
    /// The GPU's name, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What was asked and what it came to, with the sections and metrics collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Selection>,
    /// Patterns of `--regions` that no region of the program matches.
    #[serde(default)]
    pub no_match: Vec<String>,
    /// Sums over the whole run, to hold regions against.
    pub totals: RegionTotals,
    /// sha256 by which the same measurement made again is known; the selection's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
    /// The regions.
    pub regions: Vec<RegionEntry>,
    /// What is missing and why.
    #[serde(default)]
    pub gaps: Vec<Gap>,
}

/// Sums over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegionTotals {
    /// Regions in the document.
    pub regions: u64,
    /// Kernels launched in the run, as far as the tool saw them.
    pub launches: u64,
    /// Their GPU time in nanoseconds, by the tool.
    pub kernel_ns: u64,
}

/// One region.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionEntry {
    /// Its name as users write it, without the ranges of rgpu's own runner; with the case first
    /// where the run has several.
    pub name: String,
    /// Its folder under `regions/`.
    pub folder: String,
    /// What the profile says of it.
    pub region: Region,
    /// The time of its kernels as a share of all kernels' time, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_percent: Option<f64>,
    /// Its launches one by one, inner regions included.
    #[serde(default)]
    pub launches: Vec<RegionLaunch>,
    /// Launches beyond those listed.
    #[serde(default)]
    pub more_launches: u64,
    /// Time without a kernel that ended with a kernel of this region, by cause.
    #[serde(default)]
    pub waiting: Vec<WaitSum>,
    /// The sections collected of its launches, by the tool's ids.
    #[serde(default)]
    pub sections: Vec<String>,
}

/// One launch of a region, or one result of the region as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RegionLaunch {
    /// Its number in the profile.
    pub launch: u32,
    /// Demangled name.
    pub kernel: String,
    /// Blocks.
    #[serde(default, skip_serializing_if = "super::launch::unmeasured")]
    pub grid: [u32; 3],
    /// Threads per block.
    #[serde(default, skip_serializing_if = "super::launch::unmeasured")]
    pub block: [u32; 3],
    /// The tool's own duration in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ns: Option<f64>,
    /// What bounds it: the primary verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_by: Option<String>,
    /// Metrics by NVIDIA's id.
    #[serde(default)]
    pub metrics: BTreeMap<String, Metric>,
}
