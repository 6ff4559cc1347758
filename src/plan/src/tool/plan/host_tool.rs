//! NVIDIA's profilers for a host that has only a driver: archives of NVIDIA, pinned by hash, which
//! the host fetches into its user's folder when the user agrees. Nothing needs root, and nothing is
//! shipped.
//!
//! The archives are those of CUDA 13.0.2, whose list NVIDIA publishes as `redistrib_13.0.2.json`
//! beside them. Its Nsight Compute, 2025.3.1, includes the nsys that rgpu was tested with.

use std::collections::BTreeMap;

use rgpu_protocol::HostFacts;
use rgpu_protocol::plan::{Arg, Limits, OnFailure, Plan, Rung, Step, Success};

use super::draft::{BundleFile, Draft, DraftInfo};
use super::message_rows::{MessageRow, NextRungs, RowAction, table};

/// Where NVIDIA publishes the archives and their licences.
const SERVER: &str = "https://developer.download.nvidia.com/compute/cuda/redist";

/// A tool that a host can be given.
#[derive(Debug, PartialEq, Eq)]
pub struct HostTool {
    /// Its name in the facts.
    pub name: &'static str,
    /// Its name in `rgpu setup`.
    pub command: &'static str,
    /// The product and its version, for display.
    pub title: &'static str,
    /// The product's folder on the server.
    product: &'static str,
    /// The version in file names.
    version: &'static str,
    /// The program, from the archive's folder on.
    program: &'static str,
    /// An archive for each architecture.
    archives: &'static [Archive],
}

/// An archive for one architecture.
#[derive(Debug, PartialEq, Eq)]
struct Archive {
    /// As `uname -m` prints it.
    arch: &'static str,
    /// NVIDIA's word for it.
    platform: &'static str,
    sha256: &'static str,
    bytes: u64,
}

/// Nsight Compute 2025.3.1.4.
static NSIGHT_COMPUTE: [Archive; 2] = [
    Archive {
        arch: "x86_64",
        platform: "linux-x86_64",
        sha256: "d3c0a0402511034c58227b817cbfed599765f32dc662cdcda58922247b52dd7a",
        bytes: 322_049_776,
    },
    Archive {
        arch: "aarch64",
        platform: "linux-sbsa",
        sha256: "562acdb72942ba3250fbda1d0a5b45d9d8bebf7295049846d16ffbdb457f9d28",
        bytes: 141_672_040,
    },
];

/// The tools that `rgpu setup` installs on hosts.
pub static HOST_TOOLS: [HostTool; 3] = [
    HostTool {
        name: "ncu",
        command: "ncu",
        title: "Nsight Compute 2025.3.1",
        product: "nsight_compute",
        version: "2025.3.1.4",
        program: "nsight-compute/*/ncu",
        archives: &NSIGHT_COMPUTE,
    },
    HostTool {
        name: "nsys",
        command: "nsys",
        title: "Nsight Compute 2025.3.1, which includes nsys",
        product: "nsight_compute",
        version: "2025.3.1.4",
        program: "nsight-compute/*/host/target-linux-*/nsys",
        archives: &NSIGHT_COMPUTE,
    },
    HostTool {
        name: "compute-sanitizer",
        command: "sanitizer",
        title: "Compute Sanitizer 2025.3.1",
        product: "cuda_sanitizer_api",
        version: "13.0.85",
        program: "compute-sanitizer/compute-sanitizer",
        archives: &[
            Archive {
                arch: "x86_64",
                platform: "linux-x86_64",
                sha256: "8eeba425f66fdd17e78d0dff49baa8b3e4599fc0579984eab7ad9c486a95ebf2",
                bytes: 11_399_964,
            },
            Archive {
                arch: "aarch64",
                platform: "linux-sbsa",
                sha256: "68cc7d0144cdf746d4e76565dca86002979ecab5c5674be01bb3fbd3628531e5",
                bytes: 8_547_700,
            },
        ],
    },
];

/// The script that fetches and unpacks the tool on the host.
const SCRIPT: &str = rgpu_harness::HOST_TOOL;
const SCRIPT_PATH: &str = "bin/host_tool.sh";

/// Messages of the script.
static MESSAGE_ROWS: &[MessageRow] = &[
    MessageRow("No space left on device", "disk_full", RowAction::FailedStop),
    MessageRow("is needed to fetch it", "archive_programs", RowAction::FailedStop),
    MessageRow("is needed to unpack it", "archive_programs", RowAction::FailedStop),
    MessageRow("it cannot be fetched", "archive_offline", RowAction::FailedStop),
    MessageRow("what came has another sha256", "archive_damaged", RowAction::FailedStop),
    MessageRow("does not start on this host", "archive_unfit", RowAction::FailedStop),
];

/// Id of the plan's step that runs the tool.
pub const HOST_TOOL_STEP_ID: &str = "tool";

/// Time limit of the download, in seconds.
const TIMEOUT_S: u64 = 3600;

impl HostTool {
    /// The tool with this name in the facts.
    pub fn named(name: &str) -> Option<&'static Self> {
        HOST_TOOLS.iter().find(|tool| tool.name == name)
    }

    /// The file with its licence, which covers the archives.
    pub fn licence(&self) -> String {
        format!("{SERVER}/{}/LICENSE.txt", self.product)
    }

    /// The size of the download in MB; `None` if there is none for the architecture.
    pub fn megabytes(&self, arch: &str) -> Option<u64> {
        self.archive(arch).map(|archive| archive.bytes.div_ceil(1_000_000))
    }

    /// Whether a path on a host is that of the tool that [`HostTool::installation`] installs.
    pub fn is_at(&self, path: &str) -> bool {
        path.contains(&format!("/.local/share/rgpu/tools/{}/", self.folder()))
    }

    /// Its folder among the user's tools.
    fn folder(&self) -> String {
        format!("{}-{}", self.product, self.version)
    }

    fn archive(&self, arch: &str) -> Option<&'static Archive> {
        self.archives.iter().find(|archive| archive.arch == arch)
    }

    /// The plan that installs it on a host; `None` if there is none for its architecture.
    pub fn installation(&self, job: String, facts: &HostFacts) -> Option<Draft> {
        let archive = self.archive(&facts.agent.arch)?;
        let Self { product, version, .. } = self;
        let platform = archive.platform;
        let url =
            format!("{SERVER}/{product}/{platform}/{product}-{platform}-{version}-archive.tar.xz");
        let rung = Rung {
            id: "fetch".to_owned(),
            needs: Vec::new(),
            argv: vec![
                "sh".into(),
                Arg::in_job(SCRIPT_PATH),
                Arg::text(self.folder()),
                Arg::text(url),
                Arg::text(archive.sha256),
                Arg::text(self.program),
            ],
            env: BTreeMap::new(),
            cwd: String::new(),
            success: Success::default(),
            diagnosis: table(MESSAGE_ROWS, NextRungs::default()),
            artifacts: Vec::new(),
            loses: String::new(),
            stop: None,
            hang: None,
        };
        let step = Step {
            id: HOST_TOOL_STEP_ID.to_owned(),
            title: format!("install {}", self.name),
            gpu: false,
            needs: Vec::new(),
            on_failure: OnFailure::Stop,
            timeout_s: TIMEOUT_S,
            max_output_bytes: Some(Step::MAX_HELPER_OUTPUT_BYTES),
            stdin: Default::default(),
            rungs: vec![rung],
        };
        let plan = Plan {
            job,
            title: format!("install {}", self.name),
            facts: Some(facts.key()),
            files: Vec::new(),
            steps: vec![step],
            gpu: None,
            env: BTreeMap::new(),
            secrets: Vec::new(),
            origin: None,
            limits: Limits::default(),
        };
        let files = vec![BundleFile::text(SCRIPT_PATH, SCRIPT)];
        Some(Draft { plan, files, info: DraftInfo::default() })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Output};

    use rgpu_protocol::Digest;

    use super::super::super::TOOLS;
    use super::*;

    #[test]
    fn every_tool_is_looked_for_where_it_is_installed() {
        let home = "~/.local/share/rgpu/tools";
        for tool in &HOST_TOOLS {
            let probes = TOOLS.iter().find(|known| known.name() == tool.name).unwrap().probes();
            let place = format!("{home}/{}-*/{}", tool.product, tool.program);
            assert!(probes.iter().any(|probe| probe.find.contains(&place)), "{place}");
            for archive in tool.archives {
                assert!(Digest::try_from(archive.sha256.to_owned()).is_ok());
            }
        }
    }

    /// Makes the archive of a tool that prints `version`; returns its sha256.
    fn archive(folder: &Path, version: &str) -> String {
        let script = format!(
            "mkdir -p t-archive/t && printf '#!/bin/sh\\n{version}\\n' >t-archive/t/tool && \
             chmod +x t-archive/t/tool && tar -cJf t.tar.xz t-archive"
        );
        let made = Command::new("sh").args(["-c", &script]).current_dir(folder).status().unwrap();
        assert!(made.success(), "tar with xz");
        Digest::sha256(&std::fs::read(folder.join("t.tar.xz")).unwrap()).to_string()
    }

    fn install(folder: &Path, sha256: &str) -> Output {
        let url = format!("file://{}", folder.join("t.tar.xz").display());
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "host_tool.sh", "t-1", &url, sha256, "t/t*l"]);
        command.env("HOME", folder.join("home")).output().unwrap()
    }

    #[test]
    fn a_tool_is_installed_once_and_replaced_only_by_one_that_starts() {
        let dir = tempfile::tempdir().unwrap();
        let tools = dir.path().join("home/.local/share/rgpu/tools");
        let names = || -> Vec<_> {
            std::fs::read_dir(&tools).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        let words = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        let absent = install(dir.path(), &"0".repeat(64));
        assert!(words(&absent).ends_with("host_tool: it cannot be fetched\n"), "{absent:?}");
        assert_eq!((absent.status.code(), names().len()), (Some(3), 0));
        let wanted = archive(dir.path(), "echo 1");
        let other = install(dir.path(), &"0".repeat(64));
        assert!(words(&other).contains("what came has another sha256"), "{other:?}");
        assert!(!other.status.success() && names().is_empty());
        let first = install(dir.path(), &wanted);
        assert!(first.status.success(), "{first:?}");
        let path = tools.join("t-1/t/tool");
        let printed = String::from_utf8_lossy(&first.stdout).into_owned();
        assert_eq!(printed.lines().last(), path.to_str());
        assert_eq!(names(), ["t-1"]);
        // It is there, so nothing is fetched.
        std::fs::remove_file(dir.path().join("t.tar.xz")).unwrap();
        assert!(install(dir.path(), &wanted).status.success());
        let broken = archive(dir.path(), "exit 1");
        std::fs::write(&path, "#!/bin/sh\nexit 1\n").unwrap();
        let refused = install(dir.path(), &broken);
        assert!(words(&refused).contains("does not start on this host"), "{refused:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "#!/bin/sh\nexit 1\n");
        assert_eq!(names(), ["t-1"]);
    }
}
