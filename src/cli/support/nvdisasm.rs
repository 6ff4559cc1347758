//! Finds nvdisasm on this machine, and adds operands to listings with it.

#![expect(clippy::disallowed_methods, reason = "rgpu's own cache, and toolkits of this machine")]

use std::path::{Path, PathBuf};

use super::app::App;
use super::session;
use super::terminal::escape_controls;
use rgpu_model::HotSpots;
use rgpu_run::disasm::{Nvdisasm, NvdisasmSearch, fetched};
use rgpu_run::run::set_up_compilers;

/// Any nvdisasm on this machine. Prints nothing if there is none.
pub(in crate::cli) fn find_here(app: &App) -> Option<Nvdisasm> {
    search(app).find()
}

/// The folder that `rgpu setup nvdisasm` installs into.
pub(in crate::cli) fn fetched_folder(app: &App) -> PathBuf {
    app.data.join("nvdisasm")
}

/// The search for nvdisasm on this machine. Listings are cached for the next command.
pub(in crate::cli) fn search(app: &App) -> NvdisasmSearch {
    NvdisasmSearch { paths: candidates(app), ..only_cache(app) }
}

/// No nvdisasm of this machine, only the cached listings: for a host's own program.
pub(in crate::cli) fn only_cache(app: &App) -> NvdisasmSearch {
    NvdisasmSearch { paths: Vec::new(), cache: Some(app.cache.join("listings")) }
}

/// Candidates: PATH, a toolkit's home, the fetched one, the one that set-up put into rgpu's own
/// workspace, and Python environments (active ones, those that rgpu made, the user's packages).
/// Never a program that is only in the user's project.
fn candidates(app: &App) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = which::which("nvdisasm").into_iter().collect();
    let homes = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
    all.extend(homes.map(|home| PathBuf::from(home).join("bin/nvdisasm")));
    all.push(PathBuf::from("/usr/local/cuda/bin/nvdisasm"));
    all.extend(fetched(&fetched_folder(app)));
    let workspace = session::workspace().filter(|workspace| app.cwd.starts_with(workspace));
    let set_up = workspace.and_then(|workspace| set_up_compilers(&workspace).remove("nvdisasm"));
    all.extend(set_up.map(PathBuf::from));
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os);
    let mut environments: Vec<PathBuf> = active.map(PathBuf::from).collect();
    // Environments made by builds on this machine.
    environments.extend(made_environments(&app.cache.join("python")));
    environments.extend(std::env::home_dir().map(|home| home.join(".local")));
    all.extend(environments.iter().flat_map(|environment| in_environment(environment)));
    all.retain(|path| path.is_file());
    all
}

/// The complete Python environments that rgpu made in this folder.
fn made_environments(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(|e| e.ok());
    let mut made: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.join(".ready").exists()).collect();
    made.sort();
    made
}

/// NVIDIA's wheels in a Python environment, and the copy inside Triton's wheel.
fn in_environment(environment: &Path) -> Vec<PathBuf> {
    let under = |folder: PathBuf| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(|e| e.ok());
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.sort();
        found.reverse();
        found
    };
    let pythons = under(environment.join("lib"));
    let sites = || pythons.iter().map(|python| python.join("site-packages"));
    let wheels = sites().flat_map(|site| under(site.join("nvidia")));
    let mut found: Vec<PathBuf> = wheels.map(|toolkit| toolkit.join("bin/nvdisasm")).collect();
    found.extend(sites().map(|site| site.join("triton/backends/nvidia/bin/nvdisasm")));
    found
}

/// Adds operands to hot spots if there is an nvdisasm. `path` maps an artifact to its file. Errors
/// are printed, and only cost the operands.
pub(in crate::cli) fn add_operands(
    app: &App,
    spots: &mut HotSpots,
    path: &dyn Fn(&str) -> PathBuf,
) {
    let mut reports: Vec<String> = spots.launches.iter().map(|l| l.from.clone()).collect();
    reports.sort();
    reports.dedup();
    reports.retain(|from| path(from).is_file());
    if reports.is_empty() {
        return;
    }
    let Some(tool) = find_here(app) else { return };
    for from in reports {
        if let Err(error) = rgpu_run::disasm::operands(spots, &from, &path(&from), &tool) {
            let line = format!("`{from}`: instructions have no operands: {error}");
            app.print_note(&escape_controls(line.as_bytes()));
        }
    }
}
