//! Search for GPU code in any file that may hold it.
//!
//! [`walk`] looks into cubins, fatbins, PTX, host ELF files (objects, executables, shared
//! libraries: sections `.nv_fatbin` and `__nv_relfatbin`), `ar` archives of those, and zip files
//! (wheels), and hands each [`Image`] to the caller, with the [`Place`] it came from; [`batches`]
//! hands over many at once, for several threads. A part that cannot be read is handed over as an
//! error and the walk goes on. Images are not
//! decompressed until asked; members of a zip file are, one at a time, but only those whose first
//! bytes say that they are of interest.
//!
//! Nothing here trusts sizes: [`crate::unpack`] and [`Limits`] bound what a compressed part may
//! become, how many members are looked at, and how deep files lie in files. Names in zip files that point outside of where
//! they would be unpacked are refused.
//!
//! Sources: the ELF and `ar` formats as goblin reads them, zip as the zip crate does; section names
//! as nvcc 12 and 13 and clang write them.

mod archive;
mod host;
mod walk;
mod zipped;

pub use walk::{Found, Image, Kind, Place, batches, kind, walk};

use crate::fatbin::FatbinError;
use crate::unpack::TooLarge;
use thiserror::Error;

/// What a file may make of us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes that one compressed part may unpack to.
    pub unpacked_bytes: u64,
    /// Most bytes that all members of a zip file together may unpack to.
    pub total_bytes: u64,
    /// Most members of an archive or zip file.
    pub members: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { unpacked_bytes: 4 << 30, total_bytes: 16 << 30, members: 1 << 20 }
    }
}

/// Why a file, or a part of it, could not be searched.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ContainerError {
    /// Nothing that may hold GPU code.
    #[error("not a file that holds GPU code: it starts with `{start}`")]
    UnknownFile {
        /// The first bytes, escaped.
        start: String,
    },
    /// The host ELF file is broken.
    #[error("broken ELF file: {cause}")]
    HostElf {
        /// What the ELF library says.
        cause: String,
    },
    /// A section's bytes are not in the file.
    #[error("section {index} (`{section}`) runs past the end of the file")]
    CutSection {
        /// The section's name.
        section: String,
        /// Its index.
        index: usize,
    },
    /// The `ar` archive is broken.
    #[error("broken archive: {cause}")]
    Archive {
        /// What the archive library says.
        cause: String,
    },
    /// The zip file, or a member, is broken or of a kind that is not read.
    #[error("broken zip file: {cause}")]
    Zip {
        /// What the zip library says.
        cause: String,
    },
    /// A member's name would leave the folder it is unpacked to.
    #[error("the member's name points outside of the archive and is refused")]
    HostilePath,
    /// A member would become too large.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// More members than are looked at.
    #[error("{count} members, more than the {limit} that are looked at")]
    TooMany {
        /// How many there are.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// A fatbin is broken.
    #[error(transparent)]
    Fatbin(#[from] FatbinError),
}
