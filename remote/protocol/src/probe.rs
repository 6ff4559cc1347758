//! Probes: questions to a host as data, and the facts the laptop makes of the answers.
//!
//! The agent finds files, runs what a probe names and returns text. It understands none of it:
//! what a tool's version line means is known to the laptop alone (`src/tool/`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pattern;

/// One question to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// The asker's name for it, e.g. `ncu`.
    pub name: String,
    /// Where to look, best first: names searched on PATH, absolute paths and globs (`*` within one
    /// path part; of several matches the last in natural order first, so that newer versions win);
    /// a leading `~/` is the user's home. Empty: `run[0]` is the program.
    #[serde(default)]
    pub find: Vec<String>,
    /// Arguments to run the first file found with; `None`: the file is only found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Vec<String>>,
    /// Return the text of the first file found instead of running it.
    #[serde(default)]
    pub read: bool,
    /// Return only lines that match one of these; empty: all.
    #[serde(default)]
    pub keep: Vec<Pattern>,
    /// Seconds it may take.
    #[serde(default = "ten")]
    pub timeout_s: u64,
}

fn ten() -> u64 {
    10
}

/// The answer to a [`Probe`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeAnswer {
    /// The probe's name.
    pub name: String,
    /// The first file found, absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Every file found, best first, at most 16.
    #[serde(default)]
    pub found: Vec<String>,
    /// Exit status of what was run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// What it printed (stdout, then stderr), at most 64 KiB.
    #[serde(default)]
    pub text: String,
    /// Why there is no answer: not started, timed out, not readable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What the agent knows of its host by itself, with the answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentFacts {
    /// sha256 of the machine id: tells hosts apart without naming them.
    pub host_id: String,
    /// The kernel's boot id.
    pub boot_id: String,
    /// Host name.
    pub hostname: String,
    /// `PRETTY_NAME` of os-release.
    pub os: String,
    /// e.g. `x86_64`.
    pub arch: String,
    /// Kernel release.
    pub kernel: String,
    /// The user the agent runs as.
    pub user: String,
    /// Whether that is root.
    pub root: bool,
    /// Processors the agent may use.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Version of the agent.
    pub agent: String,
    /// The folder under which the agent keeps blobs and jobs.
    pub folder: String,
    /// glibc's version, e.g. `2.39`; empty where unknown.
    #[serde(default)]
    pub glibc: String,
    /// The answers, in the order of the probes.
    #[serde(default)]
    pub answers: Vec<ProbeAnswer>,
}

/// A GPU host as rgpu understands it: parsed by the laptop, cached under [`HostFacts::key`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostFacts {
    /// The remote's name on the laptop.
    pub remote: String,
    /// How it is reached: `local`, `ssh` …
    pub transport: String,
    /// What the agent knows by itself.
    pub agent: AgentFacts,
    /// Driver version, e.g. `580.159.04`; `None` without a driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The CUDA version that the driver offers, e.g. `13.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// The GPUs, by index.
    #[serde(default)]
    pub gpus: Vec<GpuFacts>,
    /// The tools found.
    #[serde(default)]
    pub tools: Vec<ToolFacts>,
    /// Whether only administrators may read the performance counters; `None` where unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters_admin_only: Option<bool>,
}

impl HostFacts {
    /// What facts are cached under, and what a plan names so that a changed host is noticed:
    /// host, boot and driver.
    pub fn key(&self) -> String {
        facts_key(&self.agent.host_id, &self.agent.boot_id)
    }

    /// The facts of one tool.
    pub fn tool(&self, name: &str) -> Option<&ToolFacts> {
        self.tools.iter().find(|t| t.name == name)
    }
}

/// The key both sides compute: the agent from its own host and boot id.
pub fn facts_key(host_id: &str, boot_id: &str) -> String {
    format!("{host_id}/{boot_id}")
}

/// A GPU of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuFacts {
    /// The driver's index.
    pub index: u32,
    /// e.g. `NVIDIA H200`.
    pub name: String,
    /// `GPU-…`.
    pub uuid: String,
    /// Compute capability times ten: 90, 100.
    pub sm: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Highest SM clock in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sm_mhz: Option<u32>,
    /// Highest memory clock in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_mem_mhz: Option<u32>,
    /// Power limit in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<f64>,
    /// Whether MIG is on.
    #[serde(default)]
    pub mig: bool,
}

/// A tool of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolFacts {
    /// `ncu`, `nsys`, `compute-sanitizer`, `nvcc`, `nvdisasm`, `python3` …
    pub name: String,
    /// Absolute path on the host.
    pub path: String,
    /// Version as the tool prints it; empty where it would not say.
    pub version: String,
    /// What is known to be wrong with it, e.g. the importer's missing library.
    #[serde(default)]
    pub problems: Vec<String>,
}
