//! What of a program was looked at: regions, kernels, launches and what was collected of them.
//!
//! A profile of a part must not be taken for one of the whole. So what was asked, what it came to
//! on this host, and what was left out stand in the profile, with a fingerprint by which two
//! selections over the same code are known to be the same.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::profile::Gap;

/// The selection of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Selection {
    /// Each `--regions` pattern with the regions it came to, in the order asked.
    #[serde(default)]
    pub regions: Vec<RegionChoice>,
    /// Every region that the first pass saw, as users write them; empty where none was made.
    #[serde(default)]
    pub regions_seen: Vec<String>,
    /// `--kernel-name` filters.
    #[serde(default)]
    pub kernel_names: Vec<String>,
    /// `--kernel-exclude` filters.
    #[serde(default)]
    pub kernel_excludes: Vec<String>,
    /// Kernels chosen by their GPU time, longest first (`--mode deep`).
    #[serde(default)]
    pub kernels: Vec<KernelChoice>,
    /// Share of the GPU time of all kernels that the chosen ones hold, in percent (`--mode deep`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered_percent: Option<f64>,
    /// The set of sections collected, where one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<String>,
    /// Sections collected by name.
    #[serde(default)]
    pub sections: Vec<String>,
    /// Metrics collected by name.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// How passes were repeated: `kernel`, `application`, `range`, `app-range`; after a step down
    /// the mode that gave the results.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replay_mode: String,
    /// What the collection was expected to cost, and the limit it was fitted to (`--mode deep`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// What was left out to stay within the limit, and what could not be selected.
    #[serde(default)]
    pub left_out: Vec<Gap>,
    /// sha256 over the source or binary, sizes, flags and tool versions: equal fingerprints are
    /// the same measurement made again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fingerprint: String,
}

/// A pattern of `--regions` and what it came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegionChoice {
    /// As typed: a name, a glob, or `regex:…`.
    pub asked: String,
    /// The regions it matched, as users write them (`A`, `A::A1`, `domain@A`), without the ranges
    /// that rgpu's own runner puts around them.
    #[serde(default)]
    pub matched: Vec<String>,
}

/// A kernel chosen for a closer look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelChoice {
    /// Demangled name.
    pub kernel: String,
    /// The filter that the tool was given for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filter: String,
    /// Its GPU time in the first pass, in nanoseconds.
    pub total_ns: u64,
    /// Its share of the GPU time of all kernels, in percent.
    pub percent: f64,
    /// Its launches in the first pass.
    pub launches: u64,
    /// Launches looked at closely; 0: left out to stay within the limit.
    pub profiled: u64,
    /// Launches passed over before the first of them.
    #[serde(default)]
    pub skipped: u64,
}

/// What a collection costs, by estimate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Price {
    /// Estimated seconds.
    pub seconds: f64,
    /// Estimated bytes of reports.
    pub bytes: u64,
    /// Passes over each launch, by the sections.
    pub passes: u32,
    /// The limit in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_seconds: Option<f64>,
    /// The limit in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
}
