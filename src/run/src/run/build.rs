//! Compiles a kernel without running it: one plan, then the files that came back, their listings,
//! and on failure a diagnosis.

mod dsl_record;
mod messages;
mod path_localizer;

pub use messages::{KnownMessage, messages};

use std::path::{Path, PathBuf};

use rgpu_protocol::pattern::strip_ansi;
use rgpu_protocol::{HostFacts, Outcome, Step};

use super::assemble::compiler_message;
use super::job::{self, JobResult, RunContext};
use super::lifecycle::{PlanDriver, RunError, RunSession};
use super::listings::{self, CompiledFiles};
use super::outcome;
use super::pass_planner::NextStep;
use crate::disasm::{self, ImageTask, NvdisasmSearch};
use crate::store::{RunFolder, live};
use dsl_record::DslRecord;
use path_localizer::PathLocalizer;
use rgpu_model::RungId;
use rgpu_model::beneath::Folder;
use rgpu_model::build::{Build, BuildError, BuildStatus, LogSettings, SCHEMA};
use rgpu_model::disasm::{DisasmDocument, ImageKind, Input};
use rgpu_model::error::{Exit, Failure, Result, Side, are_same_hint};
use rgpu_model::profile::ArtifactKind;
use rgpu_model::regular_file::MAX_FILE_BYTES;
use rgpu_plan::kernel::{CaseSelection, EntryPoint, example_instances, plain_kernel_name};
use rgpu_plan::tool::{
    self, Draft, DraftInfo, DslBuild, HostBinaries, JobName, PlanError, ProfileTarget, Request,
};
use rgpu_remote::Remote;

/// At most this many templates are told how to be instantiated.
const MAX_INSTANCES_TOLD: usize = 3;

/// The code to compile.
#[derive(Clone, Debug)]
pub enum BuildTarget {
    /// A kernel of kernel.toml or a bare .cu.
    Kernel(Box<Request>),
    /// A file of a Python DSL.
    Dsl(DslBuild),
}

/// The compiled files to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emit {
    /// Whether to keep PTX.
    pub ptx: bool,
    /// Whether to keep cubins.
    pub cubin: bool,
    /// Keep listings of the cubins.
    pub sass: bool,
}

/// The inputs of a build.
pub struct BuildRun<'a> {
    /// The code to compile.
    pub target: BuildTarget,
    /// The name of the kernel to build.
    pub name: String,
    /// The source file of the kernel.
    pub source: PathBuf,
    /// The compiled files to keep.
    pub emit: Emit,
    /// Finds where this machine has nvdisasm, for the operands of listings. Called only when
    /// needed, since compiling may install one.
    pub nvdisasm: &'a dyn Fn() -> NvdisasmSearch,
}

/// How a build ended.
#[derive(Debug)]
pub enum BuildOutcome {
    /// The document, and the failure if the build did not succeed.
    Built(Box<Build>, Option<Failure>),
    /// The host has no compiler for the code, and nothing was submitted.
    NoCompiler(Failure),
    /// The job was submitted and runs on detached.
    Detached,
}

impl BuildRun<'_> {
    /// Compiles, then reads the compiled files.
    ///
    /// # Errors
    /// There is nothing to report: the link, the host or the run folder fails, or the user cancels.
    /// Code that does not compile is no error here: the document reports it.
    pub async fn run(
        self,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<BuildOutcome> {
        let draft_info = DraftInfo::default();
        let mut plans = BuildDriver { run: &self, draft_info, result: None };
        match session.run_plans(&mut plans, context).await {
            Err(RunError::Plan(error @ PlanError::NoCompiler { .. })) => {
                return Ok(BuildOutcome::NoCompiler(error.into()));
            }
            ended => ended?,
        };
        let BuildDriver { draft_info, result: Some(end), .. } = plans else {
            return Ok(BuildOutcome::Detached);
        };
        // All files are here, even if the job was cancelled.
        session.link.request_job_removal(&end.job);
        if end.outcome == Some(Outcome::Cancelled) {
            return Err(job::cancelled());
        }
        let (mut build, mut failure) =
            self.document_and_failure(session.link.remote(), context, &end, &draft_info)?;
        self.read_code(session, context, &mut build).await?;
        if failure.is_none() && self.must_have_kernels() && build.has_no_kernels() {
            failure = Some(self.no_kernels(&mut build));
        }
        self.add_occupancy(&mut build);
        if build.compiler.is_empty() {
            build.compiler = compiler(&end, &build);
        }
        if failure.is_none() {
            self.drop_unwanted(context.folder, &mut build);
        }
        build.main_ptx = build
            .files
            .iter()
            .find(|f| f.kind == ArtifactKind::Ptx)
            .map(|artifact| artifact.path.clone());
        Ok(BuildOutcome::Built(Box::new(build), failure))
    }

    /// Makes the document of an ended job, with the failure if it did not succeed.
    fn document_and_failure(
        &self,
        remote: &dyn Remote,
        context: &RunContext<'_>,
        end: &JobResult,
        info: &DraftInfo,
    ) -> Result<(Build, Option<Failure>)> {
        let folder = context.folder;
        let record = DslRecord::read(folder);
        let mut build = self.document(end, info, &record);
        build.run.clone_from(&context.record.id);
        let failure = match &end.outcome {
            Some(Outcome::Done) => None,
            _ => Some(self.failure(remote, folder, end, info, &record, &mut build)?),
        };
        Ok((build, failure))
    }

    /// Adds the occupancy of the kernel that kernel.toml launches, with its default sizes.
    fn add_occupancy(&self, build: &mut Build) {
        let BuildTarget::Kernel(request) = &self.target else { return };
        let ProfileTarget::Kernel { spec, .. } = &request.target else { return };
        let EntryPoint::Device(entry) = &spec.entry else { return };
        let entry = plain_kernel_name(entry);
        let cases = spec.cases(&CaseSelection::Default).unwrap_or_default();
        let Some(launch) = cases.first().and_then(|case| case.launch.as_ref()) else { return };
        let threads = launch.block.iter().fold(1_u32, |n, size| n.saturating_mul(*size));
        let images = build.code.iter_mut().flat_map(|input| &mut input.images);
        for image in images {
            // A mangled name contains the plain one.
            for kernel in image.kernels.iter_mut().filter(|k| k.symbol.contains(entry)) {
                let shared = launch.dynamic_shared.into();
                kernel.occupancy =
                    disasm::theoretical_occupancy(kernel, &image.arch, Some(threads), shared);
            }
        }
    }

    /// Whether a build without kernels is useless. A host entry may call a library's kernels alone.
    fn must_have_kernels(&self) -> bool {
        match &self.target {
            BuildTarget::Kernel(request) => match &request.target {
                ProfileTarget::Kernel { spec, .. } => {
                    spec.file.is_none() || matches!(spec.entry, EntryPoint::Device(_))
                }
                ProfileTarget::Program(_) => false,
            },
            // The harness reports a file that compiles nothing.
            BuildTarget::Dsl(_) => false,
        }
    }

    /// Adds to the document that the compiled files hold no kernels, and returns the failure.
    fn no_kernels(&self, build: &mut Build) -> Failure {
        build.status = BuildStatus::Failed;
        let message = "the compiled code holds no kernels".to_owned();
        build.error = Some(BuildError {
            code: "no_kernels".to_owned(),
            message: message.clone(),
            ..BuildError::default()
        });
        let failure = Failure::new(Exit::Kernel, "no_kernels", message).file(self.source.display());
        with_instances_to_write(failure, &self.source)
    }

    fn document(&self, end: &JobResult, info: &DraftInfo, record: &DslRecord) -> Build {
        let mut build = Build {
            schema: SCHEMA.to_owned(),
            rgpu: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: self.name.clone(),
            source: self.source.display().to_string(),
            arch: info.arch.clone(),
            compiler: record.compiler.clone(),
            notes: info.notes.iter().chain(&record.notes).cloned().collect(),
            ..Build::default()
        };
        match &self.target {
            BuildTarget::Kernel(request) => {
                if let ProfileTarget::Kernel { spec, .. } = &request.target {
                    build.language = spec.language.into();
                    build.options = spec.flags.clone();
                }
                build.options.extend(request.build.flags.iter().cloned());
            }
            BuildTarget::Dsl(dsl_build) => {
                build.language = dsl_build.dsl.name().into();
                build.options.clone_from(&record.options);
                build.log =
                    Some(LogSettings { level: dsl_build.log_level, print_ir: dsl_build.print_ir });
            }
        }
        let compiling = end.rungs.iter().filter(|r| r.step == "build");
        for rung in compiling {
            build.seconds += rung.seconds;
            build.commands.push(rung.argv.clone());
        }
        build.files = end.files.iter().map(|f| f.artifact.clone()).collect();
        build
    }

    /// Adds the error to the document, and returns it as the command's failure.
    fn failure(
        &self,
        remote: &dyn Remote,
        folder: &RunFolder,
        end: &JobResult,
        info: &DraftInfo,
        record: &DslRecord,
        build: &mut Build,
    ) -> Result<Failure> {
        build.status = BuildStatus::Failed;
        let names = PathLocalizer::new(info, end);
        let log = build_log(folder, &names);
        let mut failure = outcome::failure(remote, end);
        let mut error = BuildError { code: failure.code.clone(), ..BuildError::default() };
        let compiling = end.last_rung("build").is_some_and(|rung| !rung.ok);
        if compiling {
            // What it printed without end says nothing.
            let message =
                compiler_message(folder, info).filter(|_| failure.code != Step::TOO_MUCH_OUTPUT);
            error.message = message.clone().or_else(|| failure.cause.clone()).unwrap_or_default();
            if matches!(failure.code.as_str(), "exit" | "does_not_compile") {
                failure.code = "does_not_compile".to_owned();
                failure.what = "the kernel does not compile".to_owned();
                failure.exit = Exit::Kernel;
                failure.side = Side::Kernel;
                failure.hints.clear();
            }
            if let Some(message) = message {
                failure = failure.cause(message);
            }
        } else {
            error.message = failure.cause.clone().unwrap_or_default();
        }
        if let Some(exception) = &record.error {
            error.class = Some(exception.class.clone());
            error.message = names.localize(&exception.message);
            error.chain.clone_from(&exception.chain);
            let text = names.localize(&exception.traceback);
            folder.write("traceback.txt", text.as_bytes())?;
            error.traceback = Some("traceback.txt".to_owned());
            failure = failure.cause(exception.shown(&names, &log));
        }
        error.code.clone_from(&failure.code);
        let mut texts: Vec<String> = error.chain.iter().map(|l| l.message.clone()).collect();
        texts.push(log);
        error.diagnoses = messages::diagnose(&texts.join("\n"));
        for diagnosis in &error.diagnoses {
            let hint = format!("{}; {}", diagnosis.cause, diagnosis.next);
            // The diagnosis of the message says more than the reason of the step.
            failure.hints.retain(|known| !are_same_hint(known, &hint));
            failure = failure.hint(hint);
        }
        build.error = Some(error);
        Ok(failure)
    }

    /// Reads the compiled files into the document, and writes their listings.
    async fn read_code(
        &self,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
        build: &mut Build,
    ) -> Result<()> {
        let folder = context.folder;
        let paths_of = |kind: &str| -> Vec<String> {
            build.files.iter().filter(|f| f.kind == kind).map(|f| f.path.clone()).collect()
        };
        let cubins = paths_of("cubin");
        if self.emit.sass && !cubins.is_empty() {
            let here = (self.nvdisasm)();
            let facts = facts_to_list_by(session, context, &here).await;
            let mut built = [CompiledFiles::new(folder, &build.files, None)];
            let listings =
                listings::write_all_listings(session.link, context, &facts, &here, &mut built)
                    .await;
            build.files.extend(listings.into_iter().flatten());
            let summary: DisasmDocument =
                crate::saved_json::from_slice(&folder.read("sass/summary.json")?).map_err(|e| {
                    Failure::new(Exit::Bug, "bug", "our own summary is not read back").cause(e)
                })?;
            build.code = summary.inputs;
            let images = build.code.iter_mut().flat_map(|input| &mut input.images);
            for name in images.flat_map(|image| &mut image.files) {
                *name = format!("sass/{name}");
            }
            return Ok(());
        }
        let files = if cubins.is_empty() { paths_of("ptx") } else { cubins };
        let paths: Vec<PathBuf> = files.iter().map(|file| folder.path().join(file)).collect();
        build.code = disasm::all(&paths, &ImageTask::default(), &|_| ()).inputs;
        for (input, file) in build.code.iter_mut().zip(files) {
            input.path = file;
        }
        Ok(())
    }

    /// Removes compiled files that should not be kept.
    fn drop_unwanted(&self, folder: &RunFolder, build: &mut Build) {
        for (kind, keep) in [("cubin", self.emit.cubin), ("ptx", self.emit.ptx)] {
            if keep {
                continue;
            }
            build.files.retain(|file| {
                // A file that cannot be removed stays listed.
                file.kind != kind || folder.files().remove_file(&file.path).is_err()
            });
            // Fails if the folder is not empty, which is intended.
            let _ = folder.files().remove_empty_folder(kind);
        }
    }
}

/// Adds to the failure of code without kernels which lines in `source` would make some.
pub(super) fn with_instances_to_write(mut failure: Failure, source: &Path) -> Failure {
    let lines = example_instances(source);
    if !lines.is_empty() {
        let why = "a template makes no code by itself: it needs an explicit instantiation";
        failure = failure.cause(why);
    }
    for line in lines.iter().take(MAX_INSTANCES_TOLD) {
        failure = failure.hint(format!("below the template, with your arguments: {line}"));
    }
    failure
}

/// Drafts the single plan of a build.
struct BuildDriver<'a> {
    run: &'a BuildRun<'a>,
    draft_info: DraftInfo,
    result: Option<JobResult>,
}

impl PlanDriver for BuildDriver<'_> {
    fn source_folder(&self) -> Option<&Path> {
        Some(self.run.source.parent().unwrap_or(Path::new("")))
    }

    async fn draft(
        &mut self,
        job: &JobName,
        session: &mut RunSession<'_>,
        context: &mut RunContext<'_>,
    ) -> Result<Option<Draft>, RunError> {
        let draft = match &self.run.target {
            // It needs no facts.
            BuildTarget::Dsl(build) => build.plan(job).map_err(Failure::from)?,
            BuildTarget::Kernel(request) => {
                let facts = session.facts(context).await?;
                let binaries = HostBinaries { collector: None, ..session.host_binaries(&facts) };
                tool::plan(request, &facts, &binaries, job)?
            }
        };
        self.draft_info = draft.info.clone();
        Ok(Some(draft))
    }

    fn handle_result(
        &mut self,
        result: JobResult,
        _: &mut RunSession<'_>,
        _: &mut RunContext<'_>,
    ) -> Result<NextStep> {
        self.result = Some(result);
        Ok(NextStep::End)
    }
}

/// Facts that include the host's nvdisasm, needed if this machine has none: compiling may have
/// installed one since the host was asked.
async fn facts_to_list_by(
    session: &mut RunSession<'_>,
    context: &mut RunContext<'_>,
    here: &NvdisasmSearch,
) -> HostFacts {
    let known = session.known_facts().unwrap_or_default();
    let is_available = known.tool("nvdisasm").is_some() || here.find().is_some();
    if is_available || super::is_local(session.link) {
        return known;
    }
    // Without an answer the listings only lack operands.
    session.ask_facts(context).await.unwrap_or(known)
}

/// The end of each log of a compiler that is read for its errors.
const MAX_BUILD_LOG_BYTES: u64 = 4 << 20;

/// The compiler's output, without colours and with paths of this machine.
fn build_log(folder: &RunFolder, names: &PathLocalizer<'_>) -> String {
    let read = |stream: &str| {
        let end = live::tail(folder, format!("log/build.{stream}"), MAX_BUILD_LOG_BYTES);
        end.map_or_else(String::new, |(text, _)| text)
    };
    names.localize(&strip_ansi(&format!("{}\n{}", read("stderr"), read("stdout"))))
}

/// The compiler's name, with the version that the cubin records.
fn compiler(end: &JobResult, build: &Build) -> String {
    let name = match end.rung_of("build") {
        Some(RungId::BuildNvrtc) => "NVRTC",
        Some(RungId::BuildWheels) => "nvcc of NVIDIA's wheels",
        Some(_) => "nvcc",
        None => return String::new(),
    };
    let images = build.code.iter().flat_map(|input: &Input| &input.images);
    let cubin =
        images.filter(|image| image.kind == ImageKind::Cubin).find_map(|i| i.version.as_deref());
    cubin.map_or(name.to_owned(), |version| format!("{name} {version}"))
}

/// Copies the cubins to `<kernel>.<arch>.cubin`, then `<kernel>-2.<arch>.cubin` and so on, beside
/// the runs, so that `rgpu disasm artifacts/*.cubin` finds them. Returns the new paths.
pub fn publish(build: &Build, run: &RunFolder, runs_root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let Some(artifacts) = runs_root.parent() else { return Ok(Vec::new()) };
    let folder = Folder::create(artifacts)?;
    let mut published = Vec::new();
    for (at, cubin) in build.files.iter().filter(|f| f.kind == ArtifactKind::Cubin).enumerate() {
        let number = if at == 0 { String::new() } else { format!("-{}", at + 1) };
        let name = format!("{}{number}.{}.cubin", build.kernel, build.arch);
        folder.write(&name, &run.files().read(&cubin.path, MAX_FILE_BYTES)?)?;
        published.push(artifacts.join(name));
    }
    Ok(published)
}
