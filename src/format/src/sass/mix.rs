//! Counts the instructions of some code by kind.

use super::class::Class;
use super::instruction::Instruction;
use super::mnemonic::{Mnemonic, mnemonic};
use super::opcode::{SEVERAL_NAMES, UNKNOWN, classes, names, number, opcodes};
use std::collections::BTreeMap;

/// The static instruction mix of some code. It counts instructions in the code, not executed ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mix {
    /// Number of all instructions.
    pub instructions: u64,
    /// By class, most frequent first.
    pub classes: Vec<ClassCount>,
    /// By name, most frequent first.
    pub mnemonics: Vec<(Mnemonic, u64)>,
}

/// The number of instructions of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassCount {
    /// The class of the instructions.
    pub class: Class,
    /// Number of its instructions.
    pub count: u64,
}

/// Counts the instructions of `code` for architecture `sm`.
pub fn mix(code: &[Instruction], sm: u32) -> Mix {
    let table = opcodes(sm);
    let mut counts = Counts::new(sm);
    for instruction in code {
        counts.add(instruction, table[usize::from(instruction.opcode())].name);
    }
    counts.mix(code.len())
}

/// Instruction counts by name number; numbers compare faster than names.
pub(super) struct Counts {
    sm: u32,
    by_name: Vec<u64>,
    unknown: BTreeMap<u16, u64>,
}

impl Counts {
    pub(super) fn new(sm: u32) -> Self {
        Counts { sm, by_name: vec![0; names().len() + 1], unknown: BTreeMap::new() }
    }

    /// Counts an instruction whose opcode has this `name`. Returns the number of its name.
    #[inline]
    pub(super) fn add(&mut self, instruction: &Instruction, name: u16) -> u16 {
        let name = if name == SEVERAL_NAMES { self.chosen(instruction) } else { name };
        self.by_name[usize::from(name)] += 1;
        if name == UNKNOWN {
            *self.unknown.entry(instruction.opcode()).or_default() += 1;
        }
        name
    }

    #[cold]
    fn chosen(&self, instruction: &Instruction) -> u16 {
        match mnemonic(instruction, self.sm) {
            Mnemonic::Known(name) => number(name),
            Mnemonic::Unknown(_) => UNKNOWN,
        }
    }

    pub(super) fn mix(self, instructions: usize) -> Mix {
        let mut mnemonics: Vec<(Mnemonic, u64)> = Vec::with_capacity(64);
        let mut found: Vec<ClassCount> = Vec::with_capacity(32);
        let mut add = |class: Class, count: u64| match found.iter_mut().find(|c| c.class == class) {
            Some(known) => known.count += count,
            None => found.push(ClassCount { class, count }),
        };
        let all = names().iter().zip(classes()).zip(&self.by_name[1..]);
        for ((name, class), count) in all.filter(|(_, count)| **count > 0) {
            mnemonics.push((Mnemonic::Known(name), *count));
            add(*class, *count);
        }
        for (opcode, count) in self.unknown {
            mnemonics.push((Mnemonic::Unknown(opcode), count));
            add(Class::Unknown, count);
        }
        found.sort_unstable_by_key(|c| (std::cmp::Reverse(c.count), c.class));
        // Names with equal counts stay in alphabetical order.
        mnemonics.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Mix { instructions: instructions as u64, classes: found, mnemonics }
    }
}

impl Mix {
    /// Instructions of one class.
    pub fn count(&self, class: Class) -> u64 {
        self.classes.iter().find(|c| c.class == class).map_or(0, |c| c.count)
    }

    /// Whether an instruction of this name occurs.
    pub fn has(&self, name: &str) -> bool {
        self.mnemonics.iter().any(|(m, _)| matches!(m, Mnemonic::Known(known) if *known == name))
    }
}
