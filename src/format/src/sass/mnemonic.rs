//! Names of opcodes.

use super::instruction::Instruction;
use super::opcode::{SEVERAL, known, opcodes};
use std::borrow::Cow;
use std::fmt;

/// Rows hold for one or more of these generations, a bit each.
pub(super) const SM80: u8 = 1;
pub(super) const SM90: u8 = 2;
pub(super) const SM100: u8 = 4;
pub(super) const SM120: u8 = 8;

/// An opcode, the generations in which it has this name, and the name.
pub(super) struct Row(pub(super) u16, pub(super) u8, pub(super) &'static str);

/// An instruction's name without its modifiers. Displays as `op_0x5ea` where no table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mnemonic {
    /// As nvdisasm prints it, up to the first dot.
    Known(&'static str),
    /// The opcode's number.
    Unknown(u16),
}

impl Mnemonic {
    /// As it is displayed.
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
/// A form of an operation that is in no table (bits 9-11) has the name of that operation's other
/// forms where they all have one: so it is for all but 3 of the operations known. What this
/// generation does not know is looked up in the others, under the same condition.
pub fn mnemonic(instruction: &Instruction, sm: u32) -> Mnemonic {
    let opcode = instruction.opcode();
    let known = match opcodes(sm)[usize::from(opcode)].name {
        SEVERAL => chosen(instruction),
        name => known(name),
    };
    known.map_or(Mnemonic::Unknown(opcode), Mnemonic::Known)
}

/// The names that [`chosen`] gives.
pub(super) const CHOSEN: [&str; 4] = ["UTCHMMA", "UTCOMMA", "UTCIMMA", "UTCQMMA"];

/// The one opcode that is several instructions: tcgen05's multiply with both operands in shared
/// memory. Bits 72-73 say what is multiplied; bit 63 says that the operands are scaled by block.
fn chosen(instruction: &Instruction) -> Option<&'static str> {
    Some(match (instruction.opcode(), instruction.high >> 8 & 3, instruction.low >> 63) {
        (0x5ea, 0, 0) => "UTCHMMA",
        (0x5ea, 0, _) => "UTCOMMA",
        (0x5ea, 1, _) => "UTCIMMA",
        (0x5ea, 3, _) => "UTCQMMA",
        _ => return None,
    })
}
