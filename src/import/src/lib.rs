//! Converts the files of tools and of the harness to the types of a profile, one module for each
//! kind of artifact.
//!
//! An importer reads one artifact of the run folder and returns its content as an
//! [`ImportedArtifact`], which `rgpu_run::run` adds to the run's profile
//! ([`ImportedArtifact::add_to`]). If a tool claims success but its report has no results, the
//! content names that ([`RejectedReport`]), and the run tries the next rung. To add a kind of
//! artifact: write the file and add its line to [`IMPORTERS`].

// Tests make what they like.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use rgpu_model::profile::ArtifactKind;

mod histogram;
mod imported;
mod region_tree;
mod sound_times;
mod source;
mod trace_events;

pub mod case_report;
pub mod cubin;
pub mod gpu_code;
pub mod join;
pub mod ncu;
pub mod ncu_csv;
pub mod nsys;
pub mod nsys_stats;
pub mod nvbench;
pub mod nvtx;
pub mod ranges;
pub mod sanitizer;
pub mod torch_trace;

pub use imported::{ImportedArtifact, RejectedReport};
pub use nsys::NO_GPU_ROWS;
pub use source::{DEFAULT_MAX_BYTES, Detail, ImportError, ReadProgress, Source, TracedActivity};

/// How one kind of artifact is imported.
#[derive(Clone, Debug)]
pub struct Importer {
    /// The kind, as plans name it in their artifacts.
    pub kind: ArtifactKind,
    /// Whether a file without a plan is of this kind, by its name and its first bytes.
    pub recognises: fn(name: &str, head: &[u8]) -> bool,
    /// Parses a file of this kind and converts it.
    pub import: fn(&Source<'_>) -> Result<ImportedArtifact, ImportError>,
}

/// Every importer. Kinds of artifacts without an importer are only fetched.
pub static IMPORTERS: &[Importer] = &[
    ncu::IMPORTER,
    nsys::REPORT_IMPORTER,
    nsys::SQLITE_IMPORTER,
    nsys::CAPTURE_IMPORTER,
    ncu_csv::IMPORTER,
    nsys_stats::IMPORTER,
    sanitizer::LOG_IMPORTER,
    sanitizer::XML_IMPORTER,
    case_report::IMPORTER,
    cubin::IMPORTER,
    nvtx::IMPORTER,
    ranges::IMPORTER,
    torch_trace::IMPORTER,
    nvbench::IMPORTER,
];
