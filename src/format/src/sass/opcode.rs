//! What the 12 bits of an opcode tell without the rest, looked up once for each generation. Names go
//! by numbers here: those compare and count faster.

use super::instruction::is_branch;
use super::mnemonic::{CHOSEN, Row, SM80, SM90, SM100, SM120};
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

/// Opcodes have 12 bits.
const OPCODES: usize = 0x1000;

/// The forms of operands that an operation can have, in place.
const FORMS: [usize; 8] = [0, 0x200, 0x400, 0x600, 0x800, 0xa00, 0xc00, 0xe00];

/// Names of instructions that end a piece of code, or go through a register.
const LEAVING: [&str; 8] = ["BRX", "BRXU", "JMX", "JMXU", "JMP", "EXIT", "RET", "KILL"];

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

/// The name of a number.
pub(super) fn known(number: u16) -> Option<&'static str> {
    names().get(usize::from(number).checked_sub(1)?).copied()
}

/// All opcodes in the generation of `sm`.
pub(super) fn opcodes(sm: u32) -> &'static [Opcode; OPCODES] {
    static ALL: [OnceLock<Box<[Opcode; OPCODES]>>; 4] = [const { OnceLock::new() }; 4];
    let (place, here) = match sm {
        0..90 => (0, SM80),
        90..100 => (1, SM90),
        100..120 => (2, SM100),
        _ => (3, SM120),
    };
    ALL[place].get_or_init(|| {
        let numbers: Vec<u16> = ROWS.iter().map(|row| number(row.2)).collect();
        let rows = || ROWS.iter().zip(&numbers);
        let own = by_opcode(rows().filter(|(row, _)| row.1 & here != 0));
        let any = by_opcode(rows());
        let one = |name: u16| Some(name).filter(|name| *name != UNKNOWN && *name != SEVERAL);
        let (branch, leaving) = (number("BRA"), LEAVING.map(number));
        let mut all = Box::new([Opcode { name: UNKNOWN, way: Way::On }; OPCODES]);
        for operation in 0..0x200 {
            let shared = only(FORMS.iter().filter_map(|form| one(own[operation | form])));
            for opcode in FORMS.map(|form| operation | form) {
                let name = match own[opcode] {
                    UNKNOWN => shared.or(one(any[opcode])).unwrap_or(UNKNOWN),
                    name => name,
                };
                let way = match name {
                    UNKNOWN | SEVERAL => None,
                    name if name == branch => Some(Way::Branches),
                    name => leaving.contains(&name).then_some(Way::Leaves),
                };
                let way = way.unwrap_or(match is_branch(opcode as u16) {
                    true => Way::Names,
                    false => Way::On,
                });
                all[opcode] = Opcode { name, way };
            }
        }
        all
    })
}

/// The names of some rows, by opcode.
fn by_opcode<'r>(rows: impl Iterator<Item = (&'r Row, &'r u16)>) -> Box<[u16; OPCODES]> {
    let mut all = Box::new([UNKNOWN; OPCODES]);
    for (row, number) in rows {
        let name = &mut all[usize::from(row.0 & 0xfff)];
        *name = match *name {
            UNKNOWN => *number,
            known if known == *number => known,
            _ => SEVERAL,
        };
    }
    all
}

/// The one name that all of them are.
fn only(mut names: impl Iterator<Item = u16>) -> Option<u16> {
    let first = names.next()?;
    names.all(|name| name == first).then_some(first)
}
