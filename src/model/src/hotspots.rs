//! Instructions and source lines on which a launch spends its time: the document `hotspots.json`
//! (`rgpu.hotspots/1`).
//!
//! Numbers per instruction are many times larger than a profile, so they have their own file. An
//! instruction carries the counts that the report has for its address; a line has the sum over the
//! instructions whose innermost source position it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::named_numbers::NamedNumbers;

/// The schema name that every document carries.
pub const SCHEMA: &str = "rgpu.hotspots/1";

/// Hot spots of the launches of one run or report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotSpots {
    /// Name and version of this schema: `rgpu.hotspots/1`.
    pub schema: String,
    /// Launches that have counts per instruction, in the profile's order.
    #[serde(default)]
    pub launches: Vec<LaunchSpots>,
}

/// Hot spots of one launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LaunchSpots {
    /// Id of the launch in the profile.
    pub launch: u32,
    /// Demangled name.
    pub kernel: String,
    /// Number of warp samples in all; the samples of all instructions add up to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Every instruction that has a count, in address order.
    #[serde(default)]
    pub instructions: Vec<InstructionSpot>,
    /// Source lines, most samples first.
    #[serde(default)]
    pub lines: Vec<LineSpot>,
    /// The artifact that the counts come from, as its path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// An instruction with its samples and counts.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstructionSpot {
    /// Offset in bytes from the start of its function's code.
    pub offset: u64,
    /// Address of the instruction on the GPU.
    pub address: Option<u64>,
    /// Symbol of its function, if that is not the kernel: a device function that was not inlined.
    pub function: Option<String>,
    /// Text of the instruction, if the report contains the code: guard and name, with modifiers and
    /// operands if nvdisasm was available. Branch targets are offsets from the start of their
    /// section.
    pub sass: Option<String>,
    /// Source position, outermost call first, innermost last; empty without a line table.
    #[serde(default)]
    pub at: Vec<SourceAt>,
    /// Line of the PTX text in the cubin, if the cubin has one.
    pub ptx_line: Option<u32>,
    /// The memory access, for instructions that access memory.
    pub access: Option<Access>,
    /// Counts of this instruction.
    #[serde(flatten)]
    pub counts: Counts,
}

/// How an instruction accesses memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Access {
    /// Memory space: `global`, `shared`, `local` …
    pub space: String,
    /// Operation: `load`, `store` …
    pub operation: String,
    /// Bits accessed by one thread.
    pub bits: u32,
}

/// A source line with the sums of its instructions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LineSpot {
    /// Position of the line.
    pub at: SourceAt,
    /// Text of the line, if the source is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Number of instructions compiled from it.
    pub instructions: u32,
    /// Sum of the counts of those instructions.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A source position.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct SourceAt {
    /// File name as in the line table.
    pub file: String,
    /// Line number, from 1.
    pub line: u32,
    /// Mangled name of the inlined function that the line belongs to; absent for the kernel itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
}

/// The name to show for a file of a line table. A source that rgpu sent to a host is recorded below
/// a job's folder there, as `…/jobs/RUN.1/work/build/../src/matmul.cu`: its name is `matmul.cu`.
pub fn shown_source_name(recorded: &str) -> &str {
    let sent = recorded.split_once("/jobs/").and_then(|(_, inner)| inner.split_once("/src/"));
    sent.map_or(recorded, |(_, name)| name)
}

/// Counts of an instruction or a line. A count that was not collected is absent.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Number of warp samples.
    pub samples: Option<u64>,
    /// Number of warp samples in which the scheduler issued no instruction.
    pub samples_not_issued: Option<u64>,
    /// Number of samples by reason, named as in [`super::StallReason`]; zeros are left out.
    /// Together with `selected`, which is not a stall, they add up to `samples`.
    #[serde(default, skip_serializing_if = "NamedNumbers::is_empty")]
    pub stalls: NamedNumbers<u64>,
    /// Of `stalls`, the samples in which the scheduler issued no instruction.
    #[serde(default, skip_serializing_if = "NamedNumbers::is_empty")]
    pub stalls_not_issued: NamedNumbers<u64>,
    /// Number of times that a warp executed it.
    pub executed: Option<u64>,
    /// Number of times that a thread executed it, without predicated-off threads if the report
    /// tells.
    pub thread_executed: Option<u64>,
    /// All other counts by address, by NVIDIA's metric name: sectors, wavefronts, ideal ones. A
    /// line has only those that can be added up.
    #[serde(default, skip_serializing_if = "NamedNumbers::is_empty")]
    pub metrics: NamedNumbers<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_that_was_sent_to_a_host_has_its_own_name() {
        let job = "/home/me/.cache/rgpu/jobs/20261128-155524-matmul-ncu-4021c8.1/work/build/../src";
        assert_eq!(shown_source_name(&format!("{job}/matmul.cu")), "matmul.cu");
        assert_eq!(shown_source_name(&format!("{job}/lib/tile.cuh")), "lib/tile.cuh");
        for own in
            ["/home/me/src/matmul.cu", "matmul.cu", "/jobs/a.cu", "/usr/include/c++/13/cmath"]
        {
            assert_eq!(shown_source_name(own), own);
        }
    }
}
