//! Tools of the GPU host: how to find each one, and how a request becomes a plan.
//!
//! Nothing here does I/O on a host. A [`Tool`] lists the questions for a host ([`probes`]) and
//! reads the answers ([`facts`]). [`plan`] makes a [`Draft`] from the user's request and the facts:
//! ordered steps, each a ladder of exact commands with a success rule and a table of the tool's
//! messages ([`reason`] explains each code of those tables).

use std::collections::BTreeMap;

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

mod cargo;
mod cc;
mod cuobjdump;
mod cupti;
mod cxx;
mod driver;
mod libcuda;
mod ncu;
mod nsys;
mod nvcc;
mod nvdisasm;
mod nvidia_smi;
mod nvrtc;
mod plan;
mod python;
mod sanitizer;
mod slurm;
mod sudo;

pub use ncu::{WAITING_KERNELS, escaped};
pub use nsys::report_of_node;
pub use nvdisasm::{CALL_TIMEOUT_S, LISTINGS, ListingCall, NVDISASM_STEP_ID, listings};
pub use nvidia_smi::gpu_processes;
pub use plan::arch::target_arch;
pub use plan::build::lacks_for_wheels;
pub use plan::build::{Compiler, compilers};
pub use plan::compile_cache::{compile_once, compiler_rows};
pub use plan::draft::{
    BundleFile, Draft, DraftInfo, ExpectedReport, JobFileContent, PlanError, SourceNames,
    probe_again_hint,
};
pub use plan::dsl::{DSL_RECORD, Dsl, DslBuild};
pub use plan::dsl_layouts::{DslLayouts, LAYOUTS_STEP, LayoutQuestions};
pub use plan::facts::assumed;
pub use plan::filter::{KernelFilter, function_name};
pub use plan::gpu_selection::GpuSelection;
pub use plan::hang::add_hang_detection;
pub use plan::harness::HARNESS;
pub use plan::host_tool::{HOST_TOOL_STEP_ID, HOST_TOOLS, HostTool};
pub use plan::ladder::{PLAIN_STEP, runs_python};
pub use plan::launcher::LauncherError;
pub use plan::launcher::python_program_word;
pub use plan::options::{
    Budget, CaptureRange, DeepOptions, Limit, NcuOptions, NsysOptions, SanitizerOptions,
    SanitizerTool, TOOL_FLAGS_OF_PROJECTS, ToolOptions, Window, WindowEnd, given_flags,
};
pub use plan::pair::{PAIR, PairDraft, SIDES, TIME_REPORTS, pair as plan_pair, side_of};
pub use plan::pattern::{RegionPattern, domain_and_name};
pub use plan::price::LaunchCost;
pub use plan::provider_rungs::{ProviderRung, retry_with_less, served};
pub use plan::python_env::{PythonEnv, ScriptError};
pub use plan::rank_selection::RankSelection;
pub use plan::reason::{REASONS, Reason, lasts, reason};
pub use plan::region::{RGPU_DOMAIN, RangeKind, RecordedRegion, RegionPath, RunnerRanges};
pub use plan::request::{
    BuildOptions, BuildProduct, FailedRung, FirstPass, HostBinaries, JobName, PlanPart,
    PrebuiltCode, Program, Request, Target,
};
pub use plan::rungs::{RUNGS, RungInfo, RungPurpose, RungTool};
pub use plan::sections::{SETS, sections};
pub use plan::wheels::{CUTE, NVCC, TRITON, WheelNvcc, Wheels};
pub use plan::{check, check_launcher, plan};

/// A tool of the GPU host.
pub trait Tool: Sync {
    /// Name of the tool in [`HostFacts`]: `ncu`, `nsys` …
    fn name(&self) -> &'static str;

    /// The questions for a host. Names of probes begin with [`Tool::name`].
    fn probes(&self) -> Vec<Probe>;

    /// Reads the tool's answers and adds them to the facts.
    fn read(&self, answers: &AgentFacts, facts: &mut HostFacts);
}

/// Every tool, in the order in which the facts are read.
pub static TOOLS: &[&dyn Tool] = &[
    &nvidia_smi::NvidiaSmi,
    &driver::Driver,
    &libcuda::Libcuda,
    &nvcc::Nvcc,
    &nvrtc::Nvrtc,
    &cc::Cc,
    &cxx::Cxx,
    &ncu::Ncu,
    &nsys::Nsys,
    &sanitizer::Sanitizer,
    &nvdisasm::Nvdisasm,
    &cuobjdump::Cuobjdump,
    &cupti::Cupti,
    &python::Python,
    &cargo::Cargo,
    &slurm::Slurm,
    &sudo::Sudo,
];

/// The questions of every tool. `overrides` are paths from the user's settings, by tool.
pub fn probes(overrides: &BTreeMap<String, String>) -> Vec<Probe> {
    plan::facts::probes(overrides)
}

/// The facts in a host's answers. `remote` is the host's name in the settings, `transport` the way
/// it is reached.
pub fn facts(remote: &str, transport: &str, agent: AgentFacts) -> HostFacts {
    plan::facts::facts(remote, transport, agent)
}
