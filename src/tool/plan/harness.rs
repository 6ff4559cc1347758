//! What carries out a kernel's jobs on the host: our runner, which reads a Case; for Python a
//! `harness.py` of the kernel's own, made from the same Case, under the host's Python.

use rgpu_case::RunnerInput;
use rgpu_protocol::HostFacts;
use rgpu_protocol::plan::{Arg, ArtifactSpec};

use super::draft::{BundleFile, PlanError};
use super::ladder::artifact;
use super::request::{Request, Target, path_of};
use super::{CASE, CASE_PLAIN, CASE_SANITIZER, RAW, RUNNER};

/// The harness in the job's folder, and in the run folder.
pub const HARNESS: &str = "harness.py";

/// The parts of the harness, in their order: they make one file, so that it can be read and carried
/// off as a whole.
const PARTS: [&str; 7] = [
    include_str!("../../../harness/templates/harness/head.py"),
    include_str!("../../../harness/templates/harness/ranges.py"),
    include_str!("../../../harness/templates/harness/data.py"),
    include_str!("../../../harness/templates/harness/comparison.py"),
    include_str!("../../../harness/templates/harness/kernel.py"),
    include_str!("../../../harness/templates/harness/statistics.py"),
    include_str!("../../../harness/templates/harness/jobs.py"),
];

/// The line of the first part that the Case takes the place of.
const CASE_PLACEHOLDER: &str = "CASE = {}  # rgpu puts the kernel's Case here\n";

/// The packages that Python kernels cannot do without.
const REQUIRED_PACKAGES: [&str; 2] = ["python3", "torch"];

/// Who does the jobs.
#[derive(Clone, Copy, Debug)]
pub(super) enum JobRunner<'a> {
    /// `rgpu-runner`.
    Runner,
    /// `harness.py` under this Python.
    Python(&'a str),
}

impl<'a> JobRunner<'a> {
    pub(super) fn of(request: &Request, facts: &'a HostFacts) -> Self {
        match &request.target {
            Target::Kernel { spec, .. } if spec.is_python() => {
                Self::Python(path_of(facts, "python3").unwrap_or("python3"))
            }
            _ => Self::Runner,
        }
    }

    pub(super) fn is_python(self) -> bool {
        matches!(self, Self::Python(_))
    }

    /// The job with the Case that it usually takes.
    pub(super) fn usual(
        self,
        job: &str,
        flags: &[&str],
        name: &str,
    ) -> (Vec<Arg>, Vec<ArtifactSpec>) {
        // Only these compare with the reference: a missing one must not stop the others.
        let case = if matches!(job, "verify" | "cpu") { CASE } else { CASE_PLAIN };
        self.words(job, case, flags, name)
    }

    /// The job with `case`, its report called after `name`; with the report as an artifact.
    pub(super) fn words(
        self,
        job: &str,
        case: &str,
        flags: &[&str],
        name: &str,
    ) -> (Vec<Arg>, Vec<ArtifactSpec>) {
        let report = format!("{RAW}/{name}.json");
        let mut argv = match self {
            Self::Runner => vec![Arg::in_job(RUNNER), Arg::in_job(case), job.into()],
            Self::Python(python) => vec![python.into(), Arg::in_job(HARNESS), job.into()],
        };
        argv.extend(["--out".into(), Arg::in_job(&report)]);
        if self.is_python() && case == CASE_SANITIZER {
            argv.extend(["--warmup", "0"].map(Arg::from));
        }
        argv.extend(flags.iter().map(|flag| Arg::from(*flag)));
        (argv, vec![artifact(report, "case_report")])
    }

    /// The same with a log of its ranges: where no tool records them.
    pub(super) fn logged(
        self,
        job: &str,
        flags: &[&str],
        name: &str,
    ) -> (Vec<Arg>, Vec<ArtifactSpec>) {
        let (mut argv, mut artifacts) = self.usual(job, flags, name);
        let ranges = format!("{RAW}/{name}.ranges.jsonl");
        argv.extend(["--ranges".into(), Arg::in_job(&ranges)]);
        artifacts.push(artifact(ranges, "ranges"));
        (argv, artifacts)
    }
}

/// Checks that the host has what a Python kernel needs.
///
/// # Errors
/// [`PlanError::NoPython`].
pub(super) fn check(request: &Request, facts: &HostFacts) -> Result<(), PlanError> {
    let Target::Kernel { spec, .. } = &request.target else { return Ok(()) };
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

/// The harness of a kernel.
pub(super) fn file(case: &RunnerInput) -> BundleFile {
    BundleFile::text(HARNESS, rendered(case))
}

fn rendered(case: &RunnerInput) -> String {
    // A Case is plain data with text keys: it always serialises.
    let value = serde_json::to_value(case).unwrap_or_default();
    let mut literal = String::new();
    write(&value, 0, &mut literal);
    PARTS.join("\n\n").replacen(CASE_PLACEHOLDER, &format!("CASE = {literal}\n"), 1)
}

/// A JSON value as Python writes it, one line where that fits.
fn write(value: &serde_json::Value, depth: usize, out: &mut String) {
    use serde_json::Value::{Array, Bool, Null, Number, Object, String as Text};
    const WIDTH: usize = 88;
    let scalar = |value: &serde_json::Value| match value {
        Null => "None".to_owned(),
        Bool(true) => "True".to_owned(),
        Bool(false) => "False".to_owned(),
        // JSON's escapes are all Python's too.
        Number(_) | Text(_) => value.to_string(),
        Array(_) | Object(_) => String::new(),
    };
    let items: Vec<(String, &serde_json::Value)> = match value {
        Array(items) => items.iter().map(|item| (String::new(), item)).collect(),
        Object(map) => map
            .iter()
            .map(|(key, item)| (format!("{}: ", serde_json::Value::from(key.as_str())), item))
            .collect(),
        other => return out.push_str(&scalar(other)),
    };
    let (open, close) = if value.is_array() { ('[', ']') } else { ('{', '}') };
    out.push(open);
    let start = out.len();
    for (at, (key, item)) in items.iter().enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        out.push_str(key);
        write(item, depth + 1, out);
    }
    if out.len() - start + 4 * depth > WIDTH || out[start..].contains('\n') {
        out.truncate(start);
        for (key, item) in &items {
            out.push('\n');
            out.push_str(&"    ".repeat(depth + 1));
            out.push_str(key);
            write(item, depth + 1, out);
            out.push(',');
        }
        out.push('\n');
        out.push_str(&"    ".repeat(depth));
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_stands_in_the_harness_as_python() {
        assert_eq!(PARTS.join("").matches(CASE_PLACEHOLDER).count(), 1);
        let value = serde_json::json!({
            "a": [1, 2.5, -3], "b": true, "c": null, "name": "q\"uote\n\u{1}",
            "long": ["x".repeat(40), "y".repeat(40)],
        });
        let mut text = String::new();
        write(&value, 0, &mut text);
        assert!(text.contains("\"a\": [1, 2.5, -3],") && text.contains("\"b\": True"), "{text}");
        assert!(text.contains("\"c\": None") && text.contains(r#""q\"uote\n\u0001""#), "{text}");
        assert!(text.lines().all(|line| line.len() < 100));
    }
}
