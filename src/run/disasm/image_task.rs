//! What is asked of files: which of their images and kernels, and what becomes of them.

use std::path::PathBuf;
use std::sync::OnceLock;

use regex::Regex;
use rgpu_format::container::Limits;
use rgpu_format::demangle::demangle;

use super::code::LifeRanges;
use super::names::FileNames;
use super::nvdisasm::Nvdisasm;
use crate::import::gpu_code::ListingColumns;

/// Which images and kernels are wanted.
#[derive(Debug, Default)]
pub struct ImageFilter {
    /// Architectures as typed (`sm_90a`, `90`); all where empty.
    pub arches: Vec<String>,
    /// A kernel's symbol or demangled name must match one of these; all where empty.
    pub kernels: Vec<Regex>,
}

/// What is done with each image.
#[derive(Debug, Default)]
pub struct ImageTask {
    /// Which.
    pub wanted: ImageFilter,
    /// Where files go; nothing is written without.
    pub out: Option<PathBuf>,
    /// Listings are written.
    pub sass: bool,
    /// Each kernel has a listing of its own.
    pub by_kernel: bool,
    /// Cubins and PTX are written.
    pub extract: bool,
    /// Headers only: no image is decompressed, no kernel is looked at.
    pub list_only: bool,
    /// Columns of listings.
    pub shown: ListingColumns,
    /// Life ranges of registers, in views.
    pub lives: LifeRanges,
    /// The tool that knows operands, where there is one.
    pub nvdisasm: Option<Nvdisasm>,
    /// Threads of a block that occupancy is told for, where the kernel does not say.
    pub threads: Option<u32>,
    /// Bounds.
    pub limits: Limits,
    /// Names already taken in `out`.
    pub names: FileNames,
    /// Why something could not be written, said by the first that could not.
    pub unwritten: OnceLock<String>,
}

impl ImageTask {
    /// Something could not be written.
    pub(super) fn not_written(&self, why: &str) {
        // The first says it all.
        let _ = self.unwritten.set(why.to_owned());
    }
}

impl ImageFilter {
    /// Whether code for `arch` is wanted: `sm_100` lets `sm_100a` and `sm_100f` through too, whose
    /// code runs on the same GPUs; `sm_100a` only itself.
    pub fn arch(&self, arch: &str) -> bool {
        fn plain(arch: &str) -> &str {
            arch.trim_start_matches("sm_").trim_start_matches("compute_")
        }
        let arch = plain(arch);
        let of = |asked: &str| arch == asked || arch.strip_suffix(['a', 'f']) == Some(asked);
        self.arches.is_empty() || self.arches.iter().any(|asked| of(plain(asked)))
    }

    /// Whether a kernel or function is wanted by its symbol.
    pub fn kernel(&self, symbol: &str) -> bool {
        if self.kernels.is_empty() {
            return true;
        }
        let name = demangle(symbol);
        let named =
            |k: &Regex| k.is_match(symbol) || name.as_deref().is_some_and(|n| k.is_match(n));
        self.kernels.iter().any(named)
    }
}
