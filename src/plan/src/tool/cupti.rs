//! libcupti: NVIDIA's tracing library, from the toolkit or from PyTorch's wheels. Our collector
//! opens it inside the program; it needs no permission to read counters.

use rgpu_protocol::probe::{AgentFacts, ToolFacts};
use rgpu_protocol::{HostFacts, Pattern, Probe};

use super::Tool;
use super::plan::facts::{answer, find, run};

/// Prints the path of each libcupti in the packages of this Python. It imports nothing from the
/// current folder, as that of `python.rs`.
const SCRIPT: &str = "\
import sys
sys.path = [folder for folder in sys.path if folder]
import glob, os
for folder in sys.path:
    for path in glob.glob(os.path.join(folder, 'nvidia', 'cu*', 'lib', 'libcupti.so.*')):
        print(path)
";

pub(super) struct Cupti;

impl Tool for Cupti {
    fn name(&self) -> &'static str {
        "cupti"
    }

    fn probes(&self) -> Vec<Probe> {
        let python = Probe {
            keep: vec![Pattern::new("/libcupti.so.")],
            ..run("cupti.python", &["python3"], &["-c", SCRIPT])
        };
        let toolkit = find(
            "cupti",
            &[
                "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.1*",
                "/usr/local/cuda-*/extras/CUPTI/lib64/libcupti.so.1*",
                "/usr/lib/x86_64-linux-gnu/libcupti.so.1*",
                "/usr/local/lib/python3*/dist-packages/nvidia/cu*/lib/libcupti.so.*",
                "/usr/local/lib/python3*/site-packages/nvidia/cu*/lib/libcupti.so.*",
                "~/.local/lib/python3*/site-packages/nvidia/cu*/lib/libcupti.so.*",
            ],
        );
        vec![toolkit, python]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        let version = |path: &str| path.rsplit_once(".so.").map(|(_, version)| version.to_owned());
        let mut paths: Vec<&str> = Vec::new();
        paths.extend(answer(agent, "cupti").and_then(|answer| answer.path.as_deref()));
        let python = answer(agent, "cupti.python").filter(|answer| answer.exit == Some(0));
        paths.extend(python.map(|answer| answer.text.lines().map(str::trim)).into_iter().flatten());
        paths.retain(|path| path.starts_with('/') && !path.contains(':'));
        if let Some(first) = paths.first() {
            facts.tools.push(ToolFacts {
                name: "cupti".to_owned(),
                version: version(first).unwrap_or_default(),
                path: paths.join(":"),
                problems: Vec::new(),
            });
        }
    }
}

/// Paths of every libcupti found, separated by `:`; empty if there is none.
pub(super) fn paths(facts: &HostFacts) -> &str {
    facts.tool("cupti").map_or("", |tool| tool.path.as_str())
}
