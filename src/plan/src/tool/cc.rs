//! The host's C compiler, which builds references and which nvcc needs.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{run, tool};

pub(super) struct Cc;

impl Tool for Cc {
    fn name(&self) -> &'static str {
        "cc"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![run("cc", &["cc", "gcc", "clang"], &["--version"])]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        facts.tools.extend(tool(agent, "cc", |text| {
            text.lines().next().map(|line| line.trim().to_owned())
        }));
    }
}
