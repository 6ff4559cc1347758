//! Looks for what makes the results of a suite less than they seem: targets that cannot run,
//! kernels that no target runs, sides of pairs that stand alone, expectations without a case,
//! switches that fix or allow randomness, and results that differ between two calls.

use std::collections::BTreeSet;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expectations::Expectations;
use super::file::SuiteFile;
use super::target::{TargetKind, TargetSpec};
use super::target_problem::TargetProblem;
use rgpu_analysis::lint::lint;
use rgpu_model::error::Failure;
use rgpu_model::suite::SuiteRun;
use rgpu_model::{Profile, Trace};
use rgpu_plan::kernel::{KernelFolders, KernelSpec, find};

/// The schema name of an audit.
pub const SCHEMA: &str = "rgpu.audit/1";

/// A comment with this and a switch's word allows the switch on its line or the next.
const ALLOW: &str = "rgpu: allow ";

/// The result of an audit (`rgpu.audit/1`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Audit {
    /// Name and version of this schema: `rgpu.audit/1`.
    pub schema: String,
    /// The findings.
    pub findings: Vec<AuditFinding>,
    /// Checks that could not be made, and why.
    pub gaps: Vec<String>,
}

/// A finding of an audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditFinding {
    /// Stable code: `kernel_without_target`, `lone_side`, `expectation_without_case`,
    /// `fixed_randomness`, `allows_nondeterminism`, `not_bit_equal`, `unverified`, `nvtx_` with the
    /// id of a lint, or for a target that cannot run that of its failure, such as `unknown_kernel`.
    pub code: String,
    /// The target, kernel or file with its line.
    pub place: String,
    /// The finding as a sentence.
    pub text: String,
}

/// The last suite of a project.
#[derive(Clone, Debug, Default)]
pub struct LastSuite {
    /// Its result document.
    pub run: SuiteRun,
    /// The profiles of its cases with their traces, by case.
    pub profiles: Vec<(String, Profile, Option<Trace>)>,
}

/// A text in a source that fixes randomness or allows results to differ.
struct Switch {
    text: &'static str,
    code: &'static str,
    effect: &'static str,
}

const fn fixes(text: &'static str) -> Switch {
    Switch {
        text,
        code: "fixed_randomness",
        effect: "fixes random numbers: every run has the same data",
    }
}

const fn allows(text: &'static str, effect: &'static str) -> Switch {
    Switch { text, code: "allows_nondeterminism", effect }
}

const SWITCHES: &[Switch] = &[
    fixes("torch.manual_seed("),
    fixes("torch.cuda.manual_seed"),
    fixes("np.random.seed("),
    fixes("random.seed("),
    fixes("srand("),
    allows("cudnn.benchmark = True", "lets cuDNN choose another algorithm in each process"),
    allows(
        "use_deterministic_algorithms(False",
        "allows operators whose results differ between runs",
    ),
    allows("cudnn.deterministic = False", "allows operators whose results differ between runs"),
    allows("allow_tf32 = True", "computes in a lower precision than the dtype says"),
    allows("set_float32_matmul_precision(", "may compute in a lower precision than the dtype says"),
    allows("--use_fast_math", "changes results by flags of the compiler"),
];

/// Endings of the names of two sides.
const SIDES: [(&str, &str); 2] = [("baseline", "optimised"), ("baseline", "optimized")];

/// Audits the suite of a project. `problems` are those of its targets, and `last` is its last run,
/// if there is one.
pub fn audit(
    file: &SuiteFile,
    folders: &KernelFolders,
    problems: &[TargetProblem],
    expectations: &[Expectations],
    last: Option<&LastSuite>,
    cases: &BTreeSet<&str>,
    generated: bool,
) -> Audit {
    let mut audit = Audit { schema: SCHEMA.to_owned(), ..Audit::default() };
    audit.kernels(file, folders, problems, generated);
    for known in expectations {
        for key in known.entries_without_case(cases) {
            audit.add(
                "expectation_without_case",
                &key.case,
                format!("`{}` expects a time of a case that does not exist", known.gpu),
            );
        }
    }
    match last {
        None => audit.gaps.push("no suite has run yet, so no results were looked at".to_owned()),
        Some(last) => audit.results(last),
    }
    audit
}

impl Audit {
    fn add(&mut self, code: &str, place: &str, text: String) {
        let (code, place) = (code.to_owned(), place.to_owned());
        self.findings.push(AuditFinding { code, place, text });
    }

    fn kernels<'t>(
        &mut self,
        file: &'t SuiteFile,
        folders: &KernelFolders,
        problems: &[TargetProblem],
        generated: bool,
    ) {
        let own = KernelFolders { shipped: None, kernel_path: Vec::new(), ..folders.clone() };
        let listed = find::list(&own);
        let is_listed = |target: &&TargetSpec| generated || !target.generated;
        let (listed_targets, left_out): (Vec<&TargetSpec>, Vec<&TargetSpec>) =
            file.targets.iter().partition(is_listed);
        let kernels_of = |targets: &[&'t TargetSpec]| -> BTreeSet<&'t str> {
            targets.iter().flat_map(|target| target.kernels()).collect()
        };
        let (used, generated_only) = (kernels_of(&listed_targets), kernels_of(&left_out));
        let path = file.file.as_deref().unwrap_or(Path::new(""));
        for problem in problems {
            let place = format!("{}:{}", path.display(), problem.line);
            let text = format!("`{}` at key `{}`: {}", problem.target, problem.key, problem.text);
            self.add(&problem.code, &place, text);
        }
        for target in &listed_targets {
            if let TargetKind::Pair { baseline, optimised } = &target.work
                && baseline == optimised
            {
                let text = format!("both sides are `{baseline}`");
                self.add("lone_side", &target.name(), text);
            }
        }
        // Kernels that a program writes are not findings, unless asked for or used otherwise.
        let is_left_out = |name: &str| {
            !generated
                && !used.contains(name)
                && (file.is_generated(name) || generated_only.contains(name))
        };
        for kernel in listed.iter().filter(|kernel| !is_left_out(&kernel.name)) {
            if file.file.is_some() && !used.contains(kernel.name.as_str()) {
                self.add("kernel_without_target", &kernel.name, "no target runs it".to_owned());
            }
            for (a, b) in SIDES.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]) {
                let Some(stem) = kernel.name.strip_suffix(a) else { continue };
                let is_there =
                    |side: &str| listed.iter().any(|other| other.name == format!("{stem}{side}"));
                let other_sides = SIDES.iter().flat_map(|(a, b)| [*a, *b]);
                if a != b && !other_sides.filter(|side| *side != a).any(is_there) {
                    let text = format!("there is no `{stem}{b}` beside it");
                    if !self
                        .findings
                        .iter()
                        .any(|f| f.code == "lone_side" && f.place == kernel.name)
                    {
                        self.add("lone_side", &kernel.name, text);
                    }
                }
            }
            match &kernel.spec {
                Ok(spec) if used.contains(kernel.name.as_str()) => self.switches(spec),
                Ok(_) => {}
                Err(error) => {
                    let runs_it = |problem: &TargetProblem| {
                        let mut targets = file.targets.iter();
                        let target = targets.find(|target| target.name() == problem.target);
                        target.is_some_and(|target| target.kernels().contains(&&*kernel.name))
                    };
                    if file.file.is_some() && !problems.iter().any(runs_it) {
                        self.gaps.push(format!("`{}`: {error}", kernel.name));
                    }
                }
            }
        }
        // Without a bench.toml every kernel is a target, and no line of a file names it.
        for kernel in listed.into_iter().filter(|_| file.file.is_none()) {
            if let Err(error) = kernel.spec {
                let failure = Failure::from(error);
                let folder = || kernel.folder.display().to_string();
                let place = failure.place.file.unwrap_or_else(folder);
                let text = format!("kernel `{}`: {}", kernel.name, failure.what);
                self.add(&failure.code, &place, text);
            }
        }
    }

    /// Looks through the files of a kernel.
    fn switches(&mut self, spec: &KernelSpec) {
        for path in spec.files() {
            let Ok(text) = rgpu_model::agent_files::read_to_string(&path, MAX_SOURCE_BYTES) else {
                continue;
            };
            self.file(&path, &text);
        }
    }

    fn file(&mut self, path: &Path, text: &str) {
        let mut before = "";
        for (at, line) in text.lines().enumerate() {
            for switch in SWITCHES.iter().filter(|switch| line.contains(switch.text)) {
                let word = switch.text.trim_end_matches(['(', ' ']);
                let allowed = |line: &str| {
                    line.split_once(ALLOW).is_some_and(|(_, words)| words.contains(word))
                };
                if !allowed(line) && !allowed(before) {
                    let place = format!("{}:{}", path.display(), at + 1);
                    let text = format!(
                        "`{word}` {}; if it is meant: a comment `{ALLOW}{word}`",
                        switch.effect
                    );
                    self.add(switch.code, &place, text);
                }
            }
            before = line;
        }
    }

    fn results(&mut self, last: &LastSuite) {
        for (case, profile, trace) in &last.profiles {
            for found in lint(profile, trace.as_ref()) {
                self.add(&format!("nvtx_{}", found.id), case, found.text);
            }
        }
        for (row, time) in last.run.times() {
            if time.bit_equal == Some(false) {
                let text = "two calls on the same inputs gave different bits".to_owned();
                self.add("not_bit_equal", &row.case, text);
            }
            if time
                .correctness
                .as_ref()
                .is_none_or(|c| *c == rgpu_model::profile::CheckVerdict::Unchecked)
            {
                let text = format!("its results at {} were compared with nothing", time.size);
                self.add("unverified", &row.case, text);
            }
        }
    }
}

/// A larger file is not a source.
const MAX_SOURCE_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::target_problems;

    #[test]
    fn a_switch_is_found_with_its_line_unless_a_comment_allows_it() {
        let mut audit = Audit::default();
        let text = "import torch\ntorch.manual_seed(0)\n\
                    # rgpu: allow torch.manual_seed\ntorch.manual_seed(1)\n\
                    torch.backends.cudnn.benchmark = True\n";
        audit.file(Path::new("k.py"), text);
        let found: Vec<_> =
            audit.findings.iter().map(|f| (f.code.as_str(), f.place.as_str())).collect();
        assert_eq!(found, [("fixed_randomness", "k.py:2"), ("allows_nondeterminism", "k.py:5")]);
    }

    #[test]
    fn kernels_without_target_and_lone_sides_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["used", "copy-baseline", "idle"] {
            let folder = dir.path().join("kernels").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("kernel.toml"), "x").unwrap();
        }
        let text = "[[target]]\nname = \"s:used\"\nkernel = \"used\"\n";
        let file = SuiteFile::read(Path::new("bench.toml"), text).unwrap();
        let folders = KernelFolders { project: dir.path().to_owned(), ..KernelFolders::default() };
        let audit = audit(&file, &folders, &[], &[], None, &BTreeSet::new(), false);
        let found: Vec<_> =
            audit.findings.iter().map(|f| (f.code.as_str(), f.place.as_str())).collect();
        assert_eq!(
            found,
            [
                ("kernel_without_target", "copy-baseline"),
                ("lone_side", "copy-baseline"),
                ("kernel_without_target", "idle"),
            ]
        );
        assert_eq!(audit.gaps.len(), 4, "{:?}", audit.gaps);
    }

    #[test]
    fn a_faulty_kernel_toml_of_a_target_is_a_finding_with_or_without_a_bench_toml() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("kernels/used");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("kernel.toml"), "x").unwrap();
        let folders = KernelFolders { project: dir.path().to_owned(), ..KernelFolders::default() };
        let path = dir.path().join("bench.toml");
        let text = "[[target]]\nname = \"s:used\"\nkernel = \"used\"\n";
        for (file, place) in [
            (SuiteFile::read(&path, text).unwrap(), "bench.toml:3"),
            (SuiteFile::load(None, &folders).unwrap(), "kernel.toml:1"),
        ] {
            let problems = target_problems(&file, &file.targets, &folders, &|_| true);
            let audit = audit(&file, &folders, &problems, &[], None, &BTreeSet::new(), false);
            let found: Vec<&str> = audit.findings.iter().map(|f| f.code.as_str()).collect();
            assert_eq!(found, ["bad_kernel_toml"], "{audit:?}");
            assert!(audit.findings[0].place.ends_with(place), "{audit:?}");
            assert!(audit.findings[0].text.contains("not TOML"), "{audit:?}");
            // The finding has it, so it is no gap.
            assert_eq!(audit.gaps.len(), 1, "{audit:?}");
        }
    }

    #[test]
    fn kernels_that_a_program_writes_are_left_out_unless_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["used", "gen-1", "gen-2", "tuned"] {
            let folder = dir.path().join("kernels").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("kernel.toml"), "x").unwrap();
        }
        let text = "generated = [\"gen-*\"]\n\
                    [[target]]\nname = \"s:used\"\nkernel = \"used\"\n\
                    [[target]]\nname = \"s:first\"\nkernel = \"gen-1\"\n\
                    [[target]]\nname = \"s:tuned\"\nkernel = \"tuned\"\ngenerated = true\n";
        let file = SuiteFile::read(Path::new("bench.toml"), text).unwrap();
        let generated: Vec<bool> = file.targets.iter().map(|target| target.generated).collect();
        assert_eq!(generated, [false, true, true]);
        let folders = KernelFolders { project: dir.path().to_owned(), ..KernelFolders::default() };
        let found = |generated| -> Vec<String> {
            let audit = audit(&file, &folders, &[], &[], None, &BTreeSet::new(), generated);
            audit.findings.into_iter().map(|finding| finding.place).collect()
        };
        assert_eq!(found(false), [""; 0]);
        assert_eq!(found(true), ["gen-2"]);
    }
}
