//! The binaries that leave this machine.
//!
//! Two ways, one layout. Set-up takes what `cargo build` made, for hosts whose glibc is at least ours:
//! it shares every dependency with the tests, so a clone is ready sooner. `cargo xtask dist` builds
//! small, optimised files against glibc 2.17 with zig as the linker, checks what each file needs of
//! a host, and lays out what a user installs, as a tree and as a tarball.

mod archive;
mod target;
mod tree;
mod zig;

use crate::command::{self, CommandError};
use crate::elf::{ElfError, Misfit};
use crate::environment::EnvironmentError;
use crate::workspace::Workspace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use target::Target;

/// What travels to GPU hosts: package and file.
const TRAVELLING: &[(&str, &str)] = &[
    ("rgpu-agent", "rgpu-agent"),
    ("rgpu-agent-http", "rgpu-agent-http"),
    ("rgpu-runner", "rgpu-runner"),
    ("rgpu-collector", "librgpu_collector.so"),
];
/// What stays with the user.
const CLI: (&str, &str) = ("rgpu", "rgpu");

/// A binary could not be made, or is not fit to travel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DistError {
    /// Cargo, the CLI or tar failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// zig is not to be had.
    #[error(transparent)]
    Zig(#[from] EnvironmentError),
    /// A file could not be put in place.
    #[error("`{}` cannot be put in place", path.display())]
    Place { path: PathBuf, source: io::Error },
    /// It is no binary that we know.
    #[error("`{}` cannot be checked", path.display())]
    Check { path: PathBuf, source: ElfError },
    /// It asks too much of the hosts it is for.
    #[error("`{file}` would not start on the hosts it is for: {misfit}")]
    Unfit { file: String, misfit: Misfit },
    /// It is too big.
    #[error("`{file}` has {bytes} bytes; at most {limit} are allowed")]
    Size { file: String, bytes: u64, limit: u64 },
    /// Rust's standard library for the target is not there.
    #[error("rustc has no standard library for `{triple}`\n  help: `rustup target add {triple}`")]
    NoStd { triple: &'static str },
}

/// Names the file that an error is about.
fn at(path: &Path) -> impl FnOnce(io::Error) -> DistError {
    let path = path.to_owned();
    move |source| DistError::Place { path, source }
}

/// Puts what `cargo build` made for hosts like this machine where `rgpu` looks for it.
pub(crate) fn copy_debug_builds(workspace: &Workspace) -> Result<(), DistError> {
    let to = workspace.dist_folder(&workspace.triple);
    place(TRAVELLING, &workspace.target.join("debug"), &to)
}

/// Builds everything for any host of `target`'s architecture, checks it, and packs it.
pub(crate) fn everything(workspace: &Workspace, target: &Target) -> Result<(), DistError> {
    let files = [TRAVELLING, &[CLI]].concat();
    let built = zig::build(workspace, target, &files)?;
    println!("{}", built.display());
    for (_, file) in &files {
        println!("  {file}: {}", target.check(&built.join(file), file)?);
    }
    // From now on `rgpu` takes these in the workspace too.
    place(TRAVELLING, &built, &workspace.dist_folder(target.triple))?;
    let tree = tree::lay_out(workspace, target, &built)?;
    println!("{}", tree.display());
    let packed = archive::pack(&tree)?;
    println!("{}\n  sha256 {}", packed.file.display(), packed.sha256);
    Ok(())
}

/// Copies `files`. A debug build is stripped: it is ten times as large with its symbols, and each host
/// is sent these files.
fn place(files: &[(&str, &str)], from: &Path, to: &Path) -> Result<(), DistError> {
    fs::create_dir_all(to).map_err(at(to))?;
    for (_, file) in files {
        // Renamed into place: the old file may be running.
        let fresh = to.join(format!(".{file}.new"));
        fs::copy(from.join(file), &fresh).map_err(at(&fresh))?;
        if from.ends_with("debug") {
            command::run(std::process::Command::new("strip").arg(&fresh))?;
        }
        fs::rename(&fresh, to.join(file)).map_err(at(&to.join(file)))?;
    }
    Ok(())
}
