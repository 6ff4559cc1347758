//! Compares two builds: facts, counts and instructions. Addresses, labels and padding are ignored;
//! code that differs only in scheduling counts as "the same text".

use std::collections::{BTreeMap, BTreeSet};

use super::lines_diff::{IgnoredDifferences, lines_diff};
use rgpu_model::code::{CodeDocument, CodeLine};
use rgpu_model::disasm::{
    Change, CodeSimilarity, CountsByName, Diff, DisasmDocument, Kernel, KernelDiff,
};

/// Name of the schema.
const SCHEMA: &str = "rgpu.disasm-diff/1";

/// Architecture, demangled name, and the number among kernels with both the same.
type KernelKey = (String, String, usize);

/// The kernels with their keys. Large libraries hold the same kernel in several images, so the keys
/// are numbered.
fn kernels(document: &DisasmDocument) -> Vec<(KernelKey, &Kernel)> {
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    let images = document.inputs.iter().flat_map(|input| &input.images);
    images
        .flat_map(|image| image.kernels.iter().map(|kernel| (image.arch.clone(), kernel)))
        .map(|(arch, kernel)| {
            let name = kernel.name.clone().unwrap_or_else(|| kernel.symbol.clone());
            let count = seen.entry((arch.clone(), name.clone())).or_default();
            *count += 1;
            ((arch, name, *count), kernel)
        })
        .collect()
}

/// The instructions by the same keys.
fn listings(code: &CodeDocument) -> BTreeMap<KernelKey, &[CodeLine]> {
    let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let images = code.images.iter();
    images
        .flat_map(|image| image.kernels.iter().map(move |kernel| (image.arch.as_str(), kernel)))
        .map(|(arch, kernel)| {
            let count = seen.entry((arch, kernel.shown())).or_default();
            *count += 1;
            let key = (arch.to_owned(), kernel.shown().to_owned(), *count);
            (key, kernel.instructions.as_slice())
        })
        .collect()
}

/// The old build's architecture, if each build is for a single one and they differ.
fn other_arch(old: &[(KernelKey, &Kernel)], new: &[(KernelKey, &Kernel)]) -> Option<String> {
    let single_arch = |all: &[(KernelKey, &Kernel)]| {
        let (first, _) = all.first()?;
        all.iter().all(|(key, _)| key.0 == first.0).then(|| first.0.clone())
    };
    let (old, new) = (single_arch(old)?, single_arch(new)?);
    (old != new).then_some(old)
}

/// One of the two compared builds; it borrows what was read of the build's files.
#[derive(Clone, Copy, Debug)]
pub struct DiffSide<'a> {
    /// The facts of its kernels.
    pub facts: &'a DisasmDocument,
    /// The instructions of its kernels.
    pub code: &'a CodeDocument,
}

/// Pairs the kernels of two builds by name, and compares their facts and listings.
pub fn diff(old: DiffSide<'_>, new: DiffSide<'_>, normalize: IgnoredDifferences) -> Diff {
    let texts = (listings(old.code), listings(new.code));
    let tools = || old.code.images.iter().chain(&new.code.images).filter_map(|i| i.tool.as_ref());
    // If one side has no operands, both listings were made by rgpu.
    let tool = tools().find(|t| t.starts_with("rgpu")).or_else(|| tools().next()).cloned();
    let (mut old, new) = (kernels(old.facts), kernels(new.facts));
    let mut texts = texts;
    let old_arch = other_arch(&old, &new);
    if let (Some(_), Some((key, _))) = (&old_arch, new.first()) {
        // Give the old kernels the new architecture, so that they match.
        old.iter_mut().for_each(|(k, _)| k.0.clone_from(&key.0));
        texts.0 = texts.0.into_iter().map(|(k, v)| ((key.0.clone(), k.1, k.2), v)).collect();
    }
    let (old, texts) = (old, texts);
    let before: BTreeMap<_, _> = old.iter().map(|(key, kernel)| (key, *kernel)).collect();
    let after: BTreeSet<_> = new.iter().map(|(key, _)| key).collect();
    let key_name = |key: &KernelKey| format!("{} {}", key.0, key.1);
    let removed_key_name = |key: &KernelKey| match &old_arch {
        Some(arch) => format!("{arch} {}", key.1),
        None => key_name(key),
    };
    let has_operands = tool.as_ref().is_some_and(|t| !t.starts_with("rgpu"));
    let normalized: &[&str] = match normalize {
        IgnoredDifferences::Addresses => &["addresses"],
        IgnoredDifferences::Registers => &["addresses", "registers"],
    };
    let pair = |key: &KernelKey, kernel: &Kernel| {
        let mut difference = compare_kernels(&key.0, &key.1, before.get(key)?, kernel);
        difference.old_arch.clone_from(&old_arch);
        if let (Some(a), Some(b)) = (texts.0.get(key), texts.1.get(key))
            && difference.code != CodeSimilarity::Identical
        {
            let listing = lines_diff(a, b, normalize);
            let same = listing.removed + listing.added == 0;
            if same && has_operands && normalize == IgnoredDifferences::Addresses {
                difference.code = CodeSimilarity::SameText;
            }
            difference.listing = Some(listing);
        }
        Some(difference)
    };
    Diff {
        schema: SCHEMA.to_owned(),
        normalized: normalized.iter().map(|n| (*n).to_owned()).collect(),
        kernels: new.iter().filter_map(|(key, kernel)| pair(key, kernel)).collect(),
        removed: old
            .iter()
            .map(|(k, _)| k)
            .filter(|k| !after.contains(k))
            .map(removed_key_name)
            .collect(),
        added: new
            .iter()
            .map(|(k, _)| k)
            .filter(|k| !before.contains_key(k))
            .map(key_name)
            .collect(),
        tool,
    }
}

fn compare_kernels(arch: &str, name: &str, old: &Kernel, new: &Kernel) -> KernelDiff {
    let numbers = |k: &Kernel| -> Vec<(&'static str, Option<f64>)> {
        let of = |n: u64| Some(n as f64);
        vec![
            ("registers", k.registers.map(f64::from)),
            ("stack bytes", k.stack_bytes.map(f64::from)),
            ("spill store bytes", k.spill_store_bytes.and_then(of)),
            ("spill load bytes", k.spill_load_bytes.and_then(of)),
            ("local bytes", of(k.local_bytes)),
            ("shared bytes", of(k.shared_bytes)),
            ("barriers", Some(f64::from(k.barriers))),
            ("occupancy percent", k.occupancy.as_ref().map(|o| o.percent)),
            ("instructions", k.instructions.and_then(of)),
            ("loops", k.loops.and_then(of)),
        ]
    };
    let changes = numbers(old).into_iter().zip(numbers(new)).filter(|(a, b)| a.1 != b.1);
    KernelDiff {
        arch: arch.to_owned(),
        old_arch: None,
        name: name.to_owned(),
        code: if old.code_sha256 == new.code_sha256 {
            CodeSimilarity::Identical
        } else if old.shape_sha256 == new.shape_sha256 {
            CodeSimilarity::SameInstructions
        } else {
            CodeSimilarity::Different
        },
        changes: changes
            .map(|((what, old), (_, new))| Change { what: what.to_owned(), old, new })
            .collect(),
        classes: counts(&old.classes, &new.classes),
        mnemonics: counts(&old.mnemonics, &new.mnemonics),
        listing: None,
    }
}

/// The counts that differ, largest difference first.
fn counts(old: &CountsByName, new: &CountsByName) -> Vec<Change> {
    let names: BTreeSet<&str> = old.keys().chain(new.keys()).map(AsRef::as_ref).collect();
    let count = |all: &CountsByName, name: &str| all.get(name).copied().unwrap_or(0);
    let mut changes: Vec<(u64, Change)> = names
        .into_iter()
        .map(|name| (name, count(old, name), count(new, name)))
        .filter(|(_, a, b)| a != b)
        .map(|(name, a, b)| {
            let change = Change { what: name.to_owned(), old: Some(a as f64), new: Some(b as f64) };
            (a.abs_diff(b), change)
        })
        .collect();
    changes.sort_by_key(|(by, _)| std::cmp::Reverse(*by));
    changes.into_iter().map(|(_, change)| change).collect()
}
