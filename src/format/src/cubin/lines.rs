//! Maps instructions to source lines, using the line tables that `-lineinfo` and `-G` write.
//!
//! `.debug_line` refers to the source, `.nv_debug_line_sass` to the PTX in `.nv_debug_ptx_txt`.
//! Both are DWARF line programs (version 2 up to CUDA 12, version 3 in 13) with two differences:
//!
//! - Each function's sequence begins at address 0; a relocation of `.rela.debug_line` (type 2, 64
//!   bits) names its symbol.
//! - Extended opcode 0x90 marks the rows from here on as inlined. Its operands are the number of
//!   the row they were inlined at (uleb128, from 1 within the sequence; 0: not inlined) and the
//!   offset of the function's name in `.debug_str` (uleb128), relative to a base in the last four
//!   bytes of the header, if it has any after its lists. Of several rows at one address the last is
//!   the innermost.
//!
//! Source: cubins of ptxas 13.0 and 13.5, compared with `nvdisasm -gi` and `-gp` line by line.

use std::collections::HashMap;

use gimli::{
    DebugLine, DebugLineOffset, EndianSlice, IncompleteLineProgram, LineInstruction, LineRow,
    LittleEndian, Relocate, RelocateReader,
};

use super::CubinError;
use super::elf::{self, Elf, Section};

/// Selects a line table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// To the source: `.debug_line`.
    Source,
    /// To the PTX text in the cubin: `.nv_debug_line_sass`.
    Ptx,
}

impl Table {
    fn section(self) -> &'static str {
        match self {
            Table::Source => ".debug_line",
            Table::Ptx => ".nv_debug_line_sass",
        }
    }
}

/// A parsed line table.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    files: Vec<String>,
    names: Vec<String>,
    /// Rows of all sequences; each sequence is a contiguous range.
    rows: Vec<Row>,
    sequences: Vec<Sequence>,
    symbols: Vec<(String, usize, u64)>,
}

/// The part of a table for one function.
#[derive(Debug, Clone, Copy)]
pub struct FunctionLines<'t> {
    lines: &'t Lines,
    section: usize,
    base: u64,
}

/// The source position of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location<'t> {
    /// The file path as the compiler recorded it, usually absolute on the compiling machine.
    pub file: &'t str,
    /// The line number, from 1.
    pub line: u32,
    /// The mangled name of the inlined function that contains the line; empty for the function
    /// itself.
    pub function: &'t str,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    address: u64,
    file: u32,
    line: u32,
    /// Row number in the sequence, from 1; 0 if not inlined.
    inlined_at: u32,
    /// Number in `names`, from 1; 0 for none.
    function: u32,
}

#[derive(Debug, Clone, Copy)]
struct Sequence {
    section: usize,
    first: usize,
    count: usize,
    /// The first address after the last row's code.
    end: u64,
}

/// Reads a line table of a cubin. A cubin without one gives an empty table.
///
/// # Errors
/// [`CubinError::Lines`] if the line program is damaged, and the errors of the ELF tables.
pub fn lines(data: &[u8], table: Table) -> Result<Lines, CubinError> {
    let elf = elf::read(data)?;
    let mut lines = Lines { symbols: symbols(&elf), ..Lines::default() };
    let name = table.section();
    let Some((index, section)) = find(&elf, name.as_bytes()) else { return Ok(lines) };
    let relocations = Relocations::read(&elf, index);
    let names = find(&elf, b".debug_str").map_or(&[][..], |(_, section)| section.data);
    let broken = |cause: gimli::Error| CubinError::Lines {
        section: name.to_owned(),
        cause: cause.to_string(),
    };
    let mut at = 0;
    while at < section.data.len() {
        at = lines.unit(section, at, &relocations, names).map_err(broken)?;
    }
    Ok(lines)
}

fn find<'s, 'a>(elf: &'s Elf<'a>, name: &[u8]) -> Option<(usize, &'s Section<'a>)> {
    elf.sections.iter().enumerate().find(|(_, section)| section.name == name)
}

fn symbols(elf: &Elf<'_>) -> Vec<(String, usize, u64)> {
    const STT_FUNC: u8 = 2;
    let place = |symbol: &elf::Symbol<'_>| {
        let name = if symbol.kind == STT_FUNC { symbol.name } else { b"" };
        (String::from_utf8_lossy(name).into_owned(), symbol.section, symbol.value)
    };
    elf.symbols.iter().map(place).collect()
}

impl Lines {
    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The files that the table refers to.
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// The part for one function, found by its index in the symbol table if the name there matches,
    /// since names may repeat; otherwise by its name.
    pub fn function(&self, symbol: &str, index: usize) -> Option<FunctionLines<'_>> {
        let at_index = self.symbols.get(index).filter(|(name, _, _)| name == symbol);
        let found = at_index.or_else(|| self.symbols.iter().find(|(name, _, _)| name == symbol));
        found.map(|&(_, section, base)| FunctionLines { lines: self, section, base })
    }

    /// Reads one unit of the table. Returns the offset of the next one.
    fn unit(
        &mut self,
        section: &Section<'_>,
        at: usize,
        relocations: &Relocations,
        names: &[u8],
    ) -> gimli::Result<usize> {
        let reader = RelocateReader::new(EndianSlice::new(section.data, LittleEndian), relocations);
        let program = DebugLine::from(reader).program(DebugLineOffset(at), 8, None, None)?;
        let header = program.header();
        let next = at
            .saturating_add(header.unit_length())
            .saturating_add(usize::from(header.format().initial_length_size()));
        // The header length counts from after the field itself, 10 bytes into the unit.
        let end = at.saturating_add(10).saturating_add(header.header_length());
        let base = names_base(section.data, at, end);
        let files = self.add_files(header);
        self.run(program, &files, names.get(base..).unwrap_or_default())?;
        Ok(next.max(at + 1))
    }

    /// Adds a unit's files. Returns their indices, by their numbers in the unit from 0.
    fn add_files<R: gimli::Reader>(&mut self, header: &gimli::LineProgramHeader<R>) -> Vec<u32> {
        let text = |value: gimli::AttributeValue<R>| match value {
            gimli::AttributeValue::String(text) => {
                text.to_string_lossy().map(|text| text.into_owned()).unwrap_or_default()
            }
            _ => String::new(),
        };
        let mut numbers = Vec::new();
        for file in header.file_names() {
            let name = text(file.path_name());
            let folder = file.directory(header).map(text).unwrap_or_default();
            let path = match (name.starts_with('/'), folder.is_empty()) {
                (false, false) => format!("{}/{name}", folder.trim_end_matches('/')),
                _ => name,
            };
            numbers.push(self.files.len() as u32);
            self.files.push(path);
        }
        numbers
    }

    fn run<R: gimli::Reader>(
        &mut self,
        mut program: IncompleteLineProgram<R>,
        files: &[u32],
        names: &[u8],
    ) -> gimli::Result<()> {
        let header = program.header().clone();
        let first_file = u64::from(header.version() < 5);
        let mut known: HashMap<u64, u32> = HashMap::new();
        let mut row = LineRow::new(&header);
        let mut sequence = Sequence { section: 0, first: self.rows.len(), count: 0, end: 0 };
        let (mut inlined_at, mut function) = (0, 0);
        let mut instructions = header.instructions();
        while let Some(instruction) = instructions.next_instruction(&header)? {
            match &instruction {
                LineInstruction::SetAddress(address) => sequence.section = section_of(*address),
                LineInstruction::UnknownExtended(opcode, rest) if opcode.0 == INLINED => {
                    let mut rest = rest.clone();
                    inlined_at = u32::try_from(rest.read_uleb128()?).unwrap_or(0);
                    let name = rest.read_uleb128()?;
                    function = if inlined_at == 0 {
                        0
                    } else {
                        *known.entry(name).or_insert_with(|| self.add_name(names, name))
                    };
                    continue;
                }
                _ => {}
            }
            if !row.execute(instruction, &mut program)? {
                continue;
            }
            let address = row.address() & ADDRESS;
            if row.end_sequence() {
                sequence.end = address;
                sequence.count = self.rows.len() - sequence.first;
                self.sequences.push(sequence);
                sequence = Sequence { section: 0, first: self.rows.len(), count: 0, end: 0 };
                (inlined_at, function) = (0, 0);
            } else {
                let file = row.file_index().saturating_sub(first_file);
                let file = usize::try_from(file).ok().and_then(|file| files.get(file));
                let line = row.line().map_or(0, |line| line.get());
                self.rows.push(Row {
                    address,
                    file: file.copied().unwrap_or(u32::MAX),
                    line: u32::try_from(line).unwrap_or(u32::MAX),
                    inlined_at,
                    function,
                });
            }
            row.reset(&header);
        }
        Ok(())
    }

    fn add_name(&mut self, names: &[u8], at: u64) -> u32 {
        let text = usize::try_from(at).ok().and_then(|at| names.get(at..)).unwrap_or_default();
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        // Longer than any real name; a limit for damaged tables.
        let text = String::from_utf8_lossy(&text[..end.min(1 << 16)]).into_owned();
        self.names.push(text);
        self.names.len() as u32
    }
}

impl<'t> FunctionLines<'t> {
    /// The source positions of the instruction at `offset` of the function, from the innermost
    /// inlined line to the function's own line. Empty if the table does not cover it.
    pub fn at(&self, offset: u64) -> Vec<Location<'t>> {
        let address = self.base.saturating_add(offset);
        let sequences = self.lines.sequences.iter();
        let mut holding = sequences.filter(|s| s.section == self.section && address < s.end);
        let found = holding.find_map(|sequence| {
            let rows = self.lines.rows.get(sequence.first..sequence.first + sequence.count)?;
            let after = rows.partition_point(|row| row.address <= address);
            Some((rows, after.checked_sub(1)?))
        });
        let Some((rows, mut at)) = found else { return Vec::new() };
        let mut chain = Vec::new();
        while let Some(row) = rows.get(at) {
            if row.line > 0 {
                chain.push(self.location(row));
            }
            // A row is inlined at an earlier row; anything else is damage.
            match (row.inlined_at as usize).checked_sub(1).filter(|outer| *outer < at) {
                Some(outer) if chain.len() < MAX_INLINE_DEPTH => at = outer,
                _ => break,
            }
        }
        chain
    }

    fn location(&self, row: &Row) -> Location<'t> {
        let file = self.lines.files.get(row.file as usize).map_or("", String::as_str);
        let name = (row.function as usize).checked_sub(1).and_then(|n| self.lines.names.get(n));
        Location { file, line: row.line, function: name.map_or("", String::as_str) }
    }
}

/// The extended opcode for inlined rows.
const INLINED: u8 = 0x90;
/// Maximum length of an inline chain.
const MAX_INLINE_DEPTH: usize = 64;
/// While a program runs, addresses hold the number of their section above these bits.
const SECTION_SHIFT: u32 = 40;
const ADDRESS: u64 = (1 << SECTION_SHIFT) - 1;

fn section_of(address: u64) -> usize {
    (address >> SECTION_SHIFT) as usize
}

/// The offset of a unit's names in `.debug_str`: four bytes between the file table and the end of
/// the header, present only if something was inlined.
fn names_base(section: &[u8], unit: usize, end: usize) -> usize {
    let base = file_table_end(section, unit).filter(|table| table + 4 == end);
    let bytes = base.and_then(|at| section.get(at..end)).and_then(|b| <[u8; 4]>::try_from(b).ok());
    bytes.map_or(0, |bytes| u32::from_le_bytes(bytes) as usize)
}

/// The end of a header's lists of folders and files, which the DWARF reader does not expose. All
/// known cubins use 32-bit DWARF of version 2 or 3.
fn file_table_end(section: &[u8], unit: usize) -> Option<usize> {
    // Length, version, header length, three parameters and the number of standard opcodes.
    let opcodes = usize::from(*section.get(unit.checked_add(14)?)?);
    let mut at = unit + 14 + opcodes.max(1);
    let text = |at: usize| {
        let length = section.get(at..)?.iter().position(|byte| *byte == 0)?;
        Some((length, at + length + 1))
    };
    let number = |at: usize| {
        let length = section.get(at..)?.iter().position(|byte| byte & 0x80 == 0)?;
        Some(at + length + 1)
    };
    loop {
        let (length, next) = text(at)?;
        at = next;
        if length == 0 {
            break;
        }
    }
    loop {
        let (length, next) = text(at)?;
        if length == 0 {
            return Some(next);
        }
        at = number(number(number(next)?)?)?;
    }
}

/// The offsets in a section that relocations fill, with their values.
#[derive(Debug)]
struct Relocations(HashMap<usize, u64>);

impl Relocations {
    fn read(elf: &Elf<'_>, target: usize) -> Relocations {
        const SHT_RELA: u32 = 4;
        let mut places = HashMap::new();
        let tables =
            elf.sections.iter().filter(|s| s.kind == SHT_RELA && s.info as usize == target);
        for entry in tables.flat_map(|table| table.data.chunks_exact(24)) {
            let word = |at: usize| -> u64 {
                entry[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
            };
            let symbol = elf.symbols.get((word(8) >> 32) as usize);
            let Some(symbol) = symbol else { continue };
            let address = symbol.value.wrapping_add(word(16)) & ADDRESS;
            let section = (symbol.section as u64) << SECTION_SHIFT;
            places.insert(word(0) as usize, section | address);
        }
        Relocations(places)
    }
}

impl Relocate<usize> for &Relocations {
    fn relocate_address(&self, offset: usize, value: u64) -> gimli::Result<u64> {
        Ok(self.0.get(&offset).copied().unwrap_or(value & ADDRESS))
    }

    fn relocate_offset(&self, _offset: usize, value: usize) -> gimli::Result<usize> {
        Ok(value)
    }
}
