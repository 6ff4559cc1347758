//! The host's C++ compiler, without which nvcc compiles nothing. A C compiler alone is not enough.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{run, tool};

pub(super) struct Cxx;

impl Tool for Cxx {
    fn name(&self) -> &'static str {
        "c++"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![run("c++", &["c++", "g++", "clang++"], &["--version"])]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        facts.tools.extend(tool(agent, "c++", |text| {
            text.lines().next().map(|line| line.trim().to_owned())
        }));
    }
}
