//! The files that may be sent along with a kernel: those of its own repository or project. A cloned
//! kernel.toml or include could name any file of this machine, and the kernel's code can read every
//! file that is sent along.
//!
//! The user's home folder is never a kernel's repository or project, although it may be a
//! repository itself or hold an `rgpu.toml`: everything lies below it.

use std::path::{Path, PathBuf};

use rgpu_model::agent_files;
use rgpu_model::ownership::may_decide;

use super::source::is_private;
use super::{KernelError, KernelFolders};

/// The folder in rgpu's cache with the files that agents send.
pub const CALLS_FOLDER: &str = "mcp";

/// The beginning of the name of the folder with the files of one call, in [`CALLS_FOLDER`].
pub const CALL_PREFIX: &str = "files-";

/// The extensions of sources that a task of a leaderboard may share with its neighbours.
const SOURCES: [&str; 7] = ["py", "cu", "cuh", "h", "hpp", "cpp", "cc"];

/// The folder whose files may be sent along with a kernel.
pub(crate) struct OwnFiles {
    /// The kernel's own folder.
    folder: PathBuf,
    /// The folder of its repository or project.
    root: PathBuf,
    /// Whether a `.git` or `rgpu.toml` says where its repository or project begins, or an agent's
    /// call.
    is_marked: bool,
    /// Whether `root` is the home folder or one above it.
    is_broad: bool,
}

impl OwnFiles {
    /// For the kernel in `folder`: the folder of the call with which an agent sent it; else the
    /// nearest parent with `.git`, or without one the nearest with `rgpu.toml`; else the folder of
    /// `kernel_folders` that contains it; else its own folder. The home folder and the folders
    /// above it count only for a kernel that lies directly in them, and marks of other users do not
    /// count.
    pub(crate) fn find(folder: &Path, kernel_folders: &KernelFolders) -> Self {
        Self::find_below(folder, kernel_folders, std::env::home_dir().as_deref())
    }

    fn find_below(folder: &Path, kernel_folders: &KernelFolders, home: Option<&Path>) -> Self {
        let start = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let Ok(real) = start.canonicalize() else {
            let start = start.to_owned();
            return Self::new(start.clone(), start);
        };
        if let Some(call) = real.ancestors().find(|above| is_folder_of_call(above)) {
            return Self { is_marked: true, ..Self::new(real.clone(), call.to_owned()) };
        }
        let home = home.and_then(|home| home.canonicalize().ok());
        let has_home = |above: &Path| home.as_deref().is_some_and(|home| home.starts_with(above));
        let may_be_root = |above: &Path| above == real || !has_home(above);
        let nearest_with = |mark: &str| {
            real.ancestors()
                .find(|above| may_be_root(above) && may_decide(&above.join(mark), &real))
        };
        let marked = nearest_with(".git").or_else(|| nearest_with("rgpu.toml"));
        let is_marked = marked.is_some();
        let containing = || {
            // A program is found without the folders of kernels: the current folder counts.
            let project = &kernel_folders.project;
            let here = project.as_os_str().is_empty().then(std::env::current_dir);
            let here = here.and_then(Result::ok).filter(|here| here.parent().is_some());
            let project = here.unwrap_or_else(|| project.clone());
            std::iter::once(project)
                .chain(kernel_folders.folders())
                .filter_map(|folder| folder.canonicalize().ok())
                .find(|folder| real.starts_with(folder) && may_be_root(folder))
        };
        let found = marked.map(Path::to_owned).or_else(containing);
        let root = found.unwrap_or_else(|| real.clone());
        // An agent has the project alone, also if that lies in a larger repository.
        let is_narrower =
            |project: &PathBuf| project.starts_with(&root) && real.starts_with(project);
        let root = agent_files::project().filter(is_narrower).unwrap_or(root);
        Self { is_broad: has_home(&root), is_marked, ..Self::new(real, root) }
    }

    /// Refuses a file outside of the root, also if a link leads there, and a private file outside
    /// of the kernel's own folder. `named_by` is the key of kernel.toml that names it; `None`: an
    /// include or import.
    ///
    /// # Errors
    /// [`KernelError::OutsideProject`], [`KernelError::Private`]. A file that does not exist is not
    /// an error here; its reader reports it.
    pub(crate) fn check(
        &self,
        path: &Path,
        named_by: Option<&'static str>,
    ) -> Result<(), KernelError> {
        let Ok(real) = path.canonicalize() else { return Ok(()) };
        let Ok(inside) = real.strip_prefix(&self.root) else {
            return Err(KernelError::OutsideProject {
                path: path.to_owned(),
                root: self.root.clone(),
                named_by,
            });
        };
        // The user has put a private file beside the kernel, and an agent may have put the kernel
        // beside a private file.
        let is_of_user = real.starts_with(&self.folder) && agent_files::project().is_none();
        if is_private(inside) && !is_of_user {
            return Err(KernelError::Private { path: path.to_owned(), named_by });
        }
        Ok(())
    }

    /// As [`Self::check`], for a file that a source includes. Of a tree without a repository, as an
    /// archive unpacks it, a source in one of the two folders above the kernel's, or in a folder
    /// there, is accepted, too, unless that is the home folder or a folder above it.
    pub(crate) fn check_include(&self, path: &Path) -> Result<(), KernelError> {
        self.check(path, None).or_else(|refusal| {
            let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
            let is_near = |real: &Path| {
                let beside = real.parent().and_then(Path::parent);
                self.is_shared(real, real.parent(), home.clone())
                    || self.is_shared(real, beside, home.clone())
            };
            let is_accepted = path.canonicalize().is_ok_and(|real| is_near(&real));
            if is_accepted { Ok(()) } else { Err(refusal) }
        })
    }

    /// As [`Self::check`], for a file that a task of a leaderboard names. Such tasks share sources
    /// with their neighbours, and people copy them out of their repository. So for a task that is in
    /// no repository or project, a source that lies directly in one of the two folders above the
    /// task's is accepted, too, unless that is the home folder or a folder above it.
    pub(crate) fn check_task_file(
        &self,
        path: &Path,
        named_by: &'static str,
    ) -> Result<(), KernelError> {
        self.check(path, Some(named_by)).or_else(|refusal| {
            let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
            let is_shared =
                path.canonicalize().is_ok_and(|real| self.is_shared(&real, real.parent(), home));
            if is_shared { Ok(()) } else { Err(refusal) }
        })
    }

    /// Whether files that a program opens may be sent from here: what is in the home folder belongs
    /// to no program.
    pub(crate) fn has_data(&self) -> bool {
        !self.is_broad
    }

    fn new(folder: PathBuf, root: PathBuf) -> Self {
        Self { folder, root, is_marked: false, is_broad: false }
    }

    /// Whether a real path is that of a source, and `shared` one of the two folders above the
    /// kernel's.
    fn is_shared(&self, real: &Path, shared: Option<&Path>, home: Option<PathBuf>) -> bool {
        let extension = real.extension().and_then(|extension| extension.to_str());
        let is_source = extension.is_some_and(|extension| SOURCES.contains(&extension));
        let may_be_shared = |folder: &&Path| {
            folder.parent().is_some()
                && !home.as_deref().is_some_and(|home| home.starts_with(folder))
        };
        let mut above = self.folder.ancestors().skip(1).take(2).take_while(may_be_shared);
        is_source
            && agent_files::project().is_none()
            && !self.is_marked
            && may_decide(real, &self.folder)
            && shared
                .is_some_and(|shared| real.strip_prefix(shared).is_ok_and(|path| !is_private(path)))
            && above.any(|folder| shared == Some(folder))
    }
}

/// Whether a file that `folder` names may be sent to a host, by the rules for a kernel in `folder`.
/// A file that does not exist may.
pub fn may_be_sent(path: &Path, folder: &Path, kernel_folders: &KernelFolders) -> bool {
    OwnFiles::find(folder, kernel_folders).check(path, None).is_ok()
}

/// Whether a folder has the files of one call of an agent.
pub(super) fn is_folder_of_call(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_in_calls = folder.parent().is_some_and(|parent| parent.ends_with(CALLS_FOLDER));
    is_in_calls && name.starts_with(CALL_PREFIX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_kernels_files_are_those_of_its_repository_or_project() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let kernel = top.join("clone/sub/k");
        fs::create_dir_all(&kernel).unwrap();
        let root = |kernel_folders: &KernelFolders| {
            OwnFiles::find_below(&kernel, kernel_folders, None).root
        };
        assert_eq!(root(&KernelFolders::default()), kernel);
        let with_project = KernelFolders { project: top.join("clone"), ..KernelFolders::default() };
        assert_eq!(root(&with_project), top.join("clone"));
        // Folders in `kernel_path` that contain the kernel do not extend its root.
        fs::write(top.join("clone/sub/rgpu.toml"), "").unwrap();
        let with_outer_folder =
            KernelFolders { kernel_path: vec![top.clone()], ..KernelFolders::default() };
        assert_eq!(root(&with_outer_folder), top.join("clone/sub"));
        fs::create_dir(top.join("clone/.git")).unwrap();
        assert_eq!(root(&with_outer_folder), top.join("clone"));
    }

    #[test]
    fn headers_of_an_unpacked_tree_are_near_its_kernels() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let kernel = top.join("tree/chapter/k");
        let file = |name: &str| {
            let path = top.join("tree").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        fs::create_dir_all(&kernel).unwrap();
        let own = OwnFiles::find_below(&kernel, &KernelFolders::default(), None);
        let accepted = |path: &Path| own.check_include(path).is_ok();
        for near in ["common/a.h", "a.cuh", "chapter/inc/b.hpp"] {
            assert!(accepted(&file(near)), "{near}");
        }
        for far in ["common/notes.txt", "common/deep/a.h", "../other/a/b.h", ".ssh/a.h"] {
            assert!(!accepted(&file(far)), "{far}");
        }
        // A repository says itself what belongs to it.
        fs::create_dir(kernel.join(".git")).unwrap();
        let own = OwnFiles::find_below(&kernel, &KernelFolders::default(), None);
        assert!(own.check_include(&top.join("tree/common/a.h")).is_err());
    }

    #[test]
    fn marks_of_another_user_are_no_boundary_of_a_project() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let kernel = top.join("k");
        fs::create_dir(&kernel).unwrap();
        fs::create_dir(top.join(".git")).unwrap();
        fs::write(top.join("rgpu.toml"), "").unwrap();
        let root = || OwnFiles::find_below(&kernel, &KernelFolders::default(), None).root;
        assert_eq!(root(), top);
        for mark in [".git", "rgpu.toml"] {
            if std::os::unix::fs::chown(top.join(mark), Some(65534), None).is_err() {
                eprintln!("skipped: only root can make files of other users");
                return;
            }
        }
        assert_eq!(root(), kernel);
    }

    #[test]
    fn the_home_folder_is_no_project_of_what_lies_below_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let kernel = home.join("unpacked/k");
        fs::create_dir_all(&kernel).unwrap();
        fs::create_dir(home.join(".git")).unwrap();
        fs::write(home.join("rgpu.toml"), "").unwrap();
        let kernel_folders = KernelFolders { project: home.clone(), ..KernelFolders::default() };
        let root = |folder: &Path, home: &Path| {
            OwnFiles::find_below(folder, &kernel_folders, Some(home)).root
        };
        assert_eq!(root(&kernel, &home), kernel);
        // What a program opens in the home folder is not its own.
        let has_data = |folder: &Path| {
            OwnFiles::find_below(folder, &kernel_folders, Some(home.as_path())).has_data()
        };
        assert!(has_data(&kernel) && !has_data(&home));
        // Nor is a folder above it.
        assert_eq!(root(&kernel, &home.join("unpacked")), kernel);
        // A kernel that lies directly in it has the files below.
        assert_eq!(root(&home, &home), home);
        fs::write(home.join("unpacked/rgpu.toml"), "").unwrap();
        assert_eq!(root(&kernel, &home), home.join("unpacked"));
        // A clone ends at its own repository, whatever lies above.
        fs::create_dir(kernel.join(".git")).unwrap();
        assert_eq!(root(&kernel, Path::new("/nonexistent")), kernel);
    }

    #[test]
    fn a_task_in_its_own_repository_has_no_sources_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let task = top.join("problems/task");
        fs::create_dir_all(&task).unwrap();
        fs::write(top.join("problems/utils.py"), "").unwrap();
        let check = || {
            OwnFiles::find_below(&task, &KernelFolders::default(), None)
                .check_task_file(&task.join("../utils.py"), "files")
        };
        check().unwrap();
        fs::create_dir(task.join(".git")).unwrap();
        assert!(matches!(check(), Err(KernelError::OutsideProject { .. })));
        fs::remove_dir(task.join(".git")).unwrap();
        fs::create_dir(top.join("problems/.git")).unwrap();
        check().unwrap();
    }

    #[test]
    fn the_files_of_a_call_have_their_folder_alone() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let call = top.join("cache").join(CALLS_FOLDER).join(format!("{CALL_PREFIX}a1"));
        let kernel = call.join("k");
        fs::create_dir_all(&kernel).unwrap();
        fs::create_dir(top.join(".git")).unwrap();
        fs::write(top.join("cache/rgpu.toml"), "").unwrap();
        let kernel_folders = KernelFolders { project: top, ..KernelFolders::default() };
        for folder in [&kernel, &call] {
            assert_eq!(OwnFiles::find_below(folder, &kernel_folders, None).root, call);
        }
    }

    #[test]
    fn private_files_of_a_repository_are_not_sent_from_outside_the_kernels_folder() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let kernel = top.join("k");
        fs::create_dir_all(&kernel).unwrap();
        fs::create_dir_all(top.join(".ssh")).unwrap();
        for file in ["rgpu.toml", ".env", "server.pem", ".ssh/known", "common.h", "k/.env"] {
            fs::write(top.join(file), "").unwrap();
        }
        let own_files = OwnFiles::find_below(&kernel, &KernelFolders::default(), None);
        for private in [".env", "server.pem", ".ssh/known"] {
            let refused = own_files.check(&kernel.join("..").join(private), Some("files"));
            assert!(matches!(refused, Err(KernelError::Private { .. })), "{private}");
        }
        // The user has put this one beside the kernel.
        for fine in ["../common.h", ".env"] {
            own_files.check(&kernel.join(fine), Some("files")).unwrap();
        }
    }
}
