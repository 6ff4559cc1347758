//! `summary.json` of `rgpu disasm` (`rgpu.disasm/1`): the input files, the GPU code in them, and
//! the resource usage and instruction counts of each kernel. A value that a file does not give is
//! absent, never 0.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::open_enum::open_enum;

/// The schema name that every summary carries.
pub const SCHEMA: &str = "rgpu.disasm/1";

/// All inputs of one command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DisasmDocument {
    /// Name and version of this schema: `rgpu.disasm/1`.
    pub schema: String,
    /// The version of rgpu.
    pub rgpu: String,
    /// Inputs, in the order given.
    pub inputs: Vec<Input>,
}

/// One input file and its code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Input {
    /// Path as the user gave it.
    pub path: String,
    /// Whether the file could be read.
    pub status: ReadStatus,
    /// Kind of file: `cubin`, `fatbin`, `ptx`, `elf`, `archive`, `zip`, `windows`, `c_array`,
    /// `ncu_rep`; absent if the file could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<InputKind>,
    /// Errors in the file or in parts of it, each with its location.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// GPU code in the file, in file order.
    pub images: Vec<Image>,
}

/// Whether an input could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadStatus {
    /// All code in it was read.
    #[default]
    Ok,
    /// Part of the file was read.
    Partial,
    /// None of its code could be read.
    Failed,
}

/// One piece of GPU code in a file.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// Location in the file: members, section, entry; empty if the image is the whole file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// Kind of code: `cubin`, `ptx`, `lto_ir`, or `kind_N` for an unknown number.
    pub kind: ImageKind,
    /// Architecture, e.g. `sm_90a`; for PTX its target.
    pub arch: String,
    /// Compression in the file: `none`, `lz4`, `zstd`.
    pub compression: ImageCompression,
    /// Size as stored, in bytes.
    pub stored_bytes: u64,
    /// Size after decompression, in bytes.
    pub bytes: u64,
    /// Name of the source file, if the compiler recorded it.
    pub identifier: Option<String>,
    /// Version of the CUDA toolkit that produced it, or of the PTX ISA.
    pub version: Option<String>,
    /// The compiler's release string.
    pub compiler: Option<String>,
    /// The compiler's command line.
    pub command_line: Option<String>,
    /// Whether the cubin has a line table.
    #[serde(default)]
    pub has_lines: bool,
    /// Tool that wrote the listing: `rgpu 0.1.0`, `nvdisasm 13.5.37`; absent if there is no
    /// listing.
    pub tool: Option<String>,
    /// Why nvdisasm, although installed, did not write the listing.
    pub tool_problem: Option<String>,
    /// Files written for this image, relative to the summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Kernels of a cubin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<Kernel>,
    /// Mangled names of the kernels that PTX defines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<String>,
}

/// Resource usage and instruction counts of one kernel. Sizes are in bytes; registers, stack, local
/// memory and spills are per thread, shared memory is per block.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kernel {
    /// The mangled name.
    pub symbol: String,
    /// Demangled name; absent if it equals the symbol.
    pub name: Option<String>,
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Stack, callees included; absent if recursion leaves it unbounded.
    pub stack_bytes: Option<u32>,
    /// Stack frame of the kernel alone.
    pub frame_bytes: Option<u32>,
    /// Local memory besides the stack.
    pub local_bytes: u64,
    /// Spill stores; absent if the compiler (before 12.8) did not record them.
    pub spill_store_bytes: Option<u64>,
    /// Spill loads; absent if the compiler did not record them.
    pub spill_load_bytes: Option<u64>,
    /// Static shared memory, without the part that the system reserves.
    pub shared_bytes: u64,
    /// Shared memory that the system reserves in the same section; `cuobjdump -res-usage` prints
    /// the sum. Absent for a kernel without static shared memory and before sm_90, where the
    /// system takes its part at the launch.
    pub shared_reserved_bytes: Option<u64>,
    /// Size of each constant bank, by bank number.
    pub constant_bytes: BTreeMap<u32, u64>,
    /// Number of named barriers.
    pub barriers: u32,
    /// Number of barriers in shared memory (mbarrier).
    pub mbarriers: u32,
    /// Declared bound on the threads of a block, in x, y, z; absent if not bounded.
    pub max_threads: Option<[u32; 3]>,
    /// Block that every launch must have, in x, y, z; absent if not fixed.
    pub required_block: Option<[u32; 3]>,
    /// Cluster dimensions in blocks; absent if not fixed.
    pub cluster: Option<[u32; 3]>,
    /// Largest number of blocks in a cluster; absent if not bounded.
    pub max_cluster_rank: Option<u32>,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Offset of the parameters in constant bank 0.
    pub param_offset: Option<u32>,
    /// Offsets of the exit instructions.
    pub exits: Vec<u32>,
    /// Whether it uses fifth-generation tensor cores with one block.
    pub tcgen05_one_cta: bool,
    /// Whether it uses fifth-generation tensor cores with a pair of blocks.
    pub tcgen05_two_cta: bool,
    /// Whether it uses tensor memory.
    pub tensor_memory: bool,
    /// Size of the code, padding included.
    pub code_bytes: u64,
    /// Number of instructions, including functions in the kernel's section, without the padding
    /// after the last exit or branch. All other counts use the same rule. Absent before Volta,
    /// whose code is not decoded; then counts by class and name are empty and `blocks` is absent.
    pub instructions: Option<u64>,
    /// Number of instructions of each class: `fp32`, `global_load`, `tensor_warpgroup` and others.
    pub classes: CountsByName,
    /// Number of instructions by name, modifiers left out.
    pub mnemonics: CountsByName,
    /// Number of basic blocks, as far as direct branches show them.
    pub blocks: Option<u64>,
    /// Number of basic blocks that are targets of a backward branch.
    pub loops: Option<u64>,
    /// sha256 of the code without padding: equal if every bit is.
    pub code_sha256: String,
    /// sha256 of the instruction names, guards and branch distances in order, without padding:
    /// equal if only registers, constants, addresses or scheduling differ. Compare only within one
    /// version of rgpu.
    pub shape_sha256: String,
    /// Theoretical occupancy for the kernel's required block size, else for `--block`, else for the
    /// largest block it allows.
    pub occupancy: Option<Occupancy>,
}

/// Counts by name. Most names are static strings.
pub type CountsByName = BTreeMap<Cow<'static, str>, u64>;

/// A parameter of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Param {
    /// Offset in the parameter area, in bytes.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
}

/// Theoretical occupancy of an SM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Occupancy {
    /// Threads in the block that it is computed for.
    pub threads: u32,
    /// Blocks that an SM holds at the same time.
    pub blocks: u32,
    /// Warps on an SM, in percent of the most that it can hold.
    pub percent: f64,
    /// The resource that limits the number of blocks.
    pub limiter: String,
}

/// Differences between two builds (`rgpu.disasm-diff/1`). Kernels are matched by architecture and
/// demangled name; by name alone if each build is for one architecture and the two differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// Name and version of this schema: `rgpu.disasm-diff/1`.
    pub schema: String,
    /// Tool that gave the instruction texts: `rgpu 0.1.0` (without operands), `nvdisasm 13.5.37`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Parts of the instruction texts that were ignored: `addresses`, `registers`.
    #[serde(default)]
    pub normalized: Vec<String>,
    /// Kernels of both builds, in the order of the new one.
    pub kernels: Vec<KernelDiff>,
    /// Kernels of the old build only, with architecture and name.
    pub removed: Vec<String>,
    /// Kernels of the new build only, with architecture and name.
    pub added: Vec<String>,
}

/// One kernel in both builds.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KernelDiff {
    /// Architecture in the new build, e.g. `sm_90a`.
    pub arch: String,
    /// Architecture in the old build, if it is another one.
    pub old_arch: Option<String>,
    /// Demangled name.
    pub name: String,
    /// How similar the code is.
    pub code: CodeSimilarity,
    /// Numbers that differ: registers, bytes, counts.
    pub changes: Vec<Change>,
    /// Instruction classes whose count differs.
    #[serde(default)]
    pub classes: Vec<Change>,
    /// Instruction names whose count differs.
    pub mnemonics: Vec<Change>,
    /// Differences of the listings; absent if the code is identical or a build has no listing of
    /// the kernel.
    pub listing: Option<ListingDiff>,
}

/// Alignment of two listings. Addresses, labels and padding are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListingDiff {
    /// Number of instructions in both.
    pub same: u64,
    /// Number of instructions in the old listing only.
    pub removed: u64,
    /// Number of instructions in the new listing only.
    pub added: u64,
    /// The regions that differ, in order.
    pub hunks: Vec<Hunk>,
}

/// One region in which the listings differ.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hunk {
    /// Offset of its first instruction in the old listing.
    pub old_offset: Option<u64>,
    /// Offset of its first instruction in the new listing.
    pub new_offset: Option<u64>,
    /// Instructions: those of the old listing begin with `-`, those of the new one with `+`, those
    /// of both with a blank.
    pub lines: Vec<String>,
}

/// How similar the code of two kernels is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CodeSimilarity {
    /// Every bit is the same.
    Identical,
    /// The text is the same: only addresses or scheduling differ. Used only if operands are known.
    SameText,
    /// The same instructions in the same order, with other registers, constants or scheduling.
    SameInstructions,
    /// The instructions differ.
    #[default]
    Different,
}

/// A number in both builds; absent for a build that does not give it.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Name of the number.
    pub what: String,
    /// Value in the old build.
    pub old: Option<f64>,
    /// Value in the new build.
    pub new: Option<f64>,
}

open_enum! {
    /// Kind of a file with GPU code.
    pub enum InputKind {
        /// Compiled code for one architecture.
        Cubin = "cubin",
        /// Code for several architectures.
        Fatbin = "fatbin",
        /// The text of a PTX module.
        Ptx = "ptx",
        /// A program or library of the host.
        Elf = "elf",
        /// An archive of object files.
        Archive = "archive",
        /// A zip archive, such as a wheel.
        Zip = "zip",
        /// A Windows program, library or object file.
        Windows = "windows",
        /// A C source with code in arrays of numbers.
        CArray = "c_array",
        /// A report of ncu.
        NcuRep = "ncu_rep",
    }
}

open_enum! {
    /// Kind of one piece of GPU code. An unknown number N is `kind_N`.
    pub enum ImageKind {
        /// Compiled code for one architecture.
        Cubin = "cubin",
        /// The text of a PTX module.
        Ptx = "ptx",
        /// Code for optimisation at link time.
        LtoIr = "lto_ir",
    }
}

open_enum! {
    /// Compression of a piece of GPU code in its file.
    pub enum ImageCompression {
        /// Stored as it is.
        None = "none",
        /// A block of LZ4.
        Lz4 = "lz4",
        /// A frame of Zstandard.
        Zstd = "zstd",
    }
}
