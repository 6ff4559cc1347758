//! NVRTC: NVIDIA's compiler as a library, for hosts without nvcc or without a host compiler.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{find, tool};

pub(super) struct Nvrtc;

impl Tool for Nvrtc {
    fn name(&self) -> &'static str {
        "nvrtc"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![find(
            "nvrtc",
            &[
                "/usr/local/cuda/lib64/libnvrtc.so.1*",
                "/usr/local/cuda-*/lib64/libnvrtc.so.1*",
                "/usr/lib/x86_64-linux-gnu/libnvrtc.so.1*",
                "/usr/lib/aarch64-linux-gnu/libnvrtc.so.1*",
                "/usr/local/lib/python3*/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.1*",
                "/usr/local/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.1*",
                "/usr/local/lib/python3*/site-packages/nvidia/cu1*/lib/libnvrtc.so.1*",
                "~/.local/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.1*",
            ],
        )]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        facts.tools.extend(tool(agent, "nvrtc", |_| None).map(|mut found| {
            let version = found.path.rsplit_once(".so.").map(|(_, version)| version.to_owned());
            found.version = version.unwrap_or_default();
            found
        }));
    }
}
