//! `rgpu build`: compiles a kernel without a GPU and shows the result in one table.

mod args;
mod fetch;
mod request;
mod show;

use std::path::{Path, PathBuf};
use std::time::Instant;

pub(super) use args::BuildArgs;
pub(super) use fetch::wants_nvcc;

use super::app::{App, Status, stdout_is_taken};
use super::disasm;
use super::progress::LiveOutput;
use super::session::{self, OutputOptions};
use crate::error::{ErrorDocument, Exit, Failure, Result};
use crate::kernel::Entry;
use crate::model::Build;
use crate::model::profile::ArtifactKind;
use crate::remote::RemoteSpec;
use crate::run::{
    BuildOutcome, BuildRun, BuildStart, BuildWanted, Emit, Reporter, RunContext, RunEvent, close,
    publish_build,
};
use crate::store::{RunFolder, RunRecord, RunState, Runs, atomic};
use crate::tool::{Request, Target};
use request::BuildCommand;
use show::CopiedPaths;

pub(super) fn run(app: &App, args: &BuildArgs) -> Result<Status> {
    if args.events.as_deref() == Some("-") {
        return Err(stdout_is_taken());
    }
    let mut build_command = request::resolve(app, args)?;
    for assumption in &build_command.assumptions {
        app.say(&format!("assumed: {assumption}"));
    }
    let out = destination(args.out.as_deref(), build_command.emit)?;
    let spec = session::spec(app, args.remote.as_deref())?;
    if let BuildWanted::Dsl(build) = &build_command.wanted {
        fetch::environment(app, &spec, build.dsl.wheels(), args.yes)?;
    }
    if let BuildWanted::Kernel(request) = &mut build_command.wanted {
        request.build.fetch |= fetch::wants_nvcc(app, &spec);
    }
    let now = jiff::Timestamp::now();
    let runs = Runs::new(&app.config.runs_dir.value);
    let name = format!("{}-build", build_command.name);
    let (id, folder) = runs.create(args.run_id.as_deref(), &name, now, out.folder())?;
    let mut record = RunRecord {
        title: format!("build {}", build_command.name),
        kernel: build_command.name.clone(),
        ..session::record(app, &spec, id, "build", now)
    };
    folder.save(&record)?;
    folder.write_json("inputs.json", &build_command.inputs)?;
    folder.write("config.toml", app.config.record(&spec).as_bytes())?;
    let begin = if args.detach { BuildStart::Detached } else { BuildStart::Anew };
    let events = args.events.as_deref();
    let mut task = BuildTask { app, args, build_command, spec, folder: &folder, events, begin };
    let started_at = Instant::now();
    let mut built = task.carry_out(&mut record);
    if lacks_compiler(&built)
        && args.remote.is_none()
        && let Some(local) = task.carry_out_here(&mut record)
    {
        built = local;
    }
    // The host has no compiler: offer to fetch one.
    if let (Err(failure), BuildWanted::Kernel(request)) = (&built, &mut task.build_command.wanted)
        && failure.code == "no_compiler"
        && !request.build.fetch
    {
        match fetch::nvcc(app, &task.spec, is_device_code(request), failure) {
            Ok(()) => {
                request.build.fetch = true;
                built = task.carry_out(&mut record);
            }
            Err(failure) => built = Err(failure),
        }
    }
    if args.yes && matches!(&built, Ok(BuildOutcome::Told(build, _)) if build.by_wheels()) {
        fetch::wanted_nvcc(app, &task.spec);
    }
    record.lasted(started_at.elapsed().as_secs_f64());
    finish(app, &folder, record, built, out)
}

/// Resumes a build whose command has gone.
pub(super) fn attach(
    app: &App,
    args: &BuildArgs,
    folder: &RunFolder,
    mut record: RunRecord,
) -> Result<Status> {
    let events = args.events.as_deref();
    if events == Some("-") {
        return Err(stdout_is_taken());
    }
    let mut build_command = request::resolve(app, args)?;
    let out = destination(args.out.as_deref(), build_command.emit)?;
    let spec = session::spec(app, Some(&record.remote))?;
    if let BuildWanted::Kernel(request) = &mut build_command.wanted {
        request.build.fetch |= fetch::wants_nvcc(app, &spec);
    }
    let mut task =
        BuildTask { app, args, build_command, spec, folder, events, begin: BuildStart::Again };
    let started_at = Instant::now();
    let mut built = task.carry_out(&mut record);
    if let (Err(failure), BuildWanted::Kernel(request)) = (&built, &mut task.build_command.wanted)
        && failure.code == "no_compiler"
    {
        // The job was submitted, so the user had agreed to the download.
        request.build.fetch = true;
        built = task.carry_out(&mut record);
    }
    record.lasted(started_at.elapsed().as_secs_f64());
    record.at_least(folder.job_time());
    finish(app, folder, record, built, out)
}

fn lacks_compiler(built: &Result<BuildOutcome>) -> bool {
    matches!(built, Err(failure) if failure.code == "no_compiler")
}

/// Whether the target has device code only.
fn is_device_code(request: &Request) -> bool {
    match &request.target {
        Target::Kernel { spec, .. } => matches!(spec.entry, Entry::Device(_)),
        _ => false,
    }
}

/// Where results go.
enum Destination {
    /// The run's folder, and a copy of each cubin beside the runs.
    Default,
    /// The same, and the main PTX or cubin also goes into this file.
    File(PathBuf),
    /// This folder is the run's folder, and nothing is copied elsewhere.
    Folder(PathBuf),
}

impl Destination {
    /// The run's folder, if the user named it.
    fn folder(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) => Some(folder),
            Self::Default | Self::File(_) => None,
        }
    }
}

/// Parses `--out`: a file for the main PTX or cubin, or the run's folder.
fn destination(out: Option<&Path>, emit: Emit) -> Result<Destination> {
    let Some(out) = out else { return Ok(Destination::Default) };
    let is_emitted = match out.extension().and_then(|extension| extension.to_str()) {
        Some("ptx") => emit.ptx,
        Some("cubin") => emit.cubin,
        _ => return Ok(Destination::Folder(out.to_owned())),
    };
    match is_emitted {
        true => Ok(Destination::File(out.to_owned())),
        false => Err(nothing_to_write(out)),
    }
}

/// The failure for an output file whose kind was not built.
fn nothing_to_write(out: &Path) -> Failure {
    let kind = out.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let title = if kind == "ptx" { "PTX" } else { "cubin" };
    Failure::new(Exit::Usage, "usage", format!("there is no {title} to write"))
        .file(out.display())
        .hint(format!("`--emit` must have `{kind}` in it"))
}

/// One build of this command.
struct BuildTask<'a> {
    app: &'a App,
    args: &'a BuildArgs,
    build_command: BuildCommand,
    spec: RemoteSpec,
    folder: &'a RunFolder,
    events: Option<&'a str>,
    begin: BuildStart,
}

impl BuildTask<'_> {
    fn carry_out(&self, record: &mut RunRecord) -> Result<BuildOutcome> {
        let Self { app, args, build_command, spec, folder, events, begin } = self;
        let live = if app.global.quiet || app.global.json {
            LiveOutput::Hidden
        } else {
            LiveOutput::Beside
        };
        let id = record.id.clone();
        let output_options = OutputOptions {
            live,
            events: *events,
            accept_new: args.accept_new,
            run: &id,
            row: None,
        };
        app.block_on(async {
            let open = session::open(app, spec.clone(), output_options).await?;
            let session::OpenRemote { mut link, mut reporter, cancel, programs, .. } = open;
            let mut context =
                RunContext { folder, record, reporter: &mut reporter, cancel, input: None };
            let run = BuildRun {
                wanted: build_command.wanted.clone(),
                name: build_command.name.clone(),
                source: build_command.source.clone(),
                emit: build_command.emit,
                spec,
                cache: session::facts_cache(app, spec),
                programs: &programs,
                nvdisasm: &|| disasm::nvdisasm(app),
                now_s: jiff::Timestamp::now().as_second(),
                begin: *begin,
            };
            let built = run.run(&mut link, &mut context).await;
            let exit = match &built {
                Ok(BuildOutcome::Told(_, Some(failure))) | Err(failure) => failure.exit as u8,
                Ok(_) => 0,
            };
            reporter.say(&RunEvent::Finished { exit });
            close(link, record).await;
            built
        })
    }

    /// Builds on this machine instead, if the default remote lacks a compiler, as `profile` does
    /// too. `None` if this machine has no compiler either.
    fn carry_out_here(&mut self, record: &mut RunRecord) -> Option<Result<BuildOutcome>> {
        let BuildWanted::Kernel(request) = &self.build_command.wanted else { return None };
        // Without `--arch` only the host knows the GPU.
        if session::is_local(&self.spec) || request.arch.is_none() {
            return None;
        }
        let default_spec = std::mem::replace(&mut self.spec, RemoteSpec::local());
        let now = jiff::Timestamp::now();
        let mut local = RunRecord {
            title: record.title.clone(),
            kernel: record.kernel.clone(),
            started: record.started.clone(),
            ..session::record(self.app, &self.spec, record.id.clone(), "build", now)
        };
        let built = self.carry_out(&mut local);
        if lacks_compiler(&built) {
            self.spec = default_spec;
            return None;
        }
        *record = local;
        let name = &default_spec.name;
        self.app.say(&format!("`{name}` has no CUDA compiler: this was compiled on this machine"));
        let settings = self.app.config.record(&self.spec);
        let written = self.folder.write("config.toml", settings.as_bytes());
        Some(written.map_err(Failure::from).and(built))
    }
}

fn finish(
    app: &App,
    folder: &RunFolder,
    mut record: RunRecord,
    built: Result<BuildOutcome>,
    out: Destination,
) -> Result<Status> {
    let open_job = record.jobs.iter().any(|job| job.outcome.is_none());
    let (build, failure) = match built {
        Ok(BuildOutcome::Told(build, failure)) => (Some(build), failure),
        Ok(BuildOutcome::Detached) => return save_detached(app, folder, record),
        Err(failure) => (None, Some(failure)),
    };
    record.state = match &failure {
        // The link was lost or the user stopped waiting: the job may go on and can be resumed.
        Some(failure) if matches!(failure.exit, Exit::Cancelled | Exit::Host) && open_job => {
            RunState::Running
        }
        Some(failure) if failure.exit == Exit::Cancelled => RunState::Cancelled,
        Some(_) => RunState::Failed,
        None => RunState::Done,
    };
    record.exit = Some(failure.as_ref().map_or(0, |failure| failure.exit as u8));
    let error_document = failure.as_ref().map(|f| ErrorDocument::new(f.clone(), f.exit as u8));
    folder.end(&record, error_document.as_ref())?;
    let short = |path: &Path| path.strip_prefix(&app.cwd).unwrap_or(path).display().to_string();
    let Some(build) = build else {
        return Err(failure.unwrap_or_else(|| Failure::new(Exit::Bug, "bug", "nothing was built")));
    };
    folder.write_json("summary.json", &build)?;
    if let Some(failure) = failure {
        if !build.code.is_empty() && !app.global.json {
            show::result(app, &build, folder.path(), &CopiedPaths::default());
        }
        return Err(failure
            .log(short(&folder.path().join("log")))
            .hint(format!("everything that is known of it: {}", short(folder.path()))));
    }
    let places = copy_results(app, &build, folder, out)?;
    match app.global.json {
        true => app.print_json(&build)?,
        false => show::result(app, &build, folder.path(), &places),
    }
    Ok(0)
}

/// Saves a run whose job goes on by itself.
fn save_detached(app: &App, folder: &RunFolder, mut record: RunRecord) -> Result<Status> {
    record.state = RunState::Detached;
    record.exit = Some(0);
    folder.save(&record)?;
    let id = &record.id;
    app.say(&format!("`{id}` goes on by itself; `rgpu runs attach {id}` brings the results"));
    if app.global.json {
        app.print_json(&record)?;
    }
    Ok(0)
}

/// Copies the results to the expected places.
fn copy_results(
    app: &App,
    build: &Build,
    folder: &RunFolder,
    out: Destination,
) -> Result<CopiedPaths> {
    if out.folder().is_some() {
        let cubins = build.files.iter().filter(|f| f.kind == ArtifactKind::Cubin);
        let cubins = cubins.map(|f| folder.path().join(&f.path)).collect();
        return Ok(CopiedPaths { cubins, ptx: None });
    }
    let disk = |e: std::io::Error| {
        Failure::new(Exit::Disk, "disk", "cannot write the compiled kernel").cause(e)
    };
    let mut cubins =
        publish_build(build, folder.path(), &app.config.runs_dir.value).map_err(disk)?;
    let Destination::File(to) = out else { return Ok(CopiedPaths { cubins, ptx: None }) };
    let is_cubin = to.extension().is_some_and(|extension| extension == "cubin");
    let main = match is_cubin {
        true => build.files.iter().find(|f| f.kind == ArtifactKind::Cubin).map(|f| &f.path),
        false => build.main_ptx.as_ref(),
    };
    let main = main.ok_or_else(|| nothing_to_write(&to))?;
    atomic::write(&to, &folder.read(main)?).map_err(|e| disk(e).file(to.display()))?;
    match is_cubin {
        true => cubins.insert(0, to),
        false => return Ok(CopiedPaths { cubins, ptx: Some(to) }),
    }
    Ok(CopiedPaths { cubins, ptx: None })
}
