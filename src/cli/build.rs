//! `rgpu build`: compiles a kernel without a GPU and shows the result in one table.

mod args;
mod request;
mod show;

use std::path::{Path, PathBuf};

use super::support::app::{App, Status, show_failure, stdout_is_taken};
use super::support::followed_run::{FollowedRun, NewRun};
use super::support::session::{self, OutputOptions};
use super::support::{fetch_consent, nvdisasm};
pub(super) use args::BuildArgs;
use request::BuildCommand;
use rgpu_model::Build;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_model::profile::ArtifactKind;
use rgpu_plan::kernel::{EntryPoint, check_architecture};
use rgpu_plan::tool::{self, ProfileTarget, Request};
use rgpu_remote::RemoteSpec;
use rgpu_run::run::{
    BuildOutcome, BuildRun, BuildTarget, Emit, NOT_FOR_AGENTS, publish_build, why_not_compiled_here,
};
use rgpu_run::store::{Cost, RunFolder, RunRecord, atomic};
use rgpu_work::own_command::is_started_by_agent;
use show::CopiedPaths;

pub(super) fn run(app: &App, args: &BuildArgs) -> Result<Status> {
    if args.arch.len() <= 1 {
        return run_one(app, args, &app.argv);
    }
    refuse_single_run_flags(app, args)?;
    for arch in &args.arch {
        check_architecture(arch)?;
    }
    let mut status = 0;
    for (at, arch) in args.arch.iter().enumerate() {
        if args.arch[..at].contains(arch) {
            continue;
        }
        let args = BuildArgs { arch: vec![arch.clone()], ..args.clone() };
        // One architecture that a compiler does not know does not keep the others from being built.
        status = match run_one(app, &args, &argv_with_arch(&app.argv, arch)) {
            Ok(built) => status.max(built),
            Err(failure) if failure.exit == Exit::Cancelled => return Err(failure),
            Err(failure) => {
                show_failure(&failure, failure.exit as u8, false);
                status.max(failure.exit as u8)
            }
        };
    }
    Ok(status)
}

/// Refuses flags that are about one run or one document where each architecture has its own.
fn refuse_single_run_flags(app: &App, args: &BuildArgs) -> Result<()> {
    let given = [
        ("--json", app.global.json),
        ("--out", args.out.is_some()),
        ("--run-id", args.run_id.is_some()),
        ("--events", args.events.is_some()),
    ];
    let Some((flag, _)) = given.iter().find(|(_, given)| *given) else { return Ok(()) };
    let what = format!("`{flag}` is for one architecture, and `--arch` names {}", args.arch.len());
    Err(Failure::new(Exit::Usage, "usage", what).hint("run `rgpu build` once for each"))
}

/// The command line with `arch` as its only architecture: `runs attach` follows one run.
fn argv_with_arch(argv: &[String], arch: &str) -> Vec<String> {
    let mut words = argv.iter();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        if word == "--arch" {
            words.next();
        } else if !word.starts_with("--arch=") {
            kept.push(word.clone());
        }
    }
    kept.extend(["--arch".to_owned(), arch.to_owned()]);
    kept
}

/// Builds for one architecture. `argv` is the command line to record.
fn run_one(app: &App, args: &BuildArgs, argv: &[String]) -> Result<Status> {
    if args.events.as_deref() == Some("-") {
        return Err(stdout_is_taken());
    }
    let mut build_command = request::resolve(app, args)?;
    for assumption in &build_command.assumptions {
        app.print_note(&format!("assumed: {assumption}"));
    }
    let out = destination(args.out.as_deref(), build_command.emit)?;
    let spec = session::spec(app, args.remote.as_deref())?;
    let mut new_consent = match &build_command.target {
        BuildTarget::Dsl(build) => {
            fetch_consent::require_wheel_consent(app, &spec, build.dsl.wheels(), args.yes)?
        }
        BuildTarget::Kernel(_) => None,
    };
    if let BuildTarget::Kernel(request) = &mut build_command.target {
        request.build.fetch |= fetch_consent::wants_nvcc(app, &spec);
    }
    let new = NewRun {
        command: "build",
        name: &format!("{}-build", build_command.name),
        run_id: args.run_id.as_deref(),
        out: out.folder(),
        detach: args.detach,
    };
    let run = FollowedRun::begin(app, &spec, &new, &build_command.inputs, |record| RunRecord {
        title: format!("build {}", build_command.name),
        kernel: build_command.name.clone(),
        argv: argv.to_vec(),
        ..record
    })?;
    let mut task = BuildTask { app, args, build_command, spec, run };
    let mut built = task.run_build();
    if matches!(built, Ok(BuildOutcome::NoCompiler(_)))
        && args.remote.is_none()
        && !session::is_local(&task.spec)
    {
        // A compiler's includes and messages reach every file of this machine.
        if is_started_by_agent() {
            app.print_note(NOT_FOR_AGENTS);
        } else if let Some(local) = task.run_build_here() {
            built = local;
        }
    }
    // The host has no compiler: offer to fetch one.
    if let (Ok(BuildOutcome::NoCompiler(failure)), BuildTarget::Kernel(request)) =
        (&built, &mut task.build_command.target)
        && !request.build.fetch
        && failure.code == "no_compiler"
    {
        match fetch_consent::require_nvcc_consent(app, &task.spec, is_device_code(request), failure)
        {
            Ok(consent) => {
                new_consent = consent;
                request.build.fetch = true;
                built = task.run_build();
            }
            Err(failure) => built = Err(failure),
        }
    }
    if let (Some(consent), Err(failure)) = (new_consent, &built)
        && failure.exit == Exit::Cancelled
    {
        // The user stopped the download, so the next command asks again.
        consent.revoke();
    }
    // NVRTC may have served for this kernel. The user's yes holds for programs that need nvcc, too.
    if args.yes
        && matches!(&built, Ok(BuildOutcome::Built(build, _)) if build.by_wheels() || build.by_nvrtc())
    {
        fetch_consent::save_nvcc_consent(app, &task.spec);
    }
    finish(app, task.run, built, out)
}

/// Resumes a build whose command has gone.
pub(super) fn attach(app: &App, args: &BuildArgs, run: FollowedRun) -> Result<Status> {
    if args.events.as_deref() == Some("-") {
        return Err(stdout_is_taken());
    }
    let mut build_command = request::resolve(app, args)?;
    let out = destination(args.out.as_deref(), build_command.emit)?;
    let spec = session::spec(app, Some(&run.record.remote))?;
    if let BuildTarget::Kernel(request) = &mut build_command.target {
        request.build.fetch |= fetch_consent::wants_nvcc(app, &spec);
    }
    let mut task = BuildTask { app, args, build_command, spec, run };
    let mut built = task.run_build();
    if let (Ok(BuildOutcome::NoCompiler(_)), BuildTarget::Kernel(request)) =
        (&built, &mut task.build_command.target)
    {
        // The job was submitted, so the user had agreed to the download.
        request.build.fetch = true;
        built = task.run_build();
    }
    finish(app, task.run, built, out)
}

/// Whether the target has device code only.
fn is_device_code(request: &Request) -> bool {
    match &request.target {
        ProfileTarget::Kernel { spec, .. } => matches!(spec.entry, EntryPoint::Device(_)),
        _ => false,
    }
}

/// Where the run folder lies, and what is copied besides.
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
    if is_emitted { Ok(Destination::File(out.to_owned())) } else { Err(nothing_to_write(out)) }
}

/// The failure for an output file whose kind was not built.
fn nothing_to_write(out: &Path) -> Failure {
    let kind = out.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let title = if kind == "ptx" { "PTX" } else { "cubin" };
    Failure::new(Exit::Usage, "usage", format!("there is no {title} to write"))
        .file(out.display())
        .hint(format!("`--emit` must include `{kind}`"))
}

/// One build of this command.
struct BuildTask<'a> {
    app: &'a App,
    args: &'a BuildArgs,
    build_command: BuildCommand,
    spec: RemoteSpec,
    run: FollowedRun,
}

impl BuildTask<'_> {
    fn run_build(&mut self) -> Result<BuildOutcome> {
        let Self { app, args, build_command, spec, run } = self;
        let output_options =
            OutputOptions::with_progress_bar(app, args.events.as_deref(), args.accept_new);
        let build = BuildRun {
            target: build_command.target.clone(),
            name: build_command.name.clone(),
            source: build_command.source.clone(),
            emit: build_command.emit,
            nvdisasm: &|| nvdisasm::search(app),
        };
        let status = |built: &Result<BuildOutcome>| match built {
            Ok(BuildOutcome::Built(_, Some(failure)) | BuildOutcome::NoCompiler(failure))
            | Err(failure) => failure.exit as u8,
            Ok(_) => 0,
        };
        run.connect_and_run(app, spec, output_options, status, async |run_session, context| {
            build.run(run_session, context).await
        })
    }

    /// Builds on this machine instead, if the default remote lacks a compiler, as `profile` does
    /// too. `None` if this machine has no compiler either.
    fn run_build_here(&mut self) -> Option<Result<BuildOutcome>> {
        let BuildTarget::Kernel(request) = &mut self.build_command.target else { return None };
        if session::is_local(&self.spec) {
            return None;
        }
        if let Some(why) = why_not_compiled_here(request) {
            self.app.print_note(&format!("not compiled on this machine: {why}"));
            return None;
        }
        let asked = request.clone();
        if request.arch.is_none() {
            // Only the host knows its GPU. Without one kernel.toml's first architecture counts, and
            // not the one of a GPU of this machine.
            let facts = session::facts_cache(self.app, &self.spec).last().unwrap_or_default();
            request.arch = tool::target_arch(request, &facts).ok();
        }
        // The user agreed to a download for each machine alone.
        request.build.fetch =
            self.args.yes || fetch_consent::wants_nvcc(self.app, &RemoteSpec::local());
        let default_spec = std::mem::replace(&mut self.spec, RemoteSpec::local());
        let record = &self.run.record;
        let local = RunRecord {
            remote: self.spec.name.clone(),
            address: self.spec.url.clone(),
            cost: Cost::at(self.spec.usd_per_hour()),
            ..record.clone()
        };
        let default_record = std::mem::replace(&mut self.run.record, local);
        let built = self.run_build();
        if matches!(built, Ok(BuildOutcome::NoCompiler(_))) {
            (self.spec, self.run.record) = (default_spec, default_record);
            self.build_command.target = BuildTarget::Kernel(asked);
            return None;
        }
        let name = &default_spec.name;
        self.app.print_note(&format!(
            "`{name}` has no CUDA compiler: this was compiled on this machine"
        ));
        let settings = self.app.config.record(&self.spec);
        let written = self.run.folder.write("config.toml", settings.as_bytes());
        Some(written.map_err(Failure::from).and(built))
    }
}

fn finish(
    app: &App,
    mut run: FollowedRun,
    built: Result<BuildOutcome>,
    out: Destination,
) -> Result<Status> {
    let (build, failure) = match built {
        Ok(BuildOutcome::Built(build, failure)) => (Some(build), failure),
        Ok(BuildOutcome::Detached) => {
            run.record.exit = Some(0);
            run.record_detached()?;
            return run.show_detached(app);
        }
        Ok(BuildOutcome::NoCompiler(failure)) | Err(failure) => (None, Some(failure)),
    };
    run.record_end(failure.as_ref(), failure.as_ref().map_or(0, |failure| failure.exit as u8))?;
    let folder = &run.folder;
    let short = |path: &Path| path.strip_prefix(&app.cwd).unwrap_or(path).display().to_string();
    let Some(build) = build else {
        return Err(failure.unwrap_or_else(|| Failure::new(Exit::Bug, "bug", "nothing was built")));
    };
    folder.write_json("summary.json", &build)?;
    if let Some(failure) = failure {
        if !build.code.is_empty() && !build.has_no_kernels() && !app.global.json {
            show::print_result(app, &build, folder.path(), &CopiedPaths::default());
        }
        return Err(failure
            .log(short(&folder.path().join("log")))
            .hint(format!("everything known about it: {}", short(folder.path()))));
    }
    let copied = copy_results(app, &build, folder, out)?;
    if app.global.json {
        app.print_json(&build)?
    } else {
        show::print_result(app, &build, folder.path(), &copied)
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
    let mut cubins = publish_build(build, folder, &app.config.runs_dir.value).map_err(disk)?;
    let Destination::File(to) = out else { return Ok(CopiedPaths { cubins, ptx: None }) };
    let is_cubin = to.extension().is_some_and(|extension| extension == "cubin");
    let main = if is_cubin {
        build.files.iter().find(|f| f.kind == ArtifactKind::Cubin).map(|f| &f.path)
    } else {
        build.main_ptx.as_ref()
    };
    let main = main.ok_or_else(|| nothing_to_write(&to))?;
    atomic::write(&to, &folder.read(main)?).map_err(|e| disk(e).file(to.display()))?;
    if is_cubin {
        cubins.insert(0, to)
    } else {
        return Ok(CopiedPaths { cubins, ptx: Some(to) });
    }
    Ok(CopiedPaths { cubins, ptx: None })
}
