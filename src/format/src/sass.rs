//! SASS, the machine code of NVIDIA GPUs since Volta, as far as it can be decoded without NVIDIA's
//! disassembler.
//!
//! Every instruction has 128 bits. This module decodes the opcode's name, the guard predicate, the
//! scheduling control word, the target of branches, the class of work and the width of spills. It
//! does not decode operands (`nvdisasm` does). An opcode that is in no table is shown as its
//! number, never dropped.
//!
//! # Layout
//! | bits | meaning |
//! |---|---|
//! | 0-11 | opcode: 0-8 the operation, 9-11 the form of its operands |
//! | 12-14, 15 | guard predicate, negated; 7 is "always" |
//! | 16-23 | sm_90 and up, in branches: the low 8 bits of the distance |
//! | 34-81 | in branches: the distance in units of 4 bytes (on sm_90 and up, of 1024) |
//! | 73-75 | in memory accesses: width |
//! | 105-108 | cycles to stall |
//! | 109 | yield bit |
//! | 110-112, 113-115 | barrier set when written, when read; 7 is none |
//! | 116-121 | barriers to wait for, one bit each |
//! | 122-125 | register caches kept for operands a, b, c, d |
//!
//! Sources: the layout of the control word as Mesa's NAK encodes it; names, guards, reuse bits and
//! branch distances compared with nvdisasm 13.5 on every instruction (205 216) of our own kernels
//! for sm_80, sm_90a, sm_100a, sm_103a and sm_120a. `cargo xtask sass-table` generates the table of
//! names from that same output.

mod class;
mod flow;
mod instruction;
mod listing;
mod mix;
mod mnemonic;
mod opcode;
mod summary;
mod table;
pub mod text;

pub use class::{Access, Class};
pub use flow::{Block, blocks, trimmed};
pub use instruction::{Control, Guard, Instruction, decode};
pub use listing::{Columns, brief, listing};
pub use mix::{ClassCount, Mix, mix};
pub use mnemonic::{Mnemonic, mnemonic};
pub use summary::{CodeSummary, summarize_code};

/// Whether code for architecture `sm` has this form. Instructions before Volta have 64 bits, with
/// one control word per three instructions, and are not read here.
pub fn is_read(sm: u32) -> bool {
    sm >= 70
}
