//! Writes `schemas/*.json`, the output of `rgpu schema`, so that users and tools can read the
//! formats without building anything. CI compares them with the types. The modules of the Python
//! package that follow from the schemas and from the command line are written with them.

use crate::command::{self, CommandError};
use crate::workspace::Workspace;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The documents that rgpu writes, by the names that `rgpu schema` accepts.
const NAMES: &[&str] = &[
    "profile",
    "run",
    "env",
    "inputs",
    "hotspots",
    "trace",
    "regions",
    "compare",
    "fan-out",
    "disasm",
    "code",
    "build",
    "disasm-diff",
    "layout",
    "layout-dump",
    "layout-snapshot",
    "plan",
    "exec",
    "remotes",
    "host",
    "doctor",
    "collectives",
    "rental",
    "login",
    "kernels",
    "kernel",
    "runs",
    "jobs",
    "cache",
    "cleaned",
    "exported",
    "suite",
    "suite-compare",
    "targets",
    "history",
    "audit",
    "expectations",
    "reindexed",
    "queue",
    "queue-entry",
    "loop",
    "loop-worker",
    "loop-reviewer",
    "loop-progress",
    "loop-check",
    "loop-pruned",
    "model-gpus",
    "model-gpu",
    "model-check",
    "model-kernel",
    "model-llm",
    "model-comparison",
    "model-collective",
    "model-config",
    "model-import",
    "model-fit",
    "model-reconcile",
    "model-terms",
    "model-card",
    "dashboard-export",
    "skill",
    "kernel-toml",
    "rgpu-toml",
    "bench-toml",
    "loop-toml",
    "error",
    "openapi",
    "dashboard-openapi",
];

/// The modules of the Python package that `python/generate.py` writes.
const PYTHON: &[&str] = &["_types.py", "_commands.py", "_commands.pyi", "_arguments.py", "aio.pyi"];

/// The schemas could not be generated or are out of date.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    /// The built `rgpu` failed to print a schema.
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
    let folder = workspace.root.join("schemas");
    fs::create_dir_all(&folder)
        .map_err(|source| SchemaError::Write { path: folder.clone(), source })?;
    // With the features of the whole workspace, for which the tests have compiled everything already.
    command::run(workspace.cargo().args(["build", "--quiet", "--workspace", "--bins", "--tests"]))?;
    for name in NAMES {
        let path = folder.join(format!("{name}.json"));
        let mut rgpu = Command::new(workspace.target.join("debug/rgpu"));
        let schema = command::output(rgpu.args(["schema", name]))?;
        match mode {
            Mode::Write => {
                fs::write(&path, schema).map_err(|source| SchemaError::Write { path, source })?;
            }
            Mode::Compare => compare(&path, &schema)?,
        }
    }
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
