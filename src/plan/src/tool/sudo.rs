//! `sudo -n`: whether the user can become root without a password.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{run, tool};

pub(super) struct Sudo;

impl Tool for Sudo {
    fn name(&self) -> &'static str {
        "sudo"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![run("sudo", &["sudo"], &["-n", "true"])]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        facts.tools.extend(tool(agent, "sudo", |_| None));
    }
}
