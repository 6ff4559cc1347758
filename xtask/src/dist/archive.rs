//! Packs the tree into a tarball. The same tree gives the same bytes. The checksums of all
//! artifacts are one list beside them, in the form that `sha256sum --check` reads.

use super::{DistError, at};
use crate::command;
use rgpu_protocol::Digest;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file to distribute, and its hash.
pub(super) struct Artifact {
    pub(super) file: PathBuf,
    pub(super) sha256: Digest,
}

impl Artifact {
    /// Reads the finished `file` and takes its digest.
    pub(super) fn from_file(file: PathBuf) -> Result<Self, DistError> {
        let bytes = fs::read(&file).map_err(at(&file))?;
        Ok(Self { sha256: Digest::sha256(&bytes), file })
    }

    /// Its line in a list of checksums.
    fn sum(&self) -> String {
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        format!("{}  {name}\n", self.sha256)
    }
}

/// Writes the checksums of `artifacts`, which lie beside `list`.
pub(super) fn write_sums(artifacts: &[Artifact], list: &Path) -> Result<(), DistError> {
    let sums: String = artifacts.iter().map(Artifact::sum).collect();
    fs::write(list, sums).map_err(at(list))
}

/// Packs `tree` into a file beside it.
pub(super) fn pack(tree: &Path) -> Result<Artifact, DistError> {
    let name = tree.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = tree.parent().unwrap_or(Path::new("."));
    let file = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder);
    tar.args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.args(["--mode=u=rwX,go=rX", "--use-compress-program=gzip -9n", "-cf"]);
    command::run(tar.arg(&file).arg(&name))?;
    Artifact::from_file(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_tree_packs_to_the_same_bytes_with_a_sum_that_checks() {
        let folder = std::env::temp_dir().join(format!("rgpu-xtask-pack-{}", std::process::id()));
        let tree = folder.join("rgpu-1");
        fs::create_dir_all(tree.join("bin")).expect("a folder");
        fs::write(tree.join("bin/rgpu"), "binary").expect("a file");
        let first = pack(&tree).expect("a tarball").sha256;
        fs::write(tree.join("bin/rgpu"), "binary").expect("a newer file");
        let second = pack(&tree).expect("a tarball");
        write_sums(std::slice::from_ref(&second), &folder.join("rgpu-1.sha256")).expect("a list");
        let check = Command::new("sha256sum")
            .args(["--check", "--status", "rgpu-1.sha256"])
            .current_dir(&folder)
            .status()
            .expect("sha256sum");
        fs::remove_dir_all(&folder).expect("our own folder");
        assert_eq!(first, second.sha256);
        assert!(check.success());
    }
}
