//! `rgpu exec`: what a user types, as a program with its files and the steps that prepare it.
//!
//! A [`Snippet`] is a file, the text of `--code`, or standard input, in one of [`LANGUAGES`]. Its
//! language makes a [`crate::tool::Program`] of it: which command runs it on the host, which files
//! it needs there, which steps come before (a compiler, a Python environment). The job's folder:
//!
//! | path | what |
//! |---|---|
//! | `here/` | the working folder: what the first `--mount` brought, and the mounts below it |
//! | `src/` | the snippet, when it is not part of the first mount |
//! | `bin/`, `build/`, `env/` | scripts of ours, what a compiler made, the Python environment |
//!
//! Nothing here reaches a host or starts a program: `run` does.

mod env_file;
mod error;
pub mod language;
mod manifest;
mod mount;
mod package;
mod snippet;

pub use env_file::read as read_env_file;
pub use error::ExecError;
pub use language::{BuildTools, LANGUAGES, Language};
pub use mount::{MAX_MOUNT_BYTES, Mount, SkippedPath, Snapshot, snapshot};
pub use package::{Package, PackageFile};
pub use snippet::{Snippet, SnippetInput};

/// The working folder of what is executed, in the job's.
pub const WORK_FOLDER: &str = "here";
