//! Collects the facts about one kernel from its symbol, sections and attributes.

use super::attribute::{Attribute, code};
use super::elf::{Section, Symbol};
use super::read::{Abi, KernelSections};
use std::collections::HashMap;

/// A kernel (`__global__` function) of a cubin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The mangled name, as after `.text.` in the section's name.
    pub name: String,
    /// Section index. Names may repeat, indices do not.
    pub section_index: usize,
    /// Index of its symbol, as used by `nvdisasm -fun`.
    pub symbol_index: usize,
    /// Registers per thread; `None` if the cubin does not state them.
    pub registers: Option<u32>,
    /// The limit of `-maxrregcount`; 255 without one.
    pub max_registers: Option<u32>,
    /// Stack per thread, including called functions.
    pub stack: Option<Stack>,
    /// The kernel's own frame per thread, in bytes.
    pub frame_bytes: Option<u32>,
    /// Bytes of `.nv.local.K` per thread; 0 if the stack holds everything.
    pub local_bytes: u64,
    /// Static shared memory that the kernel requests, in bytes: `smem` of `ptxas -v`.
    pub shared_bytes: u64,
    /// Shared memory that the system reserves at the start of the same section (1 KiB on sm_90 and
    /// up); `cuobjdump -res-usage` prints the sum of both.
    pub shared_reserved_bytes: u64,
    /// The kernel's own constant banks; bank 0 holds the driver's area and the parameters.
    pub constants: Vec<ConstantBank>,
    /// Number of named barriers that it uses.
    pub barriers: u32,
    /// Memory barriers (`mbarrier`) in shared memory.
    pub mbarriers: u32,
    /// Maximum threads per block (`__launch_bounds__`, `.maxntid`).
    pub max_threads: Option<[u32; 3]>,
    /// The required block shape (`.reqntid`).
    pub required_block: Option<[u32; 3]>,
    /// Blocks per cluster (`__cluster_dims__`).
    pub cluster: Option<[u32; 3]>,
    /// Maximum blocks per cluster (`.maxclusterrank`).
    pub max_cluster_rank: Option<u32>,
    /// Parameters, sorted by position.
    pub params: Vec<Param>,
    /// Offset of the first parameter in constant bank 0.
    pub param_offset: Option<u32>,
    /// Size of all parameters in bytes.
    pub param_bytes: Option<u32>,
    /// Register spills. `None` if the compiler did not record them (before 12.8), so that nothing
    /// is known.
    pub spills: Option<Spills>,
    /// Offset of the code in the file.
    pub code_offset: u64,
    /// Bytes of code, padding included.
    pub code_bytes: u64,
    /// Offsets of exits from the kernel's start.
    pub exits: Vec<u32>,
    /// Whether it uses tcgen05 with one block.
    pub tcgen05_one_cta: bool,
    /// Whether it uses tcgen05 with a pair of blocks.
    pub tcgen05_two_cta: bool,
    /// Codes of attributes that this reader does not interpret, in file order.
    pub other_attributes: Vec<u8>,
}

/// The stack that a thread needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// The size in bytes.
    Bytes(u32),
    /// The compiler cannot know the size, because of recursion or an indirect call.
    Unbounded,
}

/// A constant bank of a kernel or of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConstantBank {
    /// The bank's number, as in `c[0x3]`.
    pub bank: u32,
    /// Size of the bank in bytes.
    pub bytes: u64,
}

/// One parameter in the kernel's parameter area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Position in the kernel's signature, from 0.
    pub ordinal: u32,
    /// Offset in the parameter area.
    pub offset: u32,
    /// Size of the parameter in bytes.
    pub bytes: u32,
}

/// Registers spilled to local memory, in bytes per thread as `ptxas -v` counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spills {
    /// Bytes of spill stores.
    pub store_bytes: u64,
    /// Bytes of spill loads.
    pub load_bytes: u64,
}

/// Facts about one symbol from the module's `.nv.info`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PerSymbol {
    registers: Option<u32>,
    frame: Option<u32>,
    stack: Option<u32>,
}

pub(super) fn per_symbol(module: &[Attribute<'_>]) -> HashMap<u32, PerSymbol> {
    let mut map: HashMap<u32, PerSymbol> = HashMap::new();
    for attribute in module {
        let mut words = attribute.payload.words();
        let (Some(symbol), Some(value)) = (words.next(), words.next()) else { continue };
        let entry = map.entry(symbol).or_default();
        match attribute.code {
            code::REGCOUNT => entry.registers = Some(value),
            code::FRAME_SIZE => entry.frame = Some(value),
            code::MIN_STACK_SIZE => entry.stack = Some(value),
            _ => {}
        }
    }
    map
}

/// The symbol, sections and attributes of a kernel.
pub(super) struct KernelSource<'s, 'a> {
    pub(super) abi: Abi,
    pub(super) sm: u32,
    /// Whether the toolkit writes a record of spills for every kernel that has any.
    pub(super) records_spills: bool,
    pub(super) symbol_index: usize,
    pub(super) symbol: &'s Symbol<'a>,
    pub(super) text: &'s Section<'a>,
}

pub(super) fn assemble(
    source: &KernelSource<'_, '_>,
    facts: Option<&PerSymbol>,
    own: KernelSections<'_, '_>,
) -> Kernel {
    let facts = facts.copied().unwrap_or_default();
    let text = source.text;
    let shared = own.shared.map_or(0, |s| s.size);
    // Sections of sm_90 and up begin with 1 KiB that belongs to the system.
    let reserved = if source.sm >= 90 { shared.min(1024) } else { 0 };
    let mut kernel = Kernel {
        name: String::from_utf8_lossy(source.symbol.name).into_owned(),
        section_index: source.symbol.section,
        symbol_index: source.symbol_index,
        registers: facts.registers,
        max_registers: None,
        stack: facts.stack.map(|n| match n {
            u32::MAX => Stack::Unbounded,
            n => Stack::Bytes(n),
        }),
        frame_bytes: facts.frame,
        local_bytes: own.local.map_or(0, |s| s.size),
        shared_bytes: shared - reserved,
        shared_reserved_bytes: reserved,
        constants: own.constants,
        barriers: 0,
        mbarriers: 0,
        max_threads: None,
        required_block: None,
        cluster: None,
        max_cluster_rank: None,
        params: Vec::new(),
        param_offset: None,
        param_bytes: None,
        spills: source.records_spills.then(Spills::default),
        code_offset: text.offset.saturating_add(source.symbol.value),
        code_bytes: if source.symbol.size > 0 { source.symbol.size } else { text.size },
        exits: Vec::new(),
        tcgen05_one_cta: false,
        tcgen05_two_cta: false,
        other_attributes: Vec::new(),
    };
    if source.abi == Abi::V7 {
        kernel.barriers = (text.flags >> 20 & 0x7f) as u32;
    }
    for attribute in &own.info {
        apply(&mut kernel, attribute, text);
    }
    kernel.params.sort_by_key(|p| p.ordinal);
    kernel
}

fn apply(kernel: &mut Kernel, attribute: &Attribute<'_>, text: &Section<'_>) {
    let payload = &attribute.payload;
    match attribute.code {
        code::MAX_THREADS => kernel.max_threads = payload.triple(),
        code::REQNTID => kernel.required_block = payload.triple(),
        code::CTA_PER_CLUSTER => kernel.cluster = payload.triple(),
        code::MAX_CLUSTER_RANK => kernel.max_cluster_rank = payload.number(),
        code::MAXREG_COUNT => kernel.max_registers = payload.number(),
        code::NUM_BARRIERS => kernel.barriers = payload.number().unwrap_or(0),
        code::NUM_MBARRIERS => kernel.mbarriers = payload.number().unwrap_or(0),
        code::EXIT_INSTR_OFFSETS => kernel.exits = payload.words().collect(),
        code::TCGEN05_1CTA_USED => kernel.tcgen05_one_cta = payload.is_set(),
        code::TCGEN05_2CTA_USED => kernel.tcgen05_two_cta = payload.is_set(),
        code::KPARAM_INFO | code::KPARAM_INFO_V2 => {
            // u32 index, u16 ordinal, u16 offset, u32 with the size: above bit 18, or, since
            // parameters may exceed 4 KiB, in the low 16 bits.
            let mut words = payload.words().skip(1);
            if let (Some(place), Some(size)) = (words.next(), words.next()) {
                kernel.params.push(Param {
                    ordinal: place & 0xffff,
                    offset: place >> 16,
                    bytes: if attribute.code == code::KPARAM_INFO {
                        size >> 18
                    } else {
                        size & 0xffff
                    },
                });
            }
        }
        code::PARAM_CBANK => {
            if let Some(place) = payload.words().nth(1) {
                kernel.param_offset = Some(place & 0xffff);
                kernel.param_bytes = Some(place >> 16);
            }
        }
        code::ANNOTATIONS => {
            let spills = kernel.spills.get_or_insert_default();
            let words: Vec<u32> = payload.words().collect();
            for pair in words.chunks_exact(2).filter(|p| p[0] == SPILL_OR_REFILL) {
                count_spill(spills, text.data, pair[1]);
            }
        }
        other => kernel.other_attributes.push(other),
    }
}

/// The kind of annotation that marks an instruction as a spill or a refill.
const SPILL_OR_REFILL: u32 = 1;

/// Adds the bytes accessed by the 128-bit instruction at `offset`.
fn count_spill(spills: &mut Spills, code: &[u8], offset: u32) {
    const STORE_LOCAL: u64 = 0x387;
    let at = offset as usize;
    let Some(bytes) = at.checked_add(16).and_then(|end| code.get(at..end)) else { return };
    let half = |from: usize| -> u64 {
        bytes[from..from + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
    };
    let (low, high) = (half(0), half(8));
    // Bits 73-75: the access width.
    let width = match high >> 9 & 7 {
        0 | 1 => 1,
        2 | 3 => 2,
        4 => 4,
        5 => 8,
        _ => 16,
    };
    if low & 0xfff == STORE_LOCAL {
        spills.store_bytes += width;
    } else {
        spills.load_bytes += width;
    }
}
