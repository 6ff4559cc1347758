//! What a CUDA source says about its kernels: their parameters, the instances of templates, how
//! the host launches them, and which elements of each array they touch.
//!
//! [`infer::infer`] makes a [`super::KernelSpec`] of it. Nothing is compiled or run, and what the
//! source does not say is left open and refused with its line.

use std::collections::HashSet;
use std::path::Path;

use super::KernelFolders;
use super::own_files::OwnFiles;
use super::source::included_file;
use rgpu_model::agent_files;

mod calls;
mod conditions;
mod declare;
mod defaults;
mod device_code;
mod expression;
mod guess;
mod host;
pub(super) mod infer;
mod instance;
mod lex;
mod limits;
mod machine;
mod members;
mod parse;
mod polynomial;
mod preprocess;
mod range;
mod repeat;
mod spec_builder;
mod tree;
mod types;

#[cfg(test)]
mod tests;

pub(super) use declare::{Declared, Function, Param};
pub(super) use device_code::{device_code, includes_torch};

/// Bytes of a header that are read.
const MAX_HEADER_BYTES: u64 = 4 << 20;

/// Reads the declarations of the source `file` with this text, and of the headers that it includes
/// from its own folder.
pub(super) fn read(file: &Path, text: &str) -> Declared {
    let folder = file.parent().unwrap_or(Path::new(""));
    let own_files = OwnFiles::find(folder, &KernelFolders::default());
    let read_include = |name: &str| {
        if name.starts_with('/') {
            return None;
        }
        let path = included_file(folder, name, folder, &own_files);
        let real = path.canonicalize().ok()?;
        if super::is_private(&path) || super::is_private(&real) {
            return None;
        }
        let bytes = agent_files::read(&path, MAX_HEADER_BYTES).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    declare::declared(&preprocess::preprocess(text, &read_include))
}

/// Reads the declarations of a source with this text, without what it includes.
pub(super) fn declarations(text: &str) -> Declared {
    declare::declared(&preprocess::preprocess(text, &|_| None))
}

/// The names of the kernels that a source with this text defines, each once.
pub(super) fn kernel_names(text: &str) -> Vec<String> {
    if !text.contains("__global__") {
        return Vec::new();
    }
    let mut known = HashSet::new();
    let names = declarations(text).kernels.into_iter().map(|kernel| kernel.name.to_string());
    names.filter(|name| known.insert(name.clone())).collect()
}

/// Whether a source with this text is a program: it has a `main`.
pub(super) fn has_main(text: &str) -> bool {
    text.contains("main") && declarations(text).has_main
}

/// Whether a kernel launches kernels. Such a program is linked with the device runtime.
pub(super) fn launches_on_device(text: &str) -> bool {
    text.contains("<<<") && declarations(text).kernels.iter().any(Function::has_launch)
}
