//! Formats in which people keep kernels and programs, beside our own `kernel.toml`.
//!
//! Each format has one file in this folder and one line in [`KERNEL_SOURCES`]. A reader looks at
//! what a path contains, parses it and runs nothing: no import, no compiler. It makes a
//! [`FoundKernel`] with its cases, or a [`FoundProgram`], which is built and run as it is.

use std::path::{Path, PathBuf};

use super::{FoundKernel, KernelError, ProfileMode};
use rgpu_model::agent_files;
use rgpu_model::regular_file::MAX_SOURCE_BYTES;

mod compile_line;
mod cuda_program;
mod executable;
mod gpu_mode;
mod kernel_bench;
pub(super) mod module;
mod own_runner;
mod program_build;
mod program_files;
mod project;
mod pytest_benchmark;
mod python_script;
mod usual_arguments;

pub use gpu_mode::{SetProblem, problem_set};
pub use program_build::{BuildSystem, FolderBuild, NvccBuild, ProgramBuild, SentContent};
pub use python_script::CudaInPython;
pub use usual_arguments::UsualArguments;

/// A format in which people keep kernels and programs.
pub struct KernelSource {
    /// Its name in messages: `a CUDA C++ program`.
    pub name: &'static str,
    /// Reads `path`, which exists, if its content is of this format; `None` if it is something
    /// else.
    pub read: fn(path: &Path) -> Option<Result<Found, KernelError>>,
}

/// Every format, the most specific first.
pub static KERNEL_SOURCES: &[&KernelSource] = &[
    &gpu_mode::GPU_MODE,
    &kernel_bench::KERNEL_BENCH,
    &pytest_benchmark::PYTEST_BENCHMARK,
    &own_runner::OWN_RUNNER,
    &module::MODULE,
    &cuda_program::CUDA_PROGRAM,
    &project::PROJECT,
    &executable::EXECUTABLE,
    &python_script::PYTHON_SCRIPT,
];

/// What a path holds.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there is one of them a command")]
pub enum Found {
    /// A kernel, which our harness launches, checks and times.
    Kernel(FoundKernel),
    /// A whole program.
    Program(FoundProgram),
}

/// A whole program: built and run as it is. Its results are not checked.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundProgram {
    /// The name of its format in messages.
    pub format: &'static str,
    /// The name in titles and of runs.
    pub name: String,
    /// The file or folder that holds it.
    pub path: PathBuf,
    /// The program and its first arguments, as after `--` of `rgpu profile`. Of a program that is
    /// built: its first arguments alone.
    pub command: Vec<String>,
    /// How it is built on the host; `None`: it is not built, and `command` brings its own files.
    pub build: Option<ProgramBuild>,
    /// The files to send for the build: the place of each below the working folder of the job, and
    /// its content.
    pub files: Vec<(String, SentContent)>,
    /// The folder below the job's working folder in which a program that is built runs; empty: that
    /// folder itself.
    pub cwd: String,
    /// The names of its own kernels, without template arguments; empty if they are unknown.
    pub kernels: Vec<String>,
    /// The value of `--kernel-name` that selects them, if their names alone do not.
    pub kernel_filter: Option<String>,
    /// How our own script runs the Python file of `command`, which does not run well by itself:
    /// `benchmarks`, `tests`, `calls`, `script` or `notebook` (`run_script.py`).
    pub driver: Option<&'static str>,
    /// Whether it is one rank of several, which a launcher such as torchrun starts.
    pub is_rank: bool,
    /// The arguments with which it is started if the user types none.
    pub usual_arguments: UsualArguments,
    /// The mode to profile it with, if the user names none.
    pub mode: ProfileMode,
    /// What was assumed, in words, to be printed.
    pub assumptions: Vec<String>,
}

impl FoundProgram {
    /// Whether it is a problem of GPU MODE with an answer, as somebody published them.
    pub fn is_problem(&self) -> bool {
        self.format == gpu_mode::PROGRAM_FORMAT
    }

    /// Chooses one of the programs that the build makes.
    ///
    /// # Errors
    /// [`KernelError::NoTargets`] if it is no folder with a build file.
    pub fn choose_target(&mut self, target: &str) -> Result<(), KernelError> {
        match &mut self.build {
            Some(ProgramBuild::Folder(build)) => {
                build.target = Some(target.to_owned());
                Ok(())
            }
            _ => Err(KernelError::NoTargets { path: self.path.clone(), format: self.format }),
        }
    }
}

/// Reads `path` in the first format that it is of. `None`: it is of none of them.
pub(super) fn read(path: &Path) -> Option<Result<Found, KernelError>> {
    KERNEL_SOURCES.iter().find_map(|source| (source.read)(path))
}

/// The start of an answer to a problem, and the place for it: `file`, else the usual one.
///
/// # Errors
/// [`KernelError`] if the path holds no problem, or its template cannot be read.
pub(super) fn answer_template(
    problem: &Path,
    file: Option<&Path>,
) -> Result<(PathBuf, String), KernelError> {
    let readers = [gpu_mode::template, kernel_bench::template];
    readers.iter().find_map(|read| read(problem, file)).unwrap_or_else(|| {
        Err(KernelError::Format {
            file: problem.to_owned(),
            problem:
                "it is no problem of GPU MODE (a folder with task.yml) and none of KernelBench \
                      (a file with `Model` and `get_inputs`)"
                    .to_owned(),
            hint: "`rgpu kernels new FILE.cu` starts a kernel.toml for a kernel".to_owned(),
        })
    })
}

/// The text of a file with one of these extensions. `None` if it is no regular file or cannot be
/// read. Bytes that are not UTF-8 are replaced.
fn text_of(path: &Path, extensions: &[&str]) -> Option<String> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    if !extensions.contains(&extension.as_str()) {
        return None;
    }
    let bytes = agent_files::read(path, MAX_SOURCE_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests;
