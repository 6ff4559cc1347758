//! `schemas/*.json`, as `rgpu schema` prints them: written here so that users and tools can read the
//! formats without building anything, and compared in CI so that they never lag behind the types.

use crate::command::{self, CommandError};
use crate::workspace::Workspace;
use std::fs;
use std::io;
use std::path::PathBuf;

/// The schemas could not be made, or lag behind.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    /// `rgpu` failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A file could not be written.
    #[error("`{}` cannot be written", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A file differs from the types.
    #[error("`{}` is out of date\n  help: run `cargo xtask schemas`", path.display())]
    Outdated { path: PathBuf },
}

/// Writes every schema, or with `only_compare` says which one is out of date.
pub(crate) fn write(workspace: &Workspace, only_compare: bool) -> Result<(), SchemaError> {
    let rgpu = |arguments: &[&str]| {
        let mut rgpu = workspace.cargo();
        rgpu.args(["run", "--quiet", "--package", "rgpu", "--", "schema"]).args(arguments);
        command::output(&mut rgpu)
    };
    for name in rgpu(&[])?.split_whitespace() {
        let path = workspace.root.join(format!("schemas/{name}.json"));
        let schema = rgpu(&[name])?;
        if only_compare {
            if !fs::read_to_string(&path).is_ok_and(|there| there == schema) {
                return Err(SchemaError::Outdated { path });
            }
        } else {
            fs::write(&path, schema).map_err(|source| SchemaError::Write { path, source })?;
        }
    }
    Ok(())
}
