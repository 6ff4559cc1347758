//! Makes a cargo package of a Rust file, with the key under which its program is cached.
//!
//! Each file that is executed has its own package folder in the user's cache, so that cargo
//! compiles incrementally from run to run. All packages share one target folder.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toml::{Table, Value};

use super::manifest::{self, PackageManifest};
use super::snippet::read_file;
use super::{ExecError, Snippet};

/// The files of the prelude crate.
const PRELUDE: &[(&str, &str)] = rgpu_harness::PRELUDE;

/// Lock file with pinned versions of the prelude's dependencies.
const LOCK: &str = rgpu_harness::PRELUDE_LOCK;

/// The version of cudarc that the prelude uses, for files that name cudarc themselves.
const CUDARC: &str = "=0.19.10";

/// A file to write before cargo compiles a [`Package`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageFile {
    /// The path relative to the folder of all packages.
    pub path: String,
    /// The content of the file, byte for byte.
    pub text: Vec<u8>,
}

/// A package to compile with cargo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The name of the package, its program and its folder.
    pub name: String,
    /// Every file, including the prelude.
    pub files: Vec<PackageFile>,
    /// The initial lock file; an existing one is kept.
    pub lock: PackageFile,
    /// Hash of everything that is compiled; the cached program with the same key can be used.
    pub key: String,
    /// The file's name, for display.
    pub title: String,
}

impl Package {
    /// Makes the package of a Rust file.
    pub(super) fn new(snippet: &Snippet) -> Result<Self, ExecError> {
        let text = snippet.utf8()?;
        let split = manifest::split(text)
            .map_err(|problem| ExecError::Manifest { name: snippet.name.clone(), problem })?;
        let folder =
            snippet.absolute_path.as_deref().and_then(Path::parent).unwrap_or(Path::new("/"));
        let file = file_name(&snippet.name);
        let uses = |word: &str| split.source.contains(word);
        let (uses_prelude, uses_cudarc) = (uses("rgpu_prelude"), uses("cudarc::"));
        let mut added_dependencies = Vec::new();
        if uses_prelude {
            let path = Table::from_iter([("path".into(), Value::String("../prelude".into()))]);
            added_dependencies.push(("rgpu_prelude", Value::Table(path)));
        }
        if uses_cudarc {
            added_dependencies.push(("cudarc", cudarc()));
        }
        let included_files = included_files(&split.source, folder)?;
        let render_files = |name: &str| {
            let (embedded, added_dependencies) =
                (split.manifest.clone(), added_dependencies.clone());
            let manifest =
                PackageManifest { embedded, name, source: &file, added_dependencies, folder }
                    .render();
            let own = |path: &str, text: &[u8]| PackageFile {
                path: format!("{name}/{path}"),
                text: text.to_vec(),
            };
            let mut files = vec![own("Cargo.toml", manifest.as_bytes())];
            files.push(own(&file, split.source.as_bytes()));
            files.extend(included_files.iter().map(|(path, text)| own(path, text)));
            if uses_prelude {
                files.extend(PRELUDE.iter().map(|(path, text)| PackageFile {
                    path: format!("prelude/{path}"),
                    text: (*text).into(),
                }));
            }
            // A file that uses neither crate needs no pinned versions.
            let pinned = if uses_prelude || uses_cudarc {
                lock(name, uses_prelude, uses_cudarc)
            } else {
                String::new()
            };
            (files, own("Cargo.lock", pinned.as_bytes()))
        };
        // The key must not depend on the file's folder, so it is computed under a fixed name.
        let (files, pinned) = render_files("snippet");
        let mut hash = Sha256::new();
        for file in files.iter().chain([&pinned]) {
            hash.update(file.path.as_bytes());
            hash.update([0]);
            hash.update(Sha256::digest(&file.text));
        }
        let digest = rgpu_protocol::Digest::from_bytes(&hash.finalize().into());
        let key = digest.as_str().chars().take(40).collect();
        let name = name(snippet);
        let (files, lock) = render_files(&name);
        Ok(Self { name, files, lock, key, title: snippet.name.clone() })
    }
}

/// The pinned versions, with this package in place of the one they were made for. If the file has
/// no other dependencies the lock is complete, and cargo needs no registry.
fn lock(name: &str, prelude: bool, cudarc: bool) -> String {
    let entries = [("cudarc", cudarc), ("rgpu_prelude", prelude)];
    let entries =
        entries.iter().filter(|(_, used)| *used).map(|(name, _)| format!(" \"{name}\",\n"));
    let own = format!(
        "name = \"{name}\"\nversion = \"0.0.0\"\ndependencies = [\n{}]",
        entries.collect::<String>()
    );
    let template_entry = "name = \"snippet\"\nversion = \"0.0.0\"\ndependencies = [\n \"cudarc\",\n \"rgpu_prelude\",\n]";
    LOCK.replace(template_entry, &own)
}

/// The package name: one per file path, and one for all snippets without a file.
fn name(snippet: &Snippet) -> String {
    let path = snippet.absolute_path.as_ref().map(|path| path.as_os_str().as_encoded_bytes());
    let tail = rgpu_protocol::Digest::sha256(path.unwrap_or_default());
    let stem: String = snippet
        .stem()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .take(32)
        .collect();
    format!("x_{stem}_{}", &tail.as_str()[..8])
}

/// The file's own name, which compilers print, in a form that cargo accepts.
fn file_name(name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_control() { '_' } else { c }).collect::<String>();
    if plain.ends_with(".rs") { plain } else { format!("{plain}.rs") }
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
fn included_files(source: &str, folder: &Path) -> Result<Vec<(String, Vec<u8>)>, ExecError> {
    let mut candidates: Vec<PathBuf> = Vec::new();
    for macro_name in ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""] {
        let found = source.match_indices(macro_name).filter_map(|(at, start)| {
            source[at + start.len()..].split_once('"').map(|(path, _)| PathBuf::from(path))
        });
        candidates.extend(found);
    }
    let modules = source.lines().map(str::trim).filter_map(|line| {
        let rest = line.strip_prefix("pub ").unwrap_or(line);
        rest.strip_prefix("mod ")?.strip_suffix(';')
    });
    candidates.extend(modules.flat_map(|m| {
        let m = m.trim();
        [PathBuf::from(format!("{m}.rs")), PathBuf::from(format!("{m}/mod.rs"))]
    }));
    let inside = |path: &&PathBuf| {
        path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
    };
    let mut files = Vec::new();
    for path in candidates.iter().filter(inside) {
        let full = folder.join(path);
        // The compiler reports a missing file, with its line.
        if full.is_file() {
            let text = read_file(&full)
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
