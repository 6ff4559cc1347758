//! Builds a program on the host before it runs.

use rgpu_protocol::HostFacts;
use rgpu_protocol::plan::{Arg, OnFailure, Rung, Step, Success};
use rgpu_protocol::probe::GpuFacts;

use super::compile_cache::{compile_once, compiler_rows};
use super::draft::{BundleFile, PlanError};
use super::request::{Program, Request, path_of};
use super::wheels::WheelNvcc;
use super::{arch, build};
use crate::exec::WORK_FOLDER;
use rgpu_model::RungId;

/// Path of a program that was built, in the job's folder.
pub(crate) const PROGRAM_PATH: &str = "build/program";

/// How a program is built on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramBuild {
    /// From one source, by nvcc.
    Nvcc(NvccBuild),
}

/// A program that nvcc makes of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvccBuild {
    /// The place of the source in the job's folder.
    pub source: String,
    /// Further words for nvcc, after ours.
    pub flags: Vec<String>,
    /// Digest of all that it is compiled from; `None` if that is not known here. Then it is
    /// compiled each time.
    pub inputs: Option<String>,
}

/// The steps that build a program, with the files that they need.
pub(crate) struct BuildSteps {
    pub(crate) steps: Vec<Step>,
    pub(crate) files: Vec<BundleFile>,
}

/// The program with the steps that build it on this host.
///
/// # Errors
/// [`PlanError::NoCompiler`]
pub(super) fn with_build_steps(
    program: &Program,
    request: &Request,
    facts: &HostFacts,
    gpu: Option<&GpuFacts>,
) -> Result<Program, PlanError> {
    let mut built = Program { build: None, ..program.clone() };
    let Some(ProgramBuild::Nvcc(nvcc)) = &program.build else { return Ok(built) };
    let no_compiler = || PlanError::NoCompiler {
        source_name: program.name.clone(),
        device: false,
        remote: facts.remote.clone(),
        lacks: build::lacks_for_wheels(facts).join(" and "),
    };
    let options = NvccStep {
        title: format!("compile {}", program.name),
        facts,
        arch: gpu.map(|gpu| arch::native(gpu.sm)),
        may_fetch: request.build.fetch,
        timeout_s: request.timeout_s,
    };
    let BuildSteps { steps, files } = nvcc.steps(&options).ok_or_else(no_compiler)?;
    built.prepare.extend(steps);
    built.files.extend(files);
    Ok(built)
}

/// What else decides a step with nvcc.
pub(crate) struct NvccStep<'a> {
    pub(crate) title: String,
    pub(crate) facts: &'a HostFacts,
    /// The architecture of the GPU; `None`: nvcc's default.
    pub(crate) arch: Option<String>,
    /// Whether NVIDIA's wheels may be fetched to a host that has no nvcc.
    pub(crate) may_fetch: bool,
    pub(crate) timeout_s: u64,
}

impl NvccBuild {
    /// The steps that compile it to [`PROGRAM_PATH`]. `None`: the host has no nvcc, and none may
    /// be fetched or could work.
    pub(crate) fn steps(&self, step: &NvccStep<'_>) -> Option<BuildSteps> {
        let facts = step.facts;
        let nvcc = path_of(facts, "nvcc");
        let can_fetch = step.may_fetch && path_of(facts, "c++").is_some();
        let wheels = (nvcc.is_none() && can_fetch).then(WheelNvcc::new);
        let (rung, mut argv) = match (nvcc, &wheels) {
            (Some(nvcc), _) => (RungId::BuildNvcc, vec![Arg::text(nvcc)]),
            (None, Some(wheels)) => (RungId::BuildWheels, wheels.argv.clone()),
            (None, None) => return None,
        };
        let (folder, name) = self.source.rsplit_once('/').unwrap_or(("", &self.source));
        // nvcc would go by the file extension otherwise.
        argv.extend(["-x", "cu", "-O3", "-std=c++17", "-lineinfo"].map(Arg::from));
        argv.extend(step.arch.iter().map(|arch| Arg::text(format!("-arch={arch}"))));
        argv.extend([
            Arg::text("-I"),
            Arg::in_job(WORK_FOLDER),
            Arg::text("-o"),
            Arg::in_job(PROGRAM_PATH),
            Arg::text(name),
        ]);
        argv.extend(self.flags.iter().map(|flag| Arg::text(flag.as_str())));
        let inputs = self.inputs.as_ref().map(|digest| [digest.as_bytes()]);
        let (argv, helper) =
            compile_once(argv, PROGRAM_PATH, inputs.as_ref().map(|inputs| inputs.as_slice()));
        let compile = Step {
            id: "build".to_owned(),
            title: step.title.clone(),
            gpu: false,
            needs: Vec::new(),
            on_failure: OnFailure::Stop,
            timeout_s: step.timeout_s,
            max_output_bytes: Some(Step::MAX_HELPER_OUTPUT_BYTES),
            stdin: Default::default(),
            rungs: vec![Rung {
                id: rung.to_string(),
                needs: Vec::new(),
                argv,
                env: Default::default(),
                cwd: folder.to_owned(),
                success: Success { files: vec![PROGRAM_PATH.to_owned()], ..Success::default() },
                diagnosis: compiler_rows(),
                artifacts: Vec::new(),
                loses: String::new(),
                stop: None,
                hang: None,
            }],
        };
        let (fetch, wheel_files) = wheels.map(|nvcc| (nvcc.step, nvcc.files)).unzip();
        Some(BuildSteps {
            steps: fetch.into_iter().chain([compile]).collect(),
            files: helper.into_iter().chain(wheel_files.into_iter().flatten()).collect(),
        })
    }
}
