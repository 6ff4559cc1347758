//! `rgpu exec`: runs a file, a piece of code or a command on a GPU host, with its own output and
//! exit status.

#![expect(clippy::disallowed_methods, reason = "files that the user named, or rgpu's own")]

mod args;
mod compile;
mod source;

use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, Instant};

use rgpu_protocol::HostFacts;
use rgpu_protocol::event::Stream;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::mpsc;

use super::build::{self, BuildArgs};
use super::profile;
use super::support::app::{App, Status};
use super::support::exec_status::{show_own_failure, status_of_failure};
use super::support::fetch_consent::wants_nvcc;
use super::support::followed_run::FollowedRun;
use super::support::mode_flags::refuse_mode_flags;
use super::support::profile_request;
use super::support::progress::LiveOutput;
use super::support::pull_check::SkippedFile;
use super::support::pulled_files::{self, PulledFiles};
use super::support::session::{self, OutputOptions, RemoteSession};
use super::support::terminal::{RawTerminal, check_output_written};
use super::support::{local_consent, not_sent, project_program};
pub(super) use args::ExecArgs;
use rgpu_model::error::{Exit, Failure, Result, shell_word};
use rgpu_plan::bundle::{self, DEFAULT_MAX_BYTES, Packer};
use rgpu_plan::tool::{self, GpuSelection, Program};
use rgpu_remote::HostRequest;
use rgpu_run::run::{
    EXEC_STEP, ExecOutcome, ExecRequest, ExecRun, FileCopies, ProgramExit, RunStart, exec_draft,
    signal,
};
use rgpu_run::store::{InputsRecord, RunFolder, RunRecord};
use source::{ExecSource, is_shell_line, shell_hint};

/// How many bytes of a failed program's last output are searched for the reason.
const LAST_PRINTED_BYTES: u64 = 16 << 10;

/// The default time limit of a program.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// The output of `exec --json` (`rgpu.exec/1`).
#[derive(Serialize, JsonSchema)]
pub(super) struct ExecResult {
    /// Name and version of this schema: `rgpu.exec/1`.
    schema: String,
    /// The id of the run.
    run: String,
    /// The run folder on this machine.
    folder: String,
    /// The exit status of the program; absent if it did not exit by itself.
    exit: Option<i32>,
    /// The signal that ended it.
    signal: Option<i32>,
    /// Whether its time limit ended it.
    timed_out: bool,
    /// Whether it was stopped because it printed nothing for the time of `--hang`.
    hung: bool,
    /// Wall-clock seconds of the whole command.
    seconds: f64,
    /// Names of the pulled files, relative to the folder that they were written to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pulled: Vec<String>,
    /// Pulled files that were not written to that folder, to protect files on this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<SkippedFile>,
}

pub(super) fn run(app: &App, args: &ExecArgs) -> Result<Status> {
    execute(app, args)
        .and_then(|status| check_output_written().map(|()| status))
        .or_else(|failure| show_own_failure(failure, app.global.json))
}

fn execute(app: &App, args: &ExecArgs) -> Result<Status> {
    let started_at = Instant::now();
    let with_project = with_program_of_project(app, args);
    if let Some((_, assumption)) = &with_project {
        app.print_note(&format!("assumed: {assumption}"));
        if !args.run.dry_run {
            let remote = args.place.remote.as_deref();
            local_consent::require(app, remote, project_program::FOREIGN)?;
        }
    }
    let args = with_project.as_ref().map_or(args, |(args, _)| args);
    let source = ExecSource::read(app, args)?;
    for assumption in &source.command_files.assumptions {
        app.print_note(&format!("assumed: {assumption}"));
    }
    if args.tty && !source.stdin {
        return Err(Failure::new(
            Exit::Usage,
            "usage",
            "`--tty` needs standard input, but the code was read from it",
        ));
    }
    if args.mode.is_some() {
        return profile_program(app, args, &source, None);
    }
    if source.is_library() && !needs_program(args) {
        return compile_library(app, args, &source);
    }
    refuse_mode_flags(&args.profile())?;
    if args.run.detach {
        source.check_detached_input(app)?;
    }
    if args.run.dry_run {
        return dry_run(app, args, &source);
    }
    let spec = session::spec(app, args.place.remote.as_deref())?;
    let name = source.name(args);
    let now = jiff::Timestamp::now();
    let (run_id, out) = (args.run.run_id.as_deref(), args.run.out.as_deref());
    let runs = app.runs();
    let (id, folder) = runs.claim(run_id, &format!("exec-{name}"), now, out)?;
    let record = RunRecord {
        title: format!("exec {name}"),
        labels: args.run.label.iter().cloned().collect(),
        note: args.run.note.clone().unwrap_or_default(),
        ..session::record(app, &spec, id.clone(), "exec", now)
    };
    let initial_files = InitialFiles {
        folder: folder.clone(),
        latest: args.run.out.is_none(),
        record: record.clone(),
        config: app.config.record(&spec),
        snippet: source.snippet.as_ref().map(|s| (format!("source/{}", s.name), s.source.clone())),
    };
    let start = if args.run.detach { RunStart::Detached } else { RunStart::New };
    let mut run = FollowedRun { folder, record, start };
    let events = args.run.events.as_deref();
    let live = live_output(app, events, args.tty);
    let accept_new = args.place.accept_new;
    let host = HostRequest::with_queue_timeout(args.run.queue_timeout)
        .with_gpus(args.gpus.as_ref().and_then(GpuSelection::count_of_any));
    let output_options = OutputOptions { live, events, accept_new, run: &id, row: None, host };
    let initial_write = std::thread::spawn(move || initial_files.write());
    let outcome = app.block_on(async {
        // Compile and hash large files while the connection is made.
        let opened = session::connect_while(app, spec, output_options, |mut reporter| {
            let (source, folder) = (&source, &run.folder);
            let large = source.mounts.large();
            let large_packer =
                tokio::task::spawn_blocking(move || Packer::ahead(DEFAULT_MAX_BYTES, &large));
            async move {
                let package = source.package.as_ref();
                let built = compile::compile(app, package, folder, &mut reporter).await?;
                Ok((built, large_packer.await.unwrap_or_default()))
            }
        })
        .await;
        // Must be done before the record changes or a job is sent, even if the connection failed.
        wait_for_initial_files(initial_write)?;
        let (session, prepared) = opened?;
        run.run_connected(session, reported_status, async |session, run| {
            let outcome = run_on_host(app, args, &source, session, run, prepared).await;
            drain_output(session, outcome).await
        })
        .await
    });
    finish(app, args, run, outcome, started_at)
}

/// The arguments with the program of the project's rgpu.toml, and what was assumed. `None`: the user
/// typed what to run, or the project describes no program.
fn with_program_of_project(app: &App, args: &ExecArgs) -> Option<(ExecArgs, String)> {
    let mut args = args.clone();
    let is_typed = args.file.is_some() || args.code.is_some();
    if is_typed {
        return None;
    }
    let assumption = project_program::take(app, &mut args.command, &mut args.files)?;
    Some((args, assumption))
}

/// How the program's output is shown.
fn live_output(app: &App, events: Option<&str>, tty: bool) -> LiveOutput {
    match (app.global.json, events) {
        (true, _) => LiveOutput::Hidden,
        (false, _) if tty => LiveOutput::Raw,
        // stdout is taken by the events, so the program's output goes above the bar.
        (false, Some("-")) => LiveOutput::Stderr,
        (false, _) => LiveOutput::SameStream,
    }
}

/// The first files of a run folder. They are written on a thread, because a busy disk may take long
/// and the connection need not wait.
struct InitialFiles {
    folder: RunFolder,
    latest: bool,
    record: RunRecord,
    config: String,
    snippet: Option<(String, Vec<u8>)>,
}

impl InitialFiles {
    fn write(&self) -> Result<()> {
        if self.latest {
            self.folder.becomes_latest()?;
        }
        self.folder.save(&self.record)?;
        self.folder.write("config.toml", self.config.as_bytes())?;
        if let Some((name, text)) = &self.snippet {
            self.folder.write(name, text)?;
        }
        Ok(())
    }
}

fn wait_for_initial_files(initial_write: std::thread::JoinHandle<Result<()>>) -> Result<()> {
    let panicked =
        |_| Failure::new(Exit::Bug, "panic", "a bug in rgpu: the run folder was not written");
    initial_write.join().map_err(panicked)?
}

/// Whether a flag was given that only makes sense if a program runs.
fn needs_program(args: &ExecArgs) -> bool {
    let moves_files = !args.files.pull.is_empty() || !args.files.mount.is_empty();
    let limits = args.tools.window.hang_s.is_some();
    let sets_env = !args.files.env.is_empty() || !args.env_file.is_empty() || args.gpus.is_some();
    moves_files || sets_env || limits || args.tty || args.run.dry_run || !args.command.is_empty()
}

/// Compiles kernels that have no `main`, and shows the result.
fn compile_library(app: &App, args: &ExecArgs, source: &ExecSource) -> Result<Status> {
    let Some(snippet) = &source.snippet else { return Ok(0) };
    let scratch = tempfile::tempdir().map_err(|e| {
        Failure::new(Exit::Disk, "disk", "no temporary folder can be made").cause(e)
    })?;
    rgpu_model::agent_files::trust(scratch.path());
    let file = match &args.file {
        Some(file) if file != "-" => file.clone(),
        // nvcc needs the file's extension.
        _ => {
            let file = scratch.path().join(&snippet.name);
            std::fs::write(&file, &snippet.source)
                .map_err(|e| Failure::new(Exit::Disk, "disk", "cannot write the code").cause(e))?;
            file.display().to_string()
        }
    };
    app.print_note(&format!(
        "`{}` has no `main`: its kernels are compiled and nothing is run",
        snippet.name
    ));
    let build_args = BuildArgs::for_file(file, &args.place, &args.run);
    build::run(app, &build_args).map_err(|mut failure| {
        let remote = args.place.remote.as_ref();
        let remote =
            remote.map(|name| format!(" --remote {}", shell_word(name))).unwrap_or_default();
        let fetch_command =
            format!("`rgpu build {}{remote} --yes` fetches", snippet.typed_argument());
        for hint in &mut failure.hints {
            *hint = hint.replace("`--yes` fetches", &fetch_command);
        }
        failure
    })
}

/// Prints the commands that would run on the host. Compiles and changes nothing.
fn dry_run(app: &App, args: &ExecArgs, source: &ExecSource) -> Result<Status> {
    let spec = session::spec(app, args.place.remote.as_deref())?;
    let known = session::facts_cache(app, &spec).load(jiff::Timestamp::now().as_second());
    let facts = known.unwrap_or_else(|| tool::assumed(&spec.name, std::env::consts::ARCH));
    let request = ExecRequest {
        program: compile::dry(args, source, &facts, wants_nvcc(app, &spec))?,
        env: args.files.env.iter().cloned().collect(),
        secrets: source.secrets.clone(),
        timeout: args.run.timeout.unwrap_or(DEFAULT_TIMEOUT),
        hang_s: args.tools.window.hang_s,
        ..ExecRequest::default()
    };
    let plan = exec_draft(&request, "dry-run.1".to_owned()).plan;
    if let Some(package) = &source.package {
        app.print_note(&format!(
            "note: cargo compiles `{}` on this machine first; that step is not shown",
            package.title
        ));
    }
    if app.global.json {
        app.print_json(&plan)?
    } else {
        app.print(&bundle::commands(&plan));
        let files = source.mounts.files.iter().chain(&source.command_files.files);
        for file in files {
            app.print(&format!("# rgpu sends {}\n", file.path));
        }
    }
    Ok(0)
}

/// Makes the program for this host and runs it there.
async fn run_on_host(
    app: &App,
    args: &ExecArgs,
    source: &ExecSource,
    session: &mut RemoteSession,
    run: &mut FollowedRun,
    (built, packer): (compile::CompiledProgram, Packer),
) -> Result<ExecOutcome> {
    // The terminal is restored when this is dropped.
    let terminal = if args.tty { Some(RawTerminal::enter()?) } else { None };
    let may_fetch_nvcc = wants_nvcc(app, &session.spec);
    let exec_run = ExecRun {
        program: Some(&|facts: Option<&HostFacts>| {
            let program = compile::program(args, source, facts, built.clone(), may_fetch_nvcc)?;
            request(args, source, facts, program, terminal.as_ref())
        }),
        needs_facts: source.needs_facts(args),
        pull: &args.files.pull,
        copies: pulled_files::copies(app, &args.files),
    };
    let (run_session, mut context) = run.session_and_context(app, session);
    let has_input = terminal.is_some() || source.has_input(args.run.detach);
    context.input = has_input.then(standard_input);
    exec_run.run(&mut run_session.with_packer(packer), &mut context).await
}

/// Makes the request for a host with these facts.
fn request(
    args: &ExecArgs,
    source: &ExecSource,
    facts: Option<&HostFacts>,
    program: Program,
    terminal: Option<&RawTerminal>,
) -> Result<ExecRequest> {
    let mut env: BTreeMap<String, String> = args.files.env.iter().cloned().collect();
    if let (true, Ok(name)) = (args.tty, std::env::var("TERM")) {
        env.entry("TERM".to_owned()).or_insert(name);
    }
    Ok(ExecRequest {
        program,
        env,
        secrets: source.secrets.clone(),
        timeout: args.run.timeout.unwrap_or(DEFAULT_TIMEOUT),
        hang_s: args.tools.window.hang_s,
        stdin: terminal.map_or(source.stdin(args.run.detach), RawTerminal::as_stdin),
        log_bytes: args.run.log_limit,
        pull: args.files.pull.clone(),
        gpu: compile::gpus(args, facts)?,
        queue_timeout: args.run.queue_timeout,
        facts_digest: facts.map(HostFacts::key),
    })
}

/// Starts or resumes a program under a profiler.
fn profile_program(
    app: &App,
    args: &ExecArgs,
    source: &ExecSource,
    resumed: Option<FollowedRun>,
) -> Result<Status> {
    let profile_args = args.profile();
    let spec = session::spec(app, args.place.remote.as_deref())?;
    let mode = args.mode.unwrap_or(rgpu_plan::kernel::ProfileMode::Ncu);
    let scratch = tempfile::tempdir().map_err(|e| {
        Failure::new(Exit::Disk, "disk", "no temporary folder can be made").cause(e)
    })?;
    let build_folder = RunFolder::create(scratch.path(), "build", None)?;
    let output_options = OutputOptions {
        live: LiveOutput::Stderr,
        events: None,
        accept_new: args.place.accept_new,
        run: "",
        row: None,
        host: HostRequest::with_queue_timeout(args.run.queue_timeout),
    };
    let (facts, built) = app.block_on(async {
        let now_s = jiff::Timestamp::now().as_second();
        let cache = session::facts_cache(app, &spec);
        let compile = |mut reporter: rgpu_run::run::SharedReporter| {
            let build_folder = &build_folder;
            async move {
                compile::compile(app, source.package.as_ref(), build_folder, &mut reporter).await
            }
        };
        if let Some(facts) = cache.load(now_s) {
            return Ok((facts, session::run_until_cancelled(app, output_options, compile).await?));
        }
        let (mut session, built) =
            session::connect_while(app, spec.clone(), output_options, compile).await?;
        let facts = session.ask_facts(&cache, now_s).await;
        session.link.close().await;
        Ok((facts?, built))
    })?;
    let mut program = compile::program(args, source, Some(&facts), built, wants_nvcc(app, &spec))?;
    program.env.extend(args.files.env.iter().map(|(k, v)| (k.clone(), v.as_str().into())));
    program.pull.clone_from(&args.files.pull);
    refuse_with_a_mode(args)?;
    let inputs = InputsRecord {
        schema: "rgpu.inputs/1".to_owned(),
        seed: 1,
        cases: Vec::new(),
        files: source.command_files.digests()?,
    };
    let mut profile_command =
        profile_request::program_profile(app, &profile_args, mode, program, inputs)?;
    // These facts are not cached, as asking is quick; but one command need not ask twice.
    profile_command.facts = session::is_local(&spec).then_some(facts);
    match resumed {
        None => profile::run_resolved(app, &profile_args, profile_command, "exec"),
        Some(run) => profile::follow(app, &profile_args, profile_command, run),
    }
}

/// Refuses flags that cannot be used with `--mode`.
fn refuse_with_a_mode(args: &ExecArgs) -> Result<()> {
    let flags = [
        ("--env-file", !args.env_file.is_empty()),
        ("--gpus 0", args.gpus == Some(GpuSelection::Number(0))),
        ("--tty", args.tty),
    ];
    match flags.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Failure::new(
            Exit::Usage,
            "usage",
            format!("`{flag}` cannot be used with `--mode`"),
        )),
        None => Ok(()),
    }
}

/// Resumes a run whose command has gone.
pub(super) fn attach(app: &App, args: &ExecArgs, mut run: FollowedRun) -> Result<Status> {
    let started_at = Instant::now();
    let with_project = with_program_of_project(app, args);
    let args = with_project.as_ref().map_or(args, |(args, _)| args);
    if args.mode.is_some() {
        let source = ExecSource::read(app, args)?;
        return profile_program(app, args, &source, Some(run));
    }
    if let (true, Some(file)) = (run.record.title.starts_with("build "), &args.file) {
        let build_args = BuildArgs::for_file(file.clone(), &args.place, &args.run);
        return build::attach(app, &build_args, run);
    }
    let spec = session::spec(app, Some(&run.record.remote))?;
    let id = run.record.id.clone();
    let events = args.run.events.as_deref();
    let live = live_output(app, events, false);
    let host = HostRequest::existing();
    let output_options =
        OutputOptions { live, events, accept_new: false, run: &id, row: None, host };
    let copies = pulled_files::copies(app, &args.files);
    let exec_run = ExecRun { program: None, needs_facts: false, pull: &args.files.pull, copies };
    let outcome = app.block_on(async {
        let session = session::open(app, spec, output_options).await?;
        run.run_connected(session, reported_status, async |session, run| {
            let (mut run_session, mut context) = run.session_and_context(app, session);
            let outcome = exec_run.run(&mut run_session, &mut context).await;
            drain_output(session, outcome).await
        })
        .await
    });
    finish(app, args, run, outcome, started_at)
}

const SIGINT: i32 = 2;
const SIGPIPE: i32 = 13;

/// Waits until the program's output is written.
async fn drain_output(
    session: &mut RemoteSession,
    outcome: Result<ExecOutcome>,
) -> Result<ExecOutcome> {
    let drained = session.wait_for_output().await;
    map_lost_reader(session, outcome.and_then(|outcome| drained.map(|()| outcome)))
}

/// Turns a cancel for lack of a reader into death by SIGPIPE. A failed write to stdout is an error
/// of ours.
fn map_lost_reader(session: &RemoteSession, outcome: Result<ExecOutcome>) -> Result<ExecOutcome> {
    check_output_written()?;
    let unread = |f: &Failure| f.exit == Exit::Cancelled && session.cancel.is_output_unread();
    let end = Some(Ok(ProgramExit::Signal(SIGPIPE)));
    match outcome {
        Err(f) if unread(&f) => {
            Ok(ExecOutcome { end, pulled: Vec::new(), copies: FileCopies::default() })
        }
        Ok(ExecOutcome { end: Some(Err(f)), pulled, copies }) if unread(&f) => {
            Ok(ExecOutcome { end, pulled, copies })
        }
        outcome => outcome,
    }
}

/// Adds a hint if the only word given is a whole shell command line.
fn with_shell_hint(failure: Failure, args: &ExecArgs) -> Failure {
    match args.command.as_slice() {
        [word]
            if failure.code == "start_failed"
                && args.file.is_none()
                && args.code.is_none()
                && is_shell_line(word) =>
        {
            failure.hint(shell_hint(word))
        }
        _ => failure,
    }
}

/// The exit status that events report.
fn reported_status(outcome: &Result<ExecOutcome>) -> Status {
    match outcome {
        Ok(ExecOutcome { end: None, .. }) => 0,
        Ok(ExecOutcome { end: Some(Ok(end)), .. }) => end.status(),
        Ok(ExecOutcome { end: Some(Err(failure)), .. }) | Err(failure) => {
            status_of_failure(failure)
        }
    }
}

fn finish(
    app: &App,
    args: &ExecArgs,
    mut run: FollowedRun,
    outcome: Result<ExecOutcome>,
    started_at: Instant,
) -> Result<Status> {
    run.add_duration(started_at);
    let has_ended = outcome.is_ok();
    let (outcome, pulled, mut copies) = match outcome {
        Ok(ExecOutcome { end: Some(end), pulled, copies }) => (end, pulled, copies),
        Ok(ExecOutcome { end: None, .. }) => {
            run.record.exit = Some(0);
            run.record_detached()?;
            return run.show_detached(app);
        }
        Err(failure) => (Err(failure), Vec::new(), FileCopies::default()),
    };
    let outcome = outcome.map_err(|failure| with_shell_hint(failure, args));
    let status = outcome.as_ref().map_or_else(status_of_failure, |end| end.status());
    if let Ok(end) = &outcome {
        run.record.program_exit = Some(i32::from(end.status()));
    }
    run.record_end(outcome.as_ref().err(), status)?;
    let FollowedRun { folder, record, .. } = &run;
    let run_files = (folder, record);
    let placement =
        pulled_files::write_pulled_files(app, &args.files, run_files, &pulled, &mut copies);
    // A program that did not start has no files to pull.
    let may_have_output = |f: &Failure| matches!(f.exit, Exit::Cancelled | Exit::Host);
    if has_ended && outcome.as_ref().err().is_none_or(may_have_output) && pulled.is_empty() {
        pulled_files::warn_of_none(app, &args.files);
    }
    let end = match outcome {
        Ok(end) => end,
        Err(failure) => {
            if let Err(unwritten) = placement {
                app.print_note(&unwritten.to_string());
            }
            return Err(failure);
        }
    };
    let PulledFiles { names: pulled, skipped } = placement?;
    if app.global.json {
        app.print_json(&ExecResult {
            schema: "rgpu.exec/1".to_owned(),
            run: record.id.clone(),
            folder: folder.path().display().to_string(),
            exit: if let ProgramExit::Exit(n) = end { Some(n) } else { None },
            signal: if let ProgramExit::Signal(n) = end { Some(n) } else { None },
            timed_out: end == ProgramExit::TimedOut,
            hung: end == ProgramExit::Hung,
            seconds: record.seconds,
            pulled,
            skipped,
        })?;
    }
    let name = record.title.strip_prefix("exec ").unwrap_or_default();
    match end {
        ProgramExit::TimedOut => app.print_note(&format!(
            "error: `{name}` was stopped after {} s\n  help: raise the limit with `--timeout`",
            args.run.timeout.unwrap_or(DEFAULT_TIMEOUT).as_secs()
        )),
        ProgramExit::Hung => app.print_note(&format!(
            "error: `{name}` hung and was stopped: it printed nothing for {} s\n  help: its stacks \
             are in {}",
            args.tools.window.hang_s.unwrap_or_default(),
            folder.path().join("raw/hang.txt").display()
        )),
        // Whoever closed the pipe or pressed Ctrl-C needs no message.
        ProgramExit::Signal(n) if ![SIGPIPE, SIGINT].contains(&n) => {
            app.print_note(&format!("error: `{name}` was ended by {}", signal(n)));
        }
        ProgramExit::Exit(status) if status != 0 => {
            let printed = folder.log_tail(EXEC_STEP, Stream::Stderr, LAST_PRINTED_BYTES);
            let script = args.file.as_deref();
            let mounts = &args.files.mount;
            let of_file = not_sent::hint(app, &printed, &args.command, script, mounts);
            if let Some(hint) = of_file.or_else(|| not_sent::package_hint(&printed)) {
                app.print_note(&format!("help: {hint}"));
            }
        }
        ProgramExit::Signal(_) | ProgramExit::Exit(_) => {}
    }
    Ok(end.status())
}

/// This process's standard input, read on a separate thread: a blocked read must not keep the
/// command from ending.
fn standard_input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match input.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(n) if sender.blocking_send(buffer[..n].to_vec()).is_err() => return,
                Ok(_) => {}
            }
        }
    });
    receiver
}
