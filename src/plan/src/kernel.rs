//! Kernels: their descriptions, checked, and the launch numbers for a problem size.
//!
//! A kernel is a folder with a `kernel.toml` (described in `kernels/README.md`), or a bare source
//! file from which a description can be inferred ([`language`]). [`find`] locates one by name or
//! path. [`KernelSpec::cases`] makes from it and a selection of sizes the [`rgpu_case::Case`]s that
//! the harness works on: expressions are evaluated here and nowhere else.
//!
//! The library reads no environment variables: the folders to search come in as [`KernelFolders`].

mod architecture;
mod cases;
mod cuda_source;
pub mod document;
mod error;
pub mod expr;
pub mod find;
pub mod language;
mod mode;
mod own_files;
mod python;
pub(crate) mod python_tokens;
mod read;
mod reference;
pub mod sizes;
mod source;
pub mod sources;
mod spec;
mod spec_text;

pub(crate) use reference::usual_tolerance;

pub use architecture::{
    SEVERAL_ARCHITECTURES, check_architecture, is_architecture, list_architectures,
};
pub use cases::DEFAULT_SEED;
pub use error::KernelError;
pub use error::NO_KERNELS;
pub use find::{FoundKernel, KernelFolders};
pub use language::{LANGUAGES, Language};
pub use mode::{
    FlagGroup, KERNEL_SURVEY, MODES, ModeInfo, ModeStep, ProfileMode, REGION_SURVEY, UnknownMode,
};
pub(crate) use own_files::OwnFiles;
pub use own_files::{CALL_PREFIX, CALLS_FOLDER, may_be_sent};
pub use python::{Import, imports};
pub use read::read;
pub use sizes::CaseSelection;
pub(crate) use source::includes;
pub use source::{SourceTree, example_instances, is_private};
pub use sources::{
    CudaInPython, Found, FoundProgram, KERNEL_SOURCES, KernelSource, SetProblem, problem_set,
};
pub use spec::{
    ArgSpec, DeclaredWork, DeviceReference, EntryPoint, InputsSpec, KernelSpec, LaunchSpec,
    ModelSpec, NamedCase, PythonFunction, ReferenceSpec, ScalarValue, Sizes, TaskSpec,
    plain_kernel_name,
};
pub use spec_text::toml_text;

use std::path::Path;

/// Whether `text` is a valid name of a kernel or a case: 1 to 80 letters, digits, `.`, `_`, `-`,
/// beginning with a letter or digit. Such a name is safe in file names and in NVTX filters.
pub fn valid_name(text: &str) -> bool {
    (1..=80).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// The name for the kernel in the bare source `file`: its stem, with each run of invalid characters
/// replaced by one `-` (`my kern.cu` becomes `my-kern`). If nothing is left, `kernel-` and six
/// digits of the stem's digest: two files of such names do not replace each other's results.
pub fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    if valid_name(&stem) {
        return stem.into_owned();
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let parts: Vec<&str> = stem.split(|c| !allowed(c)).filter(|part| !part.is_empty()).collect();
    let joined = parts.join("-");
    // The text is ASCII now, so that any index is a character boundary.
    let mut name = joined.trim_matches(['.', '_', '-']).to_owned();
    name.truncate(80);
    if name.is_empty() && !stem.is_empty() {
        let digest = rgpu_protocol::Digest::sha256(stem.as_bytes());
        name = format!("kernel-{}", &digest.as_str()[..6]);
    }
    if name.is_empty() { "kernel".to_owned() } else { name }
}

/// Whether `text` is a C identifier of at most 255 characters.
pub fn is_identifier(text: &str) -> bool {
    text.len() <= 255
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests;
