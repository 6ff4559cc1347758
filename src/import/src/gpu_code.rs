//! Cubins and PTX to the documents of `rgpu disasm`: facts, listings, instruction mixes, control
//! flow.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use rgpu_format::cubin::{CodeSection, Cubin, Kernel as CubinKernel, Lines, Stack, Table, lines};
use rgpu_format::demangle::demangle;
use rgpu_format::sass::{self, Class, CodeSummary, Columns, Instruction};
use rgpu_protocol::Digest;

use rgpu_model::disasm::{CountsByName, Kernel, Param};

/// A kernel's instructions, including those of other functions in the same section.
pub fn instructions(section: &CodeSection, file: &[u8]) -> Vec<Instruction> {
    sass::decode(section.code(file)).collect()
}

/// The section that holds a function, and the function's offset in it.
///
/// `index` is the function's number in the symbol table. It tells functions of one name apart, and
/// is ignored if it belongs to no function of this name.
pub fn site<'c>(cubin: &'c Cubin, symbol: &str, index: u64) -> Option<(&'c CodeSection, u64)> {
    let all = || {
        let of = |s: &'c CodeSection| s.functions.iter().map(move |f| (s, f));
        cubin.code.iter().flat_map(of).filter(|(_, f)| f.name == symbol)
    };
    let exact = all().find(|(_, f)| f.symbol_index as u64 == index);
    exact.or_else(|| all().next()).map(|(section, f)| (section, f.offset))
}

/// The instruction at `offset` of a section, without its operands.
pub fn brief(cubin: &Cubin, section: &CodeSection, file: &[u8], offset: u64) -> Option<String> {
    let from = usize::try_from(offset).ok().filter(|_| sass::is_read(cubin.sm.number))?;
    let bytes = section.code(file).get(from..from.checked_add(16)?)?;
    let instruction = sass::decode(bytes).next()?;
    Some(sass::brief(&instruction, cubin.sm.number))
}

/// The facts about one kernel of a cubin.
pub fn kernel(kernel: &CubinKernel, cubin: &Cubin, file: &[u8]) -> Kernel {
    // Sections are sorted by index.
    let section = cubin.code.binary_search_by_key(&kernel.section_index, |c| c.index);
    let code = section.ok().map(|at| cubin.code[at].code(file)).unwrap_or_default();
    let read = sass::is_read(cubin.sm.number);
    let found = if read {
        sass::summarize_code(code, cubin.sm.number)
    } else {
        CodeSummary { bytes: code.len(), shape: code.to_vec(), ..CodeSummary::default() }
    };
    let mix = &found.mix;
    let mut classes = CountsByName::new();
    for count in &mix.classes {
        *classes.entry(count.class.name().into()).or_default() += count.count;
    }
    let mut constants: BTreeMap<u32, u64> = BTreeMap::new();
    for bank in &kernel.constants {
        constants.insert(bank.bank, bank.bytes);
    }
    Kernel {
        symbol: kernel.name.clone(),
        name: demangle(&kernel.name),
        registers: kernel.registers,
        stack_bytes: match kernel.stack {
            Some(Stack::Bytes(bytes)) => Some(bytes),
            Some(Stack::Unbounded) | None => None,
        },
        frame_bytes: kernel.frame_bytes,
        local_bytes: kernel.local_bytes,
        spill_store_bytes: kernel.spills.map(|s| s.store_bytes),
        spill_load_bytes: kernel.spills.map(|s| s.load_bytes),
        shared_bytes: kernel.shared_bytes,
        shared_reserved_bytes: Some(kernel.shared_reserved_bytes).filter(|bytes| *bytes > 0),
        constant_bytes: constants,
        barriers: kernel.barriers,
        mbarriers: kernel.mbarriers,
        max_threads: kernel.max_threads,
        required_block: kernel.required_block,
        cluster: kernel.cluster,
        max_cluster_rank: kernel.max_cluster_rank,
        params: kernel.params.iter().map(|p| Param { offset: p.offset, bytes: p.bytes }).collect(),
        param_offset: kernel.param_offset,
        exits: kernel.exits.clone(),
        tcgen05_one_cta: kernel.tcgen05_one_cta,
        tcgen05_two_cta: kernel.tcgen05_two_cta,
        tensor_memory: mix.count(Class::TensorMemory) > 0,
        code_bytes: kernel.code_bytes,
        instructions: read.then_some(mix.instructions),
        classes,
        mnemonics: mix.mnemonics.iter().map(|(name, n)| (name.name(), *n)).collect(),
        blocks: read.then_some(found.blocks),
        loops: read.then_some(found.loops),
        code_sha256: Digest::sha256(&code[..found.bytes]).into(),
        shape_sha256: Digest::sha256(&found.shape).into(),
        occupancy: None,
    }
}

/// Which columns a listing has besides the instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingColumns {
    /// Whether to print control words.
    pub control: bool,
    /// Whether to print the source lines before their instructions.
    pub lines: bool,
}

/// The listing of the kernels and functions that pass the filter `wanted`, made without NVIDIA's
/// tools.
pub fn listing(
    cubin: &Cubin,
    file: &[u8],
    shown: ListingColumns,
    wanted: &dyn Fn(&CodeSection) -> bool,
) -> String {
    let table = shown.lines.then(|| lines(file, Table::Source).ok()).flatten();
    let mut text = String::new();
    let read = sass::is_read(cubin.sm.number);
    let _ = if read {
        writeln!(text, "// {}, without operands; nvdisasm prints them", cubin.sm)
    } else {
        writeln!(text, "// {}, raw words only; nvdisasm of CUDA 12 decodes them", cubin.sm)
    };
    for section in cubin.code.iter().filter(|s| wanted(s)) {
        let code = instructions(section, file);
        let names: BTreeMap<u64, &str> =
            section.functions.iter().map(|f| (f.offset, f.name.as_str())).collect();
        let columns = Columns { control: shown.control, bits: true };
        let body = if read {
            sass::listing(&code, cubin.sm.number, columns, &names)
        } else {
            bits(section.code(file), &names)
        };
        let _ = writeln!(text, "\n\t.section\t.text.{}", section.name);
        if let Some(name) = demangle(&section.name) {
            let _ = writeln!(text, "// {name}");
        }
        match table.as_ref().filter(|t| !t.is_empty()) {
            Some(table) => with_lines(&mut text, &body, table, section),
            None => text.push_str(&body),
        }
    }
    text
}

/// Code older than Volta, as raw words with a label at the start of each function.
fn bits(code: &[u8], names: &BTreeMap<u64, &str>) -> String {
    let (words, _) = code.as_chunks::<8>();
    let mut text = String::with_capacity(words.len() * 40);
    for (at, word) in words.iter().enumerate() {
        let offset = at as u64 * 8;
        if let Some(name) = names.get(&offset) {
            let _ = writeln!(text, "{name}:");
        }
        let word = u64::from_le_bytes(*word);
        let _ = writeln!(text, "        /*{offset:04x}*/ /* 0x{word:016x} */");
    }
    text
}

/// Adds `//## File "f", line N` where the line changes, in nvdisasm's format.
fn with_lines(text: &mut String, body: &str, table: &Lines, section: &CodeSection) {
    let symbol = section.functions.iter().find(|f| f.offset == 0);
    let of_section = symbol.and_then(|f| table.function(&f.name, f.symbol_index));
    let mut last = String::new();
    for line in body.lines() {
        if let (Some(offset), Some(table)) = (offset(line), &of_section) {
            let mut place = String::new();
            for (depth, at) in table.at(offset).iter().enumerate() {
                let before = if depth == 0 { "" } else { " inlined at " };
                let file = if depth == 0 { "File " } else { "" };
                let _ = write!(place, "{before}{file}\"{}\", line {}", at.file, at.line);
            }
            if !place.is_empty() && place != last {
                let _ = writeln!(text, "\t//## {place}");
                last = place;
            }
        }
        text.push_str(line);
        text.push('\n');
    }
}

/// The offset that an instruction's line begins with: `/*00a0*/ …`.
fn offset(line: &str) -> Option<u64> {
    let (offset, _) = line.trim_start().strip_prefix("/*")?.split_once("*/")?;
    u64::from_str_radix(offset, 16).ok()
}

/// Adds control words to a listing of nvdisasm, before each instruction.
///
/// Sections of the same name are matched by their order in the file.
pub fn annotate(listing: &str, cubin: &Cubin, file: &[u8]) -> String {
    if !sass::is_read(cubin.sm.number) {
        return listing.to_owned();
    }
    let mut text = String::with_capacity(listing.len() * 5 / 4);
    let mut used = BTreeSet::new();
    let mut code: Vec<Instruction> = Vec::new();
    for line in listing.lines() {
        if let Some(name) = sass::text::section(line) {
            let name = name.strip_prefix(".text.");
            let section = cubin
                .code
                .iter()
                .find(|c| name == Some(c.name.as_str()) && !used.contains(&c.index));
            code = section.map(|s| instructions(s, file)).unwrap_or_default();
            used.extend(section.map(|s| s.index));
        }
        let at = offset(line).and_then(|at| code.get(usize::try_from(at / 16).ok()?));
        match at.zip(line.find("*/")) {
            Some((instruction, end)) => {
                let (head, tail) = line.split_at(end + 2);
                let tail = tail.strip_prefix("    ").unwrap_or(tail);
                let _ = writeln!(text, "{head} {}{tail}", instruction.control());
            }
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_instruction_of_a_listing_gets_its_control_word() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .join("tests/fixtures/cubin/13.5/instructions");
        // For sm_80, nvdisasm prints `.sectioninfo` between a section's name and its code.
        for name in ["control.sm_80.O3", "hopper.sm_90a.O3"] {
            let file = std::fs::read(folder.join(format!("{name}.cubin"))).unwrap();
            let listing = std::fs::read_to_string(folder.join(format!("{name}.sass"))).unwrap();
            let cubin = rgpu_format::cubin::read(&file).unwrap();
            let text = annotate(&listing, &cubin, &file);
            let instructions = text.lines().filter(|line| offset(line).is_some());
            let (with, without): (Vec<_>, Vec<_>) = instructions.partition(|l| l.contains("*/ [B"));
            assert!(with.len() > 50, "{name}: {}", with.len());
            assert!(without.is_empty(), "{name}: {without:?}");
        }
    }
}
