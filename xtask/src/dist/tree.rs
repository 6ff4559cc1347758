//! Lays out the user's installation: `bin/rgpu`, the files for hosts in `libexec/rgpu/<triple>`,
//! kernels, shell completions and man pages, each where `rgpu` or the system looks for it. The tree
//! may be copied over any prefix, and the `libexec` of two architectures over each other.

use super::{Build, CLI, DistError, HOST_FILES, at, place};
use crate::command;
use crate::workspace::Workspace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Shells, and the folder in which each looks for the completions of `rgpu`.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "share/bash-completion/completions/rgpu"),
    ("zsh", "share/zsh/site-functions/_rgpu"),
    ("fish", "share/fish/vendor_completions.d/rgpu.fish"),
];
const DOCUMENTS: &[&str] = &["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Lays out the CLI of a build with the files for hosts of all `hosts` in `folder`; returns the tree's
/// folder.
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
    place(&[CLI], built, &tree.join("bin"))?;
    for host in hosts {
        place(HOST_FILES, &host.folder, &tree.join("libexec/rgpu").join(host.target.triple))?;
    }
    let kernels = workspace.root.join("kernels");
    copy(&kernels, &tree.join("share/rgpu/kernels")).map_err(at(&kernels))?;
    let documents = tree.join("share/doc/rgpu");
    fs::create_dir_all(&documents).map_err(at(&documents))?;
    for document in DOCUMENTS {
        let from = workspace.root.join(document);
        fs::copy(&from, documents.join(document)).map_err(at(&from))?;
    }
    // README links to these.
    let docs = workspace.root.join("docs");
    copy(&docs, &documents.join("docs")).map_err(at(&docs))?;
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

/// A CLI that runs here: that of a build, or, if all are for other architectures, one built from the
/// same source.
fn native_cli(workspace: &Workspace, builds: &[Build]) -> Result<PathBuf, DistError> {
    if let Some(native) = builds.iter().find(|build| build.target.triple == workspace.triple) {
        return Ok(native.folder.join(CLI.1));
    }
    command::run(workspace.cargo().args(["build", "--package", CLI.0]))?;
    Ok(workspace.target.join("debug").join(CLI.1))
}

/// Copies a folder, except hidden entries and the output of runs.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with('.') || name == "artifacts" || name == "__pycache__" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to.join(name))?;
        } else {
            fs::copy(entry.path(), to.join(name))?;
        }
    }
    Ok(())
}
