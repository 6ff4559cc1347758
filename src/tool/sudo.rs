//! `sudo`: only found, never tried unasked, since a refusal is reported to the host's administrator
//! on many systems. `--sudo` makes a rung of it (`ncu.sudo`), which says so where it does not work.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{find, tool};
use super::plan::rows::{Go, Row};

/// `sudo`.
pub(super) struct Sudo;

impl Tool for Sudo {
    fn name(&self) -> &'static str {
        "sudo"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![find("sudo", &["sudo"])]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        facts.tools.extend(tool(agent, "sudo", |_| None));
    }
}

/// What its words mean.
pub(super) static ROWS: &[Row] = &[
    Row("sudo: a password is required", "no_sudo", Go::FailedNext),
    Row("sudo: a terminal is required", "no_sudo", Go::FailedNext),
    Row("is not in the sudoers file", "no_sudo", Go::FailedNext),
    Row("is not allowed to execute", "no_sudo", Go::FailedNext),
    Row("sudo: sorry, you are not allowed", "no_sudo", Go::FailedNext),
    Row("sudo: effective uid is not 0", "no_sudo", Go::FailedNext),
    Row("\"no new privileges\" flag is set", "no_sudo", Go::FailedNext),
];
