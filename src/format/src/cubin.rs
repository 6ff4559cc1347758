//! Reader of cubins: the ELF files that hold one GPU's machine code.
//!
//! It returns the facts that `cuobjdump -res-usage`, `cuobjdump -elf` and `ptxas -v` print:
//! resources per kernel, parameters, spills, launch bounds, the compiler and its command line, and
//! the PTX text that `-lineinfo` stores. [`lines`] maps an instruction to its source line and
//! inlined function. Instructions are not decoded here, except for the width of spills.
//!
//! # Layout
//! | part | ABI 7 (ptxas ≤ 12.9, sm ≤ 90) | ABI 8 (sm 100+ since 12.8, everything since 13.0) |
//! |---|---|---|
//! | `EI_OSABI`, `EI_ABIVERSION` | 0x33, 7 | 0x41, 8 |
//! | `e_version` | toolkit: 129 is 12.9 | 1 (toolkit in `.note.nv.cuinfo`, or in 12.9's `.note.nv.tkinfo`) |
//! | SM | `e_flags & 0xff` | `e_flags >> 8 & 0xff` |
//! | accelerated (`a`) | `e_flags & 0x800` | `e_flags & 8`, or `.nv.compat` code 9 is 1 |
//! | family (`f`) | - | only in the command line of `.note.nv.tkinfo` |
//! | barriers of a kernel | bits 20-26 of `.text.K`'s `sh_flags` | attribute 0x4c of `.nv.info.K` |
//!
//! The ABI version selects the layout, never the SM. Section names repeat in large cubins, so
//! everything is keyed by section index: `sh_info` of `.nv.info.K`, `.nv.shared.K` and
//! `.nv.constantN.K` is the index of `.text.K`. Entries are functions with `st_other & 0x10`.
//!
//! Sources: files of ptxas 12.9 and nvcc 13.5 (sm_80, sm_90a, sm_100a), compared with NVIDIA's
//! tools; attribute codes as `cuobjdump -elf` 13.5 names them.

mod attribute;
mod code;
mod elf;
mod kernel;
mod lines;
mod note;
mod read;

pub use attribute::{Attribute, Payload};
pub use code::{CodeSection, Function};
pub use kernel::{ConstantBank, Kernel, Param, Spills, Stack};
pub use lines::{FunctionLines, Lines, Location, Table, lines};
pub use note::Producer;
pub use read::{Abi, Cubin, FileKind, KeptPtx, Sm, SmVariant, Toolkit, is_cubin, read};

use thiserror::Error;

/// The reason why bytes could not be read as a cubin. Offsets are in bytes from the start of the
/// file.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum CubinError {
    /// No ELF magic at the start.
    #[error("not an ELF file: it starts with `{start}`")]
    NotElf {
        /// The first bytes, in hexadecimal.
        start: String,
    },
    /// The ELF file is not for a GPU.
    #[error("an ELF file for machine {machine}, not a cubin (machine 190)")]
    NotCuda {
        /// `e_machine` of the header.
        machine: u16,
    },
    /// A layout version that this reader does not know.
    #[error("cubin with ELF ABI version {abi_version} (OS ABI 0x{os_abi:02x}); known are 7 and 8")]
    UnknownAbi {
        /// `EI_OSABI` of the ELF header.
        os_abi: u8,
        /// `EI_ABIVERSION` of the ELF header.
        abi_version: u8,
    },
    /// The ELF structure is broken or cut off.
    #[error("broken ELF structure in {part}: {cause}")]
    Elf {
        /// The damaged table or section.
        part: String,
        /// The message of the ELF library.
        cause: String,
    },
    /// A line table is broken or cut off.
    #[error("broken line table in `{section}`: {cause}")]
    Lines {
        /// Name of the section with the line table, such as `.debug_line`.
        section: String,
        /// The message of the DWARF reader.
        cause: String,
    },
    /// An attribute record extends beyond its section.
    #[error("attribute record at offset {offset} of `{section}` runs past the section's end")]
    CutAttribute {
        /// Name of the section with the attributes, such as `.nv.info`.
        section: String,
        /// Offset in the file.
        offset: u64,
    },
}
