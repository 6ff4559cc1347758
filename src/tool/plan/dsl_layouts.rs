//! The plan of `rgpu layout dump`: prints the layouts of a CuTe DSL kernel, with no GPU.
//!
//! One step makes the pinned environment on first use, unless the user names a Python of their own. In
//! the other, `harness/templates/dump_layouts.py` imports the kernel's file and asks the DSL.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rgpu_protocol::Plan;
use rgpu_protocol::plan::{Arg, ArtifactSpec, Limits, OnFailure, Rung, Step, Success};
use serde::Serialize;

use super::draft::{BundleFile, Draft, DraftInfo};
use super::dsl::{Dsl, FETCH_TIMEOUT_S, LAYOUTS, MAIN, modules};
use super::python_env::PythonEnv;
use super::request::JobName;
use crate::kernel::KernelError;
use crate::model::profile::ArtifactKind;

/// The script's report, in the job's folder.
const REPORT: &str = "out/layouts.json";

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
    /// What to ask for.
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
    #[serde(flatten)]
    questions: &'a LayoutQuestions,
}

impl DslLayouts {
    /// The plan of the job.
    ///
    /// # Errors
    /// [`KernelError::Elsewhere`] for a module outside of the file's own repository or project.
    pub fn plan(&self, job: &JobName) -> Result<Draft, KernelError> {
        let environment = Dsl::Cute.wheels().environment();
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let relative =
            |path: &Path| path.strip_prefix(folder).unwrap_or(path).display().to_string();
        let script = Job {
            file: format!("src/{}", relative(&self.file)),
            out: REPORT,
            questions: &self.questions,
        };
        let mut files = vec![
            BundleFile::text("harness/build_dsl.py", MAIN),
            BundleFile::text("harness/dump_layouts.py", LAYOUTS),
            // Plain data with text keys: it always serialises.
            BundleFile::text("job.json", serde_json::to_vec(&script).unwrap_or_default()),
        ];
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
        let rung = Rung {
            id: "layouts.cute".to_owned(),
            needs: Vec::new(),
            argv: vec![python, Arg::in_job("harness/dump_layouts.py"), Arg::in_job("job.json")],
            env: BTreeMap::from([("PYTHONUNBUFFERED".to_owned(), "1".into())]),
            cwd: String::new(),
            success: Success { files: vec![REPORT.to_owned()], ..Success::default() },
            diagnosis: Vec::new(),
            artifacts: vec![ArtifactSpec {
                path: REPORT.to_owned(),
                kind: ArtifactKind::Dsl.into(),
            }],
            loses: String::new(),
            stop: None,
        };
        let needs = match self.python {
            Some(_) => Vec::new(),
            None => vec![PythonEnv::STEP.to_owned()],
        };
        Step {
            id: "layouts".to_owned(),
            title: "ask the DSL for layouts".to_owned(),
            gpu: false,
            needs,
            on_failure: OnFailure::Stop,
            timeout_s: self.timeout_s,
            stdin: Default::default(),
            rungs: vec![rung],
        }
    }
}
