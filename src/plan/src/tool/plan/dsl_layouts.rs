//! The plan of `rgpu layout dump`: prints the layouts of a CuTe DSL kernel, with no GPU.
//!
//! One step makes the pinned environment on first use, unless the user names a Python of their own.
//! In the other, `harness/templates/dump_layouts.py` imports the kernel's file and asks the DSL.
//! That step alone is a part of the profile of such a kernel, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_case::Case;
use rgpu_protocol::Plan;
use rgpu_protocol::plan::{Arg, ArtifactSpec, Limits, OnFailure, Rung, Step, Success};
use serde::Serialize;

use super::RAW;
use super::draft::{BundleFile, Draft, DraftInfo};
use super::dsl::{Dsl, FETCH_TIMEOUT_S, LAYOUTS, MAIN, imports, modules};
use super::python_env::PythonEnv;
use super::request::JobName;
use crate::kernel::{KernelError, KernelSpec, SourceTree};
use rgpu_model::profile::ArtifactKind;
use rgpu_model::regular_file::{self, MAX_SOURCE_BYTES};

/// The script's report, in the job's folder.
const REPORT: &str = "out/layouts.json";

/// The step that asks the DSL.
pub const LAYOUTS_STEP: &str = "layouts";

/// Time limit of that step in a profile, which does not wait long for an extra.
const PROFILE_TIMEOUT_S: u64 = 120;

/// The layouts to ask for.
#[derive(Clone, Debug, Serialize)]
pub struct LayoutQuestions {
    /// M, N, K and L of the problem.
    pub shape: Option<[i64; 4]>,
    /// M, N and K of the tile. `None`: the kernel's own.
    pub tile: Option<[i64; 3]>,
    /// Stages of A and B. `None`: the kernel's own.
    pub stages: Option<i64>,
    /// CTAs that share an MMA.
    pub cta_group: u8,
    /// Columns of a load from tensor memory.
    pub load_columns: Option<i64>,
    /// The ways to ask, by name.
    pub probes: Vec<&'static str>,
    /// Whether to call `cpasync.tma_partition`.
    pub try_tma_partition: bool,
    /// Whether to ask for the layouts of the epilogue.
    pub epilogue: bool,
}

/// A kernel whose layouts are printed.
#[derive(Clone, Debug)]
pub struct DslLayouts {
    /// The path of the kernel's file.
    pub file: PathBuf,
    /// Which layouts to print.
    pub questions: LayoutQuestions,
    /// A Python of the host that has the DSL. `None`: the pinned environment.
    pub python: Option<String>,
    /// Time limit of the script, in seconds.
    pub timeout_s: u64,
}

#[derive(Serialize)]
struct Job<'a> {
    file: String,
    out: &'a str,
    /// Whether a file that does not name its tile and its scales is left out.
    named_only: bool,
    #[serde(flatten)]
    questions: &'a LayoutQuestions,
}

impl Job<'_> {
    /// The scripts, and this as their input.
    fn files(&self) -> [BundleFile; 3] {
        [
            BundleFile::text("harness/build_dsl.py", MAIN),
            BundleFile::text("harness/dump_layouts.py", LAYOUTS),
            // Plain data with text keys: it always serialises.
            BundleFile::text("layouts-job.json", serde_json::to_vec(self).unwrap_or_default()),
        ]
    }
}

impl DslLayouts {
    /// The plan of the job.
    ///
    /// # Errors
    /// [`KernelError::OutsideProject`] for a module outside of the file's own repository or
    /// project.
    pub fn plan(&self, job: &JobName) -> Result<Draft, KernelError> {
        let environment = Dsl::Cute.wheels().environment();
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let relative =
            |path: &Path| path.strip_prefix(folder).unwrap_or(path).display().to_string();
        let script = Job {
            file: format!("src/{}", relative(&self.file)),
            out: REPORT,
            named_only: false,
            questions: &self.questions,
        };
        let mut files = script.files().to_vec();
        let sources = modules(&self.file)?;
        files.extend(sources.iter().map(|s| BundleFile::copy(format!("src/{}", relative(s)), s)));
        let mut steps = Vec::new();
        if self.python.is_none() {
            files.extend(environment.files());
            steps.push(environment.step(FETCH_TIMEOUT_S));
        }
        steps.push(self.step());
        let title = format!("layouts of {}", crate::kernel::name_of(&self.file));
        Ok(Draft {
            plan: Plan {
                job: job.job(),
                title,
                facts: None,
                files: Vec::new(),
                steps,
                gpu: None,
                env: BTreeMap::new(),
                secrets: Vec::new(),
                origin: None,
                limits: Limits::default(),
            },
            files,
            info: DraftInfo::default(),
        })
    }

    fn step(&self) -> Step {
        let python = self.python.as_ref().map_or_else(PythonEnv::python, |p| p.as_str().into());
        let needs = match self.python {
            Some(_) => Vec::new(),
            None => vec![PythonEnv::STEP.to_owned()],
        };
        Step { needs, ..step(python, REPORT, self.timeout_s) }
    }
}

fn step(python: Arg, report: &str, timeout_s: u64) -> Step {
    let rung = Rung {
        id: "layouts.cute".to_owned(),
        needs: Vec::new(),
        argv: vec![python, Arg::in_job("harness/dump_layouts.py"), Arg::in_job("layouts-job.json")],
        env: BTreeMap::from([("PYTHONUNBUFFERED".to_owned(), "1".into())]),
        cwd: String::new(),
        success: Success { files: vec![report.to_owned()], ..Success::default() },
        diagnosis: Vec::new(),
        artifacts: vec![ArtifactSpec { path: report.to_owned(), kind: ArtifactKind::Dsl.into() }],
        loses: String::new(),
        stop: None,
        hang: None,
    };
    Step {
        id: LAYOUTS_STEP.to_owned(),
        title: "ask the DSL for layouts".to_owned(),
        gpu: false,
        needs: Vec::new(),
        on_failure: OnFailure::Stop,
        timeout_s,
        max_output_bytes: Some(Step::MAX_HELPER_OUTPUT_BYTES),
        stdin: Default::default(),
        rungs: vec![rung],
    }
}

/// The step and the files with which the profile of a CuTe DSL kernel keeps its layouts, in
/// `raw/layouts.json`. `None` if the source does not import the DSL.
pub(super) fn profile_step(
    spec: &KernelSpec,
    sources: &SourceTree,
    case: Option<&Case>,
    python: &str,
) -> Option<(Step, [BundleFile; 3])> {
    let text = regular_file::read(&spec.source, MAX_SOURCE_BYTES).ok()?;
    if !imports(&String::from_utf8_lossy(&text)).iter().any(|name| name == "cutlass") {
        return None;
    }
    let report = format!("{RAW}/layouts.json");
    let script = Job {
        file: format!("src/{}", sources.source),
        out: &report,
        named_only: true,
        questions: &LayoutQuestions {
            shape: case.and_then(problem_shape),
            tile: None,
            stages: None,
            cta_group: 1,
            load_columns: None,
            probes: vec!["with_module_ip"],
            try_tma_partition: false,
            epilogue: true,
        },
    };
    let mut step = step(python.into(), &report, PROFILE_TIMEOUT_S);
    step.on_failure = OnFailure::Continue;
    for rung in &mut step.rungs {
        // A file that names no tile has no report.
        rung.success.files.clear();
        for artifact in &mut rung.artifacts {
            artifact.path.push('*');
        }
    }
    Some((step, script.files()))
}

/// M, N, K and L of a case's first group, if its variables have these names.
fn problem_shape(case: &Case) -> Option<[i64; 4]> {
    let sizes = &case.groups.first()?.sizes;
    let size = |name: &str| {
        let at = case.vars.iter().position(|var| var.eq_ignore_ascii_case(name))?;
        sizes.get(at).copied()
    };
    Some([size("m")?, size("n")?, size("k")?, size("l").unwrap_or(1)])
}
