//! Why the files of a plan cannot be bundled, and the [`Failure`] that each reason becomes.

use std::path::PathBuf;

use rgpu_model::error::{Exit, Failure};

/// A reason why a draft cannot be bundled.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// A file cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Unreadable {
        /// The file that cannot be read.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// A file changed while it was read.
    #[error("`{}` changed while it was being read", .path.display())]
    Changed {
        /// The file that changed.
        path: PathBuf,
    },
    /// The path is not a regular file.
    #[error("`{}` is not a regular file", .path.display())]
    NotAFile {
        /// The path that is not a regular file.
        path: PathBuf,
    },
    /// All files together exceed the limit.
    #[error("{total} bytes of files are over the limit of {limit}")]
    TooBig {
        /// Their size in bytes.
        total: u64,
        /// The limit in bytes.
        limit: u64,
        /// The largest files, with their sizes in bytes.
        biggest: Vec<(String, u64)>,
    },
    /// Two different files have one path: a bug in rgpu.
    #[error("two files have the path `{path}` in the job's folder")]
    Twice {
        /// The path in the job's folder.
        path: String,
    },
    /// The path leaves the job's folder: a bug in rgpu.
    #[error("`{path}` is not a place in the job's folder")]
    BadPath {
        /// The path, one that [`valid_relative_path`](rgpu_protocol::plan::valid_relative_path)
        /// refuses.
        path: String,
    },
}

impl From<BundleError> for Failure {
    fn from(error: BundleError) -> Self {
        let what = error.to_string();
        match error {
            BundleError::Unreadable { path, source } => {
                Failure::new(Exit::Config, "missing_source", what)
                    .cause(source)
                    .file(path.display())
            }
            BundleError::Changed { .. } => Failure::new(Exit::Config, "file_changed", what)
                .hint("run the command again once it is written"),
            BundleError::NotAFile { .. } => Failure::new(Exit::Config, "not_a_file", what),
            BundleError::TooBig { biggest, .. } => {
                let list: Vec<String> = biggest
                    .iter()
                    .map(|(path, bytes)| {
                        format!("{path} ({:.1} MiB)", *bytes as f64 / (1 << 20) as f64)
                    })
                    .collect();
                Failure::new(Exit::Config, "bundle_too_big", what)
                    .hint(format!("the biggest: {}", list.join(", ")))
            }
            BundleError::Twice { .. } | BundleError::BadPath { .. } => {
                Failure::new(Exit::Bug, "bad_bundle", what)
            }
        }
    }
}
