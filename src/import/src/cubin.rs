//! Imports a cubin: one [`KernelCode`] for each of its kernels, with registers, stack, spills and
//! shared memory.
//!
//! `rgpu_format::cubin` reads the file. The entries become `code` of the profile.

use rgpu_format::cubin::{self, Cubin, Kernel, Stack};
use rgpu_format::demangle::demangle;

use super::{ImportedArtifact, Importer};
use rgpu_model::KernelCode;
use rgpu_model::profile::ArtifactKind;
use rgpu_model::profile::Gap;

pub(super) const IMPORTER: Importer = Importer {
    kind: ArtifactKind::Cubin,
    recognises: |_, head| cubin::is_cubin(head),
    import: |source| {
        let cubin = cubin::read(&source.bytes()?).map_err(|cause| source.broken(cause))?;
        Ok(import(&cubin, source.from))
    },
};

/// Imports a cubin; `from` is its path in the run folder.
pub fn import(cubin: &Cubin, from: &str) -> ImportedArtifact {
    let compiler = match (&cubin.producer, cubin.toolkit) {
        (Some(producer), Some(toolkit)) => format!("{} {toolkit}", producer.tool),
        (None, Some(toolkit)) => format!("ptxas {toolkit}"),
        _ => String::new(),
    };
    let mut imported = ImportedArtifact::default();
    for kernel in &cubin.kernels {
        if kernel.registers.is_none() {
            imported.gaps.push(Gap {
                code: "no_register_count".to_owned(),
                text: format!("{from}: the cubin has no register count for `{}`", kernel.name),
            });
        }
        imported.code.push(kernel_code(kernel, cubin, &compiler, from));
    }
    if cubin.kernels.is_empty() {
        let text = format!("{from}: the cubin has no kernel");
        imported.gaps.push(Gap { code: "no_kernels".to_owned(), text });
    }
    imported.tool_version = cubin.toolkit.map(|t| t.to_string());
    imported
}

fn kernel_code(kernel: &Kernel, cubin: &Cubin, compiler: &str, from: &str) -> KernelCode {
    let saturate = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    KernelCode {
        symbol: kernel.name.clone(),
        name: demangle(&kernel.name),
        arch: cubin.sm.to_string(),
        registers: kernel.registers.unwrap_or(0),
        stack_bytes: match kernel.stack {
            Some(Stack::Bytes(bytes)) => Some(bytes),
            Some(Stack::Unbounded) | None => None,
        },
        spill_store_bytes: kernel.spills.map(|s| saturate(s.store_bytes)),
        spill_load_bytes: kernel.spills.map(|s| saturate(s.load_bytes)),
        shared_bytes: saturate(kernel.shared_bytes),
        shared_reserved_bytes: Some(saturate(kernel.shared_reserved_bytes)).filter(|n| *n > 0),
        constant_bytes: saturate(
            kernel.constants.iter().map(|c| c.bytes).fold(0, u64::saturating_add),
        ),
        barriers: kernel.barriers,
        max_threads: kernel
            .required_block
            .or(kernel.max_threads)
            .map(|block| block.iter().fold(1, |product, n| n.saturating_mul(product))),
        code_bytes: kernel.code_bytes,
        compiler: compiler.to_owned(),
        from: from.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;
    use std::path::Path;

    #[test]
    fn kernels_of_a_cubin_become_code_with_their_spills() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .join("tests/fixtures/cubin/13.5/facts/sm_90a.cubin");
        let imported = (IMPORTER.import)(&Source::new(&path, "cubin/facts.cubin")).unwrap();
        assert!(imported.gaps.is_empty());
        let code = imported.code.iter().find(|c| c.symbol.contains("spilling")).unwrap();
        assert_eq!((code.arch.as_str(), code.compiler.as_str()), ("sm_90a", "ptxas 13.5"));
        assert_eq!((code.spill_store_bytes, code.spill_load_bytes), (Some(288), Some(316)));
        assert_eq!((code.registers, code.stack_bytes), (32, Some(152)));
        assert_eq!(code.name.as_deref(), Some("spilling(float*, Pair, char, unsigned short)"));
        assert_eq!((code.max_threads, code.from.as_str()), (Some(1024), "cubin/facts.cubin"));
        let shared = |name: &str| {
            let code = imported.code.iter().find(|c| c.symbol.contains(name)).unwrap();
            (code.shared_bytes, code.shared_reserved_bytes)
        };
        assert_eq!(shared("block_sum"), (1024, Some(1024)));
        assert_eq!(shared("spilling"), (0, None));
    }
}
