//! Kernels: their descriptions, checked, and the launch numbers for a problem size.
//!
//! A kernel is a folder with a `kernel.toml` (described in `kernels/README.md`), or a bare source
//! file from which a description can be inferred ([`language`]). [`find`] locates one by name or
//! path. [`KernelSpec::cases`] makes from it and a selection of sizes the [`rgpu_case::Case`]s that
//! the harness works on: expressions are evaluated here and nowhere else.
//!
//! The library reads no environment variables: the folders to search come in as [`KernelFolders`].

mod cases;
mod declaration;
mod document;
mod error;
pub mod expr;
pub mod find;
pub mod language;
mod mode;
mod own_files;
mod python;
mod read;
pub mod sizes;
mod source;
mod spec;

pub use cases::DEFAULT_SEED;
pub use error::KernelError;
pub use find::{FoundKernel, KernelFolders};
pub use language::{LANGUAGES, Language};
pub use mode::{Mode, UnknownMode};
pub use read::read;
pub use sizes::Selection;
pub use source::{SourceTree, is_private};
pub use spec::{
    ArgSpec, DeviceReference, Entry, KernelSpec, LaunchSpec, ModelSpec, NamedCase, PythonFunction,
    ReferenceSpec, ScalarValue, Sizes, Work,
};

use std::path::Path;

/// Whether `text` is a valid name of a kernel or a case: 1 to 80 letters, digits, `.`, `_`, `-`,
/// beginning with a letter or digit. Such a name is safe in file names and in NVTX filters.
pub fn valid_name(text: &str) -> bool {
    (1..=80).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// The name for the kernel in the bare source `file`: its stem, with each run of invalid characters
/// replaced by one `-` (`my kern.cu` becomes `my-kern`), or `kernel` if nothing is left.
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
    match name.is_empty() {
        true => "kernel".to_owned(),
        false => name,
    }
}

/// Whether `text` is a C identifier of at most 255 characters.
pub fn is_identifier(text: &str) -> bool {
    text.len() <= 255
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The GPU architectures that NVIDIA's compilers of CUDA 8 to 13 support: the number, and the
/// suffixes that it may have (`a`: only this architecture, `f`: its family).
const ARCHES: &[(u16, &str)] = &[
    (50, ""),
    (52, ""),
    (53, ""),
    (60, ""),
    (61, ""),
    (62, ""),
    (70, ""),
    (72, ""),
    (75, ""),
    (80, ""),
    (86, ""),
    (87, ""),
    (88, ""),
    (89, ""),
    (90, "a"),
    (100, "af"),
    (101, "af"),
    (103, "af"),
    (110, "af"),
    (120, "af"),
    (121, "af"),
];

/// Whether `text` names an existing GPU architecture: `sm_90`, `sm_90a`, `sm_100f`.
pub fn valid_arch(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("sm_") else { return false };
    ARCHES.iter().any(|(number, suffixes)| {
        rest.strip_prefix(&number.to_string()).is_some_and(|suffix| {
            suffix.is_empty() || suffix.len() == 1 && suffixes.contains(suffix)
        })
    })
}

/// All architectures, for an error message: `sm_90[a]`, `sm_100[a|f]`.
pub fn known_arches() -> String {
    let name = |(number, suffixes): &(u16, &str)| match *suffixes {
        "" => format!("sm_{number}"),
        "a" => format!("sm_{number}[a]"),
        _ => format!("sm_{number}[a|f]"),
    };
    ARCHES.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// Architectures that a current compiler supports, without suffixes: those from [`FIRST_SPECIFIC`]
/// on also exist with `a`, those from [`FIRST_FAMILY`] on with `f`. Source: `--gpu-architecture` of
/// nvcc 12.9 and 13.5, tried.
pub const ARCHITECTURES: &[u32] = &[75, 80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121];

/// The first architecture with an architecture-specific variant (`sm_90a`).
pub const FIRST_SPECIFIC: u32 = 90;

/// The first architecture with a family-specific variant (`sm_100f`).
pub const FIRST_FAMILY: u32 = 100;

/// Whether a current compiler can compile for the architecture `text`.
pub fn known_arch(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("sm_") else { return false };
    let (digits, first) = match rest.chars().last() {
        Some('a') => (&rest[..rest.len() - 1], FIRST_SPECIFIC),
        Some('f') => (&rest[..rest.len() - 1], FIRST_FAMILY),
        _ => (rest, 0),
    };
    digits.parse().is_ok_and(|n: u32| n >= first && ARCHITECTURES.contains(&n))
        && !digits.starts_with('+')
}

#[cfg(test)]
mod tests;
