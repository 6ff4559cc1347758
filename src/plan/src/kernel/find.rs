//! Finds kernels by path, or by name in the folders that hold kernels.

#![expect(
    clippy::disallowed_methods,
    reason = "the project's own sources, and folders of the user's settings"
)]

use std::path::{Path, PathBuf};

use super::sources::{self, Found};
use super::{KernelError, KernelSpec, LANGUAGES, Language, read, toml_text};
use rgpu_model::agent_files;
use rgpu_model::error::shell_word;
use rgpu_model::ownership::may_decide;
use rgpu_model::regular_file::{self, MAX_SOURCE_BYTES};

/// The folders in which kernels are searched by name, in this order: `<project>/kernels`, each of
/// `kernel_path`, then the folder of the kernels shipped with rgpu.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFolders {
    /// Folder of the project; empty: none.
    pub project: PathBuf,
    /// Further folders of kernel folders.
    pub kernel_path: Vec<PathBuf>,
    /// `<exe>/../share/rgpu/kernels`, if it exists.
    pub shipped: Option<PathBuf>,
}

impl KernelFolders {
    /// The folders in search order, each once.
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = Vec::new();
        let project = Some(&self.project).filter(|project| !project.as_os_str().is_empty());
        let project = project.map(|project| project.join("kernels"));
        for folder in
            project.into_iter().chain(self.kernel_path.iter().cloned()).chain(self.shipped.clone())
        {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        folders
    }
}

/// A kernel that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundKernel {
    /// The parsed kernel.toml, or what was assumed of a bare source.
    pub spec: KernelSpec,
    /// Assumptions made, in words, to be printed; empty with a kernel.toml.
    pub assumptions: Vec<String>,
}

/// A kernel that `rgpu kernels list` found.
#[derive(Debug)]
pub struct ListedKernel {
    /// Name of its folder, which is the name to find it by.
    pub name: String,
    /// The folder of its kernel.toml.
    pub folder: PathBuf,
    /// Its spec, or the error in its kernel.toml.
    pub spec: Result<KernelSpec, KernelError>,
}

/// Finds the kernel `name_or_path`: a name, a kernel's folder, a kernel.toml, a path in one of
/// [`sources::KERNEL_SOURCES`], or a bare source.
///
/// # Errors
/// As [`find_source`]; [`KernelError::NotInferred`] if it is a whole program.
pub fn find(
    name_or_path: &str,
    kernel_folders: &KernelFolders,
) -> Result<FoundKernel, KernelError> {
    match find_source(name_or_path, kernel_folders)? {
        Found::Kernel(kernel) => Ok(kernel),
        Found::Program(program) => Err(KernelError::NotInferred {
            problem: format!("it is {}", program.format),
            instead: Some(format!(
                "`rgpu profile {}` builds, runs and profiles it as it is",
                shell_word(program.path.display())
            )),
            file: program.path,
        }),
    }
}

/// Finds a kernel as [`find`] does, or a whole program.
///
/// # Errors
/// [`KernelError`] if there is nothing of this name, or it cannot be read or understood.
pub fn find_source(
    name_or_path: &str,
    kernel_folders: &KernelFolders,
) -> Result<Found, KernelError> {
    let path = Path::new(name_or_path);
    let looks_like_path = name_or_path.contains('/') || path.extension().is_some();
    if !looks_like_path {
        for folder in kernel_folders.folders() {
            let file = folder.join(name_or_path).join("kernel.toml");
            if is_present(&file) {
                return load_toml(&file).map(Found::Kernel);
            }
        }
    }
    if is_present(&path.join("kernel.toml")) {
        return load_toml(&path.join("kernel.toml")).map(Found::Kernel);
    }
    let extension = path.extension().and_then(|extension| extension.to_str());
    if extension == Some("toml") {
        return load_toml(path).map(Found::Kernel);
    }
    if let Some(kernel) = kernel_beside(path) {
        return Ok(Found::Kernel(kernel));
    }
    if is_present(path)
        && let Some(found) = sources::read(path)
    {
        return found;
    }
    if let Some(language) = extension.and_then(language_of) {
        let text = read_source(path)?;
        return language.infer(path, &text, None).map(Found::Kernel);
    }
    if path.is_dir() {
        return Err(KernelError::NotInferred {
            file: path.to_owned(),
            problem: "the folder has none".to_owned(),
            instead: Some("`rgpu kernels new FILE.cu` writes one".to_owned()),
        });
    }
    Err(KernelError::Unknown {
        name: name_or_path.to_owned(),
        known: list(kernel_folders).into_iter().map(|kernel| kernel.name).collect(),
        searched: kernel_folders.folders(),
    })
}

/// Finds the kernel that `launch` names in a bare source: its name, or a launch as in CUDA.
///
/// # Errors
/// As [`find`]; [`KernelError::Language`] for what is no bare source.
pub fn find_launch(path: &Path, launch: &str) -> Result<FoundKernel, KernelError> {
    if let Some(found) = sources::module::read(path, Some(launch)) {
        return found;
    }
    let extension = path.extension().and_then(|extension| extension.to_str());
    let Some(language) = extension.and_then(language_of) else {
        return Err(KernelError::Language {
            language: extension.unwrap_or_default().to_owned(),
            file: path.to_owned(),
        });
    };
    language.infer(path, &read_source(path)?, Some(launch))
}

/// Finds a kernel as [`find`] does, but only to compile it: a bare source may contain any number of
/// kernels of any shape.
pub fn find_to_compile(
    name_or_path: &str,
    kernel_folders: &KernelFolders,
) -> Result<FoundKernel, KernelError> {
    let found = find(name_or_path, kernel_folders);
    let is_bare = match &found {
        Ok(loaded) => loaded.spec.file.is_none(),
        Err(error) => matches!(error, KernelError::NotInferred { .. }),
    };
    let path = Path::new(name_or_path);
    let language = path.extension().and_then(|extension| language_of(extension.to_str()?));
    let (true, Some(language)) = (is_bare, language) else { return found };
    let text = read_source(path)?;
    match language.compiled(path, &text) {
        Some(spec) => Ok(FoundKernel { spec, assumptions: Vec::new() }),
        None => found,
    }
}

/// All kernels in these folders, sorted by name. Of two with the same name, it has the one that
/// [`find`] finds.
pub fn list(kernel_folders: &KernelFolders) -> Vec<ListedKernel> {
    let mut kernels: Vec<ListedKernel> = Vec::new();
    for folder in kernel_folders.folders() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let file = entry.path().join("kernel.toml");
            if agent_files::check(&file).is_err() {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            if file.is_file() && !kernels.iter().any(|kernel| kernel.name == name) {
                let spec = load_toml(&file).map(|loaded| loaded.spec);
                kernels.push(ListedKernel { name, folder: entry.path(), spec });
            }
        }
    }
    kernels.sort_by(|a, b| a.name.cmp(&b.name));
    kernels
}

/// A kernel.toml for the bare source `file`. `launch` is the value of `--launch`.
///
/// # Errors
/// [`KernelError`] if the file cannot be read, has an unknown extension, or contains no kernel.
pub fn skeleton(file: &Path, launch: Option<&str>) -> Result<String, KernelError> {
    let language = file
        .extension()
        .and_then(|extension| extension.to_str())
        .and_then(language_of)
        .ok_or_else(|| KernelError::Language {
            language: file.extension().unwrap_or_default().to_string_lossy().into_owned(),
            file: file.to_owned(),
        })?;
    let text = read_source(file)?;
    Ok(format!("#:schema {SCHEMA}\n{}", language.skeleton(file, &text, launch)?))
}

/// The start of an answer to a problem of GPU MODE or KernelBench, and the place for it: `file`,
/// else the usual one.
///
/// # Errors
/// [`KernelError`] if the path holds no problem, or its template cannot be read.
pub fn answer_template(
    problem: &Path,
    file: Option<&Path>,
) -> Result<(PathBuf, String), KernelError> {
    sources::answer_template(problem, file)
}

/// The kernel.toml that says what was assumed of a kernel.
pub fn described(found: &FoundKernel) -> String {
    let mut toml = format!("#:schema {SCHEMA}\n");
    if !found.assumptions.is_empty() {
        toml.push_str("# rgpu read this from the source. It assumed, and you should check:\n");
    }
    for assumption in &found.assumptions {
        toml.push_str(&format!("# - {assumption}\n"));
    }
    toml + &toml_text(&found.spec)
}

/// Whether anything has this path. What is no file that can be read gets an error with its name,
/// and not one that says that there is no such kernel.
fn is_present(path: &Path) -> bool {
    path.exists() || path.is_symlink()
}

/// Where editors find the schema of kernel.toml.
const SCHEMA: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/raw/HEAD/schemas/kernel-toml.json");

fn language_of(extension: &str) -> Option<&'static dyn Language> {
    LANGUAGES.iter().copied().find(|language| language.extensions().contains(&extension))
}

fn load_toml(file: &Path) -> Result<FoundKernel, KernelError> {
    // It may be a pipe or a device, if the project came from elsewhere.
    let text = agent_files::read_to_string(file, regular_file::MAX_TOML_BYTES)
        .map_err(KernelError::unreadable(file, None))?;
    Ok(FoundKernel { spec: read(file, &text)?, assumptions: Vec::new() })
}

/// The text of a bare source: a regular file, since a cloned project may hold links and pipes.
fn read_source(file: &Path) -> Result<String, KernelError> {
    agent_files::read_to_string(file, MAX_SOURCE_BYTES).map_err(KernelError::unreadable(file, None))
}

/// The kernel of a kernel.toml in the same folder that names this source.
fn kernel_beside(file: &Path) -> Option<FoundKernel> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let beside = folder.join("kernel.toml");
    let counts = beside.is_file() && may_decide(&beside, folder);
    let loaded = if counts { load_toml(&beside).ok()? } else { return None };
    (loaded.spec.source.file_name() == file.file_name()).then_some(loaded)
}
