//! Maps addresses to functions, instructions and source lines, from the code inside a report.

use std::collections::HashMap;
use std::sync::OnceLock;

use rgpu_format::cubin::{self, Cubin, Lines, Table};
use rgpu_format::ncu_rep::{Function, NcuReport, Source};

use crate::gpu_code;
use rgpu_model::hotspots::SourceAt;

/// The sources of one report. A line table is read once, when the first launch needs it.
pub(super) struct ReportSources<'r> {
    sources: Vec<LoadedCubin<'r>>,
    /// Lines of the source files that the report contains, by file name.
    texts: HashMap<&'r str, Vec<&'r str>>,
}

struct LoadedCubin<'r> {
    source: &'r Source<'r>,
    lines: OnceLock<(Lines, Lines)>,
    cubin: OnceLock<Option<Cubin>>,
}

/// The position of an address in the code.
pub(super) struct CodeLocation<'c> {
    pub(super) symbol: &'c str,
    /// Bytes from the function's start.
    pub(super) offset: u64,
    /// Source positions, outermost (inlining) first.
    pub(super) at: Vec<SourceAt>,
    pub(super) ptx_line: Option<u32>,
    /// The instruction without its operands.
    pub(super) sass: Option<String>,
}

/// The largest distance from a function's start; an address further on belongs to no function.
const LARGEST_FUNCTION: u64 = 1 << 28;

/// All sources of a report, sorted for [`ReportSources`].
pub(super) fn sources<'r>(report: &'r NcuReport<'_>) -> Vec<Source<'r>> {
    let mut sources = report.sources();
    for source in &mut sources {
        source.functions.sort_by_key(|function| function.address);
    }
    sources
}

impl LoadedCubin<'_> {
    /// The instruction at an offset of a function. `None` if the report has no cubin, or a damaged
    /// one.
    fn sass(&self, function: &Function, offset: u64) -> Option<String> {
        let file = self.source.cubin;
        let cubin = self.cubin.get_or_init(|| cubin::read(file).ok()).as_ref()?;
        let (section, start) = gpu_code::site(cubin, &function.symbol, function.index)?;
        gpu_code::brief(cubin, section, file, start.checked_add(offset)?)
    }
}

impl<'r> ReportSources<'r> {
    /// `sources` are those that [`sources`] returned.
    pub(super) fn new(sources: &'r [Source<'r>]) -> ReportSources<'r> {
        let files = sources.iter().flat_map(|source| &source.files);
        let texts = files.filter_map(|file| {
            let text = std::str::from_utf8(file.content).ok()?;
            Some((file.path.as_str(), text.lines().collect()))
        });
        ReportSources {
            texts: texts.collect(),
            sources: sources
                .iter()
                .map(|source| LoadedCubin {
                    source,
                    lines: OnceLock::new(),
                    cubin: OnceLock::new(),
                })
                .collect(),
        }
    }

    /// The position of `address`: an offset in the nearest function before it. Looks only in the
    /// sources that a result refers to, or in all sources if it refers to none.
    pub(super) fn locate(&self, references: &[u64], address: u64) -> Option<CodeLocation<'_>> {
        let known = |loaded: &&LoadedCubin<'_>| {
            references.is_empty() || references.contains(&loaded.source.reference)
        };
        let nearest = self.sources.iter().filter(known).filter_map(|loaded| {
            let functions = &loaded.source.functions;
            let after = functions.partition_point(|function| function.address <= address);
            let function = functions.get(after.checked_sub(1)?)?;
            Some((loaded, function, address - function.address))
        });
        let (loaded, function, offset) = nearest.min_by_key(|(_, _, offset)| *offset)?;
        if offset >= LARGEST_FUNCTION {
            return None;
        }
        let (lines, ptx) = loaded.lines.get_or_init(|| {
            // A damaged line table loses the source positions only. The cubin is read separately.
            let read = |table| cubin::lines(loaded.source.cubin, table).unwrap_or_default();
            (read(Table::Source), read(Table::Ptx))
        });
        let index = usize::try_from(function.index).unwrap_or(usize::MAX);
        let chain = lines.function(&function.symbol, index);
        let chain = chain.map(|function| function.at(offset)).unwrap_or_default();
        let at = chain.into_iter().rev().map(|at| SourceAt {
            file: at.file.to_owned(),
            line: at.line,
            function: Some(at.function.to_owned()).filter(|name| !name.is_empty()),
        });
        let ptx = ptx.function(&function.symbol, index);
        let ptx_line = ptx.and_then(|function| Some(function.at(offset).first()?.line));
        let sass = loaded.sass(function, offset);
        Some(CodeLocation { symbol: &function.symbol, offset, at: at.collect(), ptx_line, sass })
    }

    /// The text of a source line. `None` if the report does not contain the file.
    pub(super) fn text(&self, at: &SourceAt) -> Option<String> {
        let lines = self.texts.get(at.file.as_str())?;
        let text = lines.get((at.line as usize).checked_sub(1)?)?;
        Some(text.trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_without_a_line_table_has_offsets_alone_and_far_addresses_have_no_function() {
        let function = |symbol: &str, address| Function {
            symbol: symbol.to_owned(),
            address,
            ..Function::default()
        };
        let functions = vec![function("near", 0x1000), function("far", 0x2000)];
        let sources = [Source { reference: 7, functions, ..Source::default() }];
        let code = ReportSources::new(&sources);
        let place = code.locate(&[7], 0x1ff0).unwrap();
        assert_eq!((place.symbol, place.offset, place.at.len()), ("near", 0xff0, 0));
        assert_eq!(code.locate(&[], 0x2000).unwrap().symbol, "far");
        assert!(code.locate(&[8], 0x1ff0).is_none());
        assert!(code.locate(&[7], 0xfff).is_none());
        assert!(code.locate(&[7], 1 << 40).is_none());
    }
}
