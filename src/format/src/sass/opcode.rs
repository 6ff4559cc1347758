//! Facts that follow from the 12 opcode bits alone, computed at compile time for each generation.
//! Names are represented by numbers, which compare and count faster.

use super::class::Class;
use super::instruction::is_branch;
use super::mnemonic::{ALTERNATIVE_NAMES, Mnemonic, Row, SM80, SM90, SM100, SM120};
use super::table::ROWS;
use std::cmp::Ordering;
use std::sync::LazyLock;

/// Facts about an opcode.
#[derive(Clone, Copy)]
pub(super) struct Opcode {
    /// The number of its name in [`names`], from 1; [`UNKNOWN`], or [`SEVERAL_NAMES`].
    pub(super) name: u16,
    /// Its effect on control flow.
    pub(super) flow_effect: FlowEffect,
}

/// The opcode is in no table.
pub(super) const UNKNOWN: u16 = 0;
/// The name depends on further bits.
pub(super) const SEVERAL_NAMES: u16 = u16::MAX;

/// Effect of an instruction on control flow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowEffect {
    /// Continues with the next instruction.
    Continues,
    /// Continues, and refers to a position where a block begins: a call, or where threads
    /// reconverge.
    Refers,
    /// Branches to a known position.
    Branches,
    /// Ends, or continues at an unknown position.
    Leaves,
}

/// Number of opcodes: they have 12 bits.
const OPCODES: usize = 0x1000;

/// The operand forms of an operation, at their bit position.
const FORMS: [usize; 8] = [0, 0x200, 0x400, 0x600, 0x800, 0xa00, 0xc00, 0xe00];

/// Instructions that end a piece of code or branch through a register.
const LEAVING: [&str; 8] = ["BRX", "BRXU", "JMX", "JMXU", "JMP", "EXIT", "RET", "KILL"];

/// All names of instructions, sorted.
static NAMES: [&str; SORTED.1] = {
    let mut names = [""; SORTED.1];
    names.copy_from_slice(SORTED.0.split_at(SORTED.1).0);
    names
};

/// Capacity for all names.
const MAX_NAMES: usize = ROWS.len() + ALTERNATIVE_NAMES.len();

/// All names, sorted and without duplicates, and their number.
const SORTED: ([&str; MAX_NAMES], usize) = {
    let (mut names, mut count, mut at) = ([""; MAX_NAMES], 0, 0);
    while at < MAX_NAMES {
        let name = if at < ROWS.len() { ROWS[at].2 } else { ALTERNATIVE_NAMES[at - ROWS.len()] };
        if let Err(place) = search(names.split_at(count).0, name) {
            let mut last = count;
            while last > place {
                names[last] = names[last - 1];
                last -= 1;
            }
            names[place] = name;
            count += 1;
        }
        at += 1;
    }
    (names, count)
};

/// The position of a name in a sorted list, or where it would be inserted.
const fn search(names: &[&str], name: &str) -> Result<usize, usize> {
    let (mut from, mut to) = (0, names.len());
    while from < to {
        let middle = from + (to - from) / 2;
        match compare(names[middle].as_bytes(), name.as_bytes()) {
            Ordering::Less => from = middle + 1,
            Ordering::Greater => to = middle,
            Ordering::Equal => return Ok(middle),
        }
    }
    Err(from)
}

const fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let mut at = 0;
    while at < a.len() && at < b.len() {
        if a[at] != b[at] {
            return if a[at] < b[at] { Ordering::Less } else { Ordering::Greater };
        }
        at += 1;
    }
    match (a.len() < b.len(), a.len() == b.len()) {
        (true, _) => Ordering::Less,
        (_, true) => Ordering::Equal,
        _ => Ordering::Greater,
    }
}

/// All names of instructions, sorted.
pub(super) fn names() -> &'static [&'static str] {
    &NAMES
}

/// The class of each name.
pub(super) fn classes() -> &'static [Class] {
    static CLASSES: LazyLock<Vec<Class>> = LazyLock::new(|| {
        NAMES.iter().map(|name| Class::from_mnemonic(Mnemonic::Known(name))).collect()
    });
    &CLASSES
}

/// The number of a name, from 1.
pub(super) const fn number(name: &str) -> u16 {
    match search(&NAMES, name) {
        Ok(at) => at as u16 + 1,
        Err(_) => UNKNOWN,
    }
}

/// The name with this number.
pub(super) fn known(number: u16) -> Option<&'static str> {
    names().get(usize::from(number).checked_sub(1)?).copied()
}

/// All opcodes in the generation of `sm`.
pub(super) fn opcodes(sm: u32) -> &'static [Opcode; OPCODES] {
    static ALL: [[Opcode; OPCODES]; 4] = [table(SM80), table(SM90), table(SM100), table(SM120)];
    match sm {
        0..90 => &ALL[0],
        90..100 => &ALL[1],
        100..120 => &ALL[2],
        _ => &ALL[3],
    }
}

/// All opcodes in one generation.
const fn table(here: u8) -> [Opcode; OPCODES] {
    let (own, any) = (by_opcode(here), by_opcode(SM80 | SM90 | SM100 | SM120));
    let mut all = [Opcode { name: UNKNOWN, flow_effect: FlowEffect::Continues }; OPCODES];
    let mut opcode = 0;
    while opcode < OPCODES {
        let name = match own[opcode] {
            UNKNOWN => match (shared(&own, opcode & 0x1ff), any[opcode]) {
                (UNKNOWN, SEVERAL_NAMES) => UNKNOWN,
                (UNKNOWN, name) | (name, _) => name,
            },
            name => name,
        };
        all[opcode] = Opcode { name, flow_effect: flow_effect(opcode as u16, name) };
        opcode += 1;
    }
    all
}

/// The name that all known forms of an operation share.
const fn shared(own: &[u16; OPCODES], operation: usize) -> u16 {
    let (mut shared, mut at) = (UNKNOWN, 0);
    while at < FORMS.len() {
        match own[operation | FORMS[at]] {
            UNKNOWN | SEVERAL_NAMES => {}
            name if shared == UNKNOWN || shared == name => shared = name,
            _ => return UNKNOWN,
        }
        at += 1;
    }
    shared
}

const fn flow_effect(opcode: u16, name: u16) -> FlowEffect {
    if name != UNKNOWN && name != SEVERAL_NAMES {
        if name == BRANCH {
            return FlowEffect::Branches;
        }
        let mut at = 0;
        while at < LEAVES.len() {
            if name == LEAVES[at] {
                return FlowEffect::Leaves;
            }
            at += 1;
        }
    }
    if is_branch(opcode) { FlowEffect::Refers } else { FlowEffect::Continues }
}

const BRANCH: u16 = number("BRA");
const LEAVES: [u16; LEAVING.len()] = {
    let (mut numbers, mut at) = ([UNKNOWN; LEAVING.len()], 0);
    while at < numbers.len() {
        numbers[at] = number(LEAVING[at]);
        at += 1;
    }
    numbers
};

/// The names by opcode in some generations.
const fn by_opcode(here: u8) -> [u16; OPCODES] {
    let (mut all, mut at) = ([UNKNOWN; OPCODES], 0);
    while at < ROWS.len() {
        let Row(opcode, generations, name) = &ROWS[at];
        let known = &mut all[(*opcode & 0xfff) as usize];
        if *generations & here != 0 {
            let number = number(name);
            *known = match *known {
                UNKNOWN => number,
                known if known == number => known,
                _ => SEVERAL_NAMES,
            };
        }
        at += 1;
    }
    all
}
