//! libcupti: NVIDIA's tracing library, in the toolkit or brought by PyTorch's wheels.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{find, tool};

/// libcupti.
pub(super) struct Cupti;

impl Tool for Cupti {
    fn name(&self) -> &'static str {
        "cupti"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![find(
            "cupti",
            &[
                "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.1*",
                "/usr/local/cuda-*/extras/CUPTI/lib64/libcupti.so.1*",
                "/usr/local/lib/python3*/dist-packages/nvidia/cuda_cupti/lib/libcupti.so.*",
                "/usr/local/lib/python3*/site-packages/nvidia/cuda_cupti/lib/libcupti.so.*",
                "~/.local/lib/python3*/site-packages/nvidia/cuda_cupti/lib/libcupti.so.*",
            ],
        )]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        let version = |path: &str| path.rsplit_once(".so.").map(|(_, version)| version.to_owned());
        facts.tools.extend(tool(agent, "cupti", |_| None).map(|mut found| {
            found.version = version(&found.path).unwrap_or_default();
            found
        }));
    }
}
