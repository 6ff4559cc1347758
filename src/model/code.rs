//! The code of kernels, instruction by instruction (`rgpu.code/1`): what `rgpu disasm --view` and
//! its page show. Facts of kernels stand in [`super::disasm`].
//!
//! A view fills what it shows and leaves the rest out.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::hotspots::{Counts, SourceAt};

/// The schema's name.
pub const SCHEMA: &str = "rgpu.code/1";

/// Code of one command's inputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Code {
    /// `rgpu.code/1`.
    pub schema: String,
    /// Version of rgpu.
    pub rgpu: String,
    /// The view asked: `sass`, `ptx`, `source`, `mix`, `cfg`, `live`, or `page`.
    pub view: String,
    /// Every image with something to show, in the order of the inputs.
    pub images: Vec<CodeImage>,
    /// What could not be read, each with its file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
}

/// One image: a cubin, or PTX.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeImage {
    /// The file as the user named it.
    pub path: String,
    /// Where in the file: members, section, entry; empty where the file is the image.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// e.g. `sm_90a`.
    pub arch: String,
    /// What the texts of instructions come from: `rgpu 0.1.0` (without operands), `nvdisasm 13.5.37`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Why nvdisasm did not give them although it was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_problem: Option<String>,
    /// PTX: of the file, or what `-lineinfo` left in the cubin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptx: Option<String>,
    /// Source files that instructions come from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceText>,
    /// Kernels, and functions with a section of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<CodeKernel>,
}

/// A source file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceText {
    /// As the line table names it.
    pub file: String,
    /// Where its text was read, where that is elsewhere: beside the cubin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_from: Option<String>,
    /// Text of the lines that instructions come from and of some around them, by number from 1;
    /// empty where the file is not at hand.
    pub lines: BTreeMap<u32, String>,
}

/// One section of code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeKernel {
    /// Symbol, mangled.
    pub symbol: String,
    /// Demangled name where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Registers per thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Bytes of spill stores, then of spill loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_bytes: Option<[u64; 2]>,
    /// Static shared memory of a block in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_bytes: Option<u64>,
    /// Warp samples taken in all, where a profile is laid over the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Instructions in order, without the padding at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instructions: Vec<CodeLine>,
    /// Basic blocks in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<CodeBlock>,
    /// Instructions by class, padding left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<String, u64>,
    /// Instructions by name without modifiers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mnemonics: BTreeMap<String, u64>,
    /// Life ranges of registers, by register and place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<LifeRange>,
}

/// One instruction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CodeLine {
    /// Bytes from the section's start.
    pub offset: u64,
    /// Name of the function that begins here, where the section holds more than its kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Guard and name, with modifiers and operands where nvdisasm gave them. Branches go to offsets.
    pub text: String,
    /// The control word: `[B0-----:R-:W2:y1:S04]`.
    pub control: String,
    /// Where a direct branch goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<u64>,
    /// Source position, outermost call first, innermost last; empty without a line table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub at: Vec<SourceAt>,
    /// Line of the PTX text, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ptx_line: Option<u32>,
    /// Registers that live here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Lives>,
    /// What a profile counted here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
}

/// How many registers live at an instruction, by file; those that it writes or reads included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lives {
    /// `R0` …
    pub registers: u32,
    /// `P0` …
    pub predicates: u32,
    /// `UR0` …
    pub uniform: u32,
    /// `UP0` …
    pub uniform_predicates: u32,
}

/// One value's life in a register: consecutive instructions from one that writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LifeRange {
    /// e.g. `R12`, `UP0`.
    pub register: String,
    /// Offset of the first instruction.
    pub from: u64,
    /// Offset of the last.
    pub to: u64,
    /// Offsets that write it.
    pub writes: Vec<u64>,
    /// Offsets that read it.
    pub reads: Vec<u64>,
}

/// A basic block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CodeBlock {
    /// Offset of its first instruction.
    pub start: u64,
    /// Offset behind its last.
    pub end: u64,
    /// Starts of the blocks that may follow.
    pub next: Vec<u64>,
    /// Ends in a branch through a register: more may follow than are known.
    pub indirect: bool,
    /// Something branches back to here.
    pub loop_head: bool,
    /// Instructions in it.
    pub instructions: u64,
    /// Those by class, most frequent first.
    pub classes: Vec<ClassCount>,
}

/// How many instructions of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClassCount {
    /// The class.
    pub class: String,
    /// Instructions.
    pub count: u64,
}

impl CodeKernel {
    /// The name a user knows it by.
    pub fn shown(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.symbol)
    }
}
