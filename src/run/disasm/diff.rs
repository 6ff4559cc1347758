//! What changed between two builds, from their facts alone: addresses, labels and padding do not
//! count, registers and scheduling only as "the same instructions".

use std::collections::{BTreeMap, BTreeSet};

use crate::model::disasm::{Change, Diff, Disasm, Kernel, KernelDiff, Sameness};

/// The schema's name.
const SCHEMA: &str = "rgpu.disasm-diff/1";

/// Kernels by architecture and demangled name, with how often the pair came before: large
/// libraries hold the same kernel in several images.
fn kernels(document: &Disasm) -> Vec<((String, String, usize), &Kernel)> {
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

/// Holds two builds against each other.
pub fn diff(old: &Disasm, new: &Disasm) -> Diff {
    let (old, new) = (kernels(old), kernels(new));
    let before: BTreeMap<_, _> = old.iter().map(|(key, kernel)| (key, *kernel)).collect();
    let after: BTreeSet<_> = new.iter().map(|(key, _)| key).collect();
    let shown = |key: &(String, String, usize)| format!("{} {}", key.0, key.1);
    Diff {
        schema: SCHEMA.to_owned(),
        kernels: new
            .iter()
            .filter_map(|(key, kernel)| Some(one(&key.0, &key.1, before.get(key)?, kernel)))
            .collect(),
        removed: old.iter().map(|(k, _)| k).filter(|k| !after.contains(k)).map(shown).collect(),
        added: new.iter().map(|(k, _)| k).filter(|k| !before.contains_key(k)).map(shown).collect(),
    }
}

fn one(arch: &str, name: &str, old: &Kernel, new: &Kernel) -> KernelDiff {
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
            ("instructions", of(k.instructions)),
            ("loops", of(k.loops)),
        ]
    };
    let changes = numbers(old).into_iter().zip(numbers(new)).filter(|(a, b)| a.1 != b.1);
    let names: BTreeSet<&String> = old.mnemonics.keys().chain(new.mnemonics.keys()).collect();
    let count = |k: &Kernel, name: &String| k.mnemonics.get(name).copied().unwrap_or(0);
    let mut mnemonics: Vec<(u64, Change)> = names
        .into_iter()
        .map(|name| (name, count(old, name), count(new, name)))
        .filter(|(_, a, b)| a != b)
        .map(|(name, a, b)| {
            let change = Change { what: name.clone(), old: Some(a as f64), new: Some(b as f64) };
            (a.abs_diff(b), change)
        })
        .collect();
    mnemonics.sort_by_key(|(by, _)| std::cmp::Reverse(*by));
    KernelDiff {
        arch: arch.to_owned(),
        name: name.to_owned(),
        code: if old.code_sha256 == new.code_sha256 {
            Sameness::Identical
        } else if old.shape_sha256 == new.shape_sha256 {
            Sameness::SameInstructions
        } else {
            Sameness::Different
        },
        changes: changes
            .map(|((what, old), (_, new))| Change { what: what.to_owned(), old, new })
            .collect(),
        mnemonics: mnemonics.into_iter().map(|(_, change)| change).collect(),
    }
}
