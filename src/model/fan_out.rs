//! One plan on several remotes: `fan-out.json` (`rgpu.fan_out/1`).
//!
//! A row a remote, in the order in which they were named. Each is a run of its own with its own
//! folder; what is here is what one reads side by side. Times are held against those of the first
//! remote that has one, by the rules of `rgpu compare`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::comparison::TimeChange;

/// The schema's name, in every fan-out.
pub const SCHEMA: &str = "rgpu.fan_out/1";

/// What one plan gave on several remotes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FanOut {
    /// [`SCHEMA`].
    pub schema: String,
    /// The id of its folder.
    pub id: String,
    /// The kernel or program.
    pub kernel: String,
    /// `ncu`, `nsys`, `bench` …
    pub mode: String,
    /// RFC 3339, UTC, by the laptop's clock.
    pub started: String,
    /// Wall-clock seconds until the last remote was done.
    pub seconds: f64,
    /// One sentence: which remote is fastest and by how much, or why that cannot be said.
    pub summary: String,
    /// The remote whose times the others are held against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// One row a remote, as named.
    pub remotes: Vec<FanOutRow>,
}

/// One remote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FanOutRow {
    /// Its name.
    pub remote: String,
    /// The id of its run; absent where none was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Its profile, as a path from the fan-out's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The run's own exit status.
    pub exit: u8,
    /// `done`, `failed`, `cancelled`, `detached`.
    pub state: String,
    /// What went wrong, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The code of what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The GPU that it really was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The rung reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<String>,
    /// Median time of the default case in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_ns: Option<f64>,
    /// The clock of that time: `cuda_events`, `host_clock`, `cpu_reference`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<String>,
    /// That time against the base's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against_base: Option<TimeChange>,
    /// `right`, `wrong`, `unchecked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correctness: Option<String>,
    /// Each case of sizes with its median in nanoseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<FanOutCase>,
    /// SM throughput of the longest launch, in percent of the peak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_percent: Option<f64>,
    /// Memory throughput of the longest launch, in percent of the peak.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<f64>,
    /// Warps active in the longest launch, in percent of the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy_percent: Option<f64>,
    /// What bounds the longest launch: `memory_bound` …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_by: Option<String>,
    /// Wall-clock seconds of its run.
    pub seconds: f64,
    /// What it cost in US dollars, where its remote has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// A case on one remote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FanOutCase {
    /// Its name.
    pub name: String,
    /// Median in nanoseconds.
    pub median_ns: f64,
}
