//! `rgpu exec`: turns a command line into a program with its files and preparation steps.
//!
//! A [`Snippet`] is a file, the text of `--code`, or standard input, in one of [`LANGUAGES`]. Its
//! language makes a [`crate::tool::Program`] of it: the command on the host, the files it needs,
//! and the steps before it (a compiler, a Python environment). The job's folder:
//!
//! | path | content |
//! |---|---|
//! | `here/` | the working folder: the first `--mount`, and the other mounts below it |
//! | `src/` | the snippet, if it is not part of the first mount |
//! | `bin/`, `build/`, `env/` | rgpu's scripts, compiled files, the Python environment |
//!
//! Nothing here connects to a host or starts a program; `run` does.

mod env_file;
mod error;
mod found_program;
pub mod language;
mod manifest;
mod mount;
mod package;
mod python_files;
mod python_source;
mod script_env;
mod snippet;

pub use env_file::read as read_env_file;
pub use error::ExecError;
pub use found_program::built_program;
pub use language::{BuildTools, LANGUAGES, Language};
pub use mount::{MAX_MOUNT_BYTES, Mount, SkippedPath, Snapshot, snapshot};
pub use package::{Package, PackageFile};
pub use python_files::{PythonFiles, PythonSearch, PythonStart};
pub use script_env::ScriptEnv;
pub use snippet::{Snippet, SnippetInput};

/// The script that runs a Python file which does not run well by itself.
pub const RUN_SCRIPT: &str = rgpu_harness::RUN_SCRIPT;

pub use crate::tool::WORK_FOLDER;
