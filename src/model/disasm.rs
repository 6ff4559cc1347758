//! `summary.json` of `rgpu disasm` (`rgpu.disasm/1`): which files were looked into, what GPU code
//! they hold, and the facts of each kernel. What a file does not say is absent, never 0.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schema's name.
pub const SCHEMA: &str = "rgpu.disasm/1";

/// All inputs of one command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disasm {
    /// `rgpu.disasm/1`.
    pub schema: String,
    /// Version of rgpu.
    pub rgpu: String,
    /// Every input in the order given.
    pub inputs: Vec<Input>,
}

/// One file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Input {
    /// As the user named it.
    pub path: String,
    /// How it ended.
    pub status: Status,
    /// `cubin`, `fatbin`, `ptx`, `elf`, `archive`, `zip`, `ncu_rep`; absent where the file could not
    /// be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Errors of the file or of parts of it, each with its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// The GPU code it holds, in file order.
    pub images: Vec<Image>,
}

/// How an input ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Everything was read.
    #[default]
    Ok,
    /// Something was read, something not.
    Partial,
    /// Nothing was read.
    Failed,
}

/// One piece of GPU code in a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// Where in the file: members, section, entry; empty where the file is the image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// `cubin`, `ptx`, `lto_ir`, or `kind_N`.
    pub kind: String,
    /// e.g. `sm_90a`; of PTX its target.
    pub arch: String,
    /// `none`, `lz4`, `zstd`.
    pub compression: String,
    /// Bytes as stored.
    pub stored_bytes: u64,
    /// Bytes once unpacked.
    pub bytes: u64,
    /// The source file's name, where the compiler kept it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifier: Option<String>,
    /// The CUDA toolkit that made it, or the PTX ISA's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The compiler's release, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compiler: Option<String>,
    /// The compiler's command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
    /// The cubin knows source lines.
    #[serde(default)]
    pub has_lines: bool,
    /// What wrote the listing: `rgpu 0.1.0`, `nvdisasm 13.5.37`; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Why nvdisasm did not write it although it was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_problem: Option<String>,
    /// Files written of it, relative to the summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Kernels of a cubin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<Kernel>,
    /// Kernels that PTX defines, mangled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
}

/// One kernel's facts. Sizes are in bytes; registers, stack, local memory and spills are per
/// thread, shared memory per block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// Symbol, mangled.
    pub symbol: String,
    /// Demangled name where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Registers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Stack, callees included; absent where recursion leaves it open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack_bytes: Option<u32>,
    /// The kernel's own frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frame_bytes: Option<u32>,
    /// Local memory beside the stack.
    pub local_bytes: u64,
    /// Spill stores; absent where the compiler (before 12.8) did not record them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_store_bytes: Option<u64>,
    /// Spill loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_load_bytes: Option<u64>,
    /// Static shared memory, without what the system keeps.
    pub shared_bytes: u64,
    /// Constant banks by number.
    pub constant_bytes: BTreeMap<u32, u64>,
    /// Named barriers.
    pub barriers: u32,
    /// Barriers in shared memory (mbarrier).
    pub mbarriers: u32,
    /// Most threads of a block, by dimension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_threads: Option<[u32; 3]>,
    /// The exact block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_block: Option<[u32; 3]>,
    /// Blocks of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u32; 3]>,
    /// Largest cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cluster_rank: Option<u32>,
    /// Parameters by position.
    pub params: Vec<Param>,
    /// Offset of the parameters in constant bank 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param_offset: Option<u32>,
    /// Offsets of exits.
    pub exits: Vec<u32>,
    /// Uses fifth-generation tensor cores with one block.
    pub tcgen05_one_cta: bool,
    /// Uses them with a pair of blocks.
    pub tcgen05_two_cta: bool,
    /// Uses tensor memory.
    pub tensor_memory: bool,
    /// Size of the code, padding included.
    pub code_bytes: u64,
    /// Instructions, those of functions that it keeps included, without the padding after the last
    /// exit or branch. Classes, names, listings and pages count the same. Absent, as are those and
    /// blocks, where the code is of an architecture before Volta, which is not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Instructions by class; see the documentation of the classes.
    pub classes: ByName,
    /// Instructions by name without modifiers.
    pub mnemonics: ByName,
    /// Basic blocks, as far as direct branches tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// Basic blocks that something branches back to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loops: Option<u64>,
    /// sha256 of the code without padding: equal where every bit is.
    pub code_sha256: String,
    /// sha256 of names, guards and distances of branches in order, without padding: equal where
    /// only registers, constants, addresses or scheduling differ. To be compared within one version
    /// of rgpu.
    pub shape_sha256: String,
    /// Theoretical occupancy, for the asked, required or largest block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<Occupancy>,
}

/// Counts by name. Most names are the tables' own.
pub type ByName = BTreeMap<Cow<'static, str>, u64>;

/// One parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Param {
    /// Offset in the parameter area.
    pub offset: u32,
    /// Size.
    pub bytes: u32,
}

/// How many blocks an SM holds at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Occupancy {
    /// Threads of the block that this is for.
    pub threads: u32,
    /// Blocks on an SM.
    pub blocks: u32,
    /// Warps on an SM, in percent of its places.
    pub percent: f64,
    /// What keeps more away.
    pub limiter: String,
}

/// What changed between two builds (`rgpu.disasm-diff/1`). Kernels are matched by architecture and
/// demangled name; by name alone where each build is for one architecture, and those differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// `rgpu.disasm-diff/1`.
    pub schema: String,
    /// What the texts of instructions come from: `rgpu 0.1.0` (without operands), `nvdisasm 13.5.37`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What of the texts did not count: `addresses`, `registers`.
    #[serde(default)]
    pub normalized: Vec<String>,
    /// Kernels of both, in the new one's order.
    pub kernels: Vec<KernelDiff>,
    /// Kernels of the old one only: architecture and name.
    pub removed: Vec<String>,
    /// Kernels of the new one only.
    pub added: Vec<String>,
}

/// One kernel in two builds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelDiff {
    /// e.g. `sm_90a`.
    pub arch: String,
    /// The old build's architecture, where that is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_arch: Option<String>,
    /// Demangled name.
    pub name: String,
    /// How far the code is the same.
    pub code: Sameness,
    /// What differs: registers, bytes, counts.
    pub changes: Vec<Change>,
    /// Classes of instructions whose number differs.
    #[serde(default)]
    pub classes: Vec<Change>,
    /// Instructions whose number differs, by name.
    pub mnemonics: Vec<Change>,
    /// The instructions that differ; absent where the code is identical.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing: Option<ListingDiff>,
}

/// Two listings, aligned. Addresses, labels and padding do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListingDiff {
    /// Instructions of both.
    pub same: u64,
    /// Instructions of the old one only.
    pub removed: u64,
    /// Instructions of the new one only.
    pub added: u64,
    /// The places that differ, in order.
    pub hunks: Vec<Hunk>,
}

/// One place where listings differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hunk {
    /// Offset of its first instruction in the old listing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_offset: Option<u64>,
    /// The same in the new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_offset: Option<u64>,
    /// Instructions, with `-` before those of the old one, `+` before those of the new one, and a
    /// blank before those of both.
    pub lines: Vec<String>,
}

/// How far the code of two kernels is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sameness {
    /// Every bit.
    Identical,
    /// The same text: only addresses or scheduling differ. Told where operands are known.
    SameText,
    /// The same instructions in the same order, with other registers, constants or scheduling.
    SameInstructions,
    /// Other instructions.
    #[default]
    Different,
}

/// A number in two builds; absent where one does not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// What it is of.
    pub what: String,
    /// In the old build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<f64>,
    /// In the new build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<f64>,
}
