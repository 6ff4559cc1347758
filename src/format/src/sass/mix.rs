//! How many instructions of which kind a piece of code has.

use super::class::Class;
use super::instruction::Instruction;
use super::mnemonic::{Mnemonic, mnemonic};
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
    for instruction in code {
        *names.entry(mnemonic(instruction, sm)).or_default() += 1;
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
