//! The hosts as they were last seen: no host is asked.

use std::path::Path;

use rgpu_protocol::HostFacts;
use schemars::JsonSchema;
use serde::Serialize;

use super::run_summary::RunSummary;
use super::run_table::Snapshot;
use super::{DashboardContext, DashboardHost};
use rgpu_model::beneath::Folder;
use rgpu_run::store::{EnvRecord, RunFolder, RunState};
use rgpu_work::queue::{Entry, EntryState};

/// The tools without which some mode does not work.
const WANTED_TOOLS: [&str; 6] = ["ncu", "nsys", "compute-sanitizer", "nvcc", "nvdisasm", "python3"];

/// The packages that Python kernels need.
const PACKAGES: [&str; 3] = ["torch", "triton", "cutlass-dsl"];

/// The largest env.json that is read, in bytes.
const MAX_ENV_BYTES: u64 = 8 << 20;

/// The newest runs of a host whose env.json is looked at for its facts.
const MAX_ENV_RUNS: usize = 5;

/// All hosts (`rgpu.dashboard-hosts/1`).
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct HostList {
    /// Name and version of this schema: `rgpu.dashboard-hosts/1`.
    pub(super) schema: &'static str,
    /// Whether runs are still being read, which may have the facts of a host.
    pub(super) reading: bool,
    /// The hosts of the user's settings, and this machine.
    pub(super) hosts: Vec<HostState>,
}

/// A host as it was last seen.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct HostState {
    /// The remote's name.
    pub(crate) name: String,
    /// The remote's address.
    pub(crate) address: String,
    /// Whether commands use it if none is named.
    pub(crate) default: bool,
    /// When the facts were asked for (RFC 3339). Absent if there are none.
    pub(crate) asked: Option<String>,
    /// The last try to reach it, if that failed and nothing has reached it since.
    pub(crate) failed_try: Option<FailedHostTry>,
    /// The host's facts. Absent if it was never checked.
    pub(crate) facts: Option<HostFacts>,
    /// The problems that the facts show.
    pub(crate) health: HostHealth,
    /// The ids of the project's runs that may be running there.
    pub(crate) running: Vec<String>,
    /// How many of these runs no process of this machine follows.
    pub(crate) not_followed: usize,
    /// Entries of the queue that wait for it.
    pub(crate) waiting: usize,
}

/// A try to reach a host that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct FailedHostTry {
    /// When the try failed (RFC 3339).
    pub(crate) at: String,
    /// Why, in a sentence.
    pub(crate) text: String,
}

/// Which problems a host has, by its facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct HostHealth {
    /// The most severe level of the lists below.
    pub(crate) level: HealthLevel,
    /// Problems that make some modes impossible.
    pub(crate) issues: Vec<String>,
    /// Problems that may disturb measurements.
    pub(crate) warnings: Vec<String>,
    /// Tools and packages that were not found.
    pub(crate) missing: Vec<String>,
    /// Software that is too old for the rest.
    pub(crate) outdated: Vec<String>,
}

/// How healthy a host is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HealthLevel {
    /// It was never asked.
    #[default]
    Unknown,
    /// Nothing is wrong.
    Ok,
    /// Something may disturb, is missing or is outdated.
    Warning,
    /// Some modes do not work.
    Issue,
}

impl HostHealth {
    /// Judges the facts of a host.
    pub(super) fn from_facts(facts: &HostFacts) -> Self {
        let mut health = Self::default();
        if facts.driver.is_none() {
            health.issues.push("no NVIDIA driver answers".to_owned());
        } else if facts.gpus.is_empty() {
            health.issues.push("there is no GPU".to_owned());
        }
        if facts.counters_admin_only == Some(true) && !facts.agent.root {
            let what = "only administrators may read performance counters, so ncu measures nothing";
            health.issues.push(what.to_owned());
        }
        for tool in &facts.tools {
            health.warnings.extend(tool.problems.iter().map(|p| format!("{}: {p}", tool.name)));
        }
        for gpu in facts.gpus.iter().filter(|gpu| gpu.mig) {
            health.warnings.push(format!("GPU {} is in MIG mode", gpu.index));
        }
        let wanted = WANTED_TOOLS.iter().chain(&PACKAGES);
        let missing = wanted.filter(|name| facts.tool(name).is_none());
        health.missing = missing.map(|name| (*name).to_owned()).collect();
        let own = env!("CARGO_PKG_VERSION");
        let agent = facts.agent.agent.as_str();
        if !agent.is_empty() && agent != own {
            health.outdated.push(format!(
                "the agent on the host has version {agent}, this rgpu {own}: the next run updates it"
            ));
        }
        if let (Some(driver), Some(nvcc)) = (&facts.cuda, facts.tool("nvcc"))
            && major(driver) < major(&nvcc.version)
        {
            let what = format!(
                "the driver supports CUDA {driver}, but nvcc is {}: update the driver",
                nvcc.version
            );
            health.outdated.push(what);
        }
        let has_warning = [&health.warnings, &health.missing, &health.outdated];
        health.level = match () {
            () if !health.issues.is_empty() => HealthLevel::Issue,
            () if has_warning.iter().any(|list| !list.is_empty()) => HealthLevel::Warning,
            () => HealthLevel::Ok,
        };
        health
    }
}

/// The major version; `None` if the text does not begin with a number.
fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.trim().parse().ok()
}

/// All hosts. `entries` are those of the queue.
pub(super) fn hosts(
    context: &DashboardContext,
    snapshot: &Snapshot,
    entries: &[Entry],
) -> HostList {
    let hosts = context.hosts.iter().map(|host| state(context, host, snapshot, entries));
    let reading = snapshot.reading;
    HostList { schema: "rgpu.dashboard-hosts/1", reading, hosts: hosts.collect() }
}

fn state(
    context: &DashboardContext,
    host: &DashboardHost,
    snapshot: &Snapshot,
    entries: &[Entry],
) -> HostState {
    let cached = host.facts.last_with_time().and_then(|(asked, facts)| {
        Some((jiff::Timestamp::from_second(asked).ok()?.to_string(), facts))
    });
    let recorded = || {
        snapshot.on_remote(&host.name).take(MAX_ENV_RUNS).find_map(|run| {
            let runs = Folder::open(&context.runs).ok()?;
            let bytes = runs.read(Path::new(&run.id).join("env.json"), MAX_ENV_BYTES).ok()?;
            let env: EnvRecord = rgpu_run::saved_json::from_slice(&bytes).ok()?;
            Some((run.started.clone(), env.host.filter(|facts| facts.remote == host.name)?))
        })
    };
    let (asked, mut facts) = cached.or_else(recorded).unzip();
    let failed_try = failed_try(host, snapshot).filter(|failed| Some(&failed.at) > asked.as_ref());
    let health = facts.as_ref().map(HostHealth::from_facts).unwrap_or_default();
    if let Some(facts) = &mut facts {
        // The probes' raw output is long, and everything in it that is known stands beside it.
        facts.agent.answers.clear();
    }
    let waits = |entry: &&Entry| {
        entry.state == EntryState::Waiting && entry.remote.as_deref() == Some(&host.name)
    };
    let running = snapshot.running.iter().map(|at| &snapshot.runs[*at].summary);
    let running: Vec<&RunSummary> =
        running.filter(|run| run.remote.split(',').any(|name| name == host.name)).collect();
    let is_followed = |run: &&&RunSummary| {
        RunFolder::open(&context.runs.join(&run.id)).is_ok_and(|folder| folder.is_followed())
    };
    let followed = running.iter().filter(is_followed).count();
    HostState {
        name: host.name.clone(),
        address: host.address.clone(),
        default: host.default,
        asked,
        failed_try,
        facts,
        health,
        not_followed: running.len() - followed,
        running: running.iter().map(|run| run.id.clone()).collect(),
        waiting: entries.iter().filter(waits).count(),
    }
}

/// The last try to reach a host, if it failed and no run on the host has ended well since.
fn failed_try(host: &DashboardHost, snapshot: &Snapshot) -> Option<FailedHostTry> {
    let failed = host.facts.last_failed_try()?;
    let at = jiff::Timestamp::from_second(failed.at_s).ok()?.to_string();
    let is_later = |run: &RunSummary| run.state == RunState::Done && run.started > at;
    let is_reached = snapshot.on_remote(&host.name).any(is_later);
    (!is_reached).then_some(FailedHostTry { at, text: failed.text })
}

#[cfg(test)]
mod tests {
    use rgpu_protocol::probe::{GpuFacts, ToolFacts};

    use super::*;

    /// A host with everything.
    fn facts() -> HostFacts {
        let names = WANTED_TOOLS.iter().chain(PACKAGES.iter());
        let tool = |name: &&str| ToolFacts { name: (*name).to_owned(), ..ToolFacts::default() };
        HostFacts {
            driver: Some("580.159.04".to_owned()),
            gpus: vec![GpuFacts::default()],
            tools: names.map(tool).collect(),
            ..HostFacts::default()
        }
    }

    #[test]
    fn a_host_without_a_driver_has_an_issue_and_one_without_packages_a_warning() {
        assert_eq!(HostHealth::from_facts(&facts()).level, HealthLevel::Ok);
        let health = HostHealth::from_facts(&HostFacts { driver: None, ..facts() });
        assert_eq!(health.level, HealthLevel::Issue);
        assert!(health.issues[0].contains("driver"), "{health:?}");
        let health =
            HostHealth::from_facts(&HostFacts { counters_admin_only: Some(true), ..facts() });
        assert!(health.issues[0].contains("counters"), "{health:?}");
        let mut lacking = facts();
        lacking.tools.retain(|tool| tool.name != "triton");
        let health = HostHealth::from_facts(&lacking);
        assert_eq!(health.level, HealthLevel::Warning);
        assert_eq!(health.missing, ["triton"]);
    }
}
