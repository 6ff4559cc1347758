//! Fetches nvdisasm at the user's request: NVIDIA's wheel, pinned by hash, installed with the
//! user's pip or uv into a folder of rgpu's.

#![expect(clippy::disallowed_methods, reason = "rgpu's own cache")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::nvdisasm::{Nvdisasm, find};
use rgpu_model::program_answer::{MAX_PROBE_BYTES, read_answer, wait_for_answer};

/// The package on PyPI that has nvdisasm.
pub const WHEEL: &str = "nvidia-cuda-nvdisasm";

/// Why nvdisasm was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Neither a Python with pip nor uv was found.
    #[error("there is neither a Python with pip nor uv here")]
    NoPip,
    /// pip or uv failed with a message.
    #[error("{program} could not fetch `{WHEEL}`")]
    Pip {
        /// `pip` or `uv`, as the message begins.
        program: &'static str,
        /// The last lines of the message.
        words: String,
    },
    /// The wheel's nvdisasm is missing, does not run or has another version.
    #[error("the wheel's nvdisasm does not run here")]
    Broken,
    /// The folder cannot be written.
    #[error("cannot write `{}`", path.display())]
    Disk {
        /// The file or folder that was to be created, written or renamed.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The list of wheels lacks this one: a bug in rgpu.
    #[error("the list of wheels has no `{WHEEL}`")]
    Unlisted,
}

/// Whether pip's output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipOutput {
    /// Show its progress on stderr.
    Progress,
    /// Pass `--quiet`; the user reads only an error.
    Quiet,
}

/// The version that [`fetch`] installs.
pub fn pinned() -> Option<String> {
    rgpu_wheels::requirement(rgpu_wheels::CUDA, WHEEL).map(|wheel| wheel.version)
}

/// Paths of nvdisasm in a folder that [`fetch`] filled, newest toolkit first.
pub fn fetched(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder.join("nvidia")) else { return Vec::new() };
    let toolkits = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut found: Vec<PathBuf> = toolkits.map(|toolkit| toolkit.join("bin/nvdisasm")).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found.reverse();
    found
}

/// The program that installs wheels here.
#[derive(Debug)]
pub enum Installer {
    /// The pip of this Python.
    Pip(PathBuf),
    /// This uv.
    Uv(PathBuf),
}

impl Installer {
    /// Finds a Python with pip, else uv.
    pub fn find() -> Result<Self, FetchError> {
        let uv = || which::which("uv").ok().map(Self::Uv);
        python().map(Self::Pip).or_else(uv).ok_or(FetchError::NoPip)
    }

    /// Its name for users.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Pip(_) => "pip",
            Self::Uv(_) => "uv",
        }
    }

    /// The command that installs the wheels of a list.
    fn command(&self, list: &Path) -> Command {
        match self {
            Self::Pip(python) => rgpu_wheels::install(python, list),
            Self::Uv(uv) => rgpu_wheels::install_with_uv(uv, list),
        }
    }
}

/// Installs the pinned wheel into `folder`. The old content is replaced only after the new nvdisasm
/// has run.
///
/// # Errors
/// [`FetchError`]; the folder is then unchanged.
pub fn fetch(
    folder: &Path,
    installer: &Installer,
    pip_output: PipOutput,
) -> Result<Nvdisasm, FetchError> {
    let wheel = rgpu_wheels::requirement(rgpu_wheels::CUDA, WHEEL).ok_or(FetchError::Unlisted)?;
    let disk_error = |path: &Path| {
        let path = path.to_owned();
        move |source| FetchError::Disk { path, source }
    };
    let parent = folder.parent().unwrap_or(folder);
    fs::create_dir_all(parent).map_err(disk_error(parent))?;
    // In the same parent folder, so that a rename completes it.
    let new = tempfile::Builder::new().prefix(".nvdisasm-").tempdir_in(parent);
    let new = new.map_err(disk_error(parent))?;
    let list = new.path().join("wheels.txt");
    fs::write(&list, &wheel.text).map_err(disk_error(&list))?;
    let target = new.path().join("target");
    let mut install = installer.command(&list);
    install.arg("--target").arg(&target);
    if pip_output == PipOutput::Quiet {
        install.arg("--quiet");
    }
    let program = installer.name();
    run(&mut install, pip_output).map_err(|words| FetchError::Pip { program, words })?;
    let found = find(&fetched(&target)).filter(|tool| tool.version() == wheel.version);
    found.ok_or(FetchError::Broken)?;
    if folder.exists() {
        fs::rename(folder, new.path().join("old")).map_err(disk_error(folder))?;
    }
    fs::rename(&target, folder).map_err(disk_error(folder))?;
    find(&fetched(folder)).ok_or(FetchError::Broken)
}

/// Finds a Python with pip.
fn python() -> Option<PathBuf> {
    ["python3", "python"].into_iter().filter_map(|name| which::which(name).ok()).find(|python| {
        let mut pip = rgpu_wheels::pip(python);
        read_answer(pip.arg("--version"), MAX_PROBE_BYTES)
            .is_ok_and(|output| output.status.success())
    })
}

/// Runs the command; the error is the end of its message.
fn run(pip: &mut Command, pip_output: PipOutput) -> Result<(), String> {
    // pip's progress goes to stderr, since our stdout is for data.
    let out = match pip_output {
        PipOutput::Progress => Stdio::from(io::stderr()),
        PipOutput::Quiet => Stdio::null(),
    };
    let child = pip.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).spawn();
    let output = child.and_then(|child| wait_for_answer(child, MAX_PROBE_BYTES));
    let output = output.map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    Err(lines[lines.len().saturating_sub(6)..].join("\n"))
}
