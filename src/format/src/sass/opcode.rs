//! What the 12 bits of an opcode tell without the rest, looked up once for each generation.

use super::instruction::is_branch;
use super::mnemonic::{CHOSEN, Mnemonic, OPCODES, generation_index, told_by_opcode};
use super::table::ROWS;
use std::sync::OnceLock;

/// An opcode, looked up.
#[derive(Clone, Copy)]
pub(super) struct Opcode {
    /// The number of its name in [`names`], from 1; [`UNKNOWN`], or [`SEVERAL`].
    pub(super) name: u16,
    /// How it passes control on.
    pub(super) way: Way,
}

/// In no table.
pub(super) const UNKNOWN: u16 = 0;
/// More bits have to tell.
pub(super) const SEVERAL: u16 = u16::MAX;

/// What an instruction does to the flow of control.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Goes on.
    On,
    /// Goes on, and names a place where a block begins: a call, or where threads meet again.
    Names,
    /// Branches to a place.
    Branches,
    /// Ends, or goes somewhere that is not told.
    Leaves,
}

/// All names of instructions, sorted.
pub(super) fn names() -> &'static [&'static str] {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    NAMES.get_or_init(|| {
        let mut names: Vec<&str> = ROWS.iter().map(|row| row.2).chain(CHOSEN).collect();
        names.sort_unstable();
        names.dedup();
        names
    })
}

/// The number of a name, from 1.
pub(super) fn number(name: &str) -> u16 {
    names().binary_search(&name).map_or(UNKNOWN, |at| at as u16 + 1)
}

/// All opcodes in the generation of `sm`.
pub(super) fn opcodes(sm: u32) -> &'static [Opcode; OPCODES] {
    static ALL: [OnceLock<Box<[Opcode; OPCODES]>>; 4] = [const { OnceLock::new() }; 4];
    ALL[generation_index(sm)].get_or_init(|| {
        let mut all = Box::new([Opcode { name: UNKNOWN, way: Way::On }; OPCODES]);
        for (opcode, entry) in all.iter_mut().enumerate() {
            let opcode = opcode as u16;
            let name = match told_by_opcode(opcode, sm) {
                Some(Mnemonic::Known(name)) => {
                    entry.name = number(name);
                    name
                }
                Some(Mnemonic::Unknown(_)) => "",
                None => {
                    entry.name = SEVERAL;
                    ""
                }
            };
            entry.way = match name {
                "BRA" => Way::Branches,
                "BRX" | "BRXU" | "JMX" | "JMXU" | "JMP" | "EXIT" | "RET" | "KILL" => Way::Leaves,
                _ if is_branch(opcode) => Way::Names,
                _ => Way::On,
            };
        }
        all
    })
}
