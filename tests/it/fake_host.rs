//! A GPU host that is played: a folder of links to `rgpu-fake`, named after NVIDIA's tools.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use crate::laptop::{Laptop, built, wait_for};

/// The tools that are played.
const TOOLS: &[&str] = &["ncu", "nsys", "compute-sanitizer", "nvcc", "nvidia-smi"];

/// A played GPU host.
pub(crate) struct FakeHost {
    folder: PathBuf,
}

impl FakeHost {
    /// A host with every tool, known to the laptop as the remote `h200` on this machine.
    pub(crate) fn new(laptop: &Laptop) -> FakeHost {
        FakeHost::with(laptop, TOOLS)
    }

    /// The same with these tools only.
    pub(crate) fn with(laptop: &Laptop, tools: &[&str]) -> FakeHost {
        let folder = laptop.path("h200");
        fs::create_dir_all(folder.join("bin")).unwrap();
        for tool in tools {
            symlink(built("rgpu-fake"), folder.join("bin").join(tool)).unwrap();
        }
        // The runner travels to the host, so it is a file of its own.
        let runner = laptop.path("libexec/rgpu-runner");
        let script =
            format!("#!/bin/sh\nexec '{}' rgpu-runner \"$@\"\n", built("rgpu-fake").display());
        fs::write(&runner, script).unwrap();
        fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).unwrap();
        // Nothing loads it: the played runner has no ranges that a collector could see.
        fs::write(laptop.path("libexec/librgpu_collector.so"), b"synthetic").unwrap();
        let host = FakeHost { folder };
        let settings = format!(
            "[remote.h200]\nurl = \"local\"\npath = [{:?}]\nenv = {{ RGPU_FAKE_HOST = {:?} }}\n",
            host.folder.join("bin"),
            host.folder
        );
        fs::write(laptop.path("config/config.toml"), settings).unwrap();
        host
    }

    /// Gives the host a libcupti, as far as its Python tells of one: nothing opens it, the played
    /// runner plays the collector too.
    pub(crate) fn with_libcupti(self) -> FakeHost {
        let python = self.folder.join("bin/python3");
        let script = "#!/bin/sh\ncase \"$2\" in\n\
            *libcupti*) echo /opt/python/nvidia/cuda_cupti/lib/libcupti.so.12 ;;\n\
            *) exec /usr/bin/python3 \"$@\" ;;\nesac\n";
        fs::write(&python, script).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// Lets ncu's reports of whole sets come out `empty` or `nan`, as tests/gpu/spoil.py makes
    /// them.
    pub(crate) fn with_spoiled_reports(self, how: &str) -> FakeHost {
        let ncu = self.folder.join("bin/ncu");
        let spoil = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu/spoil.py");
        let script = format!(
            "#!/bin/sh\n'{}' ncu \"$@\"; status=$?\ncase \"$*\" in *'--set full'*)\n\
             while [ $# -gt 0 ] && [ \"$1\" != --export ]; do shift; done\n\
             /usr/bin/python3 '{spoil}' {how} \"$2.ncu-rep\" ;;\nesac\nexit $status\n",
            built("rgpu-fake").display(),
        );
        fs::remove_file(&ncu).unwrap();
        fs::write(&ncu, script).unwrap();
        fs::set_permissions(&ncu, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// Gives it so many GPUs.
    pub(crate) fn gpus(&self, count: u32) {
        fs::write(self.folder.join("gpus"), count.to_string()).unwrap();
    }

    /// Makes tools misbehave: lines `TOOL WORD [ARG]`, see `tests/fake/src/misbehaviour.rs`.
    pub(crate) fn mischief(&self, lines: &str) {
        fs::write(self.folder.join("mischief"), lines).unwrap();
    }

    /// Waits until a tool with the mischief `gate` stands at its gate.
    pub(crate) fn wait_for_gate(&self, tool: &str) {
        let file = self.folder.join(format!("{tool}.waiting"));
        wait_for("a tool at its gate", || file.exists().then_some(()));
    }

    /// Forgets that a tool stood at its gate, so that the next one is waited for.
    pub(crate) fn clear_gate(&self, tool: &str) {
        fs::remove_file(self.folder.join(format!("{tool}.waiting"))).unwrap();
    }

    /// Lets the tool go on that waits at its gate.
    pub(crate) fn open_gate(&self, tool: &str) {
        fs::write(self.folder.join(format!("{tool}.go")), b"").unwrap();
    }
}
