//! What can keep something from being executed before any host is reached.

use std::path::PathBuf;

use crate::error::{Exit, Failure, Side, shell_word};
use crate::tool::ScriptError;

/// A command line, file or folder that cannot be executed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// `--lang` names no language.
    #[error("`--lang {word}` is no language that exec knows")]
    UnknownLanguage {
        /// What was typed.
        word: String,
        /// The nearest that there is.
        near: Vec<String>,
    },
    /// A file whose name and text tell no language.
    #[error("`{name}` is in no language that exec knows by its name or its first line")]
    NoLanguage {
        /// The file.
        name: String,
        /// Whether it is a compiled program.
        binary: bool,
    },
    /// A snippet without a name, whose text tells no language.
    #[error("the language of {what} cannot be told")]
    Untold {
        /// `--code` or `standard input`.
        what: &'static str,
    },
    /// There is nothing in it.
    #[error("{what} is empty")]
    Empty {
        /// The file, `--code` or `standard input`.
        what: String,
    },
    /// A file that cannot be read.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A snippet that must be text and is none.
    #[error("`{name}` is not valid UTF-8, which {language} needs: byte {at}")]
    NotText {
        /// The file.
        name: String,
        /// Its language.
        language: &'static str,
        /// The first byte that is wrong, from 0.
        at: usize,
    },
    /// `--mount` cannot be understood or met.
    #[error("`--mount {text}`: {problem}")]
    Mount {
        /// As typed.
        text: String,
        /// Why not.
        problem: String,
    },
    /// The mounts hold too much.
    #[error("the mounts hold {what}, over the limit of {limit}")]
    TooBig {
        /// How much.
        what: String,
        /// How much is allowed.
        limit: String,
        /// The biggest folders and files, with their sizes.
        biggest: Vec<String>,
    },
    /// A line of `--env-file`.
    #[error("line {line} of `{}`: {problem}", path.display())]
    EnvFile {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// The block of dependencies of a Python file.
    #[error("`{name}`: {source}")]
    Script {
        /// The file.
        name: String,
        /// What is wrong with it.
        source: ScriptError,
    },
    /// The embedded manifest of a Rust file.
    #[error("the manifest of `{name}`: {problem}")]
    Manifest {
        /// The file.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Nothing here or there can compile it.
    #[error("{problem}")]
    NoCompiler {
        /// What is missing where.
        problem: String,
        /// What helps.
        hint: String,
    },
    /// A CUDA file that is no program.
    #[error("`{name}` has no `main`: there is nothing to run")]
    NoMain {
        /// The file.
        name: String,
        /// As a command line names it.
        file: String,
    },
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        let what = error.to_string();
        match error {
            ExecError::UnknownLanguage { near, .. } => {
                let failure = Failure::new(Exit::Usage, "unknown_language", what);
                let failure = match near.is_empty() {
                    true => failure,
                    false => failure.hint(format!("did you mean `{}`?", near.join("` or `"))),
                };
                failure.hint("languages: rs, py, cu, sh")
            }
            ExecError::NoLanguage { name, binary: true } => {
                Failure::new(Exit::Usage, "unknown_language", format!("`{name}` is a compiled program"))
                    .hint(format!(
                        "run it as one: rgpu exec --mount {} -- {}",
                        shell_word(&name),
                        shell_word(format_args!("./{}", base(&name)))
                    ))
            }
            ExecError::NoLanguage { .. } | ExecError::Untold { .. } => {
                Failure::new(Exit::Usage, "unknown_language", what)
                    .hint("say which: `--lang rs`, `py`, `cu` or `sh`")
            }
            ExecError::Empty { .. } => Failure::new(Exit::Usage, "empty", what),
            ExecError::Unreadable { source, .. } => {
                Failure::new(Exit::Config, "missing_source", what).cause(source)
            }
            ExecError::NotText { .. } => {
                Failure::new(Exit::Kernel, "not_text", what).side(Side::Kernel)
            }
            ExecError::Mount { .. } => Failure::new(Exit::Usage, "bad_mount", what),
            ExecError::TooBig { biggest, .. } => {
                Failure::new(Exit::Config, "mount_too_big", what)
                    .hint(format!("the biggest: {}", biggest.join(", ")))
                    .hint("name them in .rgpuignore, mount a smaller folder, or allow more with `--mount-limit 2GB`")
            }
            ExecError::EnvFile { .. } => Failure::new(Exit::Config, "bad_env_file", what)
                .hint("write NAME=VALUE, one a line; values in quotes may hold anything"),
            ExecError::Script { .. } => Failure::new(Exit::Kernel, "bad_script_block", what),
            ExecError::Manifest { .. } => Failure::new(Exit::Kernel, "bad_manifest", what),
            ExecError::NoCompiler { hint, .. } => {
                Failure::new(Exit::Host, "no_compiler", what).hint(hint)
            }
            ExecError::NoMain { file, .. } => Failure::new(Exit::Kernel, "no_main", what)
                .hint(format!("its kernels alone, launched and timed: rgpu profile --kernel {file}"))
                .hint(format!("compiled, by nvcc or NVRTC: rgpu build {file}")),
        }
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
