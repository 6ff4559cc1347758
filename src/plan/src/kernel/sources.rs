//! Formats in which people keep kernels and programs, beside our own `kernel.toml`.
//!
//! Each format has one file in this folder and one line in [`KERNEL_SOURCES`]. A reader looks at
//! what a path contains, parses it and runs nothing: no import, no compiler. It makes a
//! [`FoundKernel`] with its cases, or a [`FoundProgram`], which is built and run as it is.

use std::path::{Path, PathBuf};

use super::{FoundKernel, KernelError, ProfileMode};
use crate::tool::{BundleFile, PROGRAM_PATH, Program, ProgramBuild};
use rgpu_model::agent_files;
use rgpu_model::regular_file::MAX_FILE_BYTES;
use rgpu_protocol::plan::Arg;

mod cuda_program;
mod gpu_mode;
mod kernel_bench;
pub(super) mod module;
mod pytest_benchmark;
mod python_script;

pub use gpu_mode::{SetProblem, problem_set};
pub use python_script::CudaInPython;

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
    &module::MODULE,
    &cuda_program::CUDA_PROGRAM,
    &python_script::PYTHON_SCRIPT,
];

/// What a path holds.
#[derive(Clone, Debug, PartialEq)]
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
    /// The files to send for the build.
    pub files: Vec<BundleFile>,
    /// The working folder inside the job's folder of a program that is built.
    pub cwd: String,
    /// The names of its own kernels, without template arguments; empty if they are unknown.
    pub kernels: Vec<String>,
    /// The value of `--kernel-name` that selects them, if their names alone do not.
    pub kernel_filter: Option<String>,
    /// How our own script runs the Python file of `command`, which does not run well by itself:
    /// `benchmarks`, `tests`, `plots` or `notebook` (`run_script.py`).
    pub driver: Option<&'static str>,
    /// Whether it is one rank of several, which a launcher such as torchrun starts.
    pub is_rank: bool,
    /// The mode to profile it with, if the user names none.
    pub mode: ProfileMode,
    /// What was assumed, in words, to be printed.
    pub assumptions: Vec<String>,
}

impl FoundProgram {
    /// The program that is built on the host, with these further arguments. `None`: it is not
    /// built.
    pub fn built(&self, args: &[String]) -> Option<Program> {
        let build = self.build.clone()?;
        let words = self.command.iter().chain(args);
        let argv = std::iter::once(Arg::in_job(PROGRAM_PATH));
        Some(Program {
            name: self.name.clone(),
            argv: argv.chain(words.map(|word| Arg::text(word.as_str()))).collect(),
            files: self.files.clone(),
            cwd: self.cwd.clone(),
            build: Some(build),
            ..Program::default()
        })
    }
}

/// Reads `path` in the first format that it is of. `None`: it is of none of them.
pub(super) fn read(path: &Path) -> Option<Result<Found, KernelError>> {
    KERNEL_SOURCES.iter().find_map(|source| (source.read)(path))
}

/// The text of a file with one of these extensions. `None` if it is no regular file or cannot be
/// read. Bytes that are not UTF-8 are replaced.
fn text_of(path: &Path, extensions: &[&str]) -> Option<String> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    if !extensions.contains(&extension.as_str()) {
        return None;
    }
    let bytes = agent_files::read(path, MAX_FILE_BYTES).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
