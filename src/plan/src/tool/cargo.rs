//! `cargo` on the host. It compiles Rust there if this machine cannot compile for the host.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{run, tool, version_after};

pub(super) struct Cargo;

impl Tool for Cargo {
    fn name(&self) -> &'static str {
        "cargo"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![run("cargo", &["cargo", "~/.cargo/bin/cargo"], &["--version"])]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        // rustup's cargo runs without a toolchain, but prints no version.
        let found = tool(agent, "cargo", |text| version_after(text, "cargo "));
        facts.tools.extend(found.filter(|tool| !tool.version.is_empty()));
    }
}
