//! libcuda: the part of the driver that programs load. The agent looks for the file, so that the
//! host's facts tell whether a CUDA program can start at all.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{find, tool};

pub(super) struct Libcuda;

impl Tool for Libcuda {
    fn name(&self) -> &'static str {
        "libcuda"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![find(
            "libcuda",
            &[
                "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
                "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
                "/usr/lib64/libcuda.so.1",
                "/usr/lib/libcuda.so.1",
                "/usr/lib/wsl/lib/libcuda.so.1",
                "/run/opengl-driver/lib/libcuda.so.1",
                "/usr/local/nvidia/lib64/libcuda.so.1",
                "/usr/local/cuda/compat/libcuda.so.1",
            ],
        )]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        facts.tools.extend(tool(agent, "libcuda", |_| None));
    }
}
