//! What a CUDA source says about its kernels: their parameters, the instances of templates, how
//! the host launches them, and which elements of each array they touch.
//!
//! [`infer::infer`] makes a [`super::KernelSpec`] of it. Nothing is compiled or run, and what the
//! source does not say is left open and refused with its line.

use std::path::Path;

use rgpu_model::agent_files;

mod declare;
mod defaults;
mod guess;
mod host;
pub(super) mod infer;
mod instance;
mod lex;
mod machine;
mod parse;
mod polynomial;
mod preprocess;
mod range;
mod repeat;
mod tree;
mod types;

#[cfg(test)]
mod tests;

pub(super) use declare::Declared;

/// Bytes of a header that are read.
const MAX_HEADER_BYTES: u64 = 4 << 20;

/// Reads the declarations of the source `file` with this text, and of the headers that it includes
/// from its own folder.
pub(super) fn read(file: &Path, text: &str) -> Declared {
    let folder = file.parent().unwrap_or(Path::new(""));
    let read_include = |name: &str| {
        if name.starts_with('/') {
            return None;
        }
        let path = folder.join(name);
        let real = path.canonicalize().ok()?;
        if super::is_private(&path) || super::is_private(&real) {
            return None;
        }
        let bytes = agent_files::read(&path, MAX_HEADER_BYTES).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    declare::declared(&preprocess::preprocess(text, &read_include))
}
