//! The probes sent to a host, and the facts made from its answers.

use std::collections::BTreeMap;

use rgpu_protocol::probe::{AgentFacts, GpuFacts, ProbeAnswer, ToolFacts};
use rgpu_protocol::{HostFacts, Pattern, Probe};

use super::super::TOOLS;

/// The probes of every tool; a path from the user's settings replaces the searched ones.
pub(crate) fn probes(overrides: &BTreeMap<String, String>) -> Vec<Probe> {
    let with_override = |mut probe: Probe| {
        if let Some(path) = overrides.get(&probe.name) {
            probe.find = vec![path.clone()];
        }
        probe
    };
    TOOLS.iter().flat_map(|tool| tool.probes()).map(with_override).collect()
}

/// The facts of a host, read from its answers to the probes.
pub(crate) fn facts(remote: &str, transport: &str, agent: AgentFacts) -> HostFacts {
    let mut facts = HostFacts {
        remote: remote.to_owned(),
        transport: transport.to_owned(),
        ..HostFacts::default()
    };
    for tool in TOOLS {
        tool.read(&agent, &mut facts);
    }
    // Every tool has read the answers; only the facts made from them are kept.
    facts.agent = AgentFacts { answers: Vec::new(), ..agent };
    facts
}

/// The UUID of the GPU of made-up facts.
const ASSUMED_GPU: &str = "GPU-unknown";

/// Whether facts are made up.
pub(crate) fn is_assumed(facts: &HostFacts) -> bool {
    facts.gpus.iter().any(|gpu| gpu.uuid == ASSUMED_GPU)
}

/// Made-up facts for plans that are shown but not run: a host with a GPU and every tool on PATH.
pub fn assumed(remote: &str, arch: &str) -> HostFacts {
    let tool = |name: &&str| ToolFacts {
        name: (*name).to_owned(),
        path: (*name).to_owned(),
        ..ToolFacts::default()
    };
    HostFacts {
        remote: remote.to_owned(),
        agent: AgentFacts { arch: arch.to_owned(), ..AgentFacts::default() },
        gpus: vec![GpuFacts {
            name: "a GPU".to_owned(),
            uuid: ASSUMED_GPU.to_owned(),
            sm: 90,
            ..GpuFacts::default()
        }],
        tools: ["nvcc", "cc", "c++", "ncu", "nsys", "compute-sanitizer"].iter().map(tool).collect(),
        ..HostFacts::default()
    }
}

/// A probe that runs the first of the files `find` that exists.
pub(crate) fn run(name: &str, find: &[&str], args: &[&str]) -> Probe {
    Probe {
        name: name.to_owned(),
        find: find.iter().map(|f| (*f).to_owned()).collect(),
        run: Some(args.iter().map(|a| (*a).to_owned()).collect()),
        read: false,
        keep: Vec::new(),
        timeout_s: 20,
    }
}

/// A probe that only finds a file.
pub(crate) fn find(name: &str, find: &[&str]) -> Probe {
    Probe { run: None, ..run(name, find, &[]) }
}

/// A probe that reads the lines of a file that match one of `keep`.
pub(crate) fn read(name: &str, file: &str, keep: &[&str]) -> Probe {
    let keep = keep.iter().map(|text| Pattern::new(*text)).collect();
    Probe { read: true, keep, ..find(name, &[file]) }
}

/// The answer to the probe `name`.
pub(crate) fn answer<'a>(agent: &'a AgentFacts, name: &str) -> Option<&'a ProbeAnswer> {
    agent.answers.iter().find(|answer| answer.name == name)
}

/// The facts of a tool; `None` if it was not found. `version` reads its version from its output.
pub(crate) fn tool(
    agent: &AgentFacts,
    name: &str,
    version: impl Fn(&str) -> Option<String>,
) -> Option<ToolFacts> {
    let answer = answer(agent, name)?;
    let path = answer.path.clone()?;
    let mut problems = Vec::new();
    let found = version(&answer.text).unwrap_or_default();
    if let Some(error) = &answer.error {
        problems.push(format!("does not answer: {error}"));
    } else if found.is_empty() && answer.exit.is_some_and(|exit| exit != 0) {
        let first_line =
            answer.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        problems.push(format!("does not start: {}", first_line.trim()));
    }
    Some(ToolFacts { name: name.to_owned(), path, version: found, problems })
}

/// The first dotted number (`2025.3.1.0`, `13.0`) after `label` on the same line.
pub(crate) fn version_after(text: &str, label: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let rest = &line[line.find(label)? + label.len()..];
        let start = rest.find(|c: char| c.is_ascii_digit())?;
        let number: String =
            rest[start..].chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        let number = number.trim_end_matches('.');
        number.contains('.').then(|| number.to_owned())
    })
}
