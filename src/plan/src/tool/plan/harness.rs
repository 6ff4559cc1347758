//! The program that runs a kernel's jobs on the host: our runner, which reads a [`RunnerInput`], or
//! for Python a `harness.py` made from the same input and run by the host's Python.

use rgpu_case::RunnerInput;
use rgpu_protocol::HostFacts;
use rgpu_protocol::plan::{Arg, ArtifactSpec};

use super::draft::{BundleFile, PlanError};
use super::ladder::artifact;
use super::request::{ProfileTarget, Request, path_of};
use super::{RAW, RUNNER, RUNNER_INPUT, RUNNER_INPUT_PLAIN, RUNNER_INPUT_SANITIZER};
use rgpu_model::profile::ArtifactKind;

/// Name of the harness in the job's folder and in the run folder.
pub const HARNESS: &str = "harness.py";

/// The parts of the harness, in order. They are joined into one file, which can be read and copied
/// as a unit.
const PARTS: [&str; 10] = rgpu_harness::PYTHON_HARNESS;

/// The line of the first part that is replaced with the runner input.
const INPUT_PLACEHOLDER: &str = "CASE = {}  # rgpu puts the runner input here\n";

/// The packages that a Python kernel cannot run without.
const REQUIRED_PACKAGES: [&str; 2] = ["python3", "torch"];

/// The program that runs the jobs.
#[derive(Clone, Copy, Debug)]
pub(super) enum JobRunner<'a> {
    /// `rgpu-runner`, for CUDA kernels.
    Runner,
    /// `harness.py` under this Python.
    Python(&'a str),
}

impl<'a> JobRunner<'a> {
    pub(super) fn new(request: &Request, facts: &'a HostFacts) -> Self {
        match &request.target {
            ProfileTarget::Kernel { spec, .. } if spec.is_python() => {
                Self::Python(path_of(facts, "python3").unwrap_or("python3"))
            }
            _ => Self::Runner,
        }
    }

    pub(super) fn is_python(self) -> bool {
        matches!(self, Self::Python(_))
    }

    /// Command and report artifact of a job, with the input that it usually reads.
    pub(super) fn usual_command(
        self,
        job: &str,
        flags: &[&str],
        name: &str,
    ) -> (Vec<Arg>, Vec<ArtifactSpec>) {
        // Only these jobs compare with the reference; a missing reference must not stop the others.
        let input = if matches!(job, "verify" | "cpu") { RUNNER_INPUT } else { RUNNER_INPUT_PLAIN };
        self.command(job, input, flags, name)
    }

    /// Command and report artifact of a job that reads `input`; `name` is the name of its report.
    pub(super) fn command(
        self,
        job: &str,
        input: &str,
        flags: &[&str],
        name: &str,
    ) -> (Vec<Arg>, Vec<ArtifactSpec>) {
        let report = format!("{RAW}/{name}.json");
        let mut argv = match self {
            Self::Runner => vec![Arg::in_job(RUNNER), Arg::in_job(input), job.into()],
            Self::Python(python) => vec![python.into(), Arg::in_job(HARNESS), job.into()],
        };
        argv.extend(["--out".into(), Arg::in_job(&report)]);
        if self.is_python() && input == RUNNER_INPUT_SANITIZER {
            argv.extend(["--warmup", "0"].map(Arg::from));
        }
        argv.extend(flags.iter().map(|flag| Arg::from(*flag)));
        (argv, vec![artifact(report, ArtifactKind::CaseReport)])
    }

    /// As [`Self::usual_command`], with a log of its ranges, for rungs without a tool that records
    /// them.
    pub(super) fn logged_command(
        self,
        job: &str,
        flags: &[&str],
        name: &str,
    ) -> (Vec<Arg>, Vec<ArtifactSpec>) {
        let (mut argv, mut artifacts) = self.usual_command(job, flags, name);
        let ranges = format!("{RAW}/{name}.ranges.jsonl");
        argv.extend(["--ranges".into(), Arg::in_job(&ranges)]);
        artifacts.push(artifact(ranges, ArtifactKind::Ranges));
        (argv, artifacts)
    }
}

/// Checks that the host has what a Python kernel needs.
pub(super) fn check(request: &Request, facts: &HostFacts) -> Result<(), PlanError> {
    let ProfileTarget::Kernel { spec, .. } = &request.target else { return Ok(()) };
    if !spec.is_python() {
        return Ok(());
    }
    let missing = REQUIRED_PACKAGES.into_iter().find(|tool| path_of(facts, tool).is_none());
    missing.map_or(Ok(()), |package| {
        Err(PlanError::NoPython {
            package,
            python: path_of(facts, "python3").map(str::to_owned),
            remote: facts.remote.clone(),
        })
    })
}

/// The harness of a Python kernel.
pub(super) fn file(input: &RunnerInput) -> BundleFile {
    BundleFile::text(HARNESS, render(input))
}

fn render(input: &RunnerInput) -> String {
    // A `RunnerInput` is plain data with text keys: it always serialises.
    let value = serde_json::to_value(input).unwrap_or_default();
    let mut literal = String::new();
    write_python(&value, 0, &mut literal);
    PARTS.join("\n\n").replacen(INPUT_PLACEHOLDER, &format!("CASE = {literal}\n"), 1)
}

/// Writes a JSON value as a Python literal, on one line if it fits.
fn write_python(value: &serde_json::Value, depth: usize, literal: &mut String) {
    use serde_json::Value::{Array, Bool, Null, Number, Object, String as Text};
    const MAX_LINE_CHARS: usize = 88;
    let scalar = |value: &serde_json::Value| match value {
        Null => "None".to_owned(),
        Bool(true) => "True".to_owned(),
        Bool(false) => "False".to_owned(),
        // All escapes of JSON are valid in Python.
        Number(_) | Text(_) => value.to_string(),
        Array(_) | Object(_) => String::new(),
    };
    let items: Vec<(String, &serde_json::Value)> = match value {
        Array(items) => items.iter().map(|item| (String::new(), item)).collect(),
        Object(map) => map
            .iter()
            .map(|(key, item)| (format!("{}: ", serde_json::Value::from(key.as_str())), item))
            .collect(),
        other => return literal.push_str(&scalar(other)),
    };
    let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
    literal.push(open);
    let start = literal.len();
    for (at, (key, item)) in items.iter().enumerate() {
        literal.push_str(if at == 0 { "" } else { ", " });
        literal.push_str(key);
        write_python(item, depth + 1, literal);
    }
    if literal.len() - start + 4 * depth > MAX_LINE_CHARS || literal[start..].contains('\n') {
        literal.truncate(start);
        for (key, item) in &items {
            literal.push('\n');
            literal.push_str(&"    ".repeat(depth + 1));
            literal.push_str(key);
            write_python(item, depth + 1, literal);
            literal.push(',');
        }
        literal.push('\n');
        literal.push_str(&"    ".repeat(depth));
    }
    literal.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_stands_in_the_harness_as_python() {
        assert_eq!(PARTS.join("").matches(INPUT_PLACEHOLDER).count(), 1);
        let value = serde_json::json!({
            "a": [1, 2.5, -3], "b": true, "c": null, "name": "q\"uote\n\u{1}",
            "long": ["x".repeat(40), "y".repeat(40)],
        });
        let mut text = String::new();
        write_python(&value, 0, &mut text);
        assert!(text.contains("\"a\": [1, 2.5, -3],") && text.contains("\"b\": True"), "{text}");
        assert!(text.contains("\"c\": None") && text.contains(r#""q\"uote\n\u0001""#), "{text}");
        assert!(text.lines().all(|line| line.len() < 100));
    }
}
