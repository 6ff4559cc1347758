//! How many instructions of which kind a piece of code has.

use super::class::Class;
use super::instruction::Instruction;
use super::mnemonic::{Mnemonic, is_told_by_opcode, mnemonic};
use std::collections::BTreeMap;

/// The static instruction mix of some code. Counts are of instructions in the code, not of
/// instructions executed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mix {
    /// All instructions.
    pub instructions: u64,
    /// By class, most frequent first.
    pub classes: Vec<ClassCount>,
    /// By name, most frequent first.
    pub mnemonics: Vec<(Mnemonic, u64)>,
}

/// One class and its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassCount {
    /// The class.
    pub class: Class,
    /// Instructions of it.
    pub count: u64,
}

/// Counts the instructions of `code` for architecture `sm`.
pub fn mix(code: &[Instruction], sm: u32) -> Mix {
    let mut names: BTreeMap<Mnemonic, u64> = BTreeMap::new();
    let mut by_opcode: BTreeMap<u16, Mnemonic> = BTreeMap::new();
    // Opcodes are counted first: numbers compare faster than names.
    let mut counts = vec![0_u64; 0x1000];
    for instruction in code {
        let opcode = instruction.opcode();
        if is_told_by_opcode(opcode, sm) {
            counts[usize::from(opcode)] += 1;
            if counts[usize::from(opcode)] == 1 {
                by_opcode.insert(opcode, mnemonic(instruction, sm));
            }
        } else {
            *names.entry(mnemonic(instruction, sm)).or_default() += 1;
        }
    }
    for (opcode, name) in by_opcode {
        *names.entry(name).or_default() += counts[usize::from(opcode)];
    }
    let mut by_class: BTreeMap<Class, u64> = BTreeMap::new();
    for (name, count) in &names {
        *by_class.entry(Class::of(*name)).or_default() += count;
    }
    let mut classes: Vec<ClassCount> =
        by_class.into_iter().map(|(class, count)| ClassCount { class, count }).collect();
    classes.sort_by_key(|c| std::cmp::Reverse(c.count));
    let mut mnemonics: Vec<(Mnemonic, u64)> = names.into_iter().collect();
    mnemonics.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Mix { instructions: code.len() as u64, classes, mnemonics }
}

impl Mix {
    /// Instructions of one class.
    pub fn of(&self, class: Class) -> u64 {
        self.classes.iter().find(|c| c.class == class).map_or(0, |c| c.count)
    }

    /// Whether an instruction of this name is there.
    pub fn has(&self, name: &str) -> bool {
        self.mnemonics.iter().any(|(m, _)| matches!(m, Mnemonic::Known(known) if *known == name))
    }
}
