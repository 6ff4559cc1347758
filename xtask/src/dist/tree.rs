//! Lays out the user's installation: `bin/rgpu`, the files for hosts in `libexec/rgpu/<triple>`,
//! kernels, documents, shell completions and man pages, each where `rgpu` or the system looks for
//! it. The tree may be copied over any prefix, and the `libexec` of two architectures over each
//! other.

use super::links::{self, SHIPPED};
use super::{Build, CLI, DistError, HOST_FILES, at, copy_files};
use crate::command;
use crate::workspace::Workspace;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Shells, and the folder in which each looks for the completions of `rgpu`.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/rgpu"),
    ("zsh", "share/zsh/site-functions/_rgpu"),
    ("fish", "share/fish/vendor_completions.d/rgpu.fish"),
];

/// Lays out the CLI of a build with the files for hosts of all `hosts` in `folder`; returns the
/// tree's folder.
pub(super) fn lay_out(
    workspace: &Workspace,
    build: &Build,
    hosts: &[Build],
    folder: &Path,
) -> Result<PathBuf, DistError> {
    let Build { target, folder: built } = build;
    let name = format!("rgpu-{}-{}", env!("CARGO_PKG_VERSION"), target.triple);
    let tree = folder.join(name);
    if tree.exists() {
        fs::remove_dir_all(&tree).map_err(at(&tree))?;
    }
    copy_files(&[CLI], built, &tree.join("bin"))?;
    for host in hosts {
        copy_files(HOST_FILES, &host.folder, &tree.join("libexec/rgpu").join(host.target.triple))?;
    }
    lay_out_documents(&workspace.root, &tree)?;
    let rgpu = native_cli(workspace, hosts)?;
    for (shell, place) in COMPLETIONS {
        let text = command::output(Command::new(&rgpu).args(["completions", shell]))?;
        let file = tree.join(place);
        let folder = file.parent().unwrap_or(&tree);
        fs::create_dir_all(folder).map_err(at(folder))?;
        fs::write(&file, text).map_err(at(&file))?;
    }
    let pages = tree.join("share/man/man1");
    fs::create_dir_all(&pages).map_err(at(&pages))?;
    command::output(Command::new(&rgpu).arg("man").arg(&pages))?;
    Ok(tree)
}

/// A CLI that runs here: that of a build, or, if all are for other architectures, one built from
/// the same source.
fn native_cli(workspace: &Workspace, builds: &[Build]) -> Result<PathBuf, DistError> {
    if let Some(native) = builds.iter().find(|build| build.target.triple == workspace.triple) {
        return Ok(native.folder.join(CLI.1));
    }
    command::run(workspace.cargo().args(["build", "--package", CLI.0]))?;
    Ok(workspace.target.join("debug").join(CLI.1))
}

/// Lays out kernels, schemas, documentation and examples of the repository at `root`.
pub(super) fn lay_out_documents(root: &Path, tree: &Path) -> Result<(), DistError> {
    for (from, to) in SHIPPED {
        copy(root, Path::new(from), &tree.join(to))?;
    }
    Ok(())
}

/// Copies the file or folder `from` of the repository at `root`, except hidden entries and the
/// output of runs.
fn copy(root: &Path, from: &Path, to: &Path) -> Result<(), DistError> {
    let path = root.join(from);
    if path.is_dir() {
        for entry in fs::read_dir(&path).map_err(at(&path))? {
            let name = entry.map_err(at(&path))?.file_name();
            let text = name.to_string_lossy();
            if !text.starts_with('.') && text != "artifacts" && text != "__pycache__" {
                copy(root, &from.join(&name), &to.join(&name))?;
            }
        }
        return Ok(());
    }
    let folder = to.parent().unwrap_or(to);
    fs::create_dir_all(folder).map_err(at(folder))?;
    if from.extension().is_some_and(|extension| extension == "md") {
        return fs::write(to, links::for_tree(root, from)?).map_err(at(to));
    }
    fs::copy(&path, to).map(drop).map_err(at(&path))
}
