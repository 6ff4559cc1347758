//! Source lines with the instructions compiled from them.

use std::collections::BTreeMap;
use std::fmt::Write;

use rgpu_model::code::{CodeImage, CodeKernel, CodeLine, SourceText};
use rgpu_model::hotspots::shown_source_name;

/// The extra column of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExtraColumn {
    /// Nothing but the instruction.
    #[default]
    Nothing,
    /// The control word, such as `[B0-----:R-:W2:y1:S04]`.
    Control,
}

/// The source lines of every kernel with their instructions, by file and line. An instruction is
/// listed at its innermost inlined line, with the call sites. `None` if no line is known.
pub fn source(image: &CodeImage, extra_column: ExtraColumn) -> Option<String> {
    let files: BTreeMap<&str, &SourceText> =
        image.sources.iter().map(|s| (s.file.as_str(), s)).collect();
    let known = image.kernels.iter().filter(|k| k.instructions.iter().any(|i| !i.at.is_empty()));
    let mut text = String::new();
    for kernel in known {
        let _ = writeln!(text, "{} ({})", kernel.shown(), image.arch);
        write_kernel(&mut text, kernel, &files, extra_column);
    }
    (!text.is_empty()).then_some(text)
}

fn write_kernel(
    text: &mut String,
    kernel: &CodeKernel,
    files: &BTreeMap<&str, &SourceText>,
    extra_column: ExtraColumn,
) {
    let mut by_line: BTreeMap<(&str, u32), Vec<&CodeLine>> = BTreeMap::new();
    for instruction in &kernel.instructions {
        let Some(at) = instruction.at.last() else { continue };
        by_line.entry((at.file.as_str(), at.line)).or_default().push(instruction);
    }
    for ((file, line), code) in by_line {
        let words = files.get(file).and_then(|s| s.lines.get(&line)).map_or("", String::as_str);
        let _ = writeln!(text, "{}:{line}: {words}", shown_source_name(file));
        let mut callers = String::new();
        for instruction in code {
            let here = inlined_at(instruction);
            if here != callers {
                let none = if here.is_empty() { "not inlined" } else { "" };
                let _ = writeln!(text, "    {none}{here}");
                callers = here;
            }
            let control = match extra_column {
                ExtraColumn::Control => format!(" {}", instruction.control),
                ExtraColumn::Nothing => String::new(),
            };
            let (guard, rest) = guarded(&instruction.text);
            let offset = instruction.offset;
            let _ = writeln!(text, "        /*{offset:04x}*/{control} {guard:>5} {rest} ;");
        }
    }
}

/// Splits an instruction into its guard predicate and the rest; the guard may be empty.
pub(super) fn guarded(text: &str) -> (&str, &str) {
    match text.split_once(' ') {
        Some((guard, rest)) if guard.starts_with('@') => (guard, rest),
        _ => ("", text),
    }
}

/// `inlined at a.cu:12, a.cu:40`, innermost first; empty if not inlined.
fn inlined_at(instruction: &CodeLine) -> String {
    let base = |file: &str| file.rsplit(['/', '\\']).next().unwrap_or(file).to_owned();
    let outer = instruction.at.iter().rev().skip(1);
    let call_sites: Vec<String> =
        outer.map(|at| format!("{}:{}", base(&at.file), at.line)).collect();
    if call_sites.is_empty() {
        String::new()
    } else {
        format!("inlined at {}", call_sites.join(", "))
    }
}
