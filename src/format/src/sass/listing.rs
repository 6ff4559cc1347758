//! Formats code as text: one instruction per line, with labels at branch targets.

use super::class::Class;
use super::instruction::Instruction;
use super::mnemonic::{Mnemonic, mnemonic};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The optional columns of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Columns {
    /// Whether to show the control word.
    pub control: bool,
    /// Whether to show the bits in hexadecimal.
    pub bits: bool,
}

/// A listing of `code` for architecture `sm`. `names` are the file's labels by offset.
///
/// Lines look like ``/*00a0*/ [B------:R-:W0:y1:S02]  @!P0 BRA `(.L_3) ;``. Operands are not
/// decoded.
pub fn listing(
    code: &[Instruction],
    sm: u32,
    columns: Columns,
    names: &BTreeMap<u64, &str>,
) -> String {
    let mut labels: BTreeMap<u64, String> = BTreeMap::new();
    for instruction in code {
        if let Some(target) = instruction.target(sm).filter(|t| !names.contains_key(t)) {
            labels.insert(target, String::new());
        }
    }
    for (number, label) in labels.values_mut().enumerate() {
        *label = format!(".L_{number}");
    }
    let label = |at: &u64| names.get(at).copied().or(labels.get(at).map(String::as_str));
    let mut text = String::with_capacity(code.len() * 48);
    for instruction in code {
        if let Some(label) = label(&instruction.offset) {
            let _ = writeln!(text, "{label}:");
        }
        let _ = write!(text, "        /*{:04x}*/ ", instruction.offset);
        if columns.control {
            let _ = write!(text, "{} ", instruction.control());
        }
        let _ = write!(text, "{}", line(instruction, sm));
        if let Some(target) = instruction.target(sm) {
            match label(&target) {
                Some(label) => drop(write!(text, " `({label})")),
                None => drop(write!(text, " 0x{target:x}")),
            }
        }
        text.push_str(" ;");
        if columns.bits {
            let _ = write!(text, " /* 0x{:016x} 0x{:016x} */", instruction.low, instruction.high);
        }
        text.push('\n');
    }
    text
}

/// Guard and name, padded to a column, e.g. `@!P0 LDG`.
fn line(instruction: &Instruction, sm: u32) -> String {
    let (guard, name) = parts(instruction, sm);
    format!("{guard:>5} {name}")
}

/// Guard and name of an instruction, without operands, e.g. `@!P0 LDG`.
pub fn brief(instruction: &Instruction, sm: u32) -> String {
    let (guard, name) = parts(instruction, sm);
    format!("{guard} {name}").trim_start().to_owned()
}

fn parts(instruction: &Instruction, sm: u32) -> (String, Mnemonic) {
    let name = mnemonic(instruction, sm);
    let mut guard = instruction.guard().map_or(String::new(), |g| g.to_string());
    if uniform_guard(name) {
        guard = guard.replace('P', "UP");
    }
    (guard, name)
}

/// Whether the guard is a uniform predicate.
fn uniform_guard(name: Mnemonic) -> bool {
    let uniform =
        matches!(Class::from_mnemonic(name), Class::Uniform | Class::Tma | Class::TensorBlock);
    uniform || matches!(name, Mnemonic::Known(n) if n.starts_with('U'))
}
