//! `nvdisasm`: SASS from a cubin.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{dotted_after, run, tool};

/// `nvdisasm`.
pub(super) struct Nvdisasm;

impl Tool for Nvdisasm {
    fn name(&self) -> &'static str {
        "nvdisasm"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![run(
            "nvdisasm",
            &[
                "nvdisasm",
                "/usr/local/cuda/bin/nvdisasm",
                "/usr/local/cuda-*/bin/nvdisasm",
                "/opt/cuda/bin/nvdisasm",
            ],
            &["--version"],
        )]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        facts.tools.extend(tool(agent, "nvdisasm", |text| dotted_after(text, "release ")));
    }
}
