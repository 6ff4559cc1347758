//! Errors of `exec` before a host is contacted.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::tool::ScriptError;
use rgpu_model::error::{Exit, Failure, Side, no_such_file, shell_word};

/// A command line, file or folder that cannot be executed.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// `--lang` names an unknown language.
    #[error("`--lang {word}` is not a language that exec supports")]
    UnknownLanguage {
        /// The word as typed.
        word: String,
        /// Similar words that exist.
        near: Vec<String>,
    },
    /// A file whose name and text do not show its language.
    #[error("the language of `{name}` cannot be recognised by its name or first line")]
    NoLanguage {
        /// The path of the file, as the user gave it.
        name: String,
        /// Whether it is a compiled program.
        binary: bool,
    },
    /// A snippet without a file, whose text does not show its language.
    #[error("the language of {what} cannot be recognised")]
    UnknownSnippetLanguage {
        /// `--code` or `standard input`.
        what: &'static str,
    },
    /// The snippet is empty.
    #[error("{what} is empty")]
    Empty {
        /// The file, `--code` or `standard input`.
        what: String,
    },
    /// A file that cannot be read.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The file that cannot be read.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// The snippet is not valid UTF-8, which its language requires.
    #[error("`{name}` is not valid UTF-8, which {language} needs: byte {at}")]
    NotText {
        /// The file that is not UTF-8.
        name: String,
        /// The language that needs UTF-8.
        language: &'static str,
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// An invalid `--mount`, or a path that does not exist.
    #[error("`--mount {text}`: {problem}")]
    Mount {
        /// The value as typed.
        text: String,
        /// The problem with the mount.
        problem: String,
    },
    /// The mounts exceed a limit.
    #[error("the mounts have {what}, which is over the limit of {limit}")]
    TooBig {
        /// Their size or number of files, as text.
        what: String,
        /// The limit, as text.
        limit: String,
        /// The largest folders and files, with their sizes.
        biggest: Vec<String>,
    },
    /// An invalid line of `--env-file`.
    #[error("line {line} of `{}`: {problem}", path.display())]
    EnvFile {
        /// The file with the invalid line.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The problem with the line.
        problem: &'static str,
    },
    /// An invalid block of dependencies in a Python file.
    #[error("`{name}`: {source}")]
    Script {
        /// The file with the script block.
        name: String,
        /// The problem with the block.
        source: ScriptError,
    },
    /// An invalid embedded manifest in a Rust file.
    #[error("the manifest of `{name}`: {problem}")]
    Manifest {
        /// The file with the manifest.
        name: String,
        /// The problem with the manifest.
        problem: String,
    },
    /// Neither this machine nor the host can compile the snippet.
    #[error("{problem}")]
    NoCompiler {
        /// Which compiler is missing, and where.
        problem: String,
        /// How to get one.
        hint: String,
    },
    /// A CUDA file without a `main`.
    #[error("`{name}` has no `main`, so there is nothing to run")]
    NoMain {
        /// The file without a `main`.
        name: String,
        /// The file as a word of a command line.
        file: String,
    },
}

impl From<ExecError> for Failure {
    fn from(error: ExecError) -> Self {
        let what = error.to_string();
        match error {
            ExecError::UnknownLanguage { near, .. } => {
                let failure = Failure::new(Exit::Usage, "unknown_language", what);
                let failure = if near.is_empty() { failure } else { failure.hint(format!("did you mean `{}`?", near.join("` or `"))) };
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
            ExecError::NoLanguage { .. } | ExecError::UnknownSnippetLanguage { .. } => {
                Failure::new(Exit::Usage, "unknown_language", what)
                    .hint("say which: `--lang rs`, `py`, `cu` or `sh`")
            }
            ExecError::Empty { .. } => Failure::new(Exit::Usage, "empty", what),
            ExecError::Unreadable { path, source } if source.kind() == ErrorKind::NotFound => {
                no_such_file(path.display())
            }
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
                .hint("write NAME=VALUE, one a line; values in quotes may contain anything"),
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
