//! The binaries that leave this machine: built small, put where `rgpu` looks for them, and looked at
//! for what the hosts they go to must have.

use crate::command::{self, CommandError};
use crate::elf::{self, ElfError};
use crate::workspace::Workspace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What travels to GPU hosts: package and file.
const TRAVELLING: &[(&str, &str)] = &[
    ("rgpu-agent", "rgpu-agent"),
    ("rgpu-runner", "rgpu-runner"),
    ("rgpu-collector", "librgpu_collector.so"),
];
/// The agent is uploaded to every new host, often over slow links.
const AGENT_LIMIT: u64 = 4_000_000;

/// A binary could not be made, or is not fit to travel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DistError {
    /// Cargo failed.
    #[error(transparent)]
    Build(#[from] CommandError),
    /// A file could not be put in place.
    #[error("`{}` cannot be put in place", path.display())]
    Place { path: PathBuf, source: io::Error },
    /// It is no binary that we know.
    #[error("`{}` cannot be checked", path.display())]
    Check { path: PathBuf, source: ElfError },
    /// It would start nowhere but here.
    #[error("`{file}` asks for the interpreter `{interpreter}`, which other hosts lack")]
    Interpreter { file: String, interpreter: String },
    /// It is too big.
    #[error("`{file}` has {bytes} bytes; at most {limit} are allowed")]
    Size { file: String, bytes: u64, limit: u64 },
}

/// Builds and places what travels.
pub(crate) fn travelling(workspace: &Workspace) -> Result<(), DistError> {
    build_and_place(workspace, TRAVELLING)
}

/// Builds and places everything, and checks it.
pub(crate) fn everything(workspace: &Workspace) -> Result<(), DistError> {
    let files = [TRAVELLING, &[("rgpu", "rgpu")]].concat();
    build_and_place(workspace, &files)?;
    let folder = workspace.dist_folder();
    println!("{}", folder.display());
    for (_, file) in &files {
        check(&folder.join(file), file)?;
    }
    Ok(())
}

fn build_and_place(workspace: &Workspace, files: &[(&str, &str)]) -> Result<(), DistError> {
    let mut build = workspace.cargo();
    build.args(["build", "--profile", "dist"]);
    for (package, _) in files {
        build.args(["--package", package]);
    }
    command::run(&mut build)?;
    let folder = workspace.dist_folder();
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| DistError::Place { path, source }
    };
    fs::create_dir_all(&folder).map_err(at(&folder))?;
    for (_, file) in files {
        let place = folder.join(file);
        // Renamed into place: the old file may be running.
        let fresh = folder.join(format!(".{file}.new"));
        fs::copy(workspace.target.join("dist").join(file), &fresh).map_err(at(&fresh))?;
        fs::rename(&fresh, &place).map_err(at(&place))?;
    }
    Ok(())
}

fn check(path: &Path, file: &str) -> Result<(), DistError> {
    let needs = elf::read(path).map_err(|source| DistError::Check { path: path.into(), source })?;
    println!("  {file}: {needs}");
    if let Some(interpreter) = needs.interpreter.filter(|path| !path.starts_with("/lib")) {
        return Err(DistError::Interpreter { file: file.to_owned(), interpreter });
    }
    if file == "rgpu-agent" && needs.bytes >= AGENT_LIMIT {
        let (file, bytes, limit) = (file.to_owned(), needs.bytes, AGENT_LIMIT);
        return Err(DistError::Size { file, bytes, limit });
    }
    Ok(())
}
