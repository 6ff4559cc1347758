//! `cargo`: compiles Rust on the host if this machine cannot compile for the host.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{dotted_after, run, tool};

pub(super) struct Cargo;

impl Tool for Cargo {
    fn name(&self) -> &'static str {
        "cargo"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![run("cargo", &["cargo", "~/.cargo/bin/cargo"], &["--version"])]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        // A rustup without a toolchain runs, but prints no version.
        let found = tool(agent, "cargo", |text| dotted_after(text, "cargo "));
        facts.tools.extend(found.filter(|tool| !tool.version.is_empty()));
    }
}
