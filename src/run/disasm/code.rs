//! The code of a cubin, instruction by instruction: what the file says of each, joined with
//! nvdisasm's text where that is at hand.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rgpu_format::cubin::{CodeSection, Cubin, FunctionLines, Lines, Table, lines};
use rgpu_format::demangle::demangle;
use rgpu_format::sass::text::{File, Mark, TextSection};
use rgpu_format::sass::{self, Instruction};

use super::image_task::ImageTask;
use super::nvdisasm::ToolError;
use super::read::asked;
use super::sources::Sources;
use crate::import::gpu_code;
use crate::model::code::{
    ClassCount, CodeBlock, CodeImage, CodeKernel, CodeLine, LifeRange, Lives,
};
use crate::model::hotspots::SourceAt;

/// Whether positions in source and PTX, and texts of sources, are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourcePositions {
    /// No.
    #[default]
    Unasked,
    /// Yes, where the cubin knows them.
    Wanted,
}

/// Whether life ranges are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LifeRanges {
    /// No.
    #[default]
    Unasked,
    /// Where they can be had.
    Welcome,
    /// Without them there is nothing to show.
    Needed,
}

/// Why code cannot be shown as asked.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    /// Life ranges without nvdisasm.
    #[error("life ranges need operands, which nvdisasm knows: there is none here")]
    NoTool,
    /// nvdisasm gave none.
    #[error("nvdisasm gave no life ranges: {0}")]
    Tool(#[from] ToolError),
    /// It printed a listing without them.
    #[error("nvdisasm printed no columns of registers")]
    NoLives,
}

/// The code of the wanted kernels of the cubin in `bytes`; `path` is the file it lies in.
///
/// # Errors
/// [`CodeError`] where life ranges are needed and cannot be had; anything else is told in the image.
pub fn code(
    path: &Path,
    cubin: &Cubin,
    bytes: &[u8],
    what: &ImageTask,
    places: SourcePositions,
) -> Result<CodeImage, CodeError> {
    let mut image = CodeImage {
        path: path.display().to_string(),
        arch: cubin.sm.to_string(),
        tool: Some(format!("rgpu {}", env!("CARGO_PKG_VERSION"))),
        ..CodeImage::default()
    };
    let listing = listing(&mut image, cubin, bytes, what)?;
    let texts = rgpu_format::sass::text::read(&listing);
    if what.lives == LifeRanges::Needed && !texts.iter().any(|t| t.has_lives) {
        return Err(CodeError::NoLives);
    }
    let wanted = places == SourcePositions::Wanted;
    let table = |kind| if wanted { lines(bytes, kind).ok() } else { None };
    let tables = (table(Table::Source), table(Table::Ptx));
    let mut sources = Sources::default();
    let mut used = BTreeSet::new();
    for section in cubin.code.iter().filter(|s| what.wanted.kernel(&s.name)) {
        // Sections of one name are told apart by their order, which is that of the file.
        let text = texts
            .iter()
            .enumerate()
            .find(|(at, text)| text.name == section.name && !used.contains(at));
        used.extend(text.map(|(at, _)| at));
        let text = text.map(|(_, text)| text);
        let kernel = kernel(cubin, section, bytes, text, &tables);
        kernel.instructions.iter().flat_map(|i| &i.at).for_each(|at| sources.see(at));
        image.kernels.push(kernel);
    }
    if wanted {
        image.sources = sources.read(path);
    }
    image.ptx = cubin.ptx.map(|ptx| ptx.text(bytes));
    Ok(image)
}

/// nvdisasm's text, empty where there is none.
fn listing(
    image: &mut CodeImage,
    cubin: &Cubin,
    bytes: &[u8],
    what: &ImageTask,
) -> Result<String, CodeError> {
    let Some(tool) = what.nvdisasm.as_ref() else {
        return match what.lives {
            LifeRanges::Needed => Err(CodeError::NoTool),
            _ => Ok(String::new()),
        };
    };
    let (flags, symbols) = asked(cubin, what);
    let mut listed = tool.listing(bytes, flags, &symbols);
    if listed.is_err() && what.lives == LifeRanges::Welcome {
        listed = tool.listing(bytes, &[], &symbols);
    }
    match listed {
        Ok(text) => {
            image.tool = Some(tool.name());
            Ok(text)
        }
        Err(error) if what.lives == LifeRanges::Needed => Err(error.into()),
        Err(error) => {
            image.tool_problem = Some(error.to_string());
            Ok(String::new())
        }
    }
}

fn kernel(
    cubin: &Cubin,
    section: &CodeSection,
    bytes: &[u8],
    text: Option<&TextSection<'_>>,
    tables: &(Option<Lines>, Option<Lines>),
) -> CodeKernel {
    let sm = cubin.sm.number;
    // Of code before Volta nvdisasm alone knows the instructions.
    let read = sass::is_read(sm);
    let all = if read { gpu_code::instructions(section, bytes) } else { Vec::new() };
    let code = sass::trimmed(&all, sm);
    let kept = if read { code.len() } else { usize::MAX };
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
        instructions: instructions(section, code, sm, text, tables),
        blocks: blocks(code, sm),
        classes,
        mnemonics: mix.mnemonics.iter().map(|(name, n)| (name.to_string(), *n)).collect(),
        ranges: text.map(|text| ranges(text, kept)).unwrap_or_default(),
    }
}

fn instructions(
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
    let of = |table: &'_ Option<Lines>| -> Option<Vec<Vec<SourceAt>>> {
        let symbol = first?;
        let table = table.as_ref()?.function(&symbol.name, symbol.symbol_index)?;
        Some(offsets.iter().map(|offset| place(&table, *offset)).collect())
    };
    let (source, ptx) = (of(source), of(ptx));
    let functions: BTreeMap<u64, &str> = section
        .functions
        .iter()
        .filter(|f| f.offset > 0)
        .map(|f| (f.offset, f.name.as_str()))
        .collect();
    let line = |(at, &offset): (usize, &u64)| {
        let told = text.and_then(|t| t.lines.get(at).filter(|l| l.offset == offset));
        let instruction = code.get(at);
        let target = instruction.and_then(|i| i.target(sm));
        let ours = || {
            let to = target.map_or(String::new(), |to| format!(" {to:#x}"));
            instruction.map_or(String::new(), |i| sass::brief(i, sm)) + &to
        };
        CodeLine {
            offset,
            function: functions.get(&offset).map(|name| function(name)),
            text: text.zip(told).map_or_else(ours, |(t, told)| t.resolved(told.text)),
            control: instruction.map_or(String::new(), |i| i.control().to_string()),
            target,
            at: source.as_ref().and_then(|s| s.get(at).cloned()).unwrap_or_default(),
            ptx_line: ptx.as_ref().and_then(|p| Some(p.get(at)?.last()?.line)),
            live: text.zip(told).filter(|(t, _)| t.has_lives).map(|(_, told)| lives(&told.live)),
            counts: None,
        }
    };
    offsets.iter().enumerate().map(line).collect()
}

/// A kept function's name: symbols like `$kernel$_Z4keptf` say whose copy it is, too.
fn function(symbol: &str) -> String {
    let own = symbol.rsplit('$').next().filter(|name| !name.is_empty()).unwrap_or(symbol);
    demangle(own).unwrap_or_else(|| own.to_owned())
}

/// Where an instruction comes from, outermost call first.
fn place(table: &FunctionLines<'_>, offset: u64) -> Vec<SourceAt> {
    let chain = table.at(offset).into_iter().rev();
    let at = chain.map(|at| SourceAt {
        file: at.file.to_owned(),
        line: at.line,
        function: Some(at.function.to_owned()).filter(|f| !f.is_empty()),
    });
    at.collect()
}

fn lives(live: &[sass::text::Live]) -> Lives {
    let count = |file| live.iter().filter(|l| l.file == file).count() as u32;
    Lives {
        registers: count(File::General),
        predicates: count(File::Predicate),
        uniform: count(File::Uniform),
        uniform_predicates: count(File::UniformPredicate),
    }
}

/// Life ranges of a section's first `count` instructions: a value lives from the instruction that
/// writes it, through all that follow, to where its register is free or written anew.
fn ranges(text: &TextSection<'_>, count: usize) -> Vec<LifeRange> {
    let mut open: BTreeMap<(File, u16), LifeRange> = BTreeMap::new();
    let mut done: Vec<((File, u16), LifeRange)> = Vec::new();
    for line in text.lines.iter().take(count) {
        let here: BTreeSet<(File, u16)> = line.live.iter().map(|l| (l.file, l.number)).collect();
        let ended: Vec<_> = open.keys().filter(|key| !here.contains(key)).copied().collect();
        done.extend(ended.into_iter().filter_map(|key| Some((key, open.remove(&key)?))));
        for live in &line.live {
            let key = (live.file, live.number);
            // A guarded write may leave the old value: only an unguarded one begins a new life.
            if live.mark == Mark::Written && !line.text.starts_with('@') {
                done.extend(open.remove(&key).map(|range| (key, range)));
            }
            let range = open.entry(key).or_insert_with(|| LifeRange {
                register: format!("{}{}", live.file.prefix(), live.number),
                from: line.offset,
                ..LifeRange::default()
            });
            range.to = line.offset;
            if matches!(live.mark, Mark::Written | Mark::Both) {
                range.writes.push(line.offset);
            }
            if matches!(live.mark, Mark::Read | Mark::Both) {
                range.reads.push(line.offset);
            }
        }
    }
    done.extend(open);
    done.sort_by_key(|(key, range)| (*key, range.from));
    done.into_iter().map(|(_, range)| range).collect()
}

fn blocks(code: &[Instruction], sm: u32) -> Vec<CodeBlock> {
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
