//! A Rust file as a cargo package: every file of it, and the key under which what it compiles to
//! is kept.
//!
//! The package lies in the user's cache, one folder for each file that was ever executed, so that
//! cargo's own incremental compilation works from run to run; all of them share one target folder.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::manifest::{self, PackageManifest};
use super::{ExecError, Snippet};

/// The prelude crate, as this repository has it.
const PRELUDE: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("../../harness/prelude/snippet.toml")),
    ("src/lib.rs", include_str!("../../harness/prelude/src/lib.rs")),
    ("src/gpu.rs", include_str!("../../harness/prelude/src/gpu.rs")),
    ("src/nvtx.rs", include_str!("../../harness/prelude/src/nvtx.rs")),
];

/// Pinned versions of what the prelude needs.
const LOCK: &str = include_str!("../../harness/prelude/snippet.lock");

/// The cudarc of the prelude, for files that use it by its own name.
const CUDARC: &str = "=0.19.10";

/// A file of the package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageFile {
    /// Relative to the folder of all packages.
    pub path: String,
    /// What is in it.
    pub text: Vec<u8>,
}

/// What cargo compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The package's and the program's name; its folder too.
    pub name: String,
    /// Every file, prelude and all.
    pub files: Vec<PackageFile>,
    /// The lock file to begin with; one that is there already is kept.
    pub lock: PackageFile,
    /// Hash of everything that is compiled: an equal one needs no compiler.
    pub key: String,
    /// What the user calls the file.
    pub title: String,
}

impl Package {
    /// Of a Rust file.
    ///
    /// # Errors
    /// [`ExecError::NotText`], [`ExecError::Manifest`].
    pub(super) fn new(snippet: &Snippet) -> Result<Self, ExecError> {
        let text = snippet.utf8()?;
        let split = manifest::split(text)
            .map_err(|problem| ExecError::Manifest { name: snippet.name.clone(), problem })?;
        let folder = snippet.path.as_deref().and_then(Path::parent).unwrap_or(Path::new("/"));
        let file = file_name(&snippet.name);
        let uses = |word: &str| split.source.contains(word);
        let (prelude, by_name) = (uses("rgpu_prelude"), uses("cudarc::"));
        let mut ours = Vec::new();
        if prelude {
            let path = Table::from_iter([("path".into(), Value::String("../prelude".into()))]);
            ours.push(("rgpu_prelude", Value::Table(path)));
        }
        if by_name {
            ours.push(("cudarc", cudarc()));
        }
        let beside = beside(&split.source, folder)?;
        let named = |name: &str| {
            let (embedded, ours) = (split.manifest.clone(), ours.clone());
            let manifest = PackageManifest { embedded, name, source: &file, ours, folder }.render();
            let own = |path: &str, text: &[u8]| PackageFile {
                path: format!("{name}/{path}"),
                text: text.to_vec(),
            };
            let mut files = vec![own("Cargo.toml", manifest.as_bytes())];
            files.push(own(&file, split.source.as_bytes()));
            files.extend(beside.iter().map(|(path, text)| own(path, text)));
            if prelude {
                files.extend(PRELUDE.iter().map(|(path, text)| PackageFile {
                    path: format!("prelude/{path}"),
                    text: (*text).into(),
                }));
            }
            // Without any of ours nothing is pinned.
            let pinned = match prelude || by_name {
                true => lock(name, prelude, by_name),
                false => String::new(),
            };
            (files, own("Cargo.lock", pinned.as_bytes()))
        };
        // Where the file lies makes no other program of it.
        let (files, pinned) = named("snippet");
        let mut hash = Sha256::new();
        for file in files.iter().chain([&pinned]) {
            hash.update(file.path.as_bytes());
            hash.update([0]);
            hash.update(Sha256::digest(&file.text));
        }
        let digest = rgpu_protocol::Digest::from_bytes(&hash.finalize().into());
        let key = digest.as_str().chars().take(40).collect();
        let name = name(snippet);
        let (files, lock) = named(&name);
        Ok(Self { name, files, lock, key, title: snippet.name.clone() })
    }
}

/// The pinned versions, with this package in the place of the one they were made for: exact when
/// the file asks for nothing else, so that cargo asks no registry.
fn lock(name: &str, prelude: bool, cudarc: bool) -> String {
    let ours = [("cudarc", cudarc), ("rgpu_prelude", prelude)];
    let ours = ours.iter().filter(|(_, used)| *used).map(|(name, _)| format!(" \"{name}\",\n"));
    let own = format!(
        "name = \"{name}\"\nversion = \"0.0.0\"\ndependencies = [\n{}]",
        ours.collect::<String>()
    );
    let made_for = "name = \"snippet\"\nversion = \"0.0.0\"\ndependencies = [\n \"cudarc\",\n \"rgpu_prelude\",\n]";
    LOCK.replace(made_for, &own)
}

/// One package for each file, by its path; one for all texts without one.
fn name(snippet: &Snippet) -> String {
    let path = snippet.path.as_ref().map(|path| path.as_os_str().as_encoded_bytes());
    let digest = Sha256::digest(path.unwrap_or_default());
    let tail = rgpu_protocol::Digest::from_bytes(&digest.into());
    let stem: String = snippet
        .stem()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .take(32)
        .collect();
    format!("x_{stem}_{}", &tail.as_str()[..8])
}

/// The file's own name, which compilers show; in a form that cargo takes.
fn file_name(name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_control() { '_' } else { c }).collect::<String>();
    match plain.ends_with(".rs") {
        true => plain,
        false => format!("{plain}.rs"),
    }
}

fn cudarc() -> Value {
    let features = ["std", "driver", "nvrtc", "cuda-12000", "dynamic-loading"];
    let features = features.iter().map(|f| Value::String((*f).to_owned())).collect();
    Value::Table(Table::from_iter([
        ("version".to_owned(), Value::String(CUDARC.to_owned())),
        ("default-features".to_owned(), Value::Boolean(false)),
        ("features".to_owned(), Value::Array(features)),
    ]))
}

/// Files that the source includes by a plain relative path: `include_str!("k.cu")`, `mod name;`.
fn beside(source: &str, folder: &Path) -> Result<Vec<(String, Vec<u8>)>, ExecError> {
    let mut wanted: Vec<PathBuf> = Vec::new();
    for macro_name in ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""] {
        let found = source.match_indices(macro_name).filter_map(|(at, start)| {
            source[at + start.len()..].split_once('"').map(|(path, _)| PathBuf::from(path))
        });
        wanted.extend(found);
    }
    let modules = source.lines().map(str::trim).filter_map(|line| {
        let rest = line.strip_prefix("pub ").unwrap_or(line);
        rest.strip_prefix("mod ")?.strip_suffix(';')
    });
    wanted.extend(modules.flat_map(|m| {
        let m = m.trim();
        [PathBuf::from(format!("{m}.rs")), PathBuf::from(format!("{m}/mod.rs"))]
    }));
    let inside = |path: &&PathBuf| {
        path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
    };
    let mut files = Vec::new();
    for path in wanted.iter().filter(inside) {
        let full = folder.join(path);
        // What is not there is the compiler's to tell, with its line.
        if full.is_file() {
            let text = std::fs::read(&full)
                .map_err(|source| ExecError::Unreadable { path: full.clone(), source })?;
            files.push((path.display().to_string(), text));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::SnippetInput;

    fn package(folder: &Path, text: &str) -> Package {
        std::fs::write(folder.join("a b.rs"), text).unwrap();
        let input = SnippetInput::File("a b.rs".into());
        Package::new(&Snippet::read(input, None, folder).unwrap()).unwrap()
    }

    #[test]
    fn a_file_that_needs_no_gpu_brings_no_prelude() {
        let dir = tempfile::tempdir().unwrap();
        let plain = package(dir.path(), "fn main() {}\n");
        assert_eq!(plain.files.len(), 2);
        assert!(plain.name.starts_with("x_a_b_") && plain.files[1].path.ends_with("/a b.rs"));
        let gpu = package(dir.path(), "use rgpu_prelude::*;\nfn main() {}\n");
        assert_eq!(gpu.files.len(), 2 + PRELUDE.len());
        assert_eq!((gpu.name == plain.name, gpu.key == plain.key), (true, false));
    }

    #[test]
    fn what_it_includes_travels_and_is_part_of_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let text = "const K: &str = include_str!(\"k.cu\");\nmod part;\nfn main() {}\n";
        std::fs::write(dir.path().join("k.cu"), "one").unwrap();
        std::fs::write(dir.path().join("part.rs"), "").unwrap();
        let first = package(dir.path(), text);
        let paths: Vec<_> =
            first.files.iter().map(|f| f.path.rsplit('/').next().unwrap()).collect();
        assert_eq!(paths, ["Cargo.toml", "a b.rs", "k.cu", "part.rs"]);
        std::fs::write(dir.path().join("k.cu"), "two").unwrap();
        assert_ne!(package(dir.path(), text).key, first.key);
    }
}
