//! A kernel compiled and nothing else: one plan, the files that came back, what they hold, and on
//! failure everything that helps to see why.

mod dsl_record;
mod messages;
mod names;

pub use messages::{KnownMessage, messages};

use std::path::{Path, PathBuf};

use rgpu_protocol::pattern::strip_ansi;
use rgpu_protocol::{HostFacts, Outcome};

use super::assemble::compiler_message;
use super::bundle_reader::submission;
use super::disasm::{self, ImageTask};
use super::facts::FactsCache;
use super::job::{self, JobResult, RunContext};
use super::programs::Programs;
use super::provenance::EnvRecord;
use super::{outcome, resume};
use crate::bundle::{self, Bundle, DEFAULT_MAX_BYTES, Packer};
use crate::error::{Exit, Failure, Result, Side};
use crate::model::build::{Build, BuildError, LogSettings, SCHEMA, Status};
use crate::model::disasm::{Disasm, Input};
use crate::remote::{HostLink, OnRemote, Remote, RemoteSpec};
use crate::store::RunFolder;
use crate::tool::{self, Draft, DslBuild, Expectations, JobName, Request, Target, Toolbox};
use dsl_record::DslRecord;
use names::HostPathNames;

/// What is compiled.
#[derive(Clone, Debug)]
pub enum BuildTarget {
    /// A kernel of kernel.toml or a bare .cu.
    Kernel(Box<Request>),
    /// A file of a Python DSL.
    Dsl(DslBuild),
}

/// Which results are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emit {
    /// PTX.
    pub ptx: bool,
    /// Cubins.
    pub cubin: bool,
    /// Listings of the cubins.
    pub sass: bool,
}

/// Everything a build needs.
pub struct BuildRun<'a> {
    /// What.
    pub wanted: BuildTarget,
    /// The kernel's name.
    pub name: String,
    /// Its source.
    pub source: PathBuf,
    /// What is kept.
    pub emit: Emit,
    /// The remote's definition.
    pub spec: &'a RemoteSpec,
    /// Its facts, kept from run to run.
    pub cache: FactsCache,
    /// Our programs for the host.
    pub programs: &'a Programs,
    /// Where this machine may have nvdisasm, for the operands of listings; looked for when it is
    /// wanted, since compiling may bring one.
    pub nvdisasm: &'a dyn Fn() -> Vec<PathBuf>,
    /// Unix seconds.
    pub now_s: i64,
    /// Whether it begins.
    pub begin: BuildStart,
}

/// What came of it.
#[derive(Debug)]
pub enum BuildOutcome {
    /// The document, and why it is not whole.
    Told(Box<Build>, Option<Failure>),
    /// The job was left to itself.
    Detached,
}

/// Whether a build begins, or is taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildStart {
    /// It is submitted and followed.
    Anew,
    /// It is submitted and left to itself.
    Detached,
    /// It was submitted by a command that went away.
    Again,
}

impl BuildRun<'_> {
    /// Compiles, and looks at what came of it.
    ///
    /// # Errors
    /// Whatever left nothing to tell: the link, the host, no compiler, our disk, a cancel. Code that
    /// does not compile is told in the document.
    pub async fn run(
        self,
        link: &mut HostLink,
        context: &mut RunContext<'_>,
    ) -> Result<BuildOutcome> {
        let (mut draft, facts) = self.draft(link, context).await?;
        let mut again = true;
        let (end, expect) = loop {
            let expect = draft.expect.clone();
            match self.carry(link, draft, context).await {
                Err(failure) if failure.code == "facts_changed" && again => {
                    again = false;
                    self.cache.forget();
                    (draft, _) = self.draft(link, context).await?;
                }
                end => match end? {
                    Some(end) => break (end, expect),
                    None => return Ok(BuildOutcome::Detached),
                },
            }
        };
        // All that it made is here, also where it was cancelled.
        link.drop_job(&end.job);
        if end.outcome == Some(Outcome::Cancelled) {
            return Err(job::cancelled());
        }
        let (mut build, failure) = self.tell(link.remote(), context, &end, &expect)?;
        self.look(link, context, facts.as_ref(), &mut build).await?;
        if build.compiler.is_empty() {
            build.compiler = compiler(&end, &build);
        }
        if failure.is_none() {
            self.drop_unwanted(context.folder, &mut build);
        }
        build.main_ptx =
            build.files.iter().find(|f| f.kind == "ptx").map(|artifact| artifact.path.clone());
        Ok(BuildOutcome::Told(Box::new(build), failure))
    }

    /// The plan, and the facts of the host it is for; a DSL asks for none.
    async fn draft(
        &self,
        link: &mut HostLink,
        context: &mut RunContext<'_>,
    ) -> Result<(Draft, Option<HostFacts>)> {
        let job = JobName { run: context.record.id.clone(), sequence: 1 };
        let source = self.source.parent().unwrap_or(Path::new(""));
        let request = match &self.wanted {
            BuildTarget::Dsl(build) => {
                context.folder.write_json("env.json", &EnvRecord::new(None, source))?;
                return Ok((build.plan(&job), None));
            }
            BuildTarget::Kernel(request) => request,
        };
        // A build that is taken up was planned with what was known then.
        let then = match self.begin {
            BuildStart::Again => context.folder.read("env.json").ok(),
            _ => None,
        };
        let then = then.and_then(|text| serde_json::from_slice::<EnvRecord>(&text).ok()?.host);
        let facts = match then.or_else(|| self.cache.load(self.now_s)) {
            Some(facts) => facts,
            None => {
                let programs = self.programs;
                let (now_s, cancel) = (self.now_s, &context.cancel);
                self.cache.ask(link, self.spec, programs, now_s, context.reporter, cancel).await?
            }
        };
        context.folder.write_json("env.json", &EnvRecord::new(Some(facts.clone()), source))?;
        let runner = self.programs.toolbox(&facts.agent.arch).runner;
        let toolbox = Toolbox { runner, collector: None };
        Ok((tool::plan(request, &facts, &toolbox, &job)?, Some(facts)))
    }

    /// `None`: it goes on alone.
    async fn carry(
        &self,
        link: &mut HostLink,
        draft: Draft,
        context: &mut RunContext<'_>,
    ) -> Result<Option<JobResult>> {
        let name = draft.plan.job.clone();
        if self.begin == BuildStart::Again {
            let known = resume::known(context.folder, context.record, &name)?.unwrap_or_default();
            if !known.ended() {
                job::take_up(link, &name, &known, context).await?;
            }
            return job::follow_to_end(link, &name, &known.events, context).await.map(Some);
        }
        let kept = |bundle: Bundle, context: &RunContext<'_>| {
            context.folder.write_json("plan-1.json", &bundle.plan)?;
            context.folder.write("commands.sh", bundle::commands(&bundle.plan).as_bytes())?;
            Ok(submission(bundle.plan, bundle.blobs))
        };
        let mut packer = Packer::new(DEFAULT_MAX_BYTES);
        job::pack_and_submit(link, &mut packer, &draft, context, kept).await?;
        if self.begin == BuildStart::Detached {
            link.detach().await.on(link.remote())?;
            return Ok(None);
        }
        job::follow_to_end(link, &name, &[], context).await.map(Some)
    }

    /// The document of an ended job, and why it is not whole.
    fn tell(
        &self,
        remote: &dyn Remote,
        context: &RunContext<'_>,
        end: &JobResult,
        expect: &Expectations,
    ) -> Result<(Build, Option<Failure>)> {
        let folder = context.folder;
        let record = DslRecord::read(folder);
        let mut build = self.document(end, expect, &record);
        build.run.clone_from(&context.record.id);
        let failure = match &end.outcome {
            Some(Outcome::Done) => None,
            _ => Some(self.failure(remote, folder, end, expect, &record, &mut build)?),
        };
        Ok((build, failure))
    }

    fn document(&self, end: &JobResult, expect: &Expectations, record: &DslRecord) -> Build {
        let mut build = Build {
            schema: SCHEMA.to_owned(),
            rgpu: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: self.name.clone(),
            source: self.source.display().to_string(),
            arch: expect.arch.clone(),
            compiler: record.compiler.clone(),
            notes: expect.notes.iter().chain(&record.notes).cloned().collect(),
            ..Build::default()
        };
        match &self.wanted {
            BuildTarget::Kernel(request) => {
                if let Target::Kernel { spec, .. } = &request.target {
                    build.language = spec.language.to_owned();
                    build.options = spec.flags.clone();
                }
                build.options.extend(request.build.flags.iter().cloned());
            }
            BuildTarget::Dsl(asked) => {
                build.language = asked.dsl.name().to_owned();
                build.options.clone_from(&record.options);
                build.log = Some(LogSettings { level: asked.log_level, print_ir: asked.print_ir });
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

    /// Says why it failed, in the document and as the failure of the command.
    fn failure(
        &self,
        remote: &dyn Remote,
        folder: &RunFolder,
        end: &JobResult,
        expect: &Expectations,
        record: &DslRecord,
        build: &mut Build,
    ) -> Result<Failure> {
        build.status = Status::Failed;
        let names = HostPathNames::new(expect, end);
        let log = said_by_build(folder, &names);
        let mut failure = outcome::failure(remote, end);
        let mut error = BuildError { code: failure.code.clone(), ..BuildError::default() };
        let compiling = end.last_rung("build").is_some_and(|rung| !rung.ok);
        if compiling {
            let said = compiler_message(folder, expect);
            error.message = said.clone().or_else(|| failure.cause.clone()).unwrap_or_default();
            if matches!(failure.code.as_str(), "exit" | "does_not_compile") {
                failure.code = "does_not_compile".to_owned();
                failure.what = "the kernel does not compile".to_owned();
                failure.exit = Exit::Kernel;
                failure.side = Side::Kernel;
                failure.hints.clear();
            }
            if let Some(said) = said {
                failure = failure.cause(said);
            }
        } else {
            error.message = failure.cause.clone().unwrap_or_default();
        }
        if let Some(raised) = &record.error {
            error.class = Some(raised.class.clone());
            error.message = names.localize(&raised.message);
            error.chain.clone_from(&raised.chain);
            let text = names.localize(&raised.traceback);
            folder.write("traceback.txt", text.as_bytes())?;
            error.traceback = Some("traceback.txt".to_owned());
            failure = failure.cause(raised.shown(&names, &log));
        }
        error.code.clone_from(&failure.code);
        let mut texts: Vec<String> = error.chain.iter().map(|l| l.message.clone()).collect();
        texts.push(log);
        error.diagnoses = messages::diagnose(&texts.join("\n"));
        for diagnosis in &error.diagnoses {
            failure = failure.hint(format!("{}; {}", diagnosis.cause, diagnosis.next));
        }
        build.error = Some(error);
        Ok(failure)
    }

    /// What the compiled files hold, and their listings.
    async fn look(
        &self,
        link: &mut HostLink,
        context: &mut RunContext<'_>,
        facts: Option<&HostFacts>,
        build: &mut Build,
    ) -> Result<()> {
        let folder = context.folder;
        let paths_of = |kind: &str| -> Vec<String> {
            build.files.iter().filter(|f| f.kind == kind).map(|f| f.path.clone()).collect()
        };
        let cubins = paths_of("cubin");
        if self.emit.sass && !cubins.is_empty() {
            let here = (self.nvdisasm)();
            let facts = self.facts_to_list_by(link, context, facts, &here).await;
            let mut built = [disasm::CompiledFiles::new(folder, &build.files, None)];
            let listed = disasm::fill(link, context, &facts, &here, &mut built).await;
            build.files.extend(listed.into_iter().flatten());
            let summary: Disasm = serde_json::from_slice(&folder.read("sass/summary.json")?)
                .map_err(|e| {
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

    /// Facts that know of the host's nvdisasm, where this machine has none: compiling may have brought
    /// one there since the host was asked.
    async fn facts_to_list_by(
        &self,
        link: &mut HostLink,
        context: &mut RunContext<'_>,
        facts: Option<&HostFacts>,
        here: &[PathBuf],
    ) -> HostFacts {
        let known = facts.cloned().or_else(|| self.cache.load(self.now_s)).unwrap_or_default();
        let served = known.tool("nvdisasm").is_some() || disasm::find(here).is_some();
        if served || super::is_local(link) {
            return known;
        }
        let (programs, now_s) = (self.programs, self.now_s);
        // A host that does not answer costs operands, and nothing else.
        let (cancel, reporter) = (&context.cancel, &mut *context.reporter);
        let asked = self.cache.ask(link, self.spec, programs, now_s, reporter, cancel).await;
        asked.unwrap_or(known)
    }

    /// Removes what was made on the way and is not wanted.
    fn drop_unwanted(&self, folder: &RunFolder, build: &mut Build) {
        for (kind, wanted) in [("cubin", self.emit.cubin), ("ptx", self.emit.ptx)] {
            if wanted {
                continue;
            }
            build.files.retain(|file| {
                // What cannot be removed is still there, and stays listed.
                file.kind != kind || std::fs::remove_file(folder.path().join(&file.path)).is_err()
            });
            // Only when nothing is left in it.
            let _ = std::fs::remove_dir(folder.path().join(kind));
        }
    }
}

/// Everything that the compiler printed, without colours and with this machine's paths.
fn said_by_build(folder: &RunFolder, names: &HostPathNames<'_>) -> String {
    let read = |stream: &str| {
        let bytes = folder.read(&format!("log/build.{stream}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    names.localize(&strip_ansi(&format!("{}\n{}", read("stderr"), read("stdout"))))
}

/// nvcc or NVRTC, with the version that the cubin names.
fn compiler(end: &JobResult, build: &Build) -> String {
    let name = match end.rung_of("build") {
        Some("build.nvrtc") => "NVRTC",
        Some("build.wheels") => "nvcc of NVIDIA's wheels",
        Some(_) => "nvcc",
        None => return String::new(),
    };
    let images = build.code.iter().flat_map(|input: &Input| &input.images);
    let cubin = images.filter(|image| image.kind == "cubin").find_map(|i| i.version.as_deref());
    cubin.map_or(name.to_owned(), |version| format!("{name} {version}"))
}

/// Puts the cubins where `rgpu disasm artifacts/*.cubin` finds them: `<kernel>.<arch>.cubin`, then
/// `<kernel>-2.<arch>.cubin` …, beside the runs. Returns where.
///
/// # Errors
/// I/O errors.
pub fn publish(build: &Build, run: &Path, runs_root: &Path) -> std::io::Result<Vec<PathBuf>> {
    let Some(artifacts) = runs_root.parent() else { return Ok(Vec::new()) };
    let mut published = Vec::new();
    for (at, cubin) in build.files.iter().filter(|f| f.kind == "cubin").enumerate() {
        let number = if at == 0 { String::new() } else { format!("-{}", at + 1) };
        let path = artifacts.join(format!("{}{number}.{}.cubin", build.kernel, build.arch));
        crate::store::atomic::write(&path, &std::fs::read(run.join(&cubin.path))?)?;
        published.push(path);
    }
    Ok(published)
}
