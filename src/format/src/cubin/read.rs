//! Builds a [`Cubin`] from the sections, symbols and notes of an ELF file: NVIDIA's kernels with
//! their resources, and the machine code.

use super::CubinError;
use super::attribute::{self, Attribute, Payload, code as attribute_code};
use super::code::{self, CodeSection};
use super::elf::{self, Elf, Section};
use super::kernel::{self, ConstantBank, Kernel};
use super::note::{self, Producer};
use std::collections::HashMap;
use std::fmt;

/// Section type of `.nv.info` and `.nv.info.K`.
const SHT_CUDA_INFO: u32 = 0x7000_0000;

/// The first toolkit whose ptxas annotates spills.
const SPILLS_RECORDED_SINCE: Toolkit = Toolkit { major: 12, minor: 8 };

/// The facts of a cubin as the file states them. Facts that the file does not state are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cubin {
    /// The layout of the ELF container.
    pub abi: Abi,
    /// How the file may be used.
    pub kind: FileKind,
    /// The GPU architecture that the code is for.
    pub sm: Sm,
    /// The virtual architecture (`compute_NN`) that it was compiled from.
    pub virtual_sm: Option<u32>,
    /// The toolkit that built the file.
    pub toolkit: Option<Toolkit>,
    /// The compiler and its command line, if the file states them.
    pub producer: Option<Producer>,
    /// Kernels, in symbol table order.
    pub kernels: Vec<Kernel>,
    /// Device functions that were not inlined, in symbol table order.
    pub functions: Vec<String>,
    /// Machine code by section, in section table order.
    pub code: Vec<CodeSection>,
    /// Constant banks of the module: 3 is `__constant__`, 4 holds addresses.
    pub constants: Vec<ConstantBank>,
    /// Size of all `__device__` variables in bytes.
    pub global_bytes: u64,
    /// Position of the PTX text that `-lineinfo` and `-G` store in the file.
    pub ptx: Option<KeptPtx>,
    /// Whether `.debug_line` is present, so that instructions can be mapped to source lines.
    pub has_lines: bool,
}

/// Position of PTX text in a cubin, in `.nv_debug_ptx_txt`. Each line ends with a NUL instead of a
/// newline. Empty lines stand for comments, also at the start: the line table counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptPtx {
    offset: u64,
    bytes: usize,
}

/// The two layouts of the ELF container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abi {
    /// The layout of ELF ABI version 7.
    V7,
    /// The layout of ELF ABI version 8.
    V8,
}

/// How a cubin may be used, from `e_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Ready to load by the driver.
    Executable,
    /// To be linked (`-rdc=true`).
    Relocatable,
    /// Whole-program relocatable (`-ewp`).
    WholeProgram,
    /// Any other number of `e_type`.
    Other(u16),
}

/// A real GPU architecture; [`fmt::Display`] gives `sm_90a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sm {
    /// The number in the name, e.g. 90 for Hopper.
    pub number: u32,
    /// The suffix of the name.
    pub variant: SmVariant,
}

/// The suffix of an architecture's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SmVariant {
    /// No suffix, as in `sm_90`.
    Base,
    /// `f`: runs on the architecture family.
    Family,
    /// `a`: runs only on this architecture.
    Accelerated,
}

impl fmt::Display for Sm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.variant {
            SmVariant::Base => "",
            SmVariant::Family => "f",
            SmVariant::Accelerated => "a",
        };
        write!(f, "sm_{}{suffix}", self.number)
    }
}

/// A CUDA toolkit version; [`fmt::Display`] gives `13.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Toolkit {
    /// The number before the dot, 13 in `13.5`.
    pub major: u32,
    /// The number after the dot, 5 in `13.5`.
    pub minor: u32,
}

impl fmt::Display for Toolkit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Whether these bytes look like a cubin (ELF magic and machine); used to choose a reader.
pub fn is_cubin(data: &[u8]) -> bool {
    data.starts_with(b"\x7fELF") && data.get(18..20) == Some(&[190, 0])
}

/// Reads a cubin.
///
/// # Errors
/// [`CubinError`] names the damaged part. Unknown attributes are not an error: their codes are kept
/// in [`Kernel::other_attributes`].
pub fn read(data: &[u8]) -> Result<Cubin, CubinError> {
    let elf = elf::read(data)?;
    let abi = match elf.abi_version {
        7 => Abi::V7,
        8 => Abi::V8,
        abi_version => return Err(CubinError::UnknownAbi { os_abi: elf.os_abi, abi_version }),
    };
    let section = |name: &[u8]| elf.sections.iter().find(|s| s.name == name);
    let producer = section(b".note.nv.tkinfo").and_then(|s| note::producer(s.data));
    let cuda_info = section(b".note.nv.cuinfo")
        .or_else(|| section(b".note.nv.cuver"))
        .and_then(|s| note::cuda_info(s.data));
    let compat = match section(b".nv.compat") {
        Some(s) => attributes(s)?,
        None => Vec::new(),
    };
    let toolkit = cuda_info
        .and_then(|(_, number)| number)
        .or_else(|| (abi == Abi::V7).then_some(elf.version))
        .or_else(|| section(b".note.nv.tkinfo").and_then(|s| note::toolkit(s.data)));
    let virtual_sm = match abi {
        Abi::V7 => Some(elf.flags >> 16 & 0xff),
        Abi::V8 => cuda_info.map(|(sm, _)| u32::from(sm)),
    };
    let toolkit = toolkit.map(|n| Toolkit { major: n / 10, minor: n % 10 });
    let sm = sm(&elf, abi, &compat, producer.as_ref());
    let records_spills = toolkit.is_some_and(|t| t >= SPILLS_RECORDED_SINCE);
    let (kernels, functions) = kernels(&elf, abi, sm.number, records_spills)?;
    Ok(Cubin {
        abi,
        kind: match elf.kind {
            1 => FileKind::Relocatable,
            2 => FileKind::Executable,
            0xff00 => FileKind::WholeProgram,
            other => FileKind::Other(other),
        },
        sm,
        virtual_sm: virtual_sm.filter(|n| *n > 0),
        toolkit,
        producer,
        kernels,
        functions,
        code: code::sections(&elf),
        constants: module_constants(&elf),
        global_bytes: elf
            .sections
            .iter()
            .filter(|s| s.name == b".nv.global" || s.name == b".nv.global.init")
            .fold(0, |sum, s| sum.saturating_add(s.size)),
        ptx: section(b".nv_debug_ptx_txt").and_then(KeptPtx::read),
        has_lines: section(b".debug_line").is_some(),
    })
}

fn attributes<'a>(section: &Section<'a>) -> Result<Vec<Attribute<'a>>, CubinError> {
    attribute::read(section.data, section.offset, section.name)
}

fn sm(elf: &Elf<'_>, abi: Abi, compat: &[Attribute<'_>], producer: Option<&Producer>) -> Sm {
    let (number, bit) = match abi {
        Abi::V7 => (elf.flags & 0xff, elf.flags & 0x800 != 0),
        Abi::V8 => (elf.flags >> 8 & 0xff, elf.flags & 8 != 0),
    };
    let accelerated = bit
        || compat.iter().any(|a| {
            a.code == attribute_code::COMPAT_ACCELERATOR_TARGET && a.payload.number() == Some(1)
        });
    let family = || {
        producer.is_some_and(|p| {
            p.command_line.split_whitespace().any(|word| {
                word.rsplit("sm_").next().and_then(|w| w.strip_suffix('f'))
                    == Some(&number.to_string())
            })
        })
    };
    let variant = if accelerated {
        SmVariant::Accelerated
    } else if family() {
        SmVariant::Family
    } else {
        SmVariant::Base
    };
    Sm { number, variant }
}

/// The sections that belong to one `.text.K`, collected by its index.
#[derive(Default)]
pub(super) struct KernelSections<'s, 'a> {
    pub(super) info: Vec<Attribute<'a>>,
    pub(super) shared: Option<&'s Section<'a>>,
    pub(super) local: Option<&'s Section<'a>>,
    pub(super) constants: Vec<ConstantBank>,
}

fn kernels(
    elf: &Elf<'_>,
    abi: Abi,
    sm: u32,
    records_spills: bool,
) -> Result<(Vec<Kernel>, Vec<String>), CubinError> {
    let mut by_text: HashMap<usize, KernelSections<'_, '_>> = HashMap::new();
    let mut module = Vec::new();
    for section in &elf.sections {
        let owner = section.info as usize;
        if section.kind == SHT_CUDA_INFO && section.name == b".nv.info" {
            module = attributes(section)?;
        } else if section.kind == SHT_CUDA_INFO && section.name.starts_with(b".nv.info.") {
            by_text.entry(owner).or_default().info = attributes(section)?;
        } else if owner == 0 {
            continue;
        } else if section.name.starts_with(b".nv.shared.") {
            by_text.entry(owner).or_default().shared = Some(section);
        } else if section.name.starts_with(b".nv.local.") {
            by_text.entry(owner).or_default().local = Some(section);
        } else if let Some((bank, _)) = constant_bank(section.name) {
            let bank = ConstantBank { bank, bytes: section.size };
            by_text.entry(owner).or_default().constants.push(bank);
        }
    }
    let module = kernel::per_symbol(&module);
    let (mut kernels, mut functions) = (Vec::new(), Vec::new());
    for (index, symbol) in elf.symbols.iter().enumerate() {
        const STT_FUNC: u8 = 2;
        const STO_CUDA_ENTRY: u8 = 0x10;
        let text = elf.sections.get(symbol.section).filter(|_| symbol.section != 0);
        let (STT_FUNC, Some(text)) = (symbol.kind, text) else { continue };
        if symbol.other & STO_CUDA_ENTRY == 0 {
            functions.push(String::from_utf8_lossy(symbol.name).into_owned());
            continue;
        }
        // An entry owns its section; a second symbol in the same section would be an alias.
        let own = by_text.remove(&symbol.section).unwrap_or_default();
        let source =
            kernel::KernelSource { abi, sm, records_spills, symbol_index: index, symbol, text };
        kernels.push(kernel::assemble(&source, module.get(&(index as u32)), own));
    }
    Ok((kernels, functions))
}

/// The bank of `.nv.constantN` or `.nv.constantN.K`, and whether it belongs to a kernel.
fn constant_bank(name: &[u8]) -> Option<(u32, bool)> {
    let rest = std::str::from_utf8(name.strip_prefix(b".nv.constant")?).ok()?;
    let (number, kernel) = match rest.split_once('.') {
        Some((number, _)) => (number, true),
        None => (rest, false),
    };
    Some((number.parse().ok()?, kernel))
}

fn module_constants(elf: &Elf<'_>) -> Vec<ConstantBank> {
    elf.sections
        .iter()
        .filter_map(|s| match constant_bank(s.name) {
            Some((bank, false)) => Some(ConstantBank { bank, bytes: s.size }),
            _ => None,
        })
        .collect()
}

impl KeptPtx {
    fn read(section: &Section<'_>) -> Option<Self> {
        let bytes = section.data.iter().rposition(|b| !matches!(b, 0 | b'\n'))? + 1;
        Some(KeptPtx { offset: section.offset, bytes })
    }

    /// The PTX text, taken from the file that was read; empty if `file` is a different one.
    pub fn text(&self, file: &[u8]) -> String {
        let start = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let bytes = start.checked_add(self.bytes).and_then(|end| file.get(start..end));
        let Some(bytes) = bytes else { return String::new() };
        let mut text = bytes.to_vec();
        text.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b'\n');
        text.push(b'\n');
        String::from_utf8(text)
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    }
}

impl Payload<'_> {
    /// Whether the payload is anything other than an explicit zero.
    pub(super) fn is_set(&self) -> bool {
        self.number() != Some(0)
    }
}
