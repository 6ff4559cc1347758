//! Writes `schemas/*.json`, which `rgpu schema` prints, from the types of the documents, and the
//! modules of the Python package that follow from the schemas and from the command line. CI
//! compares both.

use crate::command::{self, CommandError};
use crate::workspace::Workspace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The modules of the Python package that `python/generate.py` writes.
const PYTHON: &[&str] = &["_types.py", "_commands.py", "_commands.pyi", "_arguments.py", "aio.pyi"];

/// The schemas could not be generated or are out of date.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    /// A program failed; for `--check`, also the test that compares the schemas.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A file could not be written.
    #[error("`{}` cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A file differs from the types.
    #[error("`{}` is out of date\n  help: run `cargo xtask schemas`", path.display())]
    Outdated { path: PathBuf },
}

/// Whether to write or to compare the schemas.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Write,
    Compare,
}

/// Writes every schema, or reports the first that is out of date.
pub(crate) fn all(workspace: &Workspace, mode: Mode) -> Result<(), SchemaError> {
    // With the features of the whole workspace, for which the tests have compiled everything
    // already.
    let mut test = workspace.cargo();
    test.args(["test", "--quiet", "--workspace", "--lib", "cli::documents"]);
    if mode == Mode::Write {
        test.env("RGPU_WRITE_SCHEMAS", "1");
    }
    command::run(&mut test)?;
    command::run(workspace.cargo().args(["build", "--quiet", "--workspace", "--bins", "--tests"]))?;
    python(workspace, mode)
}

fn compare(path: &Path, text: &str) -> Result<(), SchemaError> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        Ok(())
    } else {
        Err(SchemaError::Outdated { path: path.to_owned() })
    }
}

/// Writes or compares the modules of the Python package.
fn python(workspace: &Workspace, mode: Mode) -> Result<(), SchemaError> {
    let made = workspace.target.join("python");
    let cannot_write = |path: &Path| {
        let path = path.to_owned();
        move |source| SchemaError::Write { path, source }
    };
    fs::create_dir_all(&made).map_err(cannot_write(&made))?;
    let arguments = made.join("arguments.json");
    let mut rgpu = Command::new(workspace.target.join("debug/rgpu"));
    let printed = command::output(rgpu.arg("__arguments"))?;
    fs::write(&arguments, printed).map_err(cannot_write(&arguments))?;
    let mut generate = Command::new("python3");
    generate.arg(workspace.root.join("python/generate.py")).arg(&arguments).arg(&made);
    command::run(&mut generate)?;
    let package = workspace.root.join("python/rgpu");
    for name in PYTHON {
        let (from, to) = (made.join(name), package.join(name));
        let text = fs::read_to_string(&from).map_err(cannot_write(&from))?;
        match mode {
            Mode::Write => fs::write(&to, text).map_err(cannot_write(&to))?,
            Mode::Compare => compare(&to, &text)?,
        }
    }
    Ok(())
}
