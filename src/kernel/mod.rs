//! Kernels: what the user says about one, checked, and the numbers that follow for a problem size.
//!
//! A kernel is a folder with a `kernel.toml` (described in `kernels/README.md`), or a bare source
//! from which the same can be inferred ([`language`]). [`find`] locates one by name or path, and
//! [`KernelSpec::cases`] turns it and a choice of sizes into the [`rgpu_case::DataSet`]s that the
//! harness works on: expressions are evaluated here and nowhere else.
//!
//! The library reads no environment: the folders to search come in as [`Places`].

mod cases;
mod declaration;
mod document;
mod error;
pub mod expr;
pub mod find;
pub mod language;
mod mode;
mod read;
pub mod sizes;
mod source;
mod spec;

pub use cases::DEFAULT_SEED;
pub use error::KernelError;
pub use find::{Loaded, Places};
pub use language::{LANGUAGES, Language};
pub use mode::{Mode, UnknownMode};
pub use read::read;
pub use sizes::Selection;
pub use source::{SourceTree, is_private};
pub use spec::{
    ArgSpec, DeviceReference, Entry, KernelSpec, LaunchSpec, NamedCase, ReferenceSpec, ScalarValue,
    Sizes, Work,
};

/// Whether `text` may name a kernel or a case: 1 to 80 letters, digits, `.`, `_`, `-`, beginning
/// with a letter or digit. Such a name is safe in file names and in NVTX filters.
pub fn valid_name(text: &str) -> bool {
    (1..=80).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

/// Whether `text` is an identifier of C, at most 255 characters.
pub fn is_identifier(text: &str) -> bool {
    text.len() <= 255
        && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether `text` is the name of a GPU architecture: `sm_90`, `sm_90a`, `sm_100f`.
pub fn valid_arch(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("sm_") else { return false };
    let digits = rest.strip_suffix(['a', 'f']).unwrap_or(rest);
    (2..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests;
