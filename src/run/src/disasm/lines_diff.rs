//! Compares two listings of one kernel instruction by instruction. Addresses, labels, padding and
//! scheduling are ignored, and on request register numbers.
//!
//! Instructions are aligned by their text without branch targets and return addresses. Then an
//! aligned branch counts as changed if its targets are not aligned.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use regex::Regex;
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use rgpu_model::code::CodeLine;
use rgpu_model::disasm::{Hunk, ListingDiff};

/// The differences to ignore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IgnoredDifferences {
    /// Only the addresses of instructions.
    #[default]
    Addresses,
    /// Addresses and register numbers.
    Registers,
}

/// Unchanged instructions shown around changed ones.
const CONTEXT_INSTRUCTIONS: usize = 2;
/// After this time an alignment need not be optimal.
const ALIGNMENT_TIME_LIMIT: Duration = Duration::from_secs(5);
/// A return address is loaded at most this many instructions before its call.
const MAX_INSTRUCTIONS_BEFORE_CALL: usize = 6;
/// Size of an instruction in bytes.
const INSTRUCTION_BYTES: u64 = 16;

/// An aligned pair of instructions, or one that only one side has.
enum AlignedPair {
    Same(usize, usize),
    Old(usize),
    New(usize),
}

/// The changes from `old` to `new`.
pub fn lines_diff(
    old: &[CodeLine],
    new: &[CodeLine],
    normalize: IgnoredDifferences,
) -> ListingDiff {
    let texts = (comparable(old, normalize), comparable(new, normalize));
    let deadline = Some(Instant::now() + ALIGNMENT_TIME_LIMIT);
    let operations = capture_diff_slices_deadline(Algorithm::Myers, &texts.0, &texts.1, deadline);
    let mut steps = Vec::new();
    for operation in operations {
        let (before, after) = (operation.old_range(), operation.new_range());
        match operation {
            DiffOp::Equal { .. } => {
                steps.extend(before.zip(after).map(|(a, b)| AlignedPair::Same(a, b)))
            }
            _ => {
                steps.extend(before.map(AlignedPair::Old));
                steps.extend(after.map(AlignedPair::New));
            }
        }
    }
    let steps = split_moved_branches(steps, old, new);
    let count = |of: fn(&AlignedPair) -> bool| steps.iter().filter(|s| of(s)).count() as u64;
    ListingDiff {
        same: count(|s| matches!(s, AlignedPair::Same(..))),
        removed: count(|s| matches!(s, AlignedPair::Old(_))),
        added: count(|s| matches!(s, AlignedPair::New(_))),
        hunks: hunks(&steps, old, new),
    }
}

/// Splits aligned branches whose targets are not aligned with each other.
fn split_moved_branches(
    steps: Vec<AlignedPair>,
    old: &[CodeLine],
    new: &[CodeLine],
) -> Vec<AlignedPair> {
    let aligned: BTreeMap<u64, u64> = steps
        .iter()
        .filter_map(|step| match step {
            AlignedPair::Same(a, b) => Some((old.get(*a)?.offset, new.get(*b)?.offset)),
            _ => None,
        })
        .collect();
    let mut checked = Vec::with_capacity(steps.len());
    for step in steps {
        let AlignedPair::Same(a, b) = step else {
            checked.push(step);
            continue;
        };
        let targets = old.get(a).and_then(|l| l.target).zip(new.get(b).and_then(|l| l.target));
        let moved = targets.is_some_and(|(a, b)| aligned.get(&a).is_some_and(|to| *to != b));
        if moved {
            checked.extend([AlignedPair::Old(a), AlignedPair::New(b)]);
        } else {
            checked.push(AlignedPair::Same(a, b));
        }
    }
    checked
}

/// The texts without addresses, and on request without register numbers.
fn comparable(lines: &[CodeLine], normalize: IgnoredDifferences) -> Vec<String> {
    static REGISTER: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r"\b(UR|UP|R|P|B|SB)\d+\b").ok());
    let mut texts: Vec<String> = lines
        .iter()
        .map(|line| match line.target {
            Some(target) => line.text.replace(&format!("{target:#x}"), "…"),
            None => line.text.clone(),
        })
        .collect();
    for text in &mut texts {
        // `.reuse` is a scheduling hint, not an operand.
        if text.contains(".reuse") {
            *text = text.replace(".reuse", "");
        }
    }
    for (at, line) in lines.iter().enumerate() {
        if !line.text.contains("CALL") {
            continue;
        }
        let return_address = format!(" {:#x}", line.offset + INSTRUCTION_BYTES);
        for text in texts.iter_mut().take(at).skip(at.saturating_sub(MAX_INSTRUCTIONS_BEFORE_CALL))
        {
            if text.contains("MOV") && text.ends_with(&return_address) {
                text.truncate(text.len() - return_address.len());
            }
        }
    }
    if let (IgnoredDifferences::Registers, Some(register)) = (normalize, REGISTER.as_ref()) {
        for text in &mut texts {
            *text = register.replace_all(text, "$1#").into_owned();
        }
    }
    texts
}

/// The changed instructions with some context.
fn hunks(steps: &[AlignedPair], old: &[CodeLine], new: &[CodeLine]) -> Vec<Hunk> {
    let changed: Vec<usize> = (0..steps.len())
        .filter(|at| steps.get(*at).is_some_and(|s| !matches!(s, AlignedPair::Same(..))))
        .collect();
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut until = 0;
    for at in changed {
        let start = at.saturating_sub(CONTEXT_INSTRUCTIONS).max(until);
        let end = (at + CONTEXT_INSTRUCTIONS + 1).min(steps.len());
        if hunks.is_empty() || start > until || at.saturating_sub(CONTEXT_INSTRUCTIONS) > until {
            hunks.push(Hunk::default());
        }
        let Some(hunk) = hunks.last_mut() else { continue };
        for step in steps.get(start..end).unwrap_or_default() {
            add_line(hunk, step, old, new);
        }
        until = end;
    }
    hunks
}

fn add_line(hunk: &mut Hunk, step: &AlignedPair, old: &[CodeLine], new: &[CodeLine]) {
    let (mark, line) = match step {
        AlignedPair::Same(a, b) => {
            let (a, b) = (old.get(*a), new.get(*b));
            hunk.old_offset = hunk.old_offset.or(a.map(|l| l.offset));
            hunk.new_offset = hunk.new_offset.or(b.map(|l| l.offset));
            (' ', b)
        }
        AlignedPair::Old(a) => {
            hunk.old_offset = hunk.old_offset.or(old.get(*a).map(|l| l.offset));
            ('-', old.get(*a))
        }
        AlignedPair::New(b) => {
            hunk.new_offset = hunk.new_offset.or(new.get(*b).map(|l| l.offset));
            ('+', new.get(*b))
        }
    };
    hunk.lines.extend(line.map(|line| format!("{mark}{}", line.text)));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes code that begins at offset 0; branch targets are given as instruction numbers.
    fn code(texts: &[(&str, Option<u64>)]) -> Vec<CodeLine> {
        let line = |(n, (text, to)): (usize, &(&str, Option<u64>))| {
            let target = to.map(|to| to * INSTRUCTION_BYTES);
            let to = target.map_or(String::new(), |to| format!(" {to:#x}"));
            CodeLine {
                offset: n as u64 * INSTRUCTION_BYTES,
                text: format!("{text}{to}"),
                target,
                ..CodeLine::default()
            }
        };
        texts.iter().enumerate().map(line).collect()
    }

    #[test]
    fn an_inserted_instruction_is_all_that_differs_although_every_address_moves() {
        let old =
            code(&[("S2R R0", None), ("@P0 BRA", Some(3)), ("FADD R1", None), ("EXIT", None)]);
        let new = code(&[
            ("S2R R0", None),
            ("NOP", None),
            ("@P0 BRA", Some(4)),
            ("FADD R1", None),
            ("EXIT", None),
        ]);
        let diff = lines_diff(&old, &new, IgnoredDifferences::Addresses);
        assert_eq!((diff.same, diff.removed, diff.added), (4, 0, 1));
        assert_eq!(diff.hunks.len(), 1);
        assert!(diff.hunks[0].lines.contains(&"+NOP".to_owned()), "{:?}", diff.hunks);
    }

    #[test]
    fn a_branch_that_goes_elsewhere_differs_and_a_return_address_does_not() {
        let old = code(&[("BRA", Some(2)), ("FADD R1", None), ("EXIT", None)]);
        let new = code(&[("BRA", Some(1)), ("FADD R1", None), ("EXIT", None)]);
        let diff = lines_diff(&old, &new, IgnoredDifferences::Addresses);
        assert_eq!((diff.same, diff.removed, diff.added), (2, 1, 1));
        let old = code(&[("MOV R4, 0x20", None), ("CALL.REL.NOINC", Some(3)), ("EXIT", None)]);
        let new = code(&[
            ("NOP", None),
            ("MOV R4, 0x30", None),
            ("CALL.REL.NOINC", Some(4)),
            ("EXIT", None),
        ]);
        let diff = lines_diff(&old, &new, IgnoredDifferences::Addresses);
        assert_eq!((diff.same, diff.removed, diff.added), (3, 0, 1));
    }

    #[test]
    fn registers_are_ignored_on_request() {
        let old = code(&[("FFMA R1, R2, UR4, RZ", None), ("@!P0 EXIT", None)]);
        let new = code(&[("FFMA R7, R12, UR5, RZ", None), ("@!P1 EXIT", None)]);
        assert_eq!(lines_diff(&old, &new, IgnoredDifferences::Addresses).added, 2);
        assert_eq!(lines_diff(&old, &new, IgnoredDifferences::Registers).added, 0);
    }
}
