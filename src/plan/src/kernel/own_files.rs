//! The files that may be sent along with a kernel: those of its own repository or project. A cloned
//! kernel.toml or include could name any file of this machine, and the kernel's code can read every
//! file that is sent along.

use std::path::{Path, PathBuf};

use super::{KernelError, KernelFolders};

/// The folder whose files may be sent along with a kernel.
pub(crate) struct OwnFiles {
    root: PathBuf,
}

impl OwnFiles {
    /// For the kernel in `folder`: the nearest parent with `.git` or the nearest with `rgpu.toml`,
    /// the outer one if there are both; else the folder of `kernel_folders` that contains it; else
    /// its own folder.
    pub(crate) fn find(folder: &Path, kernel_folders: &KernelFolders) -> Self {
        let start = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let Ok(real) = start.canonicalize() else { return Self { root: start.to_owned() } };
        let nearest_with = |mark: &str| real.ancestors().find(|above| above.join(mark).exists());
        let candidates = [nearest_with(".git"), nearest_with("rgpu.toml")].into_iter().flatten();
        let root = candidates.min_by_key(|root| root.components().count()).map(Path::to_owned);
        let containing = || {
            let containing =
                std::iter::once(kernel_folders.project.clone()).chain(kernel_folders.folders());
            containing
                .filter_map(|folder| folder.canonicalize().ok())
                .find(|folder| real.starts_with(folder))
        };
        Self { root: root.or_else(containing).unwrap_or(real) }
    }

    /// Refuses a file outside of the root, also if a link leads there. `named_by` is the key of
    /// kernel.toml that names it; `None`: an include or import.
    ///
    /// # Errors
    /// [`KernelError::OutsideProject`]. A file that does not exist is not an error here; its reader
    /// reports it.
    pub(crate) fn check(
        &self,
        path: &Path,
        named_by: Option<&'static str>,
    ) -> Result<(), KernelError> {
        match path.canonicalize() {
            Ok(real) if !real.starts_with(&self.root) => Err(KernelError::OutsideProject {
                path: path.to_owned(),
                root: self.root.clone(),
                named_by,
            }),
            _ => Ok(()),
        }
    }
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
        let root = |kernel_folders: &KernelFolders| OwnFiles::find(&kernel, kernel_folders).root;
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
}
