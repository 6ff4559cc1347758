//! nvdisasm fetched on the user's word: NVIDIA's wheel, pinned by its hash, brought by the user's
//! own pip into a folder of rgpu's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::nvdisasm::{Nvdisasm, find};

/// The wheel.
pub const WHEEL: &str = "nvidia-cuda-nvdisasm";

/// Why nvdisasm was not fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Nothing here installs wheels.
    #[error("there is no Python with pip here")]
    NoPip,
    /// pip failed, in its own words.
    #[error("pip could not fetch `{WHEEL}`")]
    Pip {
        /// The last lines it said.
        words: String,
    },
    /// The wheel holds something else than expected.
    #[error("the wheel's nvdisasm does not run here")]
    Broken,
    /// Our disk.
    #[error("cannot write `{}`", path.display())]
    Disk {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A defect: the list has no such wheel.
    #[error("the list of wheels has no `{WHEEL}`")]
    Unlisted,
}

/// How pip may be heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipOutput {
    /// Its progress goes to stderr.
    Progress,
    /// Not at all.
    Quiet,
}

/// The version that [`fetch`] brings.
pub fn pinned() -> Option<String> {
    rgpu_wheels::requirement(rgpu_wheels::CUDA, WHEEL).map(|wheel| wheel.version)
}

/// Where nvdisasm lies in a folder that [`fetch`] filled.
pub fn fetched(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder.join("nvidia")) else { return Vec::new() };
    let toolkits = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut found: Vec<PathBuf> = toolkits.map(|toolkit| toolkit.join("bin/nvdisasm")).collect();
    found.retain(|path| path.is_file());
    found.sort();
    found.reverse();
    found
}

/// Fetches the pinned wheel into `folder`, whose old content goes only once the new one has run.
///
/// # Errors
/// [`FetchError`]; the folder is then as it was.
pub fn fetch(folder: &Path, voice: PipOutput) -> Result<Nvdisasm, FetchError> {
    let wheel = rgpu_wheels::requirement(rgpu_wheels::CUDA, WHEEL).ok_or(FetchError::Unlisted)?;
    let python = python().ok_or(FetchError::NoPip)?;
    let disk = |path: &Path| {
        let path = path.to_owned();
        move |source| FetchError::Disk { path, source }
    };
    let above = folder.parent().unwrap_or(folder);
    fs::create_dir_all(above).map_err(disk(above))?;
    // Beside the folder, so that it becomes the folder in one step.
    let new = tempfile::Builder::new().prefix(".nvdisasm-").tempdir_in(above);
    let new = new.map_err(disk(above))?;
    let list = new.path().join("wheels.txt");
    fs::write(&list, &wheel.text).map_err(disk(&list))?;
    let target = new.path().join("target");
    let mut pip = rgpu_wheels::install(&python, &list);
    pip.arg("--target").arg(&target);
    if voice == PipOutput::Quiet {
        pip.arg("--quiet");
    }
    run(&mut pip, voice)?;
    let found = find(&fetched(&target)).filter(|tool| tool.version() == wheel.version);
    found.ok_or(FetchError::Broken)?;
    if folder.exists() {
        fs::rename(folder, new.path().join("old")).map_err(disk(folder))?;
    }
    fs::rename(&target, folder).map_err(disk(folder))?;
    find(&fetched(folder)).ok_or(FetchError::Broken)
}

/// A Python that has pip.
fn python() -> Option<PathBuf> {
    ["python3", "python"].into_iter().filter_map(|name| which::which(name).ok()).find(|python| {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "--version"]).stdin(Stdio::null());
        pip.output().is_ok_and(|output| output.status.success())
    })
}

fn run(pip: &mut Command, voice: PipOutput) -> Result<(), FetchError> {
    let failed = |words: String| FetchError::Pip { words };
    // What it prints is talk, and our stdout is for data.
    let out = match voice {
        PipOutput::Progress => Stdio::from(io::stderr()),
        PipOutput::Quiet => Stdio::null(),
    };
    let child = pip.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).spawn();
    let output = child.and_then(std::process::Child::wait_with_output);
    let output = output.map_err(|e| failed(e.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    Err(failed(lines[lines.len().saturating_sub(6)..].join("\n")))
}
