//! The same plan run on several remotes: `fan-out.json` (`rgpu.fan_out/1`).
//!
//! It has one row for each remote, in the order given. Each remote's run has its own folder; this
//! document has the numbers to compare. Times are compared with those of the first remote that has
//! any, by the rules of `rgpu compare`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RungId;
use super::comparison::TimeChange;
use super::open_enum::open_enum;
use super::profile::{CheckVerdict, TimingClock};

/// The schema name that every document carries.
pub const SCHEMA: &str = "rgpu.fan_out/1";

/// Results of one plan on several remotes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FanOut {
    /// Name and version of this schema: `rgpu.fan_out/1`.
    pub schema: String,
    /// Id of the fan-out, which is the name of its folder.
    pub id: String,
    /// The kernel or program.
    pub kernel: String,
    /// Mode: `ncu`, `nsys`, `bench` …
    pub mode: String,
    /// Start time: RFC 3339, UTC, by the laptop's clock.
    pub started: String,
    /// Wall-clock seconds until the last remote finished.
    pub seconds: f64,
    /// One sentence: the fastest remote and its lead, or the reason why there is none.
    pub summary: String,
    /// The remote that the times of the others are compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// One row for each remote, in the order given.
    pub remotes: Vec<FanOutRow>,
}

/// Results of one remote.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FanOutRow {
    /// Name of the remote.
    pub remote: String,
    /// Run id; absent if no run was started.
    pub run: Option<String>,
    /// Path of its profile, relative to the fan-out's folder.
    pub profile: Option<String>,
    /// Exit status of the run.
    pub exit: u8,
    /// State: `done`, `failed`, `cancelled`, `detached`.
    pub state: RemoteState,
    /// Description of the failure, in one line.
    pub failure: Option<String>,
    /// Code of the failure.
    pub code: Option<String>,
    /// Name of the GPU that was used.
    pub device: Option<String>,
    /// Id of the rung that was reached.
    pub rung: Option<RungId>,
    /// Median time of the default case in nanoseconds.
    pub median_ns: Option<f64>,
    /// Clock of `median_ns`: `cuda_events`, `host_clock`, `cpu_reference`.
    pub clock: Option<TimingClock>,
    /// Comparison of the time with that of the base.
    pub against_base: Option<TimeChange>,
    /// Result of the check: `right`, `wrong`, `unchecked`.
    pub correctness: Option<CheckVerdict>,
    /// Each case of sizes with its median in nanoseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<FanOutCase>,
    /// SM throughput of the longest launch, in percent of the peak.
    pub sm_percent: Option<f64>,
    /// Memory throughput of the longest launch, in percent of the peak.
    pub memory_percent: Option<f64>,
    /// Active warps of the longest launch, in percent of the most that an SM can hold.
    pub occupancy_percent: Option<f64>,
    /// Primary verdict on what limits the longest launch: `memory_bound` …
    pub bound_by: Option<String>,
    /// Wall-clock seconds of the run.
    pub seconds: f64,
    /// Cost in US dollars, if the remote has a price.
    pub cost_usd: Option<f64>,
}

/// Time of one case on one remote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FanOutCase {
    /// Name of the case.
    pub name: String,
    /// Median time in nanoseconds.
    pub median_ns: f64,
}

open_enum! {
    /// State of the run on one remote.
    pub enum RemoteState {
        /// It is not over.
        Running = "running",
        /// It ended without a failure.
        Done = "done",
        /// It ended with a failure.
        Failed = "failed",
        /// The user cancelled it.
        Cancelled = "cancelled",
        /// The job runs on; nobody waits for it.
        Detached = "detached",
    }
}
