//! Time on host and GPU: regions, copies and their sums.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Metric;

/// One NVTX region: all instances of one path summed up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Region {
    /// Path parts, outermost first; `domain@name` for domains other than the default.
    pub path: Vec<String>,
    /// `push_pop` or `start_end`.
    pub kind: String,
    /// How often it was entered; absent where the tool does not tell (ncu).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<u64>,
    /// Host time in nanoseconds over all instances; absent where no tool timed the host. Not GPU
    /// time unless the program synchronised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ns: Option<u64>,
    /// GPU time in nanoseconds of what was launched inside (by the launch call's time), inner
    /// regions included; absent where no GPU times are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ns: Option<u64>,
    /// Kernels launched inside, by name.
    #[serde(default)]
    pub kernels: Vec<KernelSum>,
    /// Metrics of the region as a whole, by NVIDIA's id: range replay measures all its kernels
    /// together.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, Metric>,
    /// The profile's launches inside, inner regions included; only of launches with metrics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launches: Vec<u32>,
    /// Results that a tool took of the range as a whole (ncu's range replay), one for each time it
    /// was profiled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<RangeResult>,
    /// Where the numbers come from: path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// What a tool measured of a whole range at once: the metrics are of all its kernels together, with
/// what lies between them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RangeResult {
    /// The entry among the profile's launches that holds the metrics.
    pub launch: u32,
    /// The kernels inside, in the order of their launches; a range has no times of its kernels.
    pub kernels: Vec<String>,
}

impl Region {
    /// The path as users write it: `A::A1`, `domain@A`; a literal `::` in a name is `\::`. A range
    /// in the same domain as the one around it does not repeat the domain.
    pub fn display(&self) -> String {
        let mut domain = "";
        let mut parts = Vec::with_capacity(self.path.len());
        for part in &self.path {
            let (own, name) = part.split_once('@').unwrap_or(("", part));
            let shown = if own == domain { name } else { part };
            parts.push(shown.replace("::", "\\::"));
            domain = own;
        }
        parts.join("::")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_said_once_and_a_literal_separator_is_escaped() {
        let shown = |path: &[&str]| {
            Region { path: path.iter().map(|p| (*p).to_owned()).collect(), ..Region::default() }
                .display()
        };
        assert_eq!(shown(&["rgpu@timed", "rgpu@large", "A", "A1"]), "rgpu@timed::large::A::A1");
        assert_eq!(shown(&["A", "std::sort"]), "A::std\\::sort");
        assert_eq!(shown(&["A", "d@B", "C"]), "A::d@B::C");
    }
}
