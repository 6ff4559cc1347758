//! Names SASS instructions: from the opcode and the architecture to the name that nvdisasm prints.

use super::instruction::Instruction;
use super::opcode::{SEVERAL_NAMES, known, opcodes};
use std::borrow::Cow;
use std::fmt;

/// Bits of the generations in which a row applies.
pub(super) const SM80: u8 = 1;
pub(super) const SM90: u8 = 2;
pub(super) const SM100: u8 = 4;
pub(super) const SM120: u8 = 8;

/// An opcode, the generations in which it has this name, and the name.
pub(super) struct Row(pub(super) u16, pub(super) u8, pub(super) &'static str);

/// An instruction's name without its modifiers. Displays as `op_0x5ea` if no table contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mnemonic {
    /// The name as nvdisasm prints it, up to the first dot.
    Known(&'static str),
    /// The opcode's number, if the name is unknown.
    Unknown(u16),
}

impl Mnemonic {
    /// The name as `nvdisasm` displays it; `op_0x…` for an opcode without a known name.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Mnemonic::Known(name) => Cow::Borrowed(name),
            Mnemonic::Unknown(opcode) => Cow::Owned(format!("op_0x{opcode:03x}")),
        }
    }
}

impl fmt::Display for Mnemonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name())
    }
}

/// The name of an instruction of architecture `sm` (90 for sm_90a).
///
/// If an operand form (bits 9-11) is in no table, it gets the name of that operation's other forms,
/// provided that they all have the same; this holds for all but 3 of the known operations. If this
/// generation does not know the opcode, the others are searched under the same condition.
pub fn mnemonic(instruction: &Instruction, sm: u32) -> Mnemonic {
    let opcode = instruction.opcode();
    let known = match opcodes(sm)[usize::from(opcode)].name {
        SEVERAL_NAMES => chosen(instruction),
        name => known(name),
    };
    known.map_or(Mnemonic::Unknown(opcode), Mnemonic::Known)
}

/// The names that [`chosen`] returns.
pub(super) const ALTERNATIVE_NAMES: [&str; 4] = ["UTCHMMA", "UTCOMMA", "UTCIMMA", "UTCQMMA"];

/// The only opcode with several names: tcgen05's multiply with both operands in shared memory. Bits
/// 72-73 select the operand type; bit 63 means that the operands are scaled by block.
fn chosen(instruction: &Instruction) -> Option<&'static str> {
    Some(match (instruction.opcode(), instruction.high >> 8 & 3, instruction.low >> 63) {
        (0x5ea, 0, 0) => "UTCHMMA",
        (0x5ea, 0, _) => "UTCOMMA",
        (0x5ea, 1, _) => "UTCIMMA",
        (0x5ea, 3, _) => "UTCQMMA",
        _ => return None,
    })
}
