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
pub use plan::pair::{PAIR, PairDraft, SIDES, TIME_REPORTS, pair as plan_pair, side_of};
pub use plan::{
    arch::*, build::*, compile_cache::*, draft::*, dsl::*, dsl_layouts::*, facts::*, filter::*,
    gpu_selection::*, hang::*, harness::*, host_tool::*, ladder::*, launcher::*, options::*,
    pattern::*, price::*, program_build::*, provider_rungs::*, python_env::*, rank_selection::*,
    reason::*, region::*, request::*, rungs::*, sections::*, wheels::*,
};
pub use plan::{check, check_launcher, plan};
pub use rgpu_harness::RGPU_H;

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
