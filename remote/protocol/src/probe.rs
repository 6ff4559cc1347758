//! Probes, which query a host, and the facts that the laptop parses from the answers.
//!
//! The agent finds files, runs the programs that a probe names, and returns their text. Only the
//! laptop (`src/plan/src/tool/`) interprets that text, such as a tool's version line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pattern;

/// One query to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// The client's name for the probe, e.g. `ncu`.
    pub name: String,
    /// Where to search, best first: names on PATH, absolute paths, and globs (`*` within one path
    /// part; of several matches the last in natural order comes first, so that newer versions win).
    /// A leading `~/` is the user's home. Empty: `run[0]` is the program.
    #[serde(default)]
    pub find: Vec<String>,
    /// Arguments for the first file found; `None`: nothing is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Vec<String>>,
    /// Whether to return the text of the first file found instead of running it.
    #[serde(default)]
    pub read: bool,
    /// Return only lines that match one of these patterns; empty: all lines.
    #[serde(default)]
    pub keep: Vec<Pattern>,
    /// Time limit in seconds.
    #[serde(default = "ten")]
    pub timeout_s: u64,
}

fn ten() -> u64 {
    10
}

/// The answer to a [`Probe`].
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeAnswer {
    /// The name of the probe.
    pub name: String,
    /// The first file found, absolute.
    pub path: Option<String>,
    /// Every file found, best first, at most 16.
    #[serde(default)]
    pub found: Vec<String>,
    /// Exit status of the program; `None` if there is none.
    pub exit: Option<i32>,
    /// Output of the program (stdout, then stderr) or text of the file, at most 64 KiB.
    #[serde(default)]
    pub text: String,
    /// Why the probe failed: not started, timed out, not readable.
    pub error: Option<String>,
}

/// Facts that the agent collects itself, and the probes' answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentFacts {
    /// sha256 of the machine id: identifies the host without naming it.
    pub host_id: String,
    /// The kernel's boot id.
    pub boot_id: String,
    /// Host name.
    pub hostname: String,
    /// `PRETTY_NAME` of os-release.
    pub os: String,
    /// Architecture of the CPU, e.g. `x86_64`.
    pub arch: String,
    /// Release of the Linux kernel, as `uname -r` prints it.
    pub kernel: String,
    /// The user the agent runs as.
    pub user: String,
    /// Whether that user is root.
    pub root: bool,
    /// Number of processors the agent may use.
    pub cpus: u32,
    /// Size of the host's memory in bytes; 0 if unknown.
    pub memory_bytes: u64,
    /// Version of the agent.
    pub agent: String,
    /// The folder under which the agent keeps blobs and jobs.
    pub folder: String,
    /// glibc's version, e.g. `2.39`; empty if unknown.
    #[serde(default)]
    pub glibc: String,
    /// The answers, in the order of the probes.
    #[serde(default)]
    pub answers: Vec<ProbeAnswer>,
}

/// Facts about a GPU host: parsed by the laptop, cached under [`HostFacts::key`].
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostFacts {
    /// The remote's name on the laptop.
    pub remote: String,
    /// The transport: `local`, `ssh` …
    pub transport: String,
    /// The facts from the agent.
    pub agent: AgentFacts,
    /// Driver version, e.g. `580.159.04`; `None` without a driver.
    pub driver: Option<String>,
    /// The newest CUDA version that the driver supports, e.g. `13.0`.
    pub cuda: Option<String>,
    /// The GPUs, by index.
    #[serde(default)]
    pub gpus: Vec<GpuFacts>,
    /// The tools found on the host.
    #[serde(default)]
    pub tools: Vec<ToolFacts>,
    /// Whether only administrators may read the performance counters; `None` if unknown.
    pub counters_admin_only: Option<bool>,
}

impl HostFacts {
    /// Returns the key of the cached facts. Plans carry it so that the agent notices a changed
    /// host. It holds the host id and the boot id.
    pub fn key(&self) -> String {
        facts_key(&self.agent.host_id, &self.agent.boot_id)
    }

    /// Returns the facts of the tool `name`; `None` if it was not found.
    pub fn tool(&self, name: &str) -> Option<&ToolFacts> {
        self.tools.iter().find(|t| t.name == name)
    }
}

/// Returns the key of a host's facts. The laptop and the agent both compute it.
pub fn facts_key(host_id: &str, boot_id: &str) -> String {
    format!("{host_id}/{boot_id}")
}

/// A GPU of a host.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuFacts {
    /// Index in `nvidia-smi`, from 0.
    pub index: u32,
    /// Product name, e.g. `NVIDIA H200`.
    pub name: String,
    /// `GPU-…`.
    pub uuid: String,
    /// Compute capability times ten: 90, 100.
    pub sm: u32,
    /// Size of the GPU's memory in bytes.
    pub memory_bytes: u64,
    /// Highest SM clock in MHz.
    pub max_sm_mhz: Option<u32>,
    /// Highest memory clock in MHz.
    pub max_mem_mhz: Option<u32>,
    /// Power limit in watts.
    pub power_limit_w: Option<f64>,
    /// Whether MIG mode is on.
    #[serde(default)]
    pub mig: bool,
}

/// A tool on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFacts {
    /// `ncu`, `nsys`, `compute-sanitizer`, `nvcc`, `nvdisasm`, `python3` …
    pub name: String,
    /// Absolute path on the host.
    pub path: String,
    /// Version as the tool prints it; empty if it printed none.
    pub version: String,
    /// Known problems with the tool, e.g. the importer's missing library.
    #[serde(default)]
    pub problems: Vec<String>,
}
