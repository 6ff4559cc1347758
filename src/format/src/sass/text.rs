//! Reader of nvdisasm's text output: instructions with their operands, and register liveness if it
//! was requested (`-plr`).
//!
//! | line | meaning |
//! |---|---|
//! | `\t.section\t.text.K,"ax",@progbits` | the code of `K` begins; names may repeat |
//! | `\t.sectioninfo\t@"SHI_REGISTERS=32"` | more of the same section (sm_80, and ABI 7) |
//! | `.L_x_3:` | a label, of what follows |
//! | `/*00a0*/   @P0 BRA 0x40 ;` | an instruction at offset 0xa0 of its section |
//! | `… // \|  # 0 1 2  \| # 0  \|` | which registers the columns of `-plr` are of; a number's last digit stands in its column |
//! | `… // \|  3 : ^ v  \|      \|` | how many are live, and of each: `^` written, `v` read, `x` both, `:` kept |
//!
//! Other lines are skipped. Source: the output of nvdisasm 12.8, 13.1 and 13.5; in every row of our
//! own kernels the count at the start of a `-plr` row equals the number of its marks.

use std::collections::BTreeMap;

/// A register file, as named in the header of `-plr` columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegisterFile {
    /// The general registers `R0`, `R1` …
    General,
    /// The predicates `P0`, `P1` …
    Predicate,
    /// The uniform registers `UR0`, `UR1` …
    Uniform,
    /// The uniform predicates `UP0`, `UP1` …
    UniformPredicate,
}

impl RegisterFile {
    fn from_head(head: &str) -> Option<RegisterFile> {
        match head.trim() {
            "GPR" => Some(RegisterFile::General),
            "PRED" => Some(RegisterFile::Predicate),
            "UGPR" => Some(RegisterFile::Uniform),
            "UPRED" => Some(RegisterFile::UniformPredicate),
            _ => None,
        }
    }

    /// The text before a register's number.
    pub fn prefix(self) -> &'static str {
        match self {
            RegisterFile::General => "R",
            RegisterFile::Predicate => "P",
            RegisterFile::Uniform => "UR",
            RegisterFile::UniformPredicate => "UP",
        }
    }
}

/// Effect of an instruction on a live register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegisterUse {
    /// Neither reads nor writes it, but it is needed later.
    Kept,
    /// Only writes it.
    Written,
    /// Only reads it.
    Read,
    /// Reads it and writes it.
    Both,
}

/// A register that is live at an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveRegister {
    /// General-purpose, uniform, predicate …
    pub file: RegisterFile,
    /// The number after the file's prefix, as in `R4`.
    pub number: u16,
    /// Effect of the instruction on it.
    pub mark: RegisterUse,
}

/// One instruction of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextLine<'t> {
    /// Offset from the section's start in bytes.
    pub offset: u64,
    /// Guard, name, modifiers and operands.
    pub text: &'t str,
    /// Registers that are live here, by file and number; empty unless requested.
    pub live: Vec<LiveRegister>,
}

/// The code of one section.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextSection<'t> {
    /// The text after `.text.`.
    pub name: &'t str,
    /// Its instructions, in order.
    pub lines: Vec<TextLine<'t>>,
    /// The offsets of its labels.
    pub labels: BTreeMap<&'t str, u64>,
    /// Whether the listing had register columns.
    pub has_lives: bool,
}

impl TextSection<'_> {
    /// An instruction's text with labels replaced by offsets: ``BRA `(.L_x_3)`` becomes `BRA 0x40`.
    pub fn resolved(&self, text: &str) -> String {
        let plain = || text.to_owned();
        let Some((head, rest)) = text.split_once("`(") else { return plain() };
        let Some((label, tail)) = rest.split_once(')') else { return plain() };
        self.labels.get(label).map_or_else(plain, |offset| format!("{head}{offset:#x}{tail}"))
    }
}

/// The name of the section that begins at this line: `.text.K` for
/// `\t.section\t.text.K,"ax",@progbits`.
///
/// On sm_80 and in the older ELF layout, `.sectioninfo @"SHI_REGISTERS=32"` follows, which begins
/// no section.
pub fn section(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix(".section")?;
    let name = rest.strip_prefix([' ', '\t'])?.trim_start().split(',').next()?;
    Some(name.trim_matches('"'))
}

/// Reads a listing. Any other text gives no sections.
pub fn read(listing: &str) -> Vec<TextSection<'_>> {
    let mut sections: Vec<TextSection<'_>> = Vec::new();
    let mut waiting: Vec<&str> = Vec::new();
    let mut columns = Columns::default();
    for line in listing.lines() {
        let (code, lives) = match line.rsplit_once("// |") {
            Some((code, lives)) => (code.trim(), Some(lives)),
            None => (line.trim(), None),
        };
        if let Some(name) = section(code) {
            waiting.clear();
            columns = Columns::default();
            sections.push(TextSection {
                name: name.strip_prefix(".text.").unwrap_or_default(),
                ..TextSection::default()
            });
            continue;
        }
        let Some(section) = sections.last_mut() else { continue };
        if let Some((offset, text)) = instruction(code) {
            section.labels.extend(waiting.drain(..).map(|label| (label, offset)));
            let live = lives.map(|lives| columns.live(lives)).unwrap_or_default();
            section.lines.push(TextLine { offset, text, live });
        } else if let Some(label) = code.strip_suffix(':') {
            waiting.push(label);
        } else if let Some(lives) = lives.filter(|_| code.is_empty()) {
            columns.head(lives);
            section.has_lives |= !columns.registers.is_empty();
        }
    }
    sections
}

/// Offset and text of `/*00a0*/   @P0 BRA 0x40 ;`.
fn instruction(line: &str) -> Option<(u64, &str)> {
    let (offset, text) = line.strip_prefix("/*")?.split_once("*/")?;
    let offset = u64::from_str_radix(offset, 16).ok()?;
    // Instructions that are printed in pairs have braces around them.
    let text = text.trim().trim_start_matches('{').split(';').next()?;
    Some((offset, text.trim())).filter(|(_, text)| !text.is_empty())
}

/// The columns of a row and their registers.
#[derive(Default)]
struct Columns {
    files: Vec<Option<RegisterFile>>,
    /// Position in the row, and register.
    registers: Vec<(usize, RegisterFile, u16)>,
}

impl Columns {
    /// Reads a row of the header: names of register files, or numbers of registers.
    fn head(&mut self, row: &str) {
        let cells = cells(row);
        if cells.iter().any(|(_, cell)| RegisterFile::from_head(cell).is_some()) {
            self.files = cells.iter().map(|(_, cell)| RegisterFile::from_head(cell)).collect();
            self.registers.clear();
        } else if cells.iter().any(|(_, cell)| cell.trim_start().starts_with("# ")) {
            self.registers.clear();
            for ((start, cell), file) in cells.iter().zip(&self.files) {
                let Some(file) = file else { continue };
                for (end, number) in numbers(cell) {
                    self.registers.push((start + end, *file, number));
                }
            }
        }
    }

    fn live(&self, row: &str) -> Vec<LiveRegister> {
        let bytes = row.as_bytes();
        let mark = |at: usize| match bytes.get(at)? {
            b':' => Some(RegisterUse::Kept),
            b'^' => Some(RegisterUse::Written),
            b'v' => Some(RegisterUse::Read),
            b'x' => Some(RegisterUse::Both),
            _ => None,
        };
        let all = self.registers.iter();
        all.filter_map(|&(at, file, number)| Some(LiveRegister { file, number, mark: mark(at)? }))
            .collect()
    }
}

/// The parts between vertical bars, with their positions.
fn cells(row: &str) -> Vec<(usize, &str)> {
    let mut start = 0;
    row.split('|')
        .map(|cell| {
            let here = start;
            start += cell.len() + 1;
            (here, cell)
        })
        .collect()
}

/// The numbers of a header cell, each with the position of its last digit.
fn numbers(cell: &str) -> Vec<(usize, u16)> {
    let mut found = Vec::new();
    let mut at = 0;
    for part in cell.split(' ') {
        if let Ok(number) = part.parse() {
            found.push((at + part.len() - 1, number));
        }
        at += part.len() + 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_offsets_and_sections_keep_their_instructions_apart() {
        let listing = "\t.section\t.text.a,\"ax\",@progbits\n\
             \t.sectioninfo\t@\"SHI_REGISTERS=8\"\na:\n.text.a:\n\
             /*0000*/   @!P0 BRA `(.L_x_1) ;\n.L_x_1:\n/*0010*/   EXIT ;\n\
             \t.section\t.text.b,\"ax\",@progbits\n/*0000*/   BRA `(.L_x_1) ;\n";
        let sections = read(listing);
        let text = |s: usize, n: usize| sections[s].resolved(sections[s].lines[n].text);
        assert_eq!((sections[0].name, sections[1].name), ("a", "b"));
        assert_eq!((text(0, 0), text(0, 1)), ("@!P0 BRA 0x10".to_owned(), "EXIT".to_owned()));
        assert_eq!(text(1, 0), "BRA `(.L_x_1)");
        assert_eq!(sections[0].labels["a"], 0);
    }

    #[test]
    fn the_columns_of_lives_are_told_by_the_last_digit_of_their_heads() {
        let listing = "\t.section\t.text.a,\"ax\",@progbits\n\
            \t// +----+\n\
            \t// |     GPR          |  UGPR  |\n\
            \t// |  # 9 10 100 101  | # 0 1  |\n\
            \t/*0000*/  IADD3 R9, R10, R100, RZ ; \t// |  3 ^  v   :      | 1   x  |\n";
        let sections = read(listing);
        assert!(sections[0].has_lives);
        let live: Vec<_> =
            sections[0].lines[0].live.iter().map(|l| (l.file, l.number, l.mark)).collect();
        assert_eq!(
            live,
            [
                (RegisterFile::General, 9, RegisterUse::Written),
                (RegisterFile::General, 10, RegisterUse::Read),
                (RegisterFile::General, 100, RegisterUse::Kept),
                (RegisterFile::Uniform, 1, RegisterUse::Both),
            ]
        );
    }

    #[test]
    fn what_is_no_listing_has_no_sections() {
        assert!(read("nvdisasm fatal   : not a cubin").is_empty());
        assert!(read("").is_empty());
        assert!(read("/*0000*/ EXIT ; // |").is_empty());
    }
}
