//! What tests hold our output against: Perfetto's own compiled protos, in a Python environment in
//! `.rgpu/perfetto`, pinned by hash.

use crate::command::{self, CommandError};
use crate::packages::{self, PackageError};
use crate::workspace::Workspace;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

/// The wheels, relative to the repository.
const WHEELS: &str = "xtask/test-wheels.txt";
/// In the environment: the wheel list it was made from, written last.
const DONE: &str = "rgpu-wheels.txt";

/// The environment could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OracleError {
    /// Python is missing.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// pip or venv failed.
    #[error("Perfetto's protos could not be installed")]
    Wheels(#[source] CommandError),
    /// A file of the environment could not be read, written or removed.
    #[error("`{}` cannot be used", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// Makes `.rgpu/perfetto`, unless it is up to date.
pub(crate) fn provide(workspace: &Workspace) -> Result<(), OracleError> {
    let environment = workspace.root.join(".rgpu/perfetto");
    let wheels = workspace.root.join(WHEELS);
    let done = environment.join(DONE);
    let wanted =
        fs::read(&wheels).map_err(|source| OracleError::File { path: wheels.clone(), source })?;
    if fs::read(&done).is_ok_and(|made_from| made_from == wanted) {
        return Ok(());
    }
    packages::for_wheels()?;
    if environment.exists() {
        fs::remove_dir_all(&environment)
            .map_err(|source| OracleError::File { path: environment.clone(), source })?;
    }
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(&environment);
    command::run(&mut venv).map_err(OracleError::Wheels)?;
    let mut pip = rgpu_wheels::install(&environment.join("bin/python"), &wheels);
    command::run(pip.arg("--quiet")).map_err(OracleError::Wheels)?;
    fs::write(&done, &wanted).map_err(|source| OracleError::File { path: done, source })
}
