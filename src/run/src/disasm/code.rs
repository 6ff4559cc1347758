//! Reads the code of a cubin instruction by instruction, with nvdisasm's text if it is available.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rgpu_format::cubin::{CodeSection, Cubin, FunctionLines, Lines, Table, lines};
use rgpu_format::demangle::demangle;
use rgpu_format::sass::text::{LiveRegister, RegisterFile, RegisterUse, TextSection};
use rgpu_format::sass::{self, Instruction};

use super::image_task::ImageTask;
use super::nvdisasm::ToolError;
use super::read::listing_options;
use super::sources::Sources;
use rgpu_import::gpu_code;
use rgpu_model::code::{
    ClassCount, CodeBlock, CodeImage, CodeKernel, CodeLine, LifeRange, LiveRegisters,
};
use rgpu_model::hotspots::SourceAt;

/// Whether to read positions in source and PTX, and the source text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourcePositions {
    /// Do not read them.
    #[default]
    Skip,
    /// Read them if the cubin has them.
    Read,
}

/// Whether to read life ranges of registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LifeRanges {
    /// Do not read them.
    #[default]
    Skip,
    /// Read them if possible.
    Optional,
    /// It is an error if they cannot be read.
    Required,
}

/// Why code cannot be shown as requested.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// Life ranges were required, but there is no nvdisasm.
    #[error("life ranges need operands, and there is no nvdisasm here to print them")]
    NoTool,
    /// Life ranges were required, and nvdisasm printed no listing with them.
    #[error("nvdisasm gave no life ranges: {0}")]
    Tool(#[from] ToolError),
    /// nvdisasm's listing has no life ranges.
    #[error("nvdisasm printed no columns of registers")]
    NoLives,
}

/// The code of the requested kernels of the cubin `bytes`, from the file `path`.
///
/// # Errors
/// [`CodeError`] if life ranges are required and missing; other problems are recorded in the image.
pub fn read_code(
    path: &Path,
    cubin: &Cubin,
    bytes: &[u8],
    task: &ImageTask,
    positions: SourcePositions,
) -> Result<CodeImage, CodeError> {
    let mut image = CodeImage {
        path: path.display().to_string(),
        arch: cubin.sm.to_string(),
        tool: Some(format!("rgpu {}", env!("CARGO_PKG_VERSION"))),
        ..CodeImage::default()
    };
    let listing = read_listing(&mut image, cubin, bytes, task)?;
    let texts = rgpu_format::sass::text::read(&listing);
    if task.life_ranges == LifeRanges::Required && !texts.iter().any(|t| t.has_lives) {
        return Err(CodeError::NoLives);
    }
    let with_positions = positions == SourcePositions::Read;
    let table = |kind| if with_positions { lines(bytes, kind).ok() } else { None };
    let tables = (table(Table::Source), table(Table::Ptx));
    let mut sources = Sources::default();
    let mut used_texts = BTreeSet::new();
    for section in cubin.code.iter().filter(|s| task.filter.matches_kernel(&s.name)) {
        // Sections of one name are matched by order, which is the same in both.
        let text = texts
            .iter()
            .enumerate()
            .find(|(at, text)| text.name == section.name && !used_texts.contains(at));
        used_texts.extend(text.map(|(at, _)| at));
        let text = text.map(|(_, text)| text);
        let kernel = read_kernel(cubin, section, bytes, text, &tables);
        kernel.instructions.iter().flat_map(|i| &i.at).for_each(|at| sources.add(at));
        image.kernels.push(kernel);
    }
    if with_positions {
        image.sources = sources.read(path);
    }
    image.ptx = cubin.ptx.map(|ptx| ptx.text(bytes));
    Ok(image)
}

/// nvdisasm's listing; empty if there is none.
fn read_listing(
    image: &mut CodeImage,
    cubin: &Cubin,
    bytes: &[u8],
    task: &ImageTask,
) -> Result<String, CodeError> {
    let Some(tool) = task.nvdisasm.as_ref() else {
        return match task.life_ranges {
            LifeRanges::Required => Err(CodeError::NoTool),
            _ => Ok(String::new()),
        };
    };
    let (flags, symbols) = listing_options(cubin, task);
    let mut result = tool.listing(bytes, flags, &symbols);
    if result.is_err() && task.life_ranges == LifeRanges::Optional {
        result = tool.listing(bytes, &[], &symbols);
    }
    match result {
        Ok(text) => {
            image.tool = Some(tool.name());
            Ok(text)
        }
        Err(error) if task.life_ranges == LifeRanges::Required => Err(error.into()),
        Err(error) => {
            image.tool_problem = Some(error.to_string());
            Ok(String::new())
        }
    }
}

fn read_kernel(
    cubin: &Cubin,
    section: &CodeSection,
    bytes: &[u8],
    text: Option<&TextSection<'_>>,
    tables: &(Option<Lines>, Option<Lines>),
) -> CodeKernel {
    let sm = cubin.sm.number;
    // Before Volta, only nvdisasm can decode instructions.
    let is_decoded = sass::is_read(sm);
    let all = if is_decoded { gpu_code::instructions(section, bytes) } else { Vec::new() };
    let code = sass::trimmed(&all, sm);
    let count = if is_decoded { code.len() } else { usize::MAX };
    let mix = sass::mix(code, sm);
    let facts = cubin.kernels.iter().find(|k| k.section_index == section.index);
    let mut classes: BTreeMap<String, u64> = BTreeMap::new();
    for count in &mix.classes {
        *classes.entry(count.class.name().to_owned()).or_default() += count.count;
    }
    CodeKernel {
        symbol: section.name.clone(),
        name: demangle(&section.name),
        registers: facts.and_then(|k| k.registers),
        spill_bytes: facts.and_then(|k| k.spills).map(|s| [s.store_bytes, s.load_bytes]),
        shared_bytes: facts.map(|k| k.shared_bytes),
        samples: None,
        instructions: read_instructions(section, code, sm, text, tables),
        blocks: read_blocks(code, sm),
        classes,
        mnemonics: mix.mnemonics.iter().map(|(name, n)| (name.to_string(), *n)).collect(),
        ranges: text.map(|text| life_ranges(text, count)).unwrap_or_default(),
    }
}

fn read_instructions(
    section: &CodeSection,
    code: &[Instruction],
    sm: u32,
    text: Option<&TextSection<'_>>,
    (source, ptx): &(Option<Lines>, Option<Lines>),
) -> Vec<CodeLine> {
    let offsets: Vec<u64> = match text.filter(|_| code.is_empty()) {
        Some(text) => text.lines.iter().map(|line| line.offset).collect(),
        None => code.iter().map(|instruction| instruction.offset).collect(),
    };
    let first = section.functions.iter().find(|f| f.offset == 0);
    let chains_in = |table: &'_ Option<Lines>| -> Option<Vec<Vec<SourceAt>>> {
        let symbol = first?;
        let table = table.as_ref()?.function(&symbol.name, symbol.symbol_index)?;
        Some(offsets.iter().map(|offset| source_chain(&table, *offset)).collect())
    };
    let (source, ptx) = (chains_in(source), chains_in(ptx));
    let functions: BTreeMap<u64, &str> = section
        .functions
        .iter()
        .filter(|f| f.offset > 0)
        .map(|f| (f.offset, f.name.as_str()))
        .collect();
    let line = |(at, &offset): (usize, &u64)| {
        let text_line = text.and_then(|t| t.lines.get(at).filter(|l| l.offset == offset));
        let instruction = code.get(at);
        let target = instruction.and_then(|i| i.target(sm));
        let own_text = || {
            let to = target.map_or(String::new(), |to| format!(" {to:#x}"));
            instruction.map_or(String::new(), |i| sass::brief(i, sm)) + &to
        };
        CodeLine {
            offset,
            function: functions.get(&offset).map(|name| function_name(name)),
            text: text
                .zip(text_line)
                .map_or_else(own_text, |(t, text_line)| t.resolved(text_line.text)),
            control: instruction.map_or(String::new(), |i| i.control().to_string()),
            target,
            at: source.as_ref().and_then(|s| s.get(at).cloned()).unwrap_or_default(),
            ptx_line: ptx.as_ref().and_then(|p| Some(p.get(at)?.last()?.line)),
            live: text
                .zip(text_line)
                .filter(|(t, _)| t.has_lives)
                .map(|(_, text_line)| count_live(&text_line.live)),
            counts: None,
        }
    };
    offsets.iter().enumerate().map(line).collect()
}

/// The name of a function kept in a kernel's section; symbols like `$kernel$_Z4keptf` also name the
/// kernel.
fn function_name(symbol: &str) -> String {
    let own = symbol.rsplit('$').next().filter(|name| !name.is_empty()).unwrap_or(symbol);
    demangle(own).unwrap_or_else(|| own.to_owned())
}

/// The call chain in the source that an instruction comes from, outermost call first.
fn source_chain(table: &FunctionLines<'_>, offset: u64) -> Vec<SourceAt> {
    let chain = table.at(offset).into_iter().rev();
    let at = chain.map(|at| SourceAt {
        file: at.file.to_owned(),
        line: at.line,
        function: Some(at.function.to_owned()).filter(|f| !f.is_empty()),
    });
    at.collect()
}

fn count_live(live: &[LiveRegister]) -> LiveRegisters {
    let count = |file| live.iter().filter(|l| l.file == file).count() as u32;
    LiveRegisters {
        registers: count(RegisterFile::General),
        predicates: count(RegisterFile::Predicate),
        uniform: count(RegisterFile::Uniform),
        uniform_predicates: count(RegisterFile::UniformPredicate),
    }
}

/// Life ranges in a section's first `count` instructions: from the instruction that writes a value
/// to where its register is free or rewritten.
fn life_ranges(text: &TextSection<'_>, count: usize) -> Vec<LifeRange> {
    let mut open: BTreeMap<(RegisterFile, u16), LifeRange> = BTreeMap::new();
    let mut finished: Vec<((RegisterFile, u16), LifeRange)> = Vec::new();
    for line in text.lines.iter().take(count) {
        let live_registers: BTreeSet<(RegisterFile, u16)> =
            line.live.iter().map(|l| (l.file, l.number)).collect();
        let freed: Vec<_> =
            open.keys().filter(|key| !live_registers.contains(key)).copied().collect();
        finished.extend(freed.into_iter().filter_map(|key| Some((key, open.remove(&key)?))));
        for live in &line.live {
            let key = (live.file, live.number);
            // A guarded write may keep the old value, so only an unguarded one starts a new range.
            if live.mark == RegisterUse::Written && !line.text.starts_with('@') {
                finished.extend(open.remove(&key).map(|range| (key, range)));
            }
            let range = open.entry(key).or_insert_with(|| LifeRange {
                register: format!("{}{}", live.file.prefix(), live.number),
                from: line.offset,
                ..LifeRange::default()
            });
            range.to = line.offset;
            if matches!(live.mark, RegisterUse::Written | RegisterUse::Both) {
                range.writes.push(line.offset);
            }
            if matches!(live.mark, RegisterUse::Read | RegisterUse::Both) {
                range.reads.push(line.offset);
            }
        }
    }
    finished.extend(open);
    finished.sort_by_key(|(key, range)| (*key, range.from));
    finished.into_iter().map(|(_, range)| range).collect()
}

fn read_blocks(code: &[Instruction], sm: u32) -> Vec<CodeBlock> {
    let block = |block: sass::Block| {
        let from = code.partition_point(|i| i.offset < block.start);
        let to = code.partition_point(|i| i.offset < block.end);
        let inside = code.get(from..to).unwrap_or_default();
        CodeBlock {
            start: block.start,
            end: block.end,
            next: block.next,
            indirect: block.indirect,
            loop_head: block.loop_head,
            instructions: inside.len() as u64,
            classes: sass::mix(inside, sm)
                .classes
                .iter()
                .map(|c| ClassCount { class: c.class.name().to_owned(), count: c.count })
                .collect(),
        }
    };
    sass::blocks(code, sm).into_iter().map(block).collect()
}
