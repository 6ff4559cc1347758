//! Finds rgpu's own programs for a target: the agent, the runner and the collector.

#![expect(clippy::disallowed_methods, reason = "the programs that came with rgpu")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use rgpu_model::error::{Exit, Failure, Result};
use rgpu_plan::tool::HostBinaries;
use rgpu_remote::arch_of;

/// rgpu's programs for one target. The agent is required; the others may not have been built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Programs {
    /// The target, e.g. `x86_64-unknown-linux-gnu`.
    pub triple: String,
    /// The path of `rgpu-agent`.
    pub agent: PathBuf,
    /// The path of `rgpu-agent-http`. `None` if it was not built.
    pub worker: Option<PathBuf>,
    /// The path of `rgpu-runner`. `None` if it was not built.
    pub runner: Option<PathBuf>,
    /// The path of `librgpu_collector.so`. `None` if it was not built.
    pub collector: Option<PathBuf>,
    /// The `libexec` and executable paths given to [`find`], to search for programs of other
    /// targets.
    search_roots: (Option<PathBuf>, PathBuf),
    /// Compilers that set-up installed into this machine's workspace, by tool; they are not on the
    /// PATH.
    pub compilers: BTreeMap<String, String>,
}

impl Programs {
    /// The agent on this machine for hosts of this architecture, as `uname -m` prints it.
    pub fn agent_for(&self, arch: &str) -> Option<PathBuf> {
        self.file("rgpu-agent", arch)
    }

    /// The programs that plans for hosts of this architecture may send along.
    pub fn host_binaries(&self, arch: &str) -> HostBinaries {
        if arch.is_empty() || triple(arch) == self.triple {
            return HostBinaries { runner: self.runner.clone(), collector: self.collector.clone() };
        }
        HostBinaries {
            runner: self.file("rgpu-runner", arch),
            collector: self.file("librgpu_collector.so", arch),
        }
    }

    /// Finds a program of another target. Its ELF header must match: files in shared folders may be
    /// for this machine.
    fn file(&self, name: &str, arch: &str) -> Option<PathBuf> {
        let (libexec, exe) = &self.search_roots;
        let is_for_arch = |path: &PathBuf| {
            let mut head = [0; 64];
            let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
            read.is_ok() && arch_of(&head) == Some(arch)
        };
        let folders = folders(&triple(arch), libexec.as_deref(), exe);
        folders.iter().map(|folder| folder.join(name)).find(is_for_arch)
    }
}

/// The tools that `cargo xtask setup` installs into `.rgpu/cuda`, with their paths below a CUDA
/// version.
const SET_UP_TOOLS: &[(&str, &str)] =
    &[("nvrtc", "lib/libnvrtc.so.1"), ("nvdisasm", "bin/nvdisasm")];

/// Finds the compilers that set-up installed into this workspace.
pub fn set_up_compilers(workspace: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for site in children(&workspace.join(".rgpu/cuda/lib"), "python3") {
        for version in children(&site.join("site-packages/nvidia"), "cu") {
            for (tool, file) in SET_UP_TOOLS {
                let (inner, start) = file.rsplit_once('/').unwrap_or(("", file));
                if let Some(path) = children(&version.join(inner), start).first() {
                    let path = path.display().to_string();
                    found.entry((*tool).to_owned()).or_insert(path);
                }
            }
        }
    }
    found
}

/// The entries of a folder whose names begin with `start`, in descending order.
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

/// The target triple of a Linux host, from the machine name of `uname -m`.
pub fn triple(arch: &str) -> String {
    format!("{arch}-unknown-linux-gnu")
}

/// The folders to search, best first: the given `libexec`, `../libexec/rgpu/<triple>` beside the
/// installed program, a workspace's `target/dist/<triple>`, the program's own folder.
pub(super) fn folders(triple: &str, libexec: Option<&Path>, exe: &Path) -> Vec<PathBuf> {
    let exe_folder = exe.parent().unwrap_or(Path::new("."));
    let mut folders = Vec::new();
    if let Some(libexec) = libexec {
        folders.push(libexec.join(triple));
        folders.push(libexec.to_owned());
    }
    let parent = exe_folder.parent().unwrap_or(exe_folder);
    folders.push(parent.join("libexec/rgpu").join(triple));
    folders.push(parent.join("dist").join(triple));
    // For a test binary in `target/debug/deps`.
    folders.push(parent.parent().unwrap_or(parent).join("dist").join(triple));
    folders.push(exe_folder.to_owned());
    folders
}

/// Finds rgpu's programs for a target.
pub fn find(triple: &str, libexec: Option<&Path>, exe: &Path) -> Result<Programs> {
    let folders = folders(triple, libexec, exe);
    let file = |name: &str| folders.iter().map(|dir| dir.join(name)).find(|p| p.is_file());
    let Some(agent) = file("rgpu-agent") else {
        let searched =
            folders.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(
            Exit::Config,
            "no_agent",
            format!("there is no `rgpu-agent` for {triple} on this machine"),
        )
        .cause(format!("looked in {searched}"))
        .hint(
            "wheel and tarball have it, `cargo install` and `cargo binstall` bring the command \
               alone: install one of these, or unpack a tarball of the same version and set \
               RGPU_LIBEXEC to its `libexec/rgpu`",
        )
        .hint("in the source tree `cargo xtask setup` builds it"));
    };
    Ok(Programs {
        triple: triple.to_owned(),
        agent,
        worker: file("rgpu-agent-http"),
        runner: file("rgpu-runner"),
        collector: file("librgpu_collector.so"),
        search_roots: (libexec.map(Path::to_owned), exe.to_owned()),
        compilers: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilers_of_the_workspace_are_found_newest_first() {
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
        let found = set_up_compilers(dir.path());
        assert!(found["nvrtc"].ends_with("cu13/lib/libnvrtc.so.13"), "{found:?}");
        assert!(found["nvdisasm"].ends_with("cu13/bin/nvdisasm"));
        assert!(set_up_compilers(&dir.path().join("absent")).is_empty());
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

    #[test]
    fn a_host_of_another_architecture_is_given_that_ones_programs() {
        let dir = tempfile::tempdir().unwrap();
        let put = |place: &str, machine: u8| {
            let mut head = [0_u8; 64];
            head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
            head[18] = machine;
            let path = dir.path().join(place);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, head).unwrap();
        };
        for (arch, machine) in [("x86_64", 62), ("aarch64", 183)] {
            for name in ["rgpu-agent", "rgpu-runner"] {
                put(&format!("libexec/rgpu/{arch}-unknown-linux-gnu/{name}"), machine);
            }
        }
        // Programs beside the CLI are for this machine.
        put("bin/librgpu_collector.so", 62);
        let exe = dir.path().join("bin/rgpu");
        let found = find(&triple("x86_64"), None, &exe).unwrap();
        let tools = found.host_binaries("aarch64");
        assert!(tools.runner.unwrap().ends_with("aarch64-unknown-linux-gnu/rgpu-runner"));
        assert_eq!(tools.collector, None);
        let agent = found.agent_for("aarch64").unwrap();
        assert!(agent.ends_with("aarch64-unknown-linux-gnu/rgpu-agent"));
        assert_eq!(found.agent_for("riscv64"), None);
        for own in ["x86_64", ""] {
            let HostBinaries { runner, collector } = found.host_binaries(own);
            assert_eq!((runner, collector), (found.runner.clone(), found.collector.clone()));
        }
    }
}
