//! The files needed to compile or run a kernel: its source, its reference, and the files that these
//! include by quoted paths or import from the same folder. Their layout keeps relative includes and
//! imports working.

#![expect(clippy::disallowed_methods, reason = "the project's own sources")]

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::cuda_source::infer::{example_instances_of, instantiation_of};
use super::cuda_source::{device_code, includes_torch};
use super::error::TASK_FILE;
use super::own_files::OwnFiles;
use super::{EntryPoint, KernelError, KernelFolders, KernelSpec, TaskSpec};
use rgpu_model::agent_files;
use rgpu_model::regular_file::{self, MAX_SOURCE_BYTES};

/// The most names of files that are looked for.
const MAX_NAMES: usize = 10_000;

/// Limit on the files sent along: a kernel does not have more of its own.
const MAX_FILES: usize = 2_000;

/// The source files of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceTree {
    /// Each file: its path below one common folder (parts separated by `/`), and its path on this
    /// machine.
    pub files: Vec<(String, PathBuf)>,
    /// The path in `files` of the kernel's source.
    pub source: String,
    /// The path in `files` of the reference.
    pub reference: Option<String>,
    /// What is compiled in place of a source that instantiates no template, or that nvcc takes for
    /// no source: its path beside it, and its text, which includes it.
    pub wrapper: Option<(String, String)>,
}

impl SourceTree {
    /// The path of the file to compile.
    pub fn compiled(&self) -> &str {
        self.wrapper.as_ref().map_or(&self.source, |(path, _)| path)
    }
}

impl KernelSpec {
    /// Collects the source, the reference and the files under `files`, and follows their quoted
    /// includes and imports.
    ///
    /// # Errors
    /// [`KernelError::Unreadable`] for a source that cannot be read; a missing include is left to
    /// the compiler. [`KernelError::OutsideProject`] for a file, data files included, outside of
    /// the kernel's own repository or project. [`KernelError::Private`] for a private file outside
    /// of the kernel's own folder.
    pub fn sources(&self, kernel_folders: &KernelFolders) -> Result<SourceTree, KernelError> {
        let own_files = OwnFiles::find(&self.folder, kernel_folders);
        for (_, data) in self.data_files() {
            own_files.check(&data, Some("init"))?;
        }
        if let Some(task) = &self.task {
            return self.task_sources(task, &own_files);
        }
        let source = normalize_lexically(&self.source);
        let reference =
            self.reference.as_ref().map(|reference| normalize_lexically(&reference.source));
        let extra = self.extra_files.iter().map(|path| (normalize_lexically(path), Some("files")));
        // The path that each file has for those that include it, and where it lies.
        let mut found: Vec<(PathBuf, PathBuf)> = Vec::new();
        let mut seen: HashSet<PathBuf> = HashSet::new();
        // With the kernel.toml key that names the file; `None` if an include or import does.
        let mut queue: Vec<(PathBuf, PathBuf, Option<&'static str>)> =
            vec![(source.clone(), source.clone(), Some("source"))];
        let named = reference.clone().map(|path| (path, Some("reference.source")));
        queue.extend(named.into_iter().chain(extra).map(|(path, key)| (path.clone(), path, key)));
        while let Some((place, path, named_by)) = queue.pop() {
            let is_new = seen.len() < MAX_NAMES && seen.insert(place.clone());
            if !is_new || found.len() >= MAX_FILES {
                continue;
            }
            // A link may lead anywhere, so the real path is checked as well.
            let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
            if named_by.is_none() && (is_private(&path) || is_private(&real)) {
                continue;
            }
            // A bare source was named by the user directly, so it may lie anywhere.
            match named_by {
                Some(key) if self.file.is_some() || path != source => {
                    own_files.check(&path, Some(key))?;
                }
                Some(_) => {}
                None => own_files.check_include(&path)?,
            }
            let bytes = match searched_bytes(&path) {
                Ok(bytes) => bytes,
                Err(_) if named_by.is_none() => continue,
                Err(error) => return Err(KernelError::unreadable(&path, named_by)(error)),
            };
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            let text = String::from_utf8_lossy(&bytes);
            if path.extension().is_some_and(|extension| extension == "py") {
                let modules = super::python::import_candidates(&folder, &text).into_iter();
                let modules = modules.map(|path| normalize_lexically(&path));
                queue.extend(modules.map(|path| (path.clone(), path, None)));
            } else {
                let beside = place.parent().unwrap_or(Path::new("")).to_owned();
                queue.extend(includes(&text).take(MAX_NAMES).map(|name| {
                    let lies = included_file(&folder, name, &self.folder, &own_files);
                    (normalize_lexically(&beside.join(name)), lies, None)
                }));
            }
            found.push((place, path));
        }
        let places: Vec<PathBuf> = found.iter().map(|(place, _)| place.clone()).collect();
        let root = common_folder(&places);
        let relative = |path: &Path| {
            let rest = path.strip_prefix(&root).unwrap_or(path);
            let parts: Vec<_> = rest
                .components()
                .filter_map(|part| match part {
                    Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                    _ => None,
                })
                .collect();
            parts.join("/")
        };
        let files: BTreeMap<String, PathBuf> =
            found.iter().map(|(place, path)| (relative(place), path.clone())).collect();
        Ok(SourceTree {
            wrapper: self.wrapper(&relative(&source))?,
            source: relative(&source),
            reference: reference.as_deref().map(relative),
            files: files.into_iter().collect(),
        })
    }

    /// The files of a task, all in one folder under the names that the task gives them, with the
    /// modules that they import from the folders where they lie here.
    fn task_sources(
        &self,
        task: &TaskSpec,
        own_files: &OwnFiles,
    ) -> Result<SourceTree, KernelError> {
        let mut files: BTreeMap<String, PathBuf> = BTreeMap::new();
        for (name, path) in &task.files {
            // The user named the submission, so it may lie anywhere.
            if *path != self.source {
                own_files.check_task_file(path, TASK_FILE)?;
            }
            files.insert(name.clone(), normalize_lexically(path));
        }
        let mut queue: Vec<PathBuf> = files.values().cloned().collect();
        while let Some(path) = queue.pop() {
            let is_named = task.files.iter().any(|(_, named)| normalize_lexically(named) == path);
            let bytes = match searched_bytes(&path) {
                Ok(bytes) => bytes,
                Err(_) if !is_named => continue,
                Err(error) => return Err(KernelError::unreadable(&path, Some(TASK_FILE))(error)),
            };
            if path.extension().is_none_or(|extension| extension != "py") {
                continue;
            }
            let folder = path.parent().unwrap_or(Path::new(""));
            let text = String::from_utf8_lossy(&bytes);
            for module in super::python::import_candidates(folder, &text) {
                let name = module.strip_prefix(folder).unwrap_or(&module);
                let name = name.to_string_lossy().into_owned();
                let is_new = files.len() < MAX_FILES && !files.contains_key(&name);
                let path = normalize_lexically(&module);
                let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
                if is_new && path.is_file() && !is_private(&path) && !is_private(&real) {
                    own_files.check(&path, None)?;
                    files.insert(name, path.clone());
                    queue.push(path);
                }
            }
        }
        let name_of = |wanted: &Path| {
            let found = task.files.iter().find(|(_, path)| path == wanted);
            found.map(|(name, _)| name.clone())
        };
        Ok(SourceTree {
            source: name_of(&self.source).unwrap_or_default(),
            reference: self.reference.as_ref().and_then(|reference| name_of(&reference.source)),
            wrapper: None,
            files: files.into_iter().collect(),
        })
    }
}

impl KernelSpec {
    /// [`SourceTree::wrapper`] of the source at this path in the tree.
    fn wrapper(&self, source: &str) -> Result<Option<(String, String)>, KernelError> {
        let EntryPoint::Device(entry) = &self.entry else { return Ok(None) };
        let is_source = self.source.extension().is_some_and(|extension| extension == "cu");
        if self.language != "cuda" || self.is_compiled() {
            return Ok(None);
        }
        let bytes = agent_files::read(&self.source, MAX_SOURCE_BYTES)
            .map_err(KernelError::unreadable(&self.source, None))?;
        let code = String::from_utf8_lossy(&bytes);
        // nvcc then needs no torch to compile the kernels.
        let device_code =
            (self.flags.is_empty() && includes_torch(&code)).then(|| device_code(&code).0);
        let instantiation = if entry.contains('<') {
            instantiation_of(&self.source, &code, entry)?
        } else {
            String::new()
        };
        if is_source && instantiation.is_empty() && device_code.is_none() {
            return Ok(None);
        }
        let name = source.rsplit('/').next().unwrap_or(source);
        let stem = source.rsplit_once('.').map_or(source, |(stem, _)| stem);
        let mut text = format!("// Made by rgpu: the kernel `{entry}` of the included file.\n");
        match device_code {
            Some(code) => text.push_str(&format!("#line 1 \"../src/{source}\"\n{code}\n")),
            None => text.push_str(&format!("#include \"{name}\"\n")),
        }
        text.push_str(&instantiation);
        Ok(Some((format!("{stem}.rgpu.cu"), text)))
    }
}

/// The bytes of a file to be sent that are searched for includes and imports: none of one that is
/// larger than a source, such as weights.
fn searched_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let file = agent_files::open(path)?;
    if file.metadata()?.len() > MAX_SOURCE_BYTES {
        return Ok(Vec::new());
    }
    regular_file::read_from(file, MAX_SOURCE_BYTES)
}

/// A line for each kernel template of a CUDA source file that would instantiate it with example
/// arguments. Empty if the file cannot be read.
pub fn example_instances(source: &Path) -> Vec<String> {
    let text = regular_file::read(source, MAX_SOURCE_BYTES).unwrap_or_default();
    example_instances_of(source, &String::from_utf8_lossy(&text))
}

/// How many folders above the source are searched for common headers.
const MAX_LEVELS: usize = 6;

/// Where projects keep common headers, relative to the source's folder or one above it.
const HEADER_FOLDERS: &[&str] = &[
    "",
    "include",
    "inc",
    "includes",
    "common",
    "Common",
    "common/inc",
    "common/include",
    "utils",
    "util",
    "helpers",
    "src",
];

/// Where a file that one in `folder` includes by a quoted name lies: there, else where
/// [`header_folder`] finds it for a source in `source_folder`.
pub(super) fn included_file(
    folder: &Path,
    name: &str,
    source_folder: &Path,
    own_files: &OwnFiles,
) -> PathBuf {
    let beside = normalize_lexically(&folder.join(name));
    if beside.is_file() {
        return beside;
    }
    let source_folder = std::path::absolute(source_folder).unwrap_or_default();
    match header_folder(&source_folder, name, own_files) {
        Some(folder) => normalize_lexically(&folder.join(name)),
        None => beside,
    }
}

/// The folder in which a header of a source in `folder` lies, if no path leads to it: one where
/// projects keep common headers, beside the source or above it.
pub(super) fn header_folder(folder: &Path, name: &str, own_files: &OwnFiles) -> Option<PathBuf> {
    let folders = folder.ancestors().take(MAX_LEVELS);
    let mut folders =
        folders.flat_map(|above| HEADER_FOLDERS.iter().map(|inner| above.join(inner)));
    folders.find(|folder| {
        let path = normalize_lexically(&folder.join(name));
        path.is_file() && !is_private(&path) && own_files.check_include(&path).is_ok()
    })
}

/// Files and folders with secrets of their users.
const PRIVATE_NAMES: &[&str] = &[
    ".git",
    ".ssh",
    ".aws",
    ".azure",
    ".docker",
    ".gnupg",
    ".kube",
    ".git-credentials",
    ".netrc",
    ".npmrc",
    ".pgpass",
    ".pypirc",
];

/// Endings of files with keys.
const KEY_ENDINGS: &[&str] = &[".pem", ".key", ".p12", ".pfx", ".ppk"];

/// Whether a path looks like a secret that must not leave this machine unless the user names it:
/// `.env*`, `KEY_ENDINGS`, SSH keys, and `PRIVATE_NAMES` with what is in them. Capitals do not
/// matter: some file systems ignore them.
pub fn is_private(path: &Path) -> bool {
    let hidden = path.components().any(|part| {
        matches!(part, Component::Normal(name)
            if PRIVATE_NAMES.iter().any(|private| name.eq_ignore_ascii_case(private)))
    });
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let name = name.to_ascii_lowercase();
    // `id_map.h` is a header; `id_ed25519` and `id_rsa.pub` are keys.
    let key = name.starts_with("id_") && (!name.contains('.') || name.ends_with(".pub"));
    let has_key = KEY_ENDINGS.iter().any(|ending| name.ends_with(ending));
    hidden || key || has_key || name.starts_with(".env")
}

/// The paths of `#include "…"` lines.
pub(crate) fn includes(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
        let (name, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        (!name.is_empty() && !name.starts_with('/')).then_some(name)
    })
}

/// `path` without `.` and without each `..` that follows a name; links are not resolved.
pub(super) fn normalize_lexically(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(cleaned.components().next_back(), Some(Component::Normal(_))) =>
            {
                cleaned.pop();
            }
            part => cleaned.push(part),
        }
    }
    cleaned
}

pub(super) fn common_folder(paths: &[PathBuf]) -> PathBuf {
    let mut folders = paths.iter().map(|path| path.parent().unwrap_or(Path::new("")).to_owned());
    let first = folders.next().unwrap_or_default();
    folders.fold(first, |common, folder| {
        common
            .components()
            .zip(folder.components())
            .take_while(|(a, b)| a == b)
            .map(|(a, _)| a)
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::super::find::find;
    use super::KernelFolders;

    #[test]
    fn secrets_do_not_travel_unless_they_are_named() {
        for private in [
            "/p/.env.local",
            "k.pem",
            "/h/.ssh/config",
            "id_rsa",
            "/r/.git/config",
            "/p/.ENV",
            "server.PEM",
            "/h/.SSH/x",
            "key.key",
            ".git-credentials",
            ".npmrc",
            ".pgpass",
            "ID_RSA",
        ] {
            assert!(super::is_private(private.as_ref()), "{private}");
        }
        for plain in ["kernel.cu", "id_map.h", "env.h", "git/x.h", "key.h", ".github/k.cu"] {
            assert!(!super::is_private(plain.as_ref()), "{plain}");
        }
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("mine.cu");
        let text = "#include \".env\"\n__global__ void k(float *x) {}";
        std::fs::write(&source, text).unwrap();
        std::fs::write(folder.path().join(".env"), "TOKEN=1").unwrap();
        let spec = find(source.to_str().unwrap(), &KernelFolders::default()).unwrap().spec;
        assert_eq!(spec.sources(&KernelFolders::default()).unwrap().files.len(), 1);
    }

    #[test]
    fn quoted_includes_travel_and_keep_their_places() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let source = file(
            "k/mine.cu",
            "#include <cuda.h>\n#include \"../common/a.cuh\"\n#include \"gone.h\"\n__global__ void k(float *x) {}",
        );
        file("common/a.cuh", "# include \"b.cuh\"\n");
        file("common/b.cuh", "#include \"a.cuh\"\n");
        file("k/other.cu", "");
        let kernel_folders =
            KernelFolders { project: folder.path().to_owned(), ..KernelFolders::default() };
        let spec = find(source.to_str().unwrap(), &kernel_folders).unwrap().spec;
        let tree = spec.sources(&kernel_folders).unwrap();
        let names: Vec<_> = tree.files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["common/a.cuh", "common/b.cuh", "k/mine.cu"]);
        assert_eq!(tree.source, "k/mine.cu");
    }
    #[test]
    fn files_of_others_do_not_travel_whatever_names_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        file("notes.txt", "private");
        file("clone/rgpu.toml", "");
        let kernel_folders =
            KernelFolders { project: folder.path().join("clone"), ..KernelFolders::default() };
        let failure_of = |source: &str| {
            let spec = find(source, &kernel_folders).unwrap().spec;
            rgpu_model::error::Failure::from(spec.sources(&kernel_folders).unwrap_err())
        };
        let kernel = "__global__ void k(float *x) {}";
        let include = file("clone/a.cu", &format!("#include \"../notes.txt\"\n{kernel}"));
        let failure = failure_of(include.to_str().unwrap());
        assert_eq!(failure.code, "source_elsewhere");
        assert_eq!(failure.cause.as_deref(), Some("an include or import names it"));
        // A link also leads outside.
        let link = folder.path().join("clone/data.h");
        std::os::unix::fs::symlink(folder.path().join("notes.txt"), link).unwrap();
        let linked = file("clone/b.cu", &format!("#include \"data.h\"\n{kernel}"));
        assert_eq!(failure_of(linked.to_str().unwrap()).code, "source_elsewhere");
        file("clone/k/k.cu", kernel);
        let private = folder.path().join("notes.txt").display().to_string();
        let end = "[launch]\ngrid = [1]\nblock = [1]\n";
        let arg = |init: &str| {
            format!("[[arg]]\nname = \"x\"\ndtype = \"f32\"\nrole = \"inout\"\nshape = [4]\n{init}")
        };
        let toml = |source: &str, more: &str, init: &str| {
            let (entry, arg) = ("entry = { device = \"k\" }", arg(init));
            let head = "name = \"k\"\nlanguage = \"cuda\"";
            format!("{head}\nsource = {source:?}\n{entry}\n{more}\n{arg}\n{end}")
        };
        let data = format!("init = {{ file = {private:?} }}");
        for (text, key) in [
            (toml("../../notes.txt", "", ""), "source"),
            (toml(&private, "", ""), "source"),
            (toml("k.cu", &format!("files = [{private:?}]"), ""), "files"),
            (toml("k.cu", "", &data), "init"),
        ] {
            let toml = file("clone/k/kernel.toml", &text);
            let failure = failure_of(toml.to_str().unwrap());
            assert_eq!(failure.code, "source_elsewhere", "{text}");
            assert!(failure.cause.unwrap().contains(&format!("`{key}`")), "{text}");
        }
    }
}
