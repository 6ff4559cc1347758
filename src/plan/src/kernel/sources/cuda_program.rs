//! A CUDA C++ file with its own `main`: compiled by nvcc on the host and run.
//!
//! The headers that it includes by quoted paths come along, with those that they include, if they
//! are files of the same project.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::super::cuda_scanner::scan;
use super::super::source::{common_folder, includes, normalize_lexically};
use super::super::{KernelFolders, OwnFiles, is_private};
use super::{Found, FoundProgram, KernelSource, text_of};
use crate::exec::WORK_FOLDER;
use crate::kernel::{KernelError, ProfileMode, name_of};
use crate::tool::{BundleFile, NvccBuild, ProgramBuild};
use rgpu_model::agent_files;
use rgpu_model::regular_file::MAX_FILE_BYTES;

/// The most headers that are sent along.
const MAX_HEADERS: usize = 2_000;

/// A CUDA C++ file with its own `main`.
pub(super) static CUDA_PROGRAM: KernelSource = KernelSource { name: "a CUDA C++ program", read };

fn read(path: &Path) -> Option<Result<Found, KernelError>> {
    let text = text_of(path, &["cu", "cpp", "cc", "cxx"])?;
    let source = scan(&text);
    if !source.main {
        return None;
    }
    let kernels: Vec<String> = source.functions.into_iter().map(|f| f.name).collect();
    Some(program(path, kernels).map(Found::Program))
}

fn program(path: &Path, kernels: Vec<String>) -> Result<FoundProgram, KernelError> {
    let sources = SentSources::collect(path)?;
    let cwd = sources.source.rsplit_once('/').map_or(WORK_FOLDER, |(folder, _)| folder);
    let nvcc = NvccBuild {
        source: sources.source.clone(),
        flags: Vec::new(),
        inputs: Some(sources.digest()),
    };
    Ok(FoundProgram {
        format: CUDA_PROGRAM.name,
        name: name_of(path),
        path: path.to_owned(),
        command: Vec::new(),
        cwd: cwd.to_owned(),
        build: Some(ProgramBuild::Nvcc(nvcc)),
        files: sources.bundle(),
        kernels,
        kernel_filter: None,
        driver: None,
        is_rank: false,
        mode: ProfileMode::Nsys,
        assumptions: Vec::new(),
    })
}

/// A source and its headers, each with its place in the job's folder and its content.
struct SentSources {
    source: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl SentSources {
    fn collect(source: &Path) -> Result<Self, KernelError> {
        let source = normalize_lexically(source);
        let folder = source.parent().unwrap_or(Path::new(""));
        let own_files = OwnFiles::find(folder, &KernelFolders::default());
        let mut found: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
        let mut queue = vec![source.clone()];
        while let Some(path) = queue.pop() {
            if found.contains_key(&path) || found.len() >= MAX_HEADERS {
                continue;
            }
            let is_source = path == source;
            if !is_source {
                if is_private(&path) {
                    continue;
                }
                own_files.check(&path, None)?;
            }
            let bytes = match agent_files::read(&path, MAX_FILE_BYTES) {
                Ok(bytes) => bytes,
                // The host may have it.
                Err(_) if !is_source => continue,
                Err(error) => return Err(KernelError::unreadable(&path, None)(error)),
            };
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            let text = String::from_utf8_lossy(&bytes);
            queue.extend(includes(&text).map(|name| normalize_lexically(&folder.join(name))));
            found.insert(path, bytes);
        }
        let paths: Vec<PathBuf> = found.keys().cloned().collect();
        let root = common_folder(&paths);
        let place = |path: &Path| {
            let inner = path.strip_prefix(&root).unwrap_or(path);
            format!("{WORK_FOLDER}/{}", inner.display())
        };
        Ok(Self {
            source: place(&source),
            files: found.into_iter().map(|(path, bytes)| (place(&path), bytes)).collect(),
        })
    }

    /// A digest of all names and contents.
    fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for (place, bytes) in &self.files {
            hash.update(place);
            hash.update([0]);
            hash.update(bytes.len().to_le_bytes());
            hash.update(bytes);
        }
        rgpu_protocol::Digest::from_bytes(&hash.finalize().into()).as_str().to_owned()
    }

    fn bundle(self) -> Vec<BundleFile> {
        self.files.into_iter().map(|(place, bytes)| BundleFile::text(place, bytes)).collect()
    }
}
