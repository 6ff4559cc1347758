//! Settings of the kernel driver: whether only administrators may read performance counters.

use rgpu_protocol::probe::AgentFacts;
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{answer, read};

pub(super) struct Driver;

impl Tool for Driver {
    fn name(&self) -> &'static str {
        "driver"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![
            read("driver.params", "/proc/driver/nvidia/params", &["RmProfilingAdminOnly"]),
            read("driver.capabilities", "/proc/self/status", &["CapEff:"]),
        ]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        let text = |name| answer(agent, name).map(|a| a.text.as_str()).unwrap_or_default();
        let admin_only = text("driver.params").lines().find_map(|line| {
            line.trim().strip_prefix("RmProfilingAdminOnly:").map(|value| value.trim() == "1")
        });
        let capable = text("driver.capabilities").lines().any(|line| {
            let mask = line.trim().strip_prefix("CapEff:").map(str::trim);
            let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
            mask & (SYS_ADMIN | PERFMON) != 0
        });
        // The restriction does not apply to an agent that has the capability.
        facts.counters_admin_only = admin_only.map(|only| only && !capable);
    }
}

/// `CAP_SYS_ADMIN` and `CAP_PERFMON` in the mask of `/proc/self/status`.
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;
