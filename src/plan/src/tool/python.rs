//! Python, and the versions of the packages that GPU kernels in Python need.

use rgpu_protocol::probe::{AgentFacts, ToolFacts};
use rgpu_protocol::{HostFacts, Probe};

use super::Tool;
use super::plan::facts::{answer, run, tool};

/// Prints `python 3.12.3`, then `torch 2.9.0` and so on for each installed package. It reads the
/// packages' metadata, since importing torch takes seconds. The first place where Python looks for
/// modules is the current folder, which may be a project's.
const SCRIPT: &str = "\
import sys
sys.path = [folder for folder in sys.path if folder]
import platform
from importlib import metadata
print('python', platform.python_version())
for name, package in (('torch', 'torch'), ('triton', 'triton'), ('cutlass-dsl', 'nvidia-cutlass-dsl')):
    try:
        print(name, metadata.version(package))
    except metadata.PackageNotFoundError:
        pass
";

/// Python and its packages.
pub(super) struct Python;

impl Tool for Python {
    fn name(&self) -> &'static str {
        "python3"
    }

    fn probes(&self) -> Vec<Probe> {
        vec![run("python3", &["python3"], &["-c", SCRIPT])]
    }

    fn read(&self, agent: &AgentFacts, facts: &mut HostFacts) {
        let version = |text: &str, name: &str| {
            text.lines().find_map(|line| {
                let (word, version) = line.trim().split_once(' ')?;
                (word == name).then(|| version.to_owned())
            })
        };
        let Some(python) = tool(agent, "python3", |text| version(text, "python")) else { return };
        let text = answer(agent, "python3").map(|a| a.text.as_str()).unwrap_or_default();
        for name in ["torch", "triton", "cutlass-dsl"] {
            facts.tools.extend(version(text, name).map(|version| ToolFacts {
                name: name.to_owned(),
                path: python.path.clone(),
                version,
                problems: Vec::new(),
            }));
        }
        facts.tools.push(python);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn no_module_of_the_current_folder_is_imported() {
        let dir = tempfile::tempdir().unwrap();
        let ran = dir.path().join("ran");
        for module in ["platform", "importlib", "re"] {
            let text = format!("open({:?}, 'w').close()\n", ran.display().to_string());
            std::fs::write(dir.path().join(format!("{module}.py")), text).unwrap();
        }
        let mut python = Command::new("python3");
        let Ok(output) = python.args(["-c", SCRIPT]).current_dir(dir.path()).output() else {
            eprintln!("skipped: there is no python3");
            return;
        };
        assert!(output.stdout.starts_with(b"python 3"), "{output:?}");
        assert!(!ran.exists());
    }
}
