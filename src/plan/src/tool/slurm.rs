//! Slurm, the batch system of shared clusters. Users log in to a node that has its commands but no
//! GPU; `srun` and `salloc` allocate nodes with GPUs.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{run, tool, version_after};

/// Name among a host's tools.
const NAME: &str = "slurm";

pub(super) struct Slurm;

impl Tool for Slurm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn probes(&self) -> Vec<Probe> {
        vec![run(NAME, &["sinfo"], &["--version"])]
    }

    /// Must come after the tools that find GPUs.
    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        let Some(mut found) = tool(agent, NAME, |text| version_after(text, "slurm")) else {
            return;
        };
        if facts.gpus.is_empty() && !is_granted_node(facts) {
            found.problems.push("no GPU here; on a login node use `srun --gres=gpu:1`".to_owned());
        }
        facts.tools.push(found);
    }
}

/// Whether the host has Slurm and no GPU of its own, and is not a node that Slurm has granted. The
/// user's own machine is none: it may have Slurm's programs for a cluster elsewhere.
pub(super) fn is_login_node(facts: &HostFacts) -> bool {
    let is_own = facts.remote == "local";
    facts.gpus.is_empty() && facts.tool(NAME).is_some() && !is_own && !is_granted_node(facts)
}

/// Whether Slurm has granted the host to this run.
fn is_granted_node(facts: &HostFacts) -> bool {
    facts.transport == "slurm"
}
