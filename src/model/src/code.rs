//! The code of kernels, instruction by instruction (`rgpu.code/1`), as shown by `rgpu disasm
//! --view` and its page. The facts of kernels are in [`super::disasm`].
//!
//! A view fills the fields that it shows and leaves the others out.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hotspots::{Counts, SourceAt};

/// The schema name that every document carries.
pub const SCHEMA: &str = "rgpu.code/1";

/// Code in the inputs of one command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeDocument {
    /// Name and version of this schema: `rgpu.code/1`.
    pub schema: String,
    /// The version of rgpu.
    pub rgpu: String,
    /// The requested view: `sass`, `ptx`, `source`, `mix`, `cfg`, `live`, or `page`.
    pub view: String,
    /// Images that have something to show, in the order of the inputs.
    pub images: Vec<CodeImage>,
    /// Errors of parts that could not be read, each with its file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// One image: a cubin or a PTX text.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeImage {
    /// Path of the file as the user gave it.
    pub path: String,
    /// Location in the file: members, section, entry; empty if the image is the whole file.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// Architecture, e.g. `sm_90a`.
    pub arch: String,
    /// Tool that gave the instruction texts: `rgpu 0.1.0` (without operands), `nvdisasm 13.5.37`.
    pub tool: Option<String>,
    /// Why nvdisasm, although installed, did not give the texts.
    pub tool_problem: Option<String>,
    /// PTX text of the file, or the one that `-lineinfo` left in the cubin.
    pub ptx: Option<String>,
    /// Source files that the instructions come from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceText>,
    /// Kernels, and functions that have their own section.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<CodeKernel>,
}

/// A source file with the lines that are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceText {
    /// File name as in the line table.
    pub file: String,
    /// Path that the text was read from, if it is another one: beside the cubin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<String>,
    /// Text of the lines that instructions come from and of some lines around them, by line number
    /// from 1; empty if the file is not available.
    pub lines: BTreeMap<u32, String>,
}

/// The code of one section.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeKernel {
    /// The mangled name.
    pub symbol: String,
    /// Demangled name; absent if it equals the symbol.
    pub name: Option<String>,
    /// Registers per thread.
    pub registers: Option<u32>,
    /// Bytes of spill stores, then bytes of spill loads.
    pub spill_bytes: Option<[u64; 2]>,
    /// Static shared memory per block in bytes.
    pub shared_bytes: Option<u64>,
    /// Number of warp samples in all, if the counts of a profile are shown.
    pub samples: Option<u64>,
    /// Instructions in order, without the padding at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<CodeLine>,
    /// Basic blocks in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<CodeBlock>,
    /// Number of instructions of each class, without padding.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, u64>,
    /// Number of instructions by name, modifiers left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mnemonics: BTreeMap<String, u64>,
    /// Live ranges of registers, by register and position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<LifeRange>,
}

/// An instruction of a listing.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeLine {
    /// Offset in bytes from the start of the section.
    pub offset: u64,
    /// Name of the function that begins here, if the section holds more than its kernel.
    pub function: Option<String>,
    /// Guard and name, with modifiers and operands if nvdisasm gave them. Branch targets are
    /// offsets.
    pub text: String,
    /// Control word: `[B0-----:R-:W2:y1:S04]`.
    pub control: String,
    /// Target offset of a direct branch.
    pub target: Option<u64>,
    /// Source position, outermost call first, innermost last; empty without a line table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<SourceAt>,
    /// Line number in the PTX text, from 1.
    pub ptx_line: Option<u32>,
    /// Number of live registers.
    pub live: Option<LiveRegisters>,
    /// Counts from a profile.
    pub counts: Option<Counts>,
}

/// Number of registers that are live at an instruction, by register file; those that it reads or
/// writes are included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LiveRegisters {
    /// General registers: `R0` …
    pub registers: u32,
    /// Predicates: `P0` …
    pub predicates: u32,
    /// Uniform registers: `UR0` …
    pub uniform: u32,
    /// Uniform predicates: `UP0` …
    pub uniform_predicates: u32,
}

/// The live range of one value in a register: consecutive instructions, from one that writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LifeRange {
    /// Name of the register, e.g. `R12`, `UP0`.
    pub register: String,
    /// Offset of its first instruction.
    pub from: u64,
    /// Offset of its last instruction.
    pub to: u64,
    /// Offsets of the instructions that write it.
    pub writes: Vec<u64>,
    /// Offsets of the instructions that read it.
    pub reads: Vec<u64>,
}

/// A basic block of the control-flow graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeBlock {
    /// Offset of its first instruction.
    pub start: u64,
    /// Offset of the end of its last instruction.
    pub end: u64,
    /// Start offsets of the blocks that may follow.
    pub next: Vec<u64>,
    /// Whether it ends in a branch through a register, so that unknown blocks may follow.
    pub indirect: bool,
    /// Whether a branch jumps back to it.
    pub loop_head: bool,
    /// Number of instructions.
    pub instructions: u64,
    /// Number of instructions of each class, most frequent first.
    pub classes: Vec<ClassCount>,
}

/// The number of instructions of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassCount {
    /// Name of the class.
    pub class: String,
    /// Number of instructions.
    pub count: u64,
}

impl CodeKernel {
    /// The name to display: the demangled one if known.
    pub fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.symbol)
    }
}
