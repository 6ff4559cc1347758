//! The history of a suite's times (`rgpu.history/1`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::suite::MeasurementKey;

/// The schema name of a history.
pub const SCHEMA: &str = "rgpu.history/1";

/// The least number of points in which a change can be found: with fewer, the clearest step may be
/// chance.
pub const MIN_POINTS: usize = 16;

/// The history of some cases (`rgpu.history/1`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct History {
    /// Name and version of this schema: `rgpu.history/1`.
    pub schema: String,
    /// The smallest change that counts, as a fraction.
    pub threshold: f64,
    /// One series for each key.
    pub series: Vec<Series>,
}

/// The times of one key, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// The key of all points.
    pub key: MeasurementKey,
    /// The points, oldest first.
    pub points: Vec<HistoryPoint>,
    /// Whether the changes are those of the times inside CUDA graphs (`graph_ns`), by which short
    /// kernels are judged: every point has one. Otherwise they are those of `median_ns`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_graphs: bool,
    /// Where the time changed.
    pub changes: Vec<ChangePoint>,
    /// Number of points before the first one, which `--since` leaves out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub earlier_points: usize,
    /// The newest change before the first point; absent if none was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_change: Option<EarlierChange>,
}

impl Series {
    /// The time of a point by which the case is judged.
    pub fn judged_ns(&self, point: &HistoryPoint) -> f64 {
        point.graph_ns.filter(|_| self.in_graphs).unwrap_or(point.median_ns)
    }

    /// The interval of [`Series::judged_ns`]; `None` for a time in a graph, of which only the
    /// median is kept.
    pub fn judged_interval(&self, point: &HistoryPoint) -> Option<[f64; 2]> {
        (!self.in_graphs).then_some(point.ci95_ns)
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// One time of the history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryPoint {
    /// Id of the suite's run.
    pub run: String,
    /// When it started (RFC 3339).
    pub started: String,
    /// Digest of the files and options that the kernel was made of.
    pub inputs: String,
    /// UUID of the GPU.
    pub device: String,
    /// Median of the samples in nanoseconds.
    pub median_ns: f64,
    /// 95 % interval of the median.
    pub ci95_ns: [f64; 2],
    /// Number of samples.
    pub samples: u64,
    /// Median inside a CUDA graph; only for short kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph_ns: Option<f64>,
    /// Whether the results were right.
    pub right: bool,
    /// Whether the GPU was throttled.
    pub throttled: bool,
    /// The commit; empty if unknown.
    pub commit: String,
    /// Whether files differed from that commit.
    pub dirty: bool,
}

/// A change before the first point of a series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EarlierChange {
    /// Id of the first suite after the change.
    pub run: String,
    /// When that suite started (RFC 3339).
    pub started: String,
    /// Median of the points before it, back to the change before that.
    pub before: f64,
    /// Median of the points from it on, up to the next change.
    pub after: f64,
    /// Approximate significance of the split.
    pub p: f64,
}

/// A change of the level of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangePoint {
    /// Number of the first point after the change, from 0.
    pub at: usize,
    /// Median of the points before it, back to the change before that.
    pub before: f64,
    /// Median of the points from it on, up to the next change.
    pub after: f64,
    /// Approximate significance of the split.
    pub p: f64,
}
