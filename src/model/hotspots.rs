//! Where a launch spends its time: the document `hotspots.json` (`rgpu.hotspots/1`).
//!
//! Per-instruction numbers are many times larger than a profile, so they stand in a file of their
//! own; the profile holds scalars only. Instructions carry what the report measured at their
//! address; lines sum the instructions whose innermost source position they are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tally::Tally;

/// The schema's name, in every document.
pub const SCHEMA: &str = "rgpu.hotspots/1";

/// Hot spots of the launches of one run or report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HotSpots {
    /// [`SCHEMA`].
    pub schema: String,
    /// Launches that have numbers by instruction, in the profile's order.
    #[serde(default)]
    pub launches: Vec<LaunchSpots>,
}

/// Hot spots of one launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LaunchSpots {
    /// The launch's id in the profile.
    pub launch: u32,
    /// Demangled name.
    pub kernel: String,
    /// Warp samples taken in all; the samples of all instructions add up to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Every instruction that has a number, in address order.
    #[serde(default)]
    pub instructions: Vec<InstructionSpot>,
    /// Source lines, most samples first.
    #[serde(default)]
    pub lines: Vec<LineSpot>,
    /// The artifact it came from, as its path in the run folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
}

/// One instruction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InstructionSpot {
    /// Bytes from the start of its function's code.
    pub offset: u64,
    /// The address it had on the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// The symbol of its function where that is not the kernel's: a device function that was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The instruction's text, where the report has the code: guard and name, with modifiers and
    /// operands where nvdisasm was at hand. Branches go to offsets from their section's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sass: Option<String>,
    /// Source position, outermost call first, innermost last; empty without a line table.
    #[serde(default)]
    pub at: Vec<SourceAt>,
    /// Line of the PTX text in the cubin, where that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptx_line: Option<u32>,
    /// The memory it reaches, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<Access>,
    /// What was counted here.
    #[serde(flatten)]
    pub counts: Counts,
}

/// What an instruction does with memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Access {
    /// `global`, `shared`, `local` …
    pub space: String,
    /// `load`, `store` …
    pub operation: String,
    /// Bits of one thread's access.
    pub bits: u32,
}

/// One source line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LineSpot {
    /// The line.
    pub at: SourceAt,
    /// Its text, where the source is at hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Instructions it became.
    pub instructions: u32,
    /// What was counted over them.
    #[serde(flatten)]
    pub counts: Counts,
}

/// A source position.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct SourceAt {
    /// The file as the line table names it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// The mangled name of the inlined function whose line it is; absent for the kernel's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
}

/// Counts of an instruction or a line; absent ones were not collected.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Warp samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Warp samples in which the scheduler issued nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_not_issued: Option<u64>,
    /// Samples by reason, as in [`super::Stall`], zeros left out; with `selected`, which is no
    /// stall, they add up to `samples`.
    #[serde(default, skip_serializing_if = "Tally::is_empty")]
    pub stalls: Tally<u64>,
    /// Of these the samples in which the scheduler issued nothing.
    #[serde(default, skip_serializing_if = "Tally::is_empty")]
    pub stalls_not_issued: Tally<u64>,
    /// Times a warp executed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed: Option<u64>,
    /// Times a thread executed it (predicated-off ones left out where the report tells).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_executed: Option<u64>,
    /// Everything else counted by address, by NVIDIA's id: sectors, wavefronts, ideal ones. A line
    /// has only what can be added up.
    #[serde(default, skip_serializing_if = "Tally::is_empty")]
    pub metrics: Tally<f64>,
}
