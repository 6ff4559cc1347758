//! Where nvdisasm may be on this machine.

use std::path::{Path, PathBuf};

use super::args::Tool;
use crate::cli::app::App;
use crate::error::{Exit, Failure, Result};
use crate::run::disasm::{Nvdisasm, find};
use crate::run::set_up_compilers;

/// The tool that the user's choice means here.
pub(super) fn chosen(app: &App, tool: Tool) -> Result<Option<Nvdisasm>> {
    if tool == Tool::Rgpu {
        return Ok(None);
    }
    let candidates = candidates(app);
    let found = find(&candidates);
    match (&found, tool) {
        (None, Tool::Nvdisasm) => {
            let looked: Vec<String> = candidates.iter().map(|p| p.display().to_string()).collect();
            Err(Failure::new(Exit::Tool, "no_nvdisasm", "there is no nvdisasm on this machine")
                .cause(match looked.is_empty() {
                    true => "none on PATH, in CUDA_HOME or in .rgpu/cuda".to_owned(),
                    false => format!("none of these answers: {}", looked.join(", ")),
                })
                .hint(
                    "`pip install nvidia-cuda-nvdisasm` in a virtual environment brings it (5 MB)",
                )
                .hint("`--tool rgpu` shows all but the operands"))
        }
        (None, _) => {
            app.say("no nvdisasm here: listings come without operands");
            Ok(None)
        }
        _ => Ok(found),
    }
}

/// Whatever nvdisasm there is, without a word where there is none.
pub(super) fn found(app: &App) -> Option<Nvdisasm> {
    find(&candidates(app))
}

/// PATH, a toolkit's home, the project's own environment, a Python environment that is active.
fn candidates(app: &App) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = which::which("nvdisasm").into_iter().collect();
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
    all.extend(homes.map(|home| PathBuf::from(home).join("bin/nvdisasm")));
    all.push(PathBuf::from("/usr/local/cuda/bin/nvdisasm"));
    let mut folders = vec![app.cwd.clone()];
    folders.extend(app.config.runs_dir.value.ancestors().skip(1).map(Path::to_owned));
    all.extend(set_up_compilers(&folders).remove("nvdisasm").map(PathBuf::from));
    if let Some(environment) = std::env::var_os("VIRTUAL_ENV") {
        all.extend(in_environment(&PathBuf::from(environment)));
    }
    all.retain(|path| path.is_file());
    all
}

/// NVIDIA's wheels in a Python environment.
fn in_environment(environment: &Path) -> Vec<PathBuf> {
    let under = |folder: PathBuf| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(|e| e.ok());
        entries.map(|entry| entry.path()).collect()
    };
    let mut found = Vec::new();
    for python in under(environment.join("lib")) {
        for toolkit in under(python.join("site-packages/nvidia")) {
            found.push(toolkit.join("bin/nvdisasm"));
        }
    }
    found.sort();
    found.reverse();
    found
}
