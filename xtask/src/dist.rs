//! Builds the binaries for distribution.
//!
//! There are two ways with one layout. Set-up uses the output of `cargo build`, for hosts whose
//! glibc is at least ours: it shares every dependency with the tests, so a clone is ready sooner.
//! `cargo xtask dist` builds small, optimised files against glibc 2.17 with zig as the linker,
//! checks the requirements of each file, and lays out the user's installation as a tree and as a
//! tarball. `cargo xtask wheel` does so for both architectures, with the files for hosts of both in
//! each tree, and packs the trees as Python wheels too, with the Python package.

mod archive;
mod links;
mod target;
mod tree;
mod wheel;
mod zig;

use crate::command::{self, CommandError};
use crate::elf::{ElfError, UnmetRequirement};
use crate::environment::EnvironmentError;
use crate::workspace::Workspace;
use archive::Artifact;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use target::Target;

/// The binaries that are sent to GPU hosts: package and file.
const HOST_FILES: &[(&str, &str)] = &[
    ("rgpu-agent", "rgpu-agent"),
    ("rgpu-agent-http", "rgpu-agent-http"),
    ("rgpu-runner", "rgpu-runner"),
    ("rgpu-collector", "librgpu_collector.so"),
];
/// The binary that stays on the user's machine.
const CLI: (&str, &str) = ("rgpu", "rgpu");
/// The systems besides Linux that the CLI compiles for.
const MACOS: &[&str] = &["aarch64-apple-darwin", "x86_64-apple-darwin"];
/// The checksums of the tarballs and wheels that were made last.
const SUMS: &str = concat!("rgpu-", env!("CARGO_PKG_VERSION"), ".sha256");

/// A binary could not be built or is not fit for distribution.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DistError {
    /// Cargo, the CLI or tar failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// zig could not be installed.
    #[error(transparent)]
    Zig(#[from] EnvironmentError),
    /// A file could not be copied.
    #[error("`{}` cannot be put in place", path.display())]
    Place { path: PathBuf, source: io::Error },
    /// A Markdown file links to nothing.
    #[error("`{}` links to `{link}`, which is not there", file.display())]
    DeadLink { file: PathBuf, link: String },
    /// The file is not a readable ELF binary.
    #[error("`{}` cannot be checked", path.display())]
    Check { path: PathBuf, source: ElfError },
    /// The file requires more than its hosts provide.
    #[error("`{file}` would not start on the hosts it is for: {misfit}")]
    Unfit { file: String, misfit: UnmetRequirement },
    /// The file is too large.
    #[error("`{file}` has {bytes} bytes; at most {limit} are allowed")]
    Size { file: String, bytes: u64, limit: u64 },
    /// There are no wheels for this machine.
    #[error("there are no wheels for `{triple}`")]
    Machine { triple: String },
    /// Rust's standard library for the target is missing.
    #[error("rustc has no standard library for `{triple}`\n  help: `rustup target add {triple}`")]
    NoStd { triple: &'static str },
}

/// Adds the path to an I/O error.
fn at(path: &Path) -> impl FnOnce(io::Error) -> DistError {
    let path = path.to_owned();
    move |source| DistError::Place { path, source }
}

/// Copies the output of `cargo build`, for hosts like this machine, to where `rgpu` looks for it.
pub(crate) fn copy_debug_builds(workspace: &Workspace) -> Result<(), DistError> {
    let to = workspace.dist_folder(&workspace.triple);
    copy_files(HOST_FILES, &workspace.target.join("debug"), &to)
}

/// The files built for an architecture.
struct Build {
    target: &'static Target,
    folder: PathBuf,
}

impl Build {
    /// Builds everything for any host of `target`'s architecture, and checks it.
    fn make(workspace: &Workspace, target: &'static Target) -> Result<Self, DistError> {
        let files = [HOST_FILES, &[CLI]].concat();
        let folder = zig::build(workspace, target, &files)?;
        println!("{}", folder.display());
        for (_, file) in &files {
            println!("  {file}: {}", target.check(&folder.join(file), file)?);
        }
        // From now on, `rgpu` uses these in the workspace too.
        copy_files(HOST_FILES, &folder, &workspace.dist_folder(target.triple))?;
        Ok(Self { target, folder })
    }
}

/// Builds everything for any host of `target`'s architecture, checks it and packs it.
pub(crate) fn everything(workspace: &Workspace, target: &'static Target) -> Result<(), DistError> {
    let build = Build::make(workspace, target)?;
    let hosts = std::slice::from_ref(&build);
    let tree = tree::lay_out(workspace, &build, hosts, &workspace.target.join("dist"))?;
    println!("{}", tree.display());
    finish(workspace, &[archive::pack(&tree)?])
}

/// Builds everything for all architectures, and packs for each a tarball and a wheel, with the
/// files for hosts of all. One list has the checksums of all.
pub(crate) fn wheels(workspace: &Workspace) -> Result<(), DistError> {
    let builds = target::TARGETS.iter().map(|target| Build::make(workspace, target));
    let builds = builds.collect::<Result<Vec<_>, _>>()?;
    let mut artifacts = Vec::new();
    for build in &builds {
        let tree = tree::lay_out(workspace, build, &builds, &workspace.target.join("dist"))?;
        artifacts.push(archive::pack(&tree)?);
        artifacts.push(wheel::pack(workspace, build.target, &tree)?);
    }
    finish(workspace, &artifacts)
}

/// Names the artifacts, and writes the list of their checksums.
fn finish(workspace: &Workspace, artifacts: &[Artifact]) -> Result<(), DistError> {
    artifacts.iter().for_each(announce);
    let sums = workspace.target.join("dist").join(SUMS);
    archive::write_sums(artifacts, &sums)?;
    println!("{}", sums.display());
    Ok(())
}

/// Packs what `cargo build` made for this machine as a wheel, without building or checking
/// anything, for tests of wheels.
pub(crate) fn debug_wheel(workspace: &Workspace) -> Result<(), DistError> {
    let target = target::TARGETS.iter().find(|target| target.triple == workspace.triple);
    let target = target.ok_or_else(|| DistError::Machine { triple: workspace.triple.clone() })?;
    let build = Build { target, folder: workspace.target.join("debug") };
    let hosts = std::slice::from_ref(&build);
    let tree = tree::lay_out(workspace, &build, hosts, &workspace.target.join("debug/wheel"))?;
    announce(&wheel::pack(workspace, target, &tree)?);
    Ok(())
}

/// Checks that the CLI compiles for macOS. Linking needs parts of Apple's SDK.
pub(crate) fn check_macos(workspace: &Workspace) -> Result<(), DistError> {
    MACOS.iter().try_for_each(|triple| zig::check(workspace, triple, CLI.0))
}

fn announce(artifact: &Artifact) {
    println!("{}\n  sha256 {}", artifact.file.display(), artifact.sha256);
}

/// Copies `files`. A debug build is stripped, since symbols make it ten times as large and these
/// files are sent to each host.
fn copy_files(files: &[(&str, &str)], from: &Path, to: &Path) -> Result<(), DistError> {
    fs::create_dir_all(to).map_err(at(to))?;
    for (_, file) in files {
        // Renamed into place, since the old file may be running.
        let fresh = to.join(format!(".{file}.new"));
        fs::copy(from.join(file), &fresh).map_err(at(&fresh))?;
        if from.ends_with("debug") {
            command::run(std::process::Command::new("strip").arg(&fresh))?;
        }
        fs::rename(&fresh, to.join(file)).map_err(at(&to.join(file)))?;
    }
    Ok(())
}
