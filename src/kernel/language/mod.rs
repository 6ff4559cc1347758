//! Languages that kernels are written in: what each can say of a bare source file.

use std::path::Path;

use super::{KernelError, KernelSpec};

mod cuda;
mod python;

/// A language of kernels.
pub trait Language: Sync {
    /// As `language = "…"` in kernel.toml.
    fn name(&self) -> &'static str;

    /// The extension of its source files, without the dot.
    fn extension(&self) -> &'static str;

    /// The spec of a bare source, and in words what had to be assumed.
    ///
    /// # Errors
    /// [`KernelError::NotInferred`] where the source leaves more than one way open.
    fn infer(&self, file: &Path, text: &str) -> Result<(KernelSpec, Vec<String>), KernelError>;

    /// A spec that is good for compiling a bare source and for nothing else: all its kernels, none
    /// of them with arguments or sizes. `None` where there is nothing to compile in it.
    fn compiled(&self, _file: &Path, _text: &str) -> Option<KernelSpec> {
        None
    }

    /// A kernel.toml for a bare source, with comments where the user must look.
    ///
    /// # Errors
    /// [`KernelError::NotInferred`] where the source has no kernel at all.
    fn skeleton(&self, file: &Path, text: &str) -> Result<String, KernelError>;
}

/// Every language.
pub static LANGUAGES: &[&dyn Language] = &[&cuda::Cuda, &python::Python];
