//! Python environments with exactly the wheels of a list, by their hashes. An environment is
//! recreated when the list changes and otherwise left unchanged.

use crate::command::{self, CommandError};
use crate::packages::{self, PackageError};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A copy of the wheel list in the environment, written last.
const INSTALLED_LIST: &str = "rgpu-wheels.txt";

/// The environment could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvironmentError {
    /// A package of the system, such as Python, is missing.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// venv, pip or uv failed.
    #[error("the wheels of `{}` could not be installed", list.display())]
    Wheels { list: PathBuf, source: CommandError },
    /// A file of the environment could not be read, written or removed.
    #[error("`{}` cannot be used", path.display())]
    File { path: PathBuf, source: io::Error },
}

/// Creates `environment` from the wheels of `list`, unless it is up to date.
pub(crate) fn provide(environment: &Path, list: &Path) -> Result<(), EnvironmentError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| EnvironmentError::File { path, source }
    };
    let done = environment.join(INSTALLED_LIST);
    let wanted = fs::read(list).map_err(file(list))?;
    if fs::read(&done).is_ok_and(|made_from| made_from == wanted) {
        return Ok(());
    }
    packages::for_wheels()?;
    if environment.exists() {
        fs::remove_dir_all(environment).map_err(file(environment))?;
    }
    let wheels = |source| EnvironmentError::Wheels { list: list.to_owned(), source };
    create(environment, list).map_err(wheels)?;
    fs::write(&done, &wanted).map_err(file(&done))
}

/// Creates `environment` with the wheels of `list`: with venv and pip, or with uv where Python has
/// no venv.
pub(crate) fn create(environment: &Path, list: &Path) -> Result<(), CommandError> {
    let python = environment.join("bin/python");
    if packages::has_venv() {
        command::run(Command::new("python3").args(["-m", "venv"]).arg(environment))?;
        return command::run(rgpu_wheels::install(&python, list).arg("--quiet"));
    }
    command::run(Command::new("uv").args(["venv", "--quiet"]).arg(environment))?;
    let mut install = rgpu_wheels::install_with_uv(Path::new("uv"), list);
    command::run(install.arg("--quiet").arg("--python").arg(python))
}
