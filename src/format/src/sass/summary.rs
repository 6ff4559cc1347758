//! Collects everything for a kernel's summary in one pass over its code: summaries cover libraries
//! with a hundred million instructions.

use super::instruction::{BYTES, Instruction, at};
use super::mix::{Counts, Mix};
use super::mnemonic::{Mnemonic, mnemonic};
use super::opcode::{FlowEffect, Opcode, UNKNOWN, opcodes};

/// The results of one pass. The compiler's padding after the code is not counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeSummary {
    /// Bytes of code without the padding.
    pub bytes: usize,
    /// How many instructions of each class there are.
    pub mix: Mix,
    /// Number of basic blocks, as [`super::blocks`] finds them.
    pub blocks: u64,
    /// Number of blocks that are the target of a backward branch.
    pub loops: u64,
    /// For each instruction its guard, the number of its name and, for direct branches, calls and
    /// BSSY, the distance. Equal for pieces of code that differ only in registers (other than guard
    /// predicates), constants, addresses or scheduling. The name numbers
    /// are specific to this version of the crate.
    pub shape: Vec<u8>,
}

/// Precedes the distance of a branch; no name has this number.
const DISTANCE: u16 = 0xfff;

/// Summarizes the code of a section for architecture `sm`. Control enters the code at its start.
pub fn summarize_code(code: &[u8], sm: u32) -> CodeSummary {
    let table = opcodes(sm);
    let bytes = without_padding(code, sm);
    let (code, _) = code[..bytes].as_chunks::<16>();
    let mut counts = Counts::new(sm);
    let mut shape = Vec::with_capacity(code.len() * 2 + 64);
    let mut starts: Vec<u64> = Vec::with_capacity(64);
    starts.push(0);
    let mut heads: Vec<u64> = Vec::new();
    let inside = |at: &u64| *at < bytes as u64 && at.is_multiple_of(BYTES);
    for (index, bits) in code.iter().enumerate() {
        let instruction = at(index, bits);
        let Opcode { name, flow_effect } = table[usize::from(instruction.opcode())];
        let name = counts.add(&instruction, name);
        // The guard has four bits; name numbers have fewer than twelve.
        let guard = (instruction.low >> 12 & 0xf) as u16;
        shape.extend_from_slice(&(name | guard << 12).to_le_bytes());
        if name == UNKNOWN {
            shape.extend_from_slice(&instruction.opcode().to_le_bytes());
        }
        if flow_effect == FlowEffect::Continues {
            continue;
        }
        if let Some(to) = instruction.target(sm) {
            shape.extend_from_slice(&DISTANCE.to_le_bytes());
            shape.extend_from_slice(&to.wrapping_sub(instruction.offset).to_le_bytes());
            starts.extend(Some(to).filter(inside));
            if flow_effect == FlowEffect::Branches && to <= instruction.offset && inside(&to) {
                heads.push(to);
            }
        }
        if flow_effect != FlowEffect::Refers {
            starts.extend(Some(instruction.offset + BYTES).filter(inside));
        }
    }
    let distinct = |mut all: Vec<u64>| {
        all.sort_unstable();
        all.dedup();
        all.len() as u64
    };
    CodeSummary {
        bytes,
        mix: counts.mix(code.len()),
        blocks: if code.is_empty() { 0 } else { distinct(starts) },
        loops: distinct(heads),
        shape,
    }
}

/// Length in bytes of the code before a final branch to itself and NOPs.
fn without_padding(code: &[u8], sm: u32) -> usize {
    let (code, _) = code.as_chunks::<16>();
    count_without_padding(code.len(), sm, |index| at(index, &code[index])) * BYTES as usize
}

/// The number of the first `count` instructions that remain without that padding.
pub(super) fn count_without_padding(
    count: usize,
    sm: u32,
    get: impl Fn(usize) -> Instruction,
) -> usize {
    let mut end = count;
    while end > 0 && mnemonic(&get(end - 1), sm) == Mnemonic::Known("NOP") {
        end -= 1;
    }
    if end == 0 {
        return count;
    }
    let last = get(end - 1);
    if last.target(sm) == Some(last.offset) && end > 1 { end - 1 } else { end }
}
