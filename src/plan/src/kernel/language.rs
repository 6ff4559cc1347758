//! Languages of kernels, and how each infers a description from a bare source file.

use std::path::Path;

use super::{FoundKernel, KernelError, KernelSpec};

mod cuda;
mod python;

/// A language that kernels are written in.
pub trait Language: Sync {
    /// Value of `language` in kernel.toml.
    fn name(&self) -> &'static str;

    /// The extensions of its source files, without the dot.
    fn extensions(&self) -> &'static [&'static str];

    /// The spec inferred from a bare source, and the assumptions made, in words. `launch` is the
    /// value of `--launch`: the kernel's name, or a launch as in CUDA.
    fn infer(
        &self,
        file: &Path,
        text: &str,
        launch: Option<&str>,
    ) -> Result<FoundKernel, KernelError>;

    /// A spec that serves only to compile a bare source with all its kernels: it has no arguments
    /// and no sizes. `None` if there is nothing to compile.
    fn compiled(&self, _file: &Path, _text: &str) -> Option<KernelSpec> {
        None
    }

    /// A kernel.toml for a bare source, with comments at the lines to check.
    fn skeleton(
        &self,
        file: &Path,
        text: &str,
        launch: Option<&str>,
    ) -> Result<String, KernelError>;
}

/// Every language that a kernel.toml may name.
pub static LANGUAGES: &[&dyn Language] = &[&cuda::Cuda, &python::Python];
