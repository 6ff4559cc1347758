//! Adds operands to the hot spots of an ncu report: nvdisasm's text of the cubins inside it, joined
//! by address.
//!
//! The import names every instruction itself. nvdisasm's text replaces the name only if both name
//! the same instruction, so a wrong join loses operands but never shows a wrong instruction.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use rgpu_format::cubin::{self, Cubin};
use rgpu_format::ncu_rep::{Error, NcuReadLimits, NcuReport, Source};

use super::host_listings::ListingRequest;
use super::nvdisasm::{Nvdisasm, ToolError};
use rgpu_import::gpu_code;
use rgpu_model::HotSpots;
use rgpu_model::agent_files;
use rgpu_model::regular_file::MAX_FILE_BYTES;

/// Why hot spots get no operands.
#[derive(Debug, thiserror::Error)]
pub enum OperandsError {
    /// The report is missing or cannot be read.
    #[error("the report cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The report's format is invalid.
    #[error(transparent)]
    Report(#[from] Error),
    /// A local or remote nvdisasm printed no listing.
    #[error("nvdisasm failed: {0}")]
    Tool(#[from] ToolError),
}

/// The text of instructions, by section name and offset.
type OperandTexts = HashMap<(String, u64), String>;

/// A disassembled cubin of a report.
struct DisassembledCubin<'r> {
    source: &'r Source<'r>,
    cubin: Cubin,
    texts: OperandTexts,
}

/// Adds operands to the hot spots that come `from` the report at `path`. Returns how many
/// instructions got them.
///
/// # Errors
/// [`OperandsError`]; the hot spots are then unchanged.
pub fn operands(
    hotspots: &mut HotSpots,
    from: &str,
    path: &Path,
    tool: &Nvdisasm,
) -> Result<usize, OperandsError> {
    let bytes = agent_files::read(path, MAX_FILE_BYTES)?;
    let (report, _) = NcuReport::read(&bytes, &NcuReadLimits::default())?;
    let sources = report.sources();
    let mut cubins = Vec::new();
    for source in &sources {
        // The import has reported an unreadable cubin already.
        let Ok(cubin) = cubin::read(source.cubin) else { continue };
        let symbols = symbols(hotspots, from, source, &cubin);
        if !symbols.is_empty() {
            let texts = texts(&tool.listing(source.cubin, &[], &symbols)?);
            cubins.push(DisassembledCubin { source, cubin, texts });
        }
    }
    let mut joined = 0;
    let spots = hotspots.launches.iter_mut().filter(|launch| launch.from == from);
    for spot in spots.flat_map(|launch| &mut launch.instructions) {
        let Some(address) = spot.address else { continue };
        let known = spot.sass.as_deref();
        let found = cubins.iter().filter_map(|cubin| cubin.at(address, spot.offset));
        if let Some(text) = found.into_iter().find(|text| is_same_instruction(known, text)) {
            spot.sass = Some(text.to_owned());
            joined += 1;
        }
    }
    Ok(joined)
}

/// The listings that [`operands`] will need for the report at `path`; none if it cannot be read.
pub fn hot_spot_listing_requests(
    hotspots: &HotSpots,
    from: &str,
    path: &Path,
) -> Vec<ListingRequest> {
    let Ok(bytes) = agent_files::read(path, MAX_FILE_BYTES) else { return Vec::new() };
    let Ok((report, _)) = NcuReport::read(&bytes, &NcuReadLimits::default()) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for source in &report.sources() {
        let Ok(cubin) = cubin::read(source.cubin) else { continue };
        let symbols = symbols(hotspots, from, source, &cubin);
        if !symbols.is_empty() {
            let request =
                ListingRequest { cubin: source.cubin.to_vec(), flags: Vec::new(), symbols };
            all.push(request);
        }
    }
    all
}

/// Symbol indices of the functions to disassemble: those in sections with hot spots. A library's
/// cubin may hold thousands of others.
fn symbols(hotspots: &HotSpots, from: &str, source: &Source<'_>, cubin: &Cubin) -> Vec<usize> {
    let launches = hotspots.launches.iter().filter(|launch| launch.from == from);
    let addresses = launches.flat_map(|launch| &launch.instructions).filter_map(|i| i.address);
    let functions: BTreeMap<u64, _> = addresses
        .filter_map(|address| source.function_at(address))
        .map(|(function, _)| (function.address, function))
        .collect();
    let sections = functions.values().filter_map(|function| {
        gpu_code::site(cubin, &function.symbol, function.index).map(|(section, _)| section)
    });
    let all = sections.flat_map(|section| &section.functions).map(|f| f.symbol_index);
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

impl DisassembledCubin<'_> {
    /// The text of the instruction at `address`, which is `offset` into its function.
    fn at(&self, address: u64, offset: u64) -> Option<&str> {
        let (function, from_start) = self.source.function_at(address)?;
        let site = gpu_code::site(&self.cubin, &function.symbol, function.index);
        let (section, start) = site.filter(|_| from_start == offset)?;
        let key = (section.name.clone(), start.checked_add(offset)?);
        self.texts.get(&key).map(String::as_str)
    }
}

/// Whether nvdisasm's `text` is of the instruction with this guard and name.
fn is_same_instruction(known: Option<&str>, text: &str) -> bool {
    let Some(known) = known else { return true };
    let rest = |text: &str| text.strip_prefix(known).map(|rest| rest.chars().next());
    // rgpu has no name for this opcode.
    known.contains("op_0x") || matches!(rest(text), Some(None | Some('.' | ' ')))
}

/// The instructions of a listing, with labels replaced by their offsets.
fn texts(listing: &str) -> OperandTexts {
    let sections = rgpu_format::sass::text::read(listing);
    let lines = sections.iter().flat_map(|s| s.lines.iter().map(move |line| (s, line)));
    lines.map(|(s, line)| ((s.name.to_owned(), line.offset), s.resolved(line.text))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_offsets_and_sections_keep_their_instructions_apart() {
        let listing = "\t.section\t.text.a,\"ax\",@progbits\na:\n.text.a:\n\
             /*0000*/   @!P0 BRA `(.L_x_1) ;\n.L_x_1:\n/*0010*/   EXIT ;\n\
             \t.section\t.text.b,\"ax\",@progbits\n/*0000*/   BRA `(.L_x_1) ;\n";
        let texts = texts(listing);
        let at = |section: &str, offset| texts[&(section.to_owned(), offset)].as_str();
        assert_eq!(at("a", 0), "@!P0 BRA 0x10");
        assert_eq!(at("a", 16), "EXIT");
        assert_eq!(at("b", 0), "BRA `(.L_x_1)");
    }

    #[test]
    fn a_text_of_another_instruction_is_not_taken() {
        assert!(is_same_instruction(Some("LDG"), "LDG.E R0, desc[UR4][R14.64]"));
        assert!(is_same_instruction(Some("@!P0 BRA"), "@!P0 BRA 0x10"));
        assert!(is_same_instruction(Some("EXIT"), "EXIT") && is_same_instruction(None, "EXIT"));
        assert!(!is_same_instruction(Some("LD"), "LDG.E R0, desc[UR4][R14.64]"));
        assert!(!is_same_instruction(Some("BRA"), "@!P0 BRA 0x10"));
    }
}
