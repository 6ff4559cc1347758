//! Names of opcodes.

use super::instruction::Instruction;
use super::table::ROWS;
use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

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

/// The generation whose table serves `sm`.
fn generation(sm: u32) -> u8 {
    match sm {
        0..90 => SM80,
        90..100 => SM90,
        100..120 => SM100,
        _ => SM120,
    }
}

/// The name of an instruction of architecture `sm` (90 for sm_90a).
///
/// A form of an operation that is in no table (bits 9-11) has the name of that operation's other
/// forms where they all have one: so it is for all but 3 of the operations known. What this
/// generation does not know is looked up in the others, under the same condition.
pub fn mnemonic(instruction: &Instruction, sm: u32) -> Mnemonic {
    let opcode = instruction.opcode();
    match names(sm)[usize::from(opcode)] {
        Name::One(name) => Mnemonic::Known(name),
        Name::Several => chosen(instruction).map_or(Mnemonic::Unknown(opcode), Mnemonic::Known),
        Name::None => Mnemonic::Unknown(opcode),
    }
}

/// The name that the opcode alone tells in the generation of `sm`; `None` where more bits do.
pub(super) fn told_by_opcode(opcode: u16, sm: u32) -> Option<Mnemonic> {
    match names(sm)[usize::from(opcode & 0xfff)] {
        Name::One(name) => Some(Mnemonic::Known(name)),
        Name::Several => None,
        Name::None => Some(Mnemonic::Unknown(opcode)),
    }
}

/// What an opcode is called.
#[derive(Clone, Copy)]
enum Name {
    One(&'static str),
    /// More bits have to tell.
    Several,
    None,
}

/// Opcodes have 12 bits.
pub(super) const OPCODES: usize = 0x1000;

/// A generation's place in tables of all four.
pub(super) fn generation_index(sm: u32) -> usize {
    match generation(sm) {
        SM80 => 0,
        SM90 => 1,
        SM100 => 2,
        _ => 3,
    }
}

/// The names of all opcodes in the generation of `sm`, looked up once.
fn names(sm: u32) -> &'static [Name; OPCODES] {
    static NAMES: [OnceLock<Box<[Name; OPCODES]>>; 4] = [const { OnceLock::new() }; 4];
    let here = generation(sm);
    NAMES[generation_index(sm)].get_or_init(|| {
        let own = ROWS.iter().filter(|row| row.1 & here != 0);
        let own = by_opcode(own);
        let any = by_opcode(ROWS.iter());
        let mut all = own.clone();
        for operation in 0..0x200 {
            let one = |opcode: usize| match own[opcode] {
                Name::One(name) => Some(name),
                Name::Several | Name::None => None,
            };
            let shared = only(FORMS.iter().filter_map(|form| one(operation | form)));
            for opcode in FORMS.map(|form| operation | form) {
                if let Name::None = all[opcode] {
                    all[opcode] = match (shared, any[opcode]) {
                        (Some(name), _) | (None, Name::One(name)) => Name::One(name),
                        (None, Name::Several | Name::None) => Name::None,
                    };
                }
            }
        }
        all
    })
}

/// The names of some rows, by opcode.
fn by_opcode(rows: impl Iterator<Item = &'static Row>) -> Box<[Name; OPCODES]> {
    let mut all = Box::new([Name::None; OPCODES]);
    for row in rows {
        let name = &mut all[usize::from(row.0 & 0xfff)];
        *name = match *name {
            Name::None => Name::One(row.2),
            Name::One(known) if known == row.2 => Name::One(known),
            Name::One(_) | Name::Several => Name::Several,
        };
    }
    all
}

/// The forms of operands that an operation can have, in place.
const FORMS: [usize; 8] = [0, 0x200, 0x400, 0x600, 0x800, 0xa00, 0xc00, 0xe00];

/// The one name that all of them are.
fn only(mut names: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let first = names.next()?;
    names.all(|name| name == first).then_some(first)
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
