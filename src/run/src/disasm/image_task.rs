//! Filters and options for reading compiled code.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::OnceLock;

use regex::Regex;
use rgpu_format::container::Limits;
use rgpu_format::demangle::demangle;

use super::code::LifeRanges;
use super::names::FileNames;
use super::nvdisasm::Nvdisasm;
use rgpu_import::gpu_code::ListingColumns;

/// The images and kernels to read.
#[derive(Debug, Default)]
pub struct ImageFilter {
    /// Architectures as typed (`sm_90a`, `90`); empty for all.
    pub arches: Vec<String>,
    /// Patterns of which one must match a kernel's symbol or demangled name; empty for all.
    pub kernels: Vec<Regex>,
    /// The symbols of the only kernels to read; `None` for all.
    pub launched: Option<HashSet<String>>,
}

/// The work to do for each image.
#[derive(Debug, Default)]
pub struct ImageTask {
    /// The images and kernels to read.
    pub filter: ImageFilter,
    /// The output folder; `None` writes no files.
    pub out: Option<PathBuf>,
    /// Whether to write listings.
    pub write_listings: bool,
    /// Whether each kernel gets its own listing.
    pub by_kernel: bool,
    /// Whether to write cubins and PTX.
    pub extract: bool,
    /// Whether to read only headers, without decompressing images or reading kernels.
    pub list_only: bool,
    /// The columns of listings.
    pub columns: ListingColumns,
    /// Whether views have life ranges of registers.
    pub life_ranges: LifeRanges,
    /// The tool for operands, if there is one.
    pub nvdisasm: Option<Nvdisasm>,
    /// Threads per block for occupancy, if the kernel does not require a block size.
    pub threads: Option<u32>,
    /// Limits for reading containers.
    pub limits: Limits,
    /// File names that are taken in `out`.
    pub names: FileNames,
    /// The first error while writing a file.
    pub first_write_error: OnceLock<String>,
}

impl ImageTask {
    /// Records an error while writing a file.
    pub(super) fn record_write_error(&self, error: &str) {
        // Later errors have the same cause, so only the first is kept.
        let _ = self.first_write_error.set(error.to_owned());
    }
}

impl ImageFilter {
    /// Whether code for `arch` is requested: `sm_100` includes `sm_100a` and `sm_100f`, which run
    /// on the same GPUs; `sm_100a` only itself.
    pub fn matches_arch(&self, arch: &str) -> bool {
        fn plain(arch: &str) -> &str {
            arch.trim_start_matches("sm_").trim_start_matches("compute_")
        }
        let arch = plain(arch);
        let matches =
            |requested: &str| arch == requested || arch.strip_suffix(['a', 'f']) == Some(requested);
        self.arches.is_empty() || self.arches.iter().any(|requested| matches(plain(requested)))
    }

    /// Whether every kernel is requested.
    pub fn selects_all_kernels(&self) -> bool {
        self.kernels.is_empty() && self.launched.is_none()
    }

    /// Whether the kernel or function with this symbol is requested.
    pub fn matches_kernel(&self, symbol: &str) -> bool {
        if self.launched.as_ref().is_some_and(|launched| !launched.contains(symbol)) {
            return false;
        }
        if self.kernels.is_empty() {
            return true;
        }
        let name = demangle(symbol);
        let matches =
            |k: &Regex| k.is_match(symbol) || name.as_deref().is_some_and(|n| k.is_match(n));
        self.kernels.iter().any(matches)
    }
}
