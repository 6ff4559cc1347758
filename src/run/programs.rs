//! Where our own programs lie: the agent, the runner and the collector for a target.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{Exit, Failure, Result};

/// Our programs for one target. The agent is always there; the harness may not have been built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// The target, e.g. `x86_64-unknown-linux-gnu`.
    pub triple: String,
    /// `rgpu-agent`.
    pub agent: PathBuf,
    /// `rgpu-agent-http`.
    pub worker: Option<PathBuf>,
    /// `rgpu-runner`.
    pub runner: Option<PathBuf>,
    /// `librgpu_collector.so`.
    pub collector: Option<PathBuf>,
    /// Compilers that set-up brought into a project-local environment of this machine, by the
    /// tool's name: they are not on any path.
    pub compilers: BTreeMap<String, String>,
}

/// What `cargo xtask setup` installs into `.rgpu/cuda`, by tool.
const SET_UP: &[(&str, &str)] = &[("nvrtc", "lib/libnvrtc.so.1"), ("nvdisasm", "bin/nvdisasm")];

/// The compilers in the environments of these folders (projects and the workspace).
pub fn set_up_compilers(folders: &[PathBuf]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for folder in folders {
        let pythons = folder.join(".rgpu/cuda/lib");
        for site in children(&pythons, "python3") {
            for version in children(&site.join("site-packages/nvidia"), "cu") {
                for (tool, file) in SET_UP {
                    let (inner, start) = file.rsplit_once('/').unwrap_or(("", file));
                    if let Some(path) = children(&version.join(inner), start).first() {
                        let path = path.display().to_string();
                        found.entry((*tool).to_owned()).or_insert(path);
                    }
                }
            }
        }
    }
    found
}

/// The entries of a folder whose names begin so, the last in order first.
fn children(folder: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .filter(|e| e.file_name().to_string_lossy().starts_with(start))
        .map(|e| e.path())
        .collect();
    found.sort();
    found.reverse();
    found
}

/// The target triple of a Linux host, by `uname -m`'s word.
pub fn triple(arch: &str) -> String {
    format!("{arch}-unknown-linux-gnu")
}

/// The folders searched, best first: `libexec` as the user said, beside the installed program
/// (`../libexec/rgpu/<triple>`), a workspace's `target/dist/<triple>`, beside the program itself.
pub(super) fn folders(triple: &str, libexec: Option<&Path>, exe: &Path) -> Vec<PathBuf> {
    let here = exe.parent().unwrap_or(Path::new("."));
    let mut folders = Vec::new();
    if let Some(libexec) = libexec {
        folders.push(libexec.join(triple));
        folders.push(libexec.to_owned());
    }
    folders.push(here.join("../libexec/rgpu").join(triple));
    folders.push(here.join("../dist").join(triple));
    // `target/debug/deps/…`: a test binary.
    folders.push(here.join("../../dist").join(triple));
    folders.push(here.to_owned());
    folders
}

/// Finds our programs.
///
/// # Errors
/// No agent anywhere: nothing can run.
pub fn find(triple: &str, libexec: Option<&Path>, exe: &Path) -> Result<Programs> {
    let folders = folders(triple, libexec, exe);
    let file = |name: &str| folders.iter().map(|dir| dir.join(name)).find(|p| p.is_file());
    let Some(agent) = file("rgpu-agent") else {
        let looked = folders.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(
            Exit::Config,
            "no_agent",
            format!("there is no `rgpu-agent` for {triple} on this machine"),
        )
        .cause(format!("looked in {looked}"))
        .hint("in the source tree: `cargo xtask setup` builds it; or set RGPU_LIBEXEC"));
    };
    Ok(Programs {
        triple: triple.to_owned(),
        agent,
        worker: file("rgpu-agent-http"),
        runner: file("rgpu-runner"),
        collector: file("librgpu_collector.so"),
        compilers: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_of_the_project_local_environment_are_found_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        let put = |p: &str| {
            let path = dir.path().join(".rgpu/cuda/lib/python3.11/site-packages/nvidia").join(p);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, b"x").unwrap();
        };
        put("cu12/lib/libnvrtc.so.12");
        put("cu13/lib/libnvrtc.so.13");
        put("cu13/lib/libnvrtc-builtins.so.13.0");
        put("cu13/bin/nvdisasm");
        let found = set_up_compilers(&[dir.path().to_owned()]);
        assert!(found["nvrtc"].ends_with("cu13/lib/libnvrtc.so.13"), "{found:?}");
        assert!(found["nvdisasm"].ends_with("cu13/bin/nvdisasm"));
        assert!(set_up_compilers(&[]).is_empty());
    }

    #[test]
    fn the_users_folder_wins_and_a_missing_agent_says_where_it_looked() {
        let dir = tempfile::tempdir().unwrap();
        let exe = dir.path().join("bin/rgpu");
        let failure = find("t", None, &exe).unwrap_err();
        assert!(failure.cause.unwrap().contains("libexec/rgpu/t"));
        let put = |p: &str| {
            let path = dir.path().join(p);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, b"x").unwrap();
        };
        put("bin/rgpu-agent");
        put("mine/rgpu-agent");
        put("bin/rgpu-runner");
        assert_eq!(find("t", None, &exe).unwrap().agent, dir.path().join("bin/rgpu-agent"));
        let found = find("t", Some(&dir.path().join("mine")), &exe).unwrap();
        assert_eq!(found.agent, dir.path().join("mine/rgpu-agent"));
        assert_eq!(found.runner, Some(dir.path().join("bin/rgpu-runner")));
        assert_eq!(found.collector, None);
    }
}
