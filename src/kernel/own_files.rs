//! Which files a kernel may bring along: those of the repository or project that it lies in. A
//! kernel.toml or an include that was cloned could name any file of this machine, and each that
//! travels is read by the kernel's own code.

use std::path::{Path, PathBuf};

use super::{KernelError, KernelFolders};

/// The folder whose files a kernel may bring along.
pub(super) struct OwnFiles {
    root: PathBuf,
}

impl OwnFiles {
    /// Of the kernel in `folder`: the nearest folder above with `.git` or `rgpu.toml`, the larger
    /// one where there are both; else the folder of `places` that holds it; else its own.
    pub(super) fn of(folder: &Path, places: &KernelFolders) -> Self {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let Ok(real) = here.canonicalize() else { return Self { root: here.to_owned() } };
        let marked = |mark: &str| real.ancestors().find(|above| above.join(mark).exists());
        let marked = [marked(".git"), marked("rgpu.toml")].into_iter().flatten();
        let root = marked.min_by_key(|root| root.components().count()).map(Path::to_owned);
        let known = || {
            let known = std::iter::once(places.project.clone()).chain(places.folders());
            known
                .filter_map(|place| place.canonicalize().ok())
                .find(|place| real.starts_with(place))
        };
        Self { root: root.or_else(known).unwrap_or(real) }
    }

    /// Refuses a file that lies elsewhere, or that a link leads to. `named_by` is the key of
    /// kernel.toml that names it; `None`: an include or import.
    ///
    /// # Errors
    /// [`KernelError::Elsewhere`]. A file that is not there is left to who reads it.
    pub(super) fn check(
        &self,
        path: &Path,
        named_by: Option<&'static str>,
    ) -> Result<(), KernelError> {
        match path.canonicalize() {
            Ok(real) if !real.starts_with(&self.root) => Err(KernelError::Elsewhere {
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
        let root = |places: &KernelFolders| OwnFiles::of(&kernel, places).root;
        assert_eq!(root(&KernelFolders::default()), kernel);
        let here = KernelFolders { project: top.join("clone"), ..KernelFolders::default() };
        assert_eq!(root(&here), top.join("clone"));
        // Further folders of a project that holds the kernel add nothing to it.
        fs::write(top.join("clone/sub/rgpu.toml"), "").unwrap();
        let wide = KernelFolders { kernel_path: vec![top.clone()], ..KernelFolders::default() };
        assert_eq!(root(&wide), top.join("clone/sub"));
        fs::create_dir(top.join("clone/.git")).unwrap();
        assert_eq!(root(&wide), top.join("clone"));
    }
}
