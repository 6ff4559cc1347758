//! Errors in a kernel's description, and the [`Failure`] that each becomes.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::expr::ExprError;
use super::own_files::is_folder_of_call;
use rgpu_model::error::{Exit, Failure, nearest, no_such_file, shell_word};

/// The hint where not even rgpu's own kernels are found.
pub const NO_KERNELS: &str = "wheel and tarball bring rgpu's own kernels, `cargo install` and `cargo binstall` the command alone: set `kernel_path` in your settings to a folder `kernels` of rgpu";

/// The description of a GPU MODE problem, as the "key" that names its files.
pub(super) const TASK_FILE: &str = "task.yml";

/// A kernel that cannot be found, or whose description is invalid.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// There is no kernel with this name.
    #[error("unknown kernel `{name}`")]
    Unknown {
        /// The name that no kernel has.
        name: String,
        /// The names of all kernels.
        known: Vec<String>,
        /// The folders that were searched.
        searched: Vec<PathBuf>,
    },
    /// A file does not exist or cannot be read.
    #[error("cannot read `{}`", .path.display())]
    Unreadable {
        /// The file that cannot be read.
        path: PathBuf,
        /// The key that names it, e.g. `source`; `None` if the user or an include does.
        named_by: Option<&'static str>,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// A file lies outside the kernel's repository or project, so it is not sent along.
    #[error("`{}` is outside `{}` and is not sent", .path.display(), .root.display())]
    OutsideProject {
        /// The file outside the kernel's folder.
        path: PathBuf,
        /// The kernel's repository or project.
        root: PathBuf,
        /// The key of kernel.toml that names it; `None`: an include or import.
        named_by: Option<&'static str>,
    },
    /// A private file outside of the kernel's own folder, so it is not sent along.
    #[error("`{}` looks like a private file and is not sent", .path.display())]
    Private {
        /// The private file.
        path: PathBuf,
        /// The key of kernel.toml that names it; `None`: an include or import.
        named_by: Option<&'static str>,
    },
    /// kernel.toml is not valid TOML, or has an invalid key or value.
    #[error("{problem}")]
    Toml {
        /// The kernel.toml with the problem.
        file: PathBuf,
        /// The line of the problem, from 1.
        line: usize,
        /// The key, e.g. `arg[2].dtype`; empty for the document.
        key: String,
        /// What is wrong with the key or the document.
        problem: String,
        /// The next step for the user.
        hint: Option<String>,
    },
    /// An expression has no value for these sizes.
    #[error("`{key}` has no value for `{case}`")]
    Value {
        /// The key of kernel.toml.
        key: String,
        /// Name of the case.
        case: String,
        /// The error of the expression.
        #[source]
        source: ExprError,
    },
    /// A number of the launch shape or of an extent is out of range.
    #[error("`{key}` is {value} for `{case}`, {limit}")]
    Range {
        /// The key of kernel.toml.
        key: String,
        /// Name of the case.
        case: String,
        /// The computed number, as text.
        value: String,
        /// The limit, e.g. `but must be at least 1`.
        limit: String,
    },
    /// The value of `--problem-sizes` is invalid.
    #[error("`--problem-sizes {given}`: {problem}")]
    Sizes {
        /// The value as given.
        given: String,
        /// The problem with the sizes.
        problem: String,
        /// The next step for the user.
        hint: String,
    },
    /// A language that this version cannot run.
    #[error("this version of rgpu cannot run kernels in `{language}`")]
    Language {
        /// The extension of the file, which stands for its language.
        language: String,
        /// The file in that language.
        file: PathBuf,
    },
    /// A file in a format of others is wrong, or says too little.
    #[error("{problem}")]
    Format {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// The next step.
        hint: String,
    },
    /// A bare source from which no spec can be inferred.
    #[error("`{}` needs a kernel.toml: {problem}", .file.display())]
    NotInferred {
        /// The source without a kernel.toml.
        file: PathBuf,
        /// Why it needs a kernel.toml.
        problem: String,
        /// The next step, if it is not `rgpu kernels new`.
        instead: Option<String>,
    },
    /// A format with a runner of its own.
    #[error("`{}` is {format}, which has a runner of its own", .path.display())]
    OwnRunner {
        /// The file or folder.
        path: PathBuf,
        /// The format, in words.
        format: &'static str,
        /// What to type instead.
        command: String,
    },
    /// `--target` for what is no folder with a build of its own.
    #[error("`--target` has no effect: `{}` is {format}", .path.display())]
    NoTargets {
        /// The source.
        path: PathBuf,
        /// Its format, in words.
        format: &'static str,
    },
}

impl KernelError {
    pub(super) fn unreadable(
        path: &Path,
        named_by: Option<&'static str>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Unreadable { path, named_by, source }
    }
}

/// What names a file: a key of kernel.toml, or an include or import.
fn who_names(named_by: Option<&str>) -> String {
    match named_by {
        Some(TASK_FILE) => format!("{TASK_FILE} names it under `files`"),
        Some(key) => format!("kernel.toml names it under `{key}`"),
        None => "an include or import names it".to_owned(),
    }
}

impl From<KernelError> for Failure {
    fn from(error: KernelError) -> Self {
        let failure = |code: &str| Failure::new(Exit::Config, code, error.to_string());
        match &error {
            KernelError::Unknown { name, known, searched } => {
                let near = nearest(name, known.iter().map(String::as_str));
                let failure = failure("unknown_kernel");
                let failure = match near.is_empty() {
                    true if known.is_empty() => failure.hint(NO_KERNELS),
                    true => failure.hint("`rgpu kernels list` shows the kernels there are"),
                    false => failure.hint(format!("did you mean `{}`?", near.join("`, `"))),
                };
                let folders: Vec<_> = searched.iter().map(|p| p.display().to_string()).collect();
                if folders.is_empty() { failure } else { failure.hint(format!("searched: {}", folders.join(", "))) }
            }
            // What is included need not exist, so the user named it.
            KernelError::Unreadable { path, named_by: None, source }
                if source.kind() == ErrorKind::NotFound =>
            {
                no_such_file(path.display())
            }
            KernelError::Unreadable { path, named_by, source } => {
                let failure = failure("missing_source").cause(source).file(path.display());
                match named_by {
                    Some(_) => failure.hint(who_names(*named_by)),
                    None => failure,
                }
            }
            KernelError::Format { file, hint, .. } => {
                failure("bad_source_format").file(file.display()).hint(hint)
            }
            KernelError::OutsideProject { root, named_by, .. } => {
                let failure = failure("source_elsewhere")
                    .cause(who_names(*named_by))
                    .hint("if it belongs to the kernel, copy it into that folder");
                // The folder of a repository or of a call does not grow.
                if root.join(".git").exists() || is_folder_of_call(root) {
                    failure
                } else if root.join("rgpu.toml").exists() {
                    failure.hint("or move that folder's rgpu.toml up, into one that holds both")
                } else {
                    failure.hint(
                        "or put an empty rgpu.toml into a folder below your home that holds both",
                    )
                }
            }
            KernelError::Private { named_by, .. } => failure("private_source")
                .cause(who_names(*named_by))
                .hint("if the kernel needs it, copy it into the kernel's own folder"),
            KernelError::Toml { file, line, key, hint, .. } => {
                let mut failure =
                    failure("bad_kernel_toml").file(format!("{}:{line}", file.display()));
                if !key.is_empty() {
                    failure = failure.cause(format!("at key `{key}`"));
                }
                match hint {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
            KernelError::Value { source, .. } => failure("bad_expression").cause_from(source),
            KernelError::Range { .. } => failure("bad_expression"),
            KernelError::Sizes { hint, .. } => {
                Failure::new(Exit::Usage, "bad_problem_sizes", error.to_string()).hint(hint)
            }
            KernelError::OwnRunner { command, .. } => failure("own_runner").hint(command),
            KernelError::NoTargets { .. } => Failure::new(Exit::Usage, "usage", error.to_string())
                .hint("it chooses among the programs of a folder with a CMakeLists.txt or Makefile"),
            KernelError::Language { file, .. } => failure("unknown_language")
                .file(file.display())
                .hint("this version runs `cuda` and `python` kernels; any program can be profiled with `rgpu profile -- PROGRAM`"),
            KernelError::NotInferred { file, instead, .. } => {
                let failure = failure("spec_not_inferred");
                match instead {
                    Some(hint) => failure.hint(hint),
                    None => failure.hint(format!(
                        "`rgpu kernels new {}` writes a kernel.toml to complete",
                        shell_word(file.display())
                    )),
                }
            }
        }
    }
}
