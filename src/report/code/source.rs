//! Each source line with the instructions it became.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::model::code::{CodeImage, CodeKernel, CodeLine, SourceText};

/// What stands beside an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExtraColumn {
    /// Nothing.
    #[default]
    Nothing,
    /// Its control word.
    Control,
}

/// The lines of every kernel with code, by file and number: the innermost inlined line owns an
/// instruction, and those it was inlined at are named behind it. `None` where no line is known.
pub fn source(image: &CodeImage, sidecars: ExtraColumn) -> Option<String> {
    let files: BTreeMap<&str, &SourceText> =
        image.sources.iter().map(|s| (s.file.as_str(), s)).collect();
    let known = image.kernels.iter().filter(|k| k.instructions.iter().any(|i| !i.at.is_empty()));
    let mut text = String::new();
    for kernel in known {
        let _ = writeln!(text, "{} ({})", kernel.shown(), image.arch);
        of_kernel(&mut text, kernel, &files, sidecars);
    }
    (!text.is_empty()).then_some(text)
}

fn of_kernel(
    text: &mut String,
    kernel: &CodeKernel,
    files: &BTreeMap<&str, &SourceText>,
    sidecars: ExtraColumn,
) {
    let mut by_line: BTreeMap<(&str, u32), Vec<&CodeLine>> = BTreeMap::new();
    for instruction in &kernel.instructions {
        let Some(at) = instruction.at.last() else { continue };
        by_line.entry((at.file.as_str(), at.line)).or_default().push(instruction);
    }
    for ((file, line), code) in by_line {
        let words = files.get(file).and_then(|s| s.lines.get(&line)).map_or("", String::as_str);
        let _ = writeln!(text, "{file}:{line}: {words}");
        let mut callers = String::new();
        for instruction in code {
            let here = inlined_at(instruction);
            if here != callers {
                let none = if here.is_empty() { "not inlined" } else { "" };
                let _ = writeln!(text, "    {none}{here}");
                callers = here;
            }
            let control = match sidecars {
                ExtraColumn::Control => format!(" {}", instruction.control),
                ExtraColumn::Nothing => String::new(),
            };
            let (guard, rest) = guarded(&instruction.text);
            let offset = instruction.offset;
            let _ = writeln!(text, "        /*{offset:04x}*/{control} {guard:>5} {rest} ;");
        }
    }
}

/// Guard, and what it guards.
pub(super) fn guarded(text: &str) -> (&str, &str) {
    match text.split_once(' ') {
        Some((guard, rest)) if guard.starts_with('@') => (guard, rest),
        _ => ("", text),
    }
}

/// `inlined at a.cu:12, a.cu:40`: from the inside out.
fn inlined_at(instruction: &CodeLine) -> String {
    let base = |file: &str| file.rsplit(['/', '\\']).next().unwrap_or(file).to_owned();
    let outer = instruction.at.iter().rev().skip(1);
    let places: Vec<String> = outer.map(|at| format!("{}:{}", base(&at.file), at.line)).collect();
    match places.is_empty() {
        true => String::new(),
        false => format!("inlined at {}", places.join(", ")),
    }
}
