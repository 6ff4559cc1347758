//! Finds GPU code in any file that may contain it.
//!
//! [`walk`] searches cubins, fatbins, PTX, host ELF files (objects, executables, shared libraries:
//! sections `.nv_fatbin` and `__nv_relfatbin`), Windows programs and objects (`.nv_fatb`), `ar`
//! archives of those, zip files (wheels), and arrays of numbers in C sources (`*.cubin.cpp`). It
//! passes each [`Image`] to the caller with its [`ImagePath`]; [`batches`] passes many at once, for
//! several threads. A part that cannot be read is passed as an error, and the walk continues.
//! Images are decompressed only on request. Members of a zip file are decompressed one at a time,
//! and only if their first bytes show a kind of interest.
//!
//! Sizes in the file are not trusted: [`crate::unpack`] and [`Limits`] bound the unpacked size of a
//! compressed part, the number of members and the nesting depth. Names in zip files that point
//! outside of the folder they would be unpacked to are refused.
//!
//! Sources: the ELF and `ar` formats as goblin reads them, zip as the zip crate does; section names
//! as nvcc 12 and 13 and clang write them.

mod archive;
mod c_array;
mod host;
mod walk;
mod windows;
mod zipped;

pub use walk::{ContainerKind, Image, ImageEntry, ImagePath, batches, kind, walk};

use crate::fatbin::FatbinError;
use crate::memory::OverBudget;
use crate::unpack::TooLarge;
use thiserror::Error;

/// Limits on the resources that reading a file may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum unpacked bytes of one compressed part.
    pub unpacked_bytes: u64,
    /// Maximum unpacked bytes of all members of a zip file together.
    pub total_bytes: u64,
    /// Maximum members of an archive or zip file.
    pub members: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { unpacked_bytes: 4 << 30, total_bytes: 16 << 30, members: 1 << 20 }
    }
}

/// The reason why a file, or a part of it, could not be searched.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ContainerError {
    /// The file is of no kind that may hold GPU code.
    #[error("not a file that holds GPU code: it starts with `{start}`")]
    UnknownFile {
        /// The first bytes, escaped.
        start: String,
    },
    /// The host ELF file is broken.
    #[error("broken ELF file: {cause}")]
    HostElf {
        /// The message of the ELF library.
        cause: String,
    },
    /// The Windows program or object file is broken.
    #[error("broken file of Windows: {cause}")]
    Windows {
        /// The message of the library.
        cause: String,
    },
    /// A section extends beyond the file.
    #[error("section {index} (`{section}`) runs past the end of the file")]
    CutSection {
        /// The section's name in the ELF file, such as `.nv_fatbin`.
        section: String,
        /// The section's index in the ELF file: several can have one name.
        index: usize,
    },
    /// A section has bytes that a section before it has too. Only the first such section is told.
    #[error("section {index} (`{section}`) has bytes of a section before it and is not read")]
    SharedSection {
        /// The section's name.
        section: String,
        /// The section's index in the file.
        index: usize,
    },
    /// The `ar` archive is broken.
    #[error("broken archive: {cause}")]
    Archive {
        /// The message of the archive library.
        cause: String,
    },
    /// The zip file or a member is broken, or uses a feature that is not supported.
    #[error("broken zip file: {cause}")]
    Zip {
        /// The message of the zip library.
        cause: String,
    },
    /// A member's name points outside of the folder it would be unpacked to.
    #[error("the member's name points outside of the archive and is refused")]
    HostilePath,
    /// A member would become too large.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// There are more members than the limit.
    #[error("{count} members, more than the {limit} that are looked at")]
    TooMany {
        /// Members of the archive, or images found so far.
        count: usize,
        /// [`Limits::members`].
        limit: usize,
    },
    /// There are more images, or parts that cannot be read, than a file of its size may have.
    #[error("after {count} images the rest is left out: {over}")]
    TooManyImages {
        /// Images and broken parts before.
        count: usize,
        /// The limit.
        over: OverBudget,
    },
    /// A fatbin is broken.
    #[error(transparent)]
    Fatbin(#[from] FatbinError),
}
