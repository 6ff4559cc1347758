//! The files beside a Python program that it needs: local modules that it imports and files that it
//! opens, compiles or loads by a literal name.
//!
//! The program's text is read, then that of each local module found, until nothing new is named. A
//! module is looked for as Python does: in the folder of the script, then in those of `PYTHONPATH`
//! and of `sys.path`. A package comes with all its Python files. The result holds only regular files
//! of one folder, found without following a link, and only those that a `--mount` of that folder
//! would send.

#![expect(clippy::disallowed_methods, reason = "names in the folder of the user's program")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rgpu_model::agent_files;

use super::mount::{MAX_BYTES_IN_MEMORY, SMALL_FILE_BYTES, SkippedPath, Snapshot, sendable};
use super::python_source::{Import, PythonSource, is_compiled_source, within};
use super::{ExecError, WORK_FOLDER};
use crate::kernel::{includes, is_private};
use crate::tool::{BundleFile, JobFileContent};

/// Larger files are sent, but not searched for imports.
const MAX_SEARCHED_BYTES: u64 = 1 << 20;

/// The most files whose text is read.
const MAX_SEARCHED_FILES: usize = 2000;

/// The most folders in which modules are looked for.
const MAX_SEARCH_FOLDERS: usize = 64;

/// What Python is told to run.
#[derive(Clone, Copy, Debug)]
pub enum PythonStart<'a> {
    /// A script, by its path.
    Script(&'a Path),
    /// A module (`-m`), by its name.
    Module(&'a str),
}

/// The files that a Python program needs besides its script.
#[derive(Clone, Debug, Default)]
pub struct PythonFiles {
    /// The files, with their places in the job's folder, and the script. What is not sent although
    /// the program names it is in `left_out`.
    pub snapshot: Snapshot,
    /// The place of the script in the job's folder; `None` for a module.
    pub script: Option<String>,
    /// The Python files on this machine, but for the script.
    pub modules: Vec<PathBuf>,
    /// How many other files there are.
    pub other_files: usize,
}

/// Where the files of a program are looked for.
#[derive(Clone, Copy, Debug)]
pub struct PythonSearch<'a> {
    /// The current folder.
    pub cwd: &'a Path,
    /// The value of `PYTHONPATH`, whose relative folders count.
    pub python_path: &'a str,
    /// The user's home. A program in it brings modules only: what else is there belongs to no
    /// project.
    pub home: Option<&'a Path>,
    /// The most bytes in all.
    pub limit: u64,
}

impl PythonFiles {
    /// Finds the files of a program that starts in the current folder. They are in the folder of
    /// the script, in those of `PYTHONPATH`, or in the current folder, if it is a part of a project.
    ///
    /// # Errors
    /// A file with ignore rules cannot be read.
    pub fn find(start: PythonStart<'_>, search: PythonSearch<'_>) -> Result<Self, ExecError> {
        let limit = search.limit;
        let Some(mut search) = Search::new(start, search) else {
            return Ok(Self::default());
        };
        search.run()?;
        search.take(limit)
    }

    /// Whether the program needs nothing but its script.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty() && self.other_files == 0
    }

    /// The files in words: `3 modules and 1 file`.
    pub fn summary(&self) -> String {
        let counted = |count: usize, what: &str| match count {
            0 => None,
            1 => Some(format!("1 {what}")),
            count => Some(format!("{count} {what}s")),
        };
        let parts = [counted(self.modules.len(), "module"), counted(self.other_files, "file")];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }
}

/// What is at a path of the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    File,
    Folder,
    Nothing,
}

/// A search for the files of one program. All paths are relative to `root`.
struct Search {
    /// The folder that becomes the working folder, links resolved.
    root: PathBuf,
    script: Option<PathBuf>,
    /// Folders in which modules are looked for, in Python's order.
    folders: Vec<PathBuf>,
    /// Folders whose modules may be sent: the script's, those that the user named, the project's.
    own_folders: Vec<PathBuf>,
    /// Those of them whose other files may be sent too.
    data_folders: Vec<PathBuf>,
    /// Imports found so far, with their files.
    imports: Vec<(PathBuf, Import)>,
    /// Files to search.
    queue: VecDeque<PathBuf>,
    /// Modules and other files that were named.
    wanted: BTreeSet<PathBuf>,
    packages: BTreeSet<PathBuf>,
    searched: BTreeSet<PathBuf>,
    entries: BTreeMap<PathBuf, Entry>,
}

impl Search {
    /// `None`: there is no such folder, or an agent may not read it.
    fn new(start: PythonStart<'_>, search: PythonSearch<'_>) -> Option<Self> {
        let PythonSearch { cwd, python_path, home, .. } = search;
        let mut root = fs::canonicalize(cwd).ok()?;
        let mut script = None;
        let mut folders = Vec::new();
        let mut imports = Vec::new();
        match start {
            PythonStart::Script(path) => {
                let path = cwd.join(path);
                // A link to a script elsewhere is a file of its own folder here.
                let folder = fs::canonicalize(path.parent()?).ok()?;
                if !folder.starts_with(&root) {
                    root.clone_from(&folder);
                }
                let inner = folder.strip_prefix(&root).ok()?.to_owned();
                script = Some(inner.join(path.file_name()?));
                folders.push(inner);
            }
            PythonStart::Module(name) => {
                let module = name.split('.').map(str::to_owned).collect();
                let main = vec!["__main__".to_owned()];
                folders.push(PathBuf::new());
                imports.push((PathBuf::new(), Import { level: 0, module, names: main }));
            }
        }
        if agent_files::check(&root).is_err() {
            return None;
        }
        // A relative folder is below the folder in which the program runs: `root`, if that is `cwd`.
        if fs::canonicalize(cwd).is_ok_and(|cwd| cwd == root) {
            let listed = python_path.split(':').filter(|part| !part.is_empty());
            folders.extend(listed.flat_map(|part| within(Path::new(part))));
        }
        let home = home.and_then(|home| fs::canonicalize(home).ok());
        let is_broad = |folder: &Path| {
            folder.parent().is_none() || home.as_ref().is_some_and(|home| home.starts_with(folder))
        };
        let mut own_folders = folders.clone();
        if is_in_project(&root, is_broad) {
            own_folders.push(PathBuf::new());
        }
        let mut data_folders = own_folders.clone();
        data_folders.retain(|folder| !is_broad(&root.join(folder)));
        Some(Self {
            root,
            queue: script.iter().cloned().collect(),
            script,
            folders,
            own_folders,
            data_folders,
            imports,
            wanted: BTreeSet::new(),
            packages: BTreeSet::new(),
            searched: BTreeSet::new(),
            entries: BTreeMap::new(),
        })
    }

    /// Searches until nothing new is named.
    fn run(&mut self) -> Result<(), ExecError> {
        self.resolve(0)?;
        while let Some(file) = self.queue.pop_front() {
            if self.searched.len() >= MAX_SEARCHED_FILES || !self.searched.insert(file.clone()) {
                continue;
            }
            let Ok(bytes) = agent_files::read(&self.root.join(&file), MAX_SEARCHED_BYTES) else {
                continue;
            };
            let text = String::from_utf8_lossy(&bytes);
            if is_compiled_source(&file) {
                let folder = file.parent().unwrap_or(Path::new(""));
                let named: Vec<PathBuf> =
                    includes(&text).flat_map(|name| within(&folder.join(name))).collect();
                named.into_iter().for_each(|path| self.want_data(path));
                continue;
            }
            let source = PythonSource::read(text.trim_start_matches('\u{feff}'), &file);
            let known = self.imports.len();
            self.imports.extend(source.imports.into_iter().map(|import| (file.clone(), import)));
            let mut first = known;
            for folder in source.search_folders {
                if self.folders.len() < MAX_SEARCH_FOLDERS && !self.folders.contains(&folder) {
                    self.folders.push(folder);
                    // Imports of earlier files may be found there too.
                    first = 0;
                }
            }
            self.resolve(first)?;
            source.files.into_iter().for_each(|path| self.want_data(path));
        }
        Ok(())
    }

    /// Looks for the modules of the imports from this one on.
    fn resolve(&mut self, first: usize) -> Result<(), ExecError> {
        for at in first..self.imports.len() {
            let Some((file, import)) = self.imports.get(at).cloned() else { break };
            if import.level == 0 {
                let folders = self.folders.clone();
                for folder in folders {
                    if self.take_module(&folder, &import.module, &import.names)? {
                        break;
                    }
                }
                continue;
            }
            let mut folder = file.clone();
            if (0..import.level).all(|_| folder.pop()) {
                self.take_module(&folder, &import.module, &import.names)?;
            }
        }
        Ok(())
    }

    /// Takes a module of a folder, as Python finds it: a package before a file, and both before a
    /// folder without `__init__.py`, of which only the named modules are taken. Returns whether
    /// there is one.
    fn take_module(
        &mut self,
        folder: &Path,
        module: &[String],
        names: &[String],
    ) -> Result<bool, ExecError> {
        let Some((name, rest)) = module.split_first() else {
            let mut found = false;
            for name in names {
                found |= self.take_module(folder, std::slice::from_ref(name), &[])?;
            }
            return Ok(found);
        };
        let base = folder.join(name);
        if self.entry(&base.join("__init__.py")) == Entry::File {
            self.take_package(base)?;
            return Ok(true);
        }
        let file = folder.join(format!("{name}.py"));
        if self.entry(&file) == Entry::File {
            self.want(file);
            return Ok(true);
        }
        let is_folder = self.entry(&base) == Entry::Folder;
        Ok(is_folder && self.take_module(&base, rest, names)?)
    }

    fn take_package(&mut self, package: PathBuf) -> Result<(), ExecError> {
        if package.ancestors().any(|folder| self.packages.contains(folder)) {
            return Ok(());
        }
        let one = BTreeSet::from([package.clone()]);
        for file in sendable(&self.root, &BTreeSet::new(), &one)?.into_keys() {
            self.want(file);
        }
        // If it may not be sent, that is told.
        self.want(package.join("__init__.py"));
        self.packages.insert(package);
        Ok(())
    }

    /// Takes a file that is no module, if it is in a folder whose files may be sent.
    fn want_data(&mut self, path: PathBuf) {
        let is_own = self.data_folders.iter().any(|folder| path.starts_with(folder));
        if is_own && self.entry(&path) == Entry::File {
            self.want(path);
        }
    }

    /// Takes a file, and searches it later if it is one of Python or one that a compiler reads.
    fn want(&mut self, path: PathBuf) {
        let is_own = self.own_folders.iter().any(|folder| path.starts_with(folder));
        if Some(&path) == self.script.as_ref() || !is_own {
            return;
        }
        if path.extension().is_some_and(|extension| extension == "py") || is_compiled_source(&path)
        {
            self.queue.push_back(path.clone());
        }
        self.wanted.insert(path);
    }

    /// What is at a path to which no link leads.
    fn entry(&mut self, path: &Path) -> Entry {
        if let Some(known) = self.entries.get(path) {
            return *known;
        }
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let is_reached = above.is_none_or(|above| self.entry(above) == Entry::Folder);
        let kind = fs::symlink_metadata(self.root.join(path)).map(|metadata| metadata.file_type());
        let entry = match kind {
            Ok(kind) if is_reached && kind.is_file() => Entry::File,
            Ok(kind) if is_reached && kind.is_dir() => Entry::Folder,
            _ => Entry::Nothing,
        };
        self.entries.insert(path.to_owned(), entry);
        entry
    }

    /// The files that were found and may be sent, up to `limit` bytes.
    fn take(self, limit: u64) -> Result<PythonFiles, ExecError> {
        let mut found = PythonFiles::default();
        let sendable = sendable(&self.root, &self.wanted, &BTreeSet::new())?;
        let mut bytes = 0_u64;
        let mut bytes_in_memory = 0_u64;
        for path in &self.wanted {
            let mut skip = |why| {
                let path = path.display().to_string();
                found.snapshot.left_out.push(SkippedPath { path, why });
            };
            let Some(metadata) = sendable.get(path).filter(|_| !is_private(path)) else {
                skip("the program names it, but it is ignored or may hold secrets");
                continue;
            };
            let size = metadata.len();
            if bytes.saturating_add(size) > limit {
                skip("with it the program's files would exceed `--mount-limit`");
                continue;
            }
            let from = self.root.join(path);
            let mut file = BundleFile::copy(format!("{WORK_FOLDER}/{}", path.display()), &from);
            if size <= SMALL_FILE_BYTES && bytes_in_memory + size <= MAX_BYTES_IN_MEMORY {
                let Ok(content) = agent_files::read(&from, SMALL_FILE_BYTES) else {
                    skip("it cannot be read");
                    continue;
                };
                bytes_in_memory += size;
                file.content = JobFileContent::Bytes(content);
            }
            bytes += size;
            file.executable = metadata.permissions().mode() & 0o111 != 0;
            found.snapshot.files.push(file);
            if path.extension().is_some_and(|extension| extension == "py") {
                found.modules.push(from);
            } else {
                found.other_files += 1;
            }
        }
        if let Some(script) = self.script.as_ref().and_then(|path| path.to_str())
            && !found.is_empty()
        {
            let place = format!("{WORK_FOLDER}/{script}");
            let from = self.root.join(script);
            found.snapshot.files.push(BundleFile::copy(place.clone(), &from).executable());
            found.script = Some(place);
        }
        found.snapshot.root = Some(self.root);
        Ok(found)
    }
}

/// Whether a folder is a part of a project. A broad folder, such as the user's home, is none.
fn is_in_project(folder: &Path, is_broad: impl Fn(&Path) -> bool) -> bool {
    let mut folders = folder.ancestors().take_while(|folder| !is_broad(folder));
    folders.any(|folder| {
        let markers = ["rgpu.toml", ".git", "pyproject.toml", "setup.py"];
        markers.iter().any(|marker| fs::symlink_metadata(folder.join(marker)).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn find_up_to(
        dir: &Path,
        start: PythonStart<'_>,
        python_path: &str,
        limit: u64,
    ) -> PythonFiles {
        let search = PythonSearch { cwd: dir, python_path, home: None, limit };
        PythonFiles::find(start, search).unwrap()
    }

    fn find(dir: &Path, start: PythonStart<'_>, python_path: &str) -> PythonFiles {
        find_up_to(dir, start, python_path, 1 << 20)
    }

    fn sent(files: &PythonFiles) -> String {
        let paths =
            files.snapshot.files.iter().map(|file| file.path.strip_prefix("here/").unwrap());
        paths.collect::<Vec<_>>().join(" ")
    }

    fn script(dir: &Path, name: &str) -> String {
        sent(&find(dir, PythonStart::Script(Path::new(name)), ""))
    }

    #[test]
    fn modules_and_opened_files_beside_a_script_travel_with_it() {
        let dir = tree(&[
            ("bench.py", "from model import GPT\nexec(open('configurator.py').read())\nimport os"),
            ("model.py", "import json, helper\n"),
            ("helper.py", "import model\n"),
            ("configurator.py", "open('input.txt')\nopen('missing.txt')\n"),
            ("input.txt", "text"),
            ("other.py", ""),
            ("json.py", ""),
            ("alone.py", "import os, torch\n"),
        ]);
        let expected = "configurator.py helper.py input.txt json.py model.py bench.py";
        assert_eq!(script(dir.path(), "bench.py"), expected);
        assert_eq!(
            script(dir.path(), &dir.path().join("bench.py").display().to_string()),
            expected
        );
        assert_eq!(script(dir.path(), "alone.py"), "");
        let found = find(dir.path(), PythonStart::Script(Path::new("bench.py")), "");
        assert_eq!(found.summary(), "4 modules and 1 file");
        assert_eq!(found.script.as_deref(), Some("here/bench.py"));
    }

    #[test]
    fn sources_that_a_script_compiles_come_with_what_they_include() {
        let dir = tree(&[
            ("ops/run.py", "load(name='e', sources=['bind.cpp', 'csrc/k.cu'])\n"),
            ("ops/bind.cpp", "#include \"shared.h\"\n#include <torch/extension.h>\n"),
            ("ops/csrc/k.cu", "#include \"../../common/deep.cuh\"\n#include \"../shared.h\"\n"),
            ("ops/shared.h", ""),
            ("ops/other.cu", ""),
            ("common/deep.cuh", ""),
            ("setup.py", ""),
        ]);
        let expected = "common/deep.cuh ops/bind.cpp ops/csrc/k.cu ops/shared.h ops/run.py";
        assert_eq!(script(dir.path(), "ops/run.py"), expected);
    }

    #[test]
    fn packages_of_the_search_path_come_whole_and_keep_their_places() {
        let dir = tree(&[
            ("projects/adder/adder.py", "import mingpt.model\nfrom space.sub import one\n"),
            ("projects/adder/beside.py", ""),
            ("mingpt/__init__.py", ""),
            ("mingpt/model.py", "from .deep import x\nfrom .. import outer\n"),
            ("mingpt/deep/x.py", ""),
            ("mingpt/notes.txt", ""),
            ("mingpt/__pycache__/model.py", ""),
            ("space/sub/one.py", ""),
            ("space/sub/two.py", ""),
            ("outer.py", ""),
        ]);
        let name = "projects/adder/adder.py";
        let found = find(dir.path(), PythonStart::Script(Path::new(name)), ".:/usr/lib");
        assert_eq!(
            sent(&found),
            "mingpt/__init__.py mingpt/deep/x.py mingpt/model.py outer.py space/sub/one.py \
             projects/adder/adder.py"
        );
        assert_eq!(script(dir.path(), name), "");
        let module = find(dir.path(), PythonStart::Module("mingpt.model"), "");
        assert_eq!(sent(&module), "mingpt/__init__.py mingpt/deep/x.py mingpt/model.py outer.py");
        assert_eq!(module.script, None);
        assert!(find(dir.path(), PythonStart::Module("torch.utils"), "").is_empty());
        // From elsewhere, the folder of the script is all that is looked at.
        let inner = dir.path().join("mingpt");
        assert_eq!(script(&inner, "../projects/adder/adder.py"), "");
    }

    #[test]
    fn folders_that_a_module_adds_are_searched_for_all() {
        let dir = tree(&[
            ("run.py", "import a\nimport paths\n"),
            (
                "paths.py",
                "import sys, os\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))",
            ),
            ("lib/a.py", ""),
        ]);
        assert_eq!(script(dir.path(), "run.py"), "lib/a.py paths.py run.py");
    }

    #[test]
    fn what_a_mount_leaves_out_links_and_files_elsewhere_are_not_sent() {
        let outer = tree(&[("secret.py", ""), ("pack/__init__.py", "")]);
        let dir = tree(&[
            (".gitignore", "ignored.py\n"),
            (
                "run.py",
                "import ignored, linked, pack, fine\nopen('.env')\nopen('key.pem')\nopen('../x')\n",
            ),
            ("ignored.py", ""),
            ("fine.py", ""),
            (".env", "A=1"),
            ("key.pem", ""),
        ]);
        symlink(outer.path().join("secret.py"), dir.path().join("linked.py")).unwrap();
        symlink(outer.path().join("pack"), dir.path().join("pack")).unwrap();
        let found = find(dir.path(), PythonStart::Script(Path::new("run.py")), "");
        assert_eq!(sent(&found), "fine.py run.py");
        let left: Vec<&str> = found.snapshot.left_out.iter().map(|l| l.path.as_str()).collect();
        assert_eq!(left, [".env", "ignored.py", "key.pem"]);
    }

    #[test]
    fn a_script_elsewhere_names_no_files_of_the_current_folder() {
        let dir = tree(&[
            ("clone/run.py", "import sys\nsys.path.append('.')\nimport mine\nopen('mine.txt')\n"),
            ("home.py", "import mine\nopen('mine.txt')\n"),
            ("mine.py", ""),
            ("mine.txt", ""),
        ]);
        assert_eq!(script(dir.path(), "clone/run.py"), "");
        let start = PythonStart::Script(Path::new("home.py"));
        let home = Some(dir.path());
        let search = PythonSearch { cwd: dir.path(), python_path: "", home, limit: 1 << 20 };
        assert_eq!(sent(&PythonFiles::find(start, search).unwrap()), "mine.py home.py");
        // In a project they are its own.
        fs::write(dir.path().join("rgpu.toml"), "").unwrap();
        assert_eq!(script(dir.path(), "clone/run.py"), "mine.py mine.txt clone/run.py");
    }

    #[test]
    fn large_files_are_bounded() {
        let dir = tree(&[("run.py", "import big\nopen('data')\n"), ("small.py", "")]);
        let big = format!("import small\n#{}", "x".repeat(1 << 20));
        fs::write(dir.path().join("big.py"), big).unwrap();
        fs::write(dir.path().join("data"), vec![0; 3000]).unwrap();
        let start = PythonStart::Script(Path::new("run.py"));
        let found = find_up_to(dir.path(), start, "", 2 << 20);
        assert_eq!(sent(&found), "big.py data run.py");
        let found = find_up_to(dir.path(), start, "", 1 << 20);
        assert_eq!(sent(&found), "data run.py");
        assert_eq!(found.snapshot.left_out.len(), 1);
    }
}
