//! Time on host and GPU: regions, copies and their sums.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One NVTX region: all instances of one path summed up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Region {
    /// Path parts, outermost first; `domain@name` for domains other than the default.
    pub path: Vec<String>,
    /// `push_pop` or `start_end`.
    pub kind: String,
    /// How often it was entered.
    pub instances: u64,
    /// Host time in nanoseconds over all instances. Not GPU time unless the program synchronised.
    pub host_ns: u64,
    /// GPU time in nanoseconds of what was launched inside (by the launch call's time), inner
    /// regions included; absent where no GPU times are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ns: Option<u64>,
    /// Kernels launched inside, by name.
    #[serde(default)]
    pub kernels: Vec<KernelSum>,
    /// Where the numbers come from: path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

impl Region {
    /// The path as users write it: `A::A1`, a literal `::` in a name is `\::`.
    pub fn display(&self) -> String {
        self.path.iter().map(|p| p.replace("::", "\\::")).collect::<Vec<_>>().join("::")
    }
}

/// All launches of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelSum {
    /// Demangled name.
    pub kernel: String,
    /// Launches.
    pub launches: u64,
    /// GPU time in nanoseconds.
    pub total_ns: u64,
    /// Least and greatest duration in nanoseconds.
    pub min_ns: u64,
    /// See `min_ns`.
    pub max_ns: u64,
}

/// All copies or memsets of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CopySum {
    /// `HtoD`, `DtoH`, `DtoD`, `PtoP`, `memset` …
    pub kind: String,
    /// How many.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// GPU time in nanoseconds.
    pub total_ns: u64,
}
