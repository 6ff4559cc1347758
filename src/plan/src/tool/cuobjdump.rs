//! `cuobjdump`: lists the GPU code in a binary.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{run, tool, version_after};

pub(super) struct Cuobjdump;

impl Tool for Cuobjdump {
    fn name(&self) -> &'static str {
        "cuobjdump"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![run(
            "cuobjdump",
            &[
                "cuobjdump",
                "/usr/local/cuda/bin/cuobjdump",
                "/usr/local/cuda-*/bin/cuobjdump",
                "/opt/cuda/bin/cuobjdump",
            ],
            &["--version"],
        )]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        facts.tools.extend(tool(agent, "cuobjdump", |text| version_after(text, "release ")));
    }
}
