//! Basic blocks, as far as direct branches determine them.

use super::instruction::{BYTES, Instruction};
use super::mnemonic::{Mnemonic, mnemonic};
use super::summary::count_without_padding;
use std::collections::BTreeSet;

/// A run of instructions with one entry and one exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Offset of its first instruction.
    pub start: u64,
    /// Offset after its last instruction.
    pub end: u64,
    /// Start offsets of the possible successors. A call is assumed to return. Incomplete if
    /// `indirect` is set.
    pub next: Vec<u64>,
    /// Whether it ends with a branch through a register, so that further blocks may follow.
    pub indirect: bool,
    /// Whether this block or a later one branches back to its start.
    pub loop_head: bool,
}

/// How an instruction transfers control.
enum ControlFlow {
    /// To the next instruction only.
    FallThrough,
    /// To this offset, and to the next instruction if it is guarded.
    Branch(Option<u64>),
    /// Out of the code: an exit or a return.
    Exit,
    /// To an address in a register, so any block may be next.
    Indirect,
}

fn control_flow(instruction: &Instruction, sm: u32) -> ControlFlow {
    let Mnemonic::Known(name) = mnemonic(instruction, sm) else { return ControlFlow::FallThrough };
    match name {
        "BRA" => ControlFlow::Branch(instruction.target(sm)),
        "BRX" | "BRXU" | "JMX" | "JMXU" | "JMP" => ControlFlow::Indirect,
        "EXIT" | "RET" | "KILL" => ControlFlow::Exit,
        _ => ControlFlow::FallThrough,
    }
}

/// Whether the next instruction may also follow. Branches have a second predicate, in bits 87-89
/// with its sign in bit 90 (7, not negated: always); uniform branches have one in 84-86.
fn may_fall_through(instruction: &Instruction) -> bool {
    let second = instruction.high >> 23 & 0xf;
    let uniform = instruction.opcode() == 0x547;
    instruction.guard().is_some() || uniform || second != 7 && second != 0
}

/// The code without the compiler's padding at its end: a branch to itself and NOPs.
pub fn trimmed(code: &[Instruction], sm: u32) -> &[Instruction] {
    &code[..count_without_padding(code.len(), sm, |index| code[index])]
}

/// The basic blocks of `code`, by offset. Control must enter the code at its start.
pub fn blocks(code: &[Instruction], sm: u32) -> Vec<Block> {
    let Some((first, last)) = code.first().zip(code.last()) else { return Vec::new() };
    let end = last.offset.saturating_add(BYTES);
    let inside =
        |at: &u64| (first.offset..end).contains(at) && (at - first.offset).is_multiple_of(BYTES);
    let mut starts = BTreeSet::from([first.offset]);
    for instruction in code {
        // A block also begins where threads reconverge or a call begins.
        starts.extend(instruction.target(sm).filter(inside));
        if !matches!(control_flow(instruction, sm), ControlFlow::FallThrough) {
            starts.extend(Some(instruction.offset.saturating_add(BYTES)).filter(inside));
        }
    }
    let starts: Vec<u64> = starts.into_iter().collect();
    let mut blocks: Vec<Block> = Vec::with_capacity(starts.len());
    for (index, start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(end);
        let at = ((end - first.offset) / BYTES) as usize;
        let Some(last) = at.checked_sub(1).and_then(|at| code.get(at)) else { continue };
        let following = Some(end).filter(inside);
        let fall_through = following.filter(|_| may_fall_through(last));
        let (mut next, indirect): (Vec<u64>, bool) = match control_flow(last, sm) {
            ControlFlow::FallThrough => (following.into_iter().collect(), false),
            ControlFlow::Branch(to) => {
                (to.filter(inside).into_iter().chain(fall_through).collect(), false)
            }
            ControlFlow::Exit => (fall_through.into_iter().collect(), false),
            ControlFlow::Indirect => (fall_through.into_iter().collect(), true),
        };
        next.dedup();
        blocks.push(Block { start: *start, end, next, indirect, loop_head: false });
    }
    let heads: BTreeSet<u64> = blocks
        .iter()
        .flat_map(|block| block.next.iter().filter(|next| **next <= block.start))
        .copied()
        .collect();
    for block in &mut blocks {
        block.loop_head = heads.contains(&block.start);
    }
    blocks
}
