//! Writes `schemas/*.json`, the output of `rgpu schema`, so that users and tools can read the
//! formats without building anything. CI compares them with the types.

use crate::command::{self, CommandError};
use crate::workspace::Workspace;
use std::fs;
use std::io;
use std::path::PathBuf;
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
    "rental",
    "login",
    "kernels",
    "kernel",
    "runs",
    "jobs",
    "cleaned",
    "exported",
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
    "error",
    "openapi",
    "dashboard-openapi",
];

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
            Mode::Compare if fs::read_to_string(&path).is_ok_and(|there| there == schema) => {}
            Mode::Compare => return Err(SchemaError::Outdated { path }),
        }
    }
    Ok(())
}
