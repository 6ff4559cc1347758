//! `rgpu exec`: runs a file, a piece of code or a command on a GPU host, with its own output and
//! exit status.

mod args;
mod compile;
mod pull;
mod pull_folder;
mod source;

use std::collections::BTreeMap;
use std::io::Read;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::mpsc;

use super::app::{App, Status};
use super::build::{self, BuildArgs};
use super::profile;
use super::progress::LiveOutput;
use super::session::{self, OutputOptions};
use super::terminal::{RawTerminal, written};
use crate::bundle::{self, DEFAULT_MAX_BYTES, Packer};
use crate::error::{ErrorDocument, Exit, Failure, Result, shell_word};
use crate::run::{
    ExecOutcome, ExecRequest, FileCopies, ProgramExit, Reporter, RunContext, RunEvent, close, exec,
    exec_again, exec_draft, signal,
};
use crate::store::{InputsRecord, RunFolder, RunRecord, RunState, Runs};
use crate::tool;
pub(super) use args::ExecArgs;
use pull::PulledFiles;
use pull_folder::SkippedFile;
use source::ExecSource;

/// Exit status of `rgpu exec` when rgpu fails, not the program.
const OWN_FAILURE: u8 = 125;

/// The default time limit of a program.
const TIMEOUT: Duration = Duration::from_secs(600);

/// What `--json` prints in the end (`rgpu.exec/1`).
#[derive(Serialize, JsonSchema)]
pub(super) struct ExecResult {
    /// `rgpu.exec/1`.
    schema: String,
    /// The run's id.
    run: String,
    /// Its folder on this machine.
    folder: String,
    /// The program's status, where it ended with one.
    exit: Option<i32>,
    /// The signal that ended it.
    signal: Option<i32>,
    /// Whether its time limit ended it.
    timed_out: bool,
    /// Wall-clock seconds of the whole command.
    seconds: f64,
    /// Names of the pulled files, relative to where they were put.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pulled: Vec<String>,
    /// Pulled files that were not put there, for what they would have touched on this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unplaced: Vec<SkippedFile>,
}

pub(super) fn run(app: &App, args: &ExecArgs) -> Result<Status> {
    execute(app, args)
        .and_then(|status| written().map(|()| status))
        .or_else(|failure| own_failure(failure, app.global.json))
}

/// Prints a failure of rgpu and returns the status for it. Cancellation and usage errors are
/// returned.
pub(super) fn own_failure(failure: Failure, json: bool) -> Result<Status> {
    match status_of_failure(&failure) {
        OWN_FAILURE => {
            super::app::show_failure(&failure, OWN_FAILURE, json);
            Ok(OWN_FAILURE)
        }
        _ => Err(failure),
    }
}

/// The status of a command that failed on rgpu's side.
pub(super) fn status_of_failure(failure: &Failure) -> u8 {
    match failure.exit {
        Exit::Cancelled | Exit::Usage => failure.exit as u8,
        _ => OWN_FAILURE,
    }
}

fn execute(app: &App, args: &ExecArgs) -> Result<Status> {
    let started_at = Instant::now();
    let source = ExecSource::read(app, args)?;
    if args.tty && !source.stdin {
        return Err(Failure::new(
            Exit::Usage,
            "usage",
            "`--tty` needs standard input, which the code came through",
        ));
    }
    if args.mode.is_some() {
        return profile_program(app, args, &source, None);
    }
    if source.is_library() && !needs_program(args) {
        return compile_library(app, args, &source);
    }
    profile::first_given(&args.profile())?;
    if args.run.detach {
        source.let_go(app)?;
    }
    if args.run.dry_run {
        return dry_run(app, args, &source);
    }
    let spec = session::spec(app, args.place.remote.as_deref())?;
    let name = source.name(args);
    let now = jiff::Timestamp::now();
    let (run, out) = (args.run.run_id.as_deref(), args.run.out.as_deref());
    let runs = Runs::new(&app.config.runs_dir.value);
    let (id, folder) = runs.claim(run, &format!("exec-{name}"), now, out)?;
    let mut record = RunRecord {
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
        snippet: source.snippet.as_ref().map(|s| (format!("source/{}", s.name), s.text.clone())),
    };
    let live = match (app.global.json, args.run.events.as_deref()) {
        (true, _) => LiveOutput::Hidden,
        (false, _) if args.tty => LiveOutput::Raw,
        // stdout is taken by the events, so the program's output goes above the bar.
        (false, Some("-")) => LiveOutput::Beside,
        (false, _) => LiveOutput::Through,
    };
    let output_options = OutputOptions {
        live,
        events: args.run.events.as_deref(),
        accept_new: args.place.accept_new,
        run: &id,
        row: None,
    };
    let initial_write = std::thread::spawn(move || initial_files.write());
    let outcome = app.block_on(async {
        // Compile and hash large files while the connection is made.
        let opened = session::open_beside(app, spec, output_options, |mut reporter| {
            let (source, folder) = (&source, &folder);
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
        let (mut open, prepared) = opened?;
        let outcome =
            run_on_host(app, args, &source, &folder, &mut record, &mut open, prepared).await;
        let drained = open.drain().await;
        let outcome = map_lost_reader(&open, outcome.and_then(|outcome| drained.map(|()| outcome)));
        report_end(&mut open, &outcome);
        close(open.link, &mut record).await;
        outcome
    });
    finish(app, &folder, record, outcome, started_at, args)
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
        |_| Failure::new(Exit::Bug, "panic", "the run folder's first files were not written");
    initial_write.join().map_err(panicked)?
}

/// Whether a flag was given that only makes sense if a program runs.
fn needs_program(args: &ExecArgs) -> bool {
    let moves_files = !args.pull.is_empty() || !args.mount.is_empty();
    let sets_env = !args.env.is_empty() || !args.env_file.is_empty() || args.gpus.is_some();
    moves_files || sets_env || args.tty || args.run.dry_run || !args.command.is_empty()
}

/// Compiles kernels that have no `main`, and shows the result.
fn compile_library(app: &App, args: &ExecArgs, source: &ExecSource) -> Result<Status> {
    let Some(snippet) = &source.snippet else { return Ok(0) };
    let scratch = tempfile::tempdir().map_err(|e| {
        Failure::new(Exit::Disk, "disk", "no temporary folder can be made").cause(e)
    })?;
    let file = match &args.file {
        Some(file) if file != "-" => file.clone(),
        // nvcc needs the file's extension.
        _ => {
            let file = scratch.path().join(&snippet.name);
            std::fs::write(&file, &snippet.text)
                .map_err(|e| Failure::new(Exit::Disk, "disk", "cannot write the code").cause(e))?;
            file.display().to_string()
        }
    };
    app.say(&format!("`{}` has no `main`: its kernels are compiled, nothing is run", snippet.name));
    build::run(app, &BuildArgs::of_file(file, &args.place, &args.run)).map_err(|mut failure| {
        let remote = args.place.remote.as_ref();
        let remote =
            remote.map(|name| format!(" --remote {}", shell_word(name))).unwrap_or_default();
        let fetch_command = format!("`rgpu build {}{remote} --yes` fetches", snippet.typed());
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
        program: compile::dry(args, source, &facts)?,
        env: args.env.iter().cloned().collect(),
        secrets: source.secrets.clone(),
        timeout: args.run.timeout.unwrap_or(TIMEOUT),
        ..ExecRequest::default()
    };
    let plan = exec_draft(&request, "dry-run.1".to_owned()).plan;
    match app.global.json {
        true => app.print_json(&plan)?,
        false => app.print(&bundle::commands(&plan)),
    }
    Ok(0)
}

/// Makes the program for this host and runs it there.
async fn run_on_host(
    app: &App,
    args: &ExecArgs,
    source: &ExecSource,
    folder: &RunFolder,
    record: &mut RunRecord,
    open: &mut session::OpenRemote,
    (built, mut packer): (compile::CompiledProgram, Packer),
) -> Result<ExecOutcome> {
    let cache = session::facts_cache(app, &open.spec);
    let now_s = jiff::Timestamp::now().as_second();
    // The terminal is restored when this is dropped.
    let terminal = if args.tty { Some(RawTerminal::take()?) } else { None };
    // Saved facts may be older than the host's last boot. The host then refuses the job, and we ask
    // for new facts once.
    for fresh in [false, true] {
        let terminal = terminal.as_ref();
        let facts = match (source.asks(args), cache.load(now_s).filter(|_| !fresh)) {
            (false, _) => None,
            (true, Some(facts)) => Some(facts),
            (true, None) => Some(open.ask(&cache, now_s).await?),
        };
        // Saved facts of a host that was not asked now are good enough here.
        let known = facts.clone().or_else(|| cache.load(now_s));
        let mut env: BTreeMap<String, String> = args.env.iter().cloned().collect();
        if let (true, Ok(name)) = (args.tty, std::env::var("TERM")) {
            env.entry("TERM".to_owned()).or_insert(name);
        }
        let request = ExecRequest {
            program: compile::program(args, source, facts.as_ref(), built.clone())?,
            env,
            secrets: source.secrets.clone(),
            timeout: args.run.timeout.unwrap_or(TIMEOUT),
            stdin: terminal.map_or(source.stdin(args.run.detach), RawTerminal::as_stdin),
            log_bytes: args.run.log_limit,
            pull: args.pull.clone(),
            gpu: compile::gpus(args, facts.as_ref())?,
            queue: args.run.queue_timeout,
            facts: facts.as_ref().map(rgpu_protocol::HostFacts::key),
            known,
            detach: args.run.detach,
        };
        let mut context = RunContext {
            folder,
            record,
            reporter: &mut open.reporter,
            cancel: open.cancel.clone(),
            input: (terminal.is_some() || source.has_input(args.run.detach)).then(standard_input),
        };
        let copies = pull::copies(app, args);
        match exec(&mut open.link, &request, &mut packer, &mut context, copies).await {
            Err(failure) if failure.code == "facts_changed" && !fresh => cache.forget(),
            outcome => return outcome,
        }
    }
    Err(Failure::new(Exit::Host, "facts_changed", "the host changes all the time"))
}

/// Starts or resumes a program under a profiler.
fn profile_program(
    app: &App,
    args: &ExecArgs,
    source: &ExecSource,
    resumed: Option<(RunFolder, RunRecord)>,
) -> Result<Status> {
    let profile_args = args.profile();
    let spec = session::spec(app, args.place.remote.as_deref())?;
    let mode = args.mode.unwrap_or(crate::kernel::Mode::Ncu);
    let scratch = tempfile::tempdir().map_err(|e| {
        Failure::new(Exit::Disk, "disk", "no temporary folder can be made").cause(e)
    })?;
    let build_folder = RunFolder::create(scratch.path(), "build", None)?;
    let output_options = OutputOptions {
        live: LiveOutput::Beside,
        events: None,
        accept_new: args.place.accept_new,
        run: "",
        row: None,
    };
    let (facts, built) = app.block_on(async {
        let now_s = jiff::Timestamp::now().as_second();
        let cache = session::facts_cache(app, &spec);
        let compile = |mut reporter: crate::run::SharedReporter| {
            let build_folder = &build_folder;
            async move {
                compile::compile(app, source.package.as_ref(), build_folder, &mut reporter).await
            }
        };
        if let Some(facts) = cache.load(now_s) {
            return Ok((facts, session::beside(app, output_options, compile).await?));
        }
        let (mut open, built) =
            session::open_beside(app, spec.clone(), output_options, compile).await?;
        let facts = open.ask(&cache, now_s).await;
        open.link.close().await;
        Ok((facts?, built))
    })?;
    let mut program = compile::program(args, source, Some(&facts), built)?;
    program.env.extend(args.env.iter().map(|(k, v)| (k.clone(), v.as_str().into())));
    refuse_with_a_mode(args)?;
    let inputs = InputsRecord {
        schema: "rgpu.inputs/1".to_owned(),
        seed: 1,
        cases: Vec::new(),
        files: Vec::new(),
    };
    let profile_command = profile::of_program(app, &profile_args, mode, program, inputs)?;
    match resumed {
        None => profile::run_asked(app, &profile_args, profile_command, "exec"),
        Some((folder, record)) => {
            profile::attach_asked(app, &profile_args, profile_command, folder, record)
        }
    }
}

/// Refuses flags that cannot be used with `--mode`.
fn refuse_with_a_mode(args: &ExecArgs) -> Result<()> {
    let flags = [
        ("--env-file", !args.env_file.is_empty()),
        ("--pull", !args.pull.is_empty()),
        ("--gpus", args.gpus.is_some_and(|n| n != 1)),
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
pub(super) fn attach(
    app: &App,
    args: &ExecArgs,
    folder: &RunFolder,
    mut record: RunRecord,
) -> Result<Status> {
    let started_at = Instant::now();
    if args.mode.is_some() {
        let source = ExecSource::read(app, args)?;
        return profile_program(app, args, &source, Some((folder.clone(), record)));
    }
    if let (true, Some(file)) = (record.title.starts_with("build "), &args.file) {
        let args = BuildArgs::of_file(file.clone(), &args.place, &args.run);
        return build::attach(app, &args, folder, record);
    }
    let spec = session::spec(app, Some(&record.remote))?;
    let id = record.id.clone();
    let events = args.run.events.as_deref();
    let live = match (app.global.json, events) {
        (true, _) => LiveOutput::Hidden,
        (false, Some("-")) => LiveOutput::Beside,
        (false, _) => LiveOutput::Through,
    };
    let output_options = OutputOptions { live, events, accept_new: false, run: &id, row: None };
    let outcome = app.block_on(async {
        let mut open = session::open(app, spec, output_options).await?;
        let mut context = RunContext {
            folder,
            record: &mut record,
            reporter: &mut open.reporter,
            cancel: open.cancel.clone(),
            input: None,
        };
        let copies = pull::copies(app, args);
        let outcome = exec_again(&mut open.link, &args.pull, &mut context, copies).await;
        let drained = open.drain().await;
        let outcome = map_lost_reader(&open, outcome.and_then(|outcome| drained.map(|()| outcome)));
        report_end(&mut open, &outcome);
        close(open.link, &mut record).await;
        outcome
    });
    finish(app, folder, record, outcome, started_at, args)
}

const SIGINT: i32 = 2;
const SIGPIPE: i32 = 13;

/// Turns a cancel for lack of a reader into death by SIGPIPE. A failed write to stdout is an error
/// of ours.
fn map_lost_reader(
    open: &session::OpenRemote,
    outcome: Result<ExecOutcome>,
) -> Result<ExecOutcome> {
    written()?;
    let unread = |f: &Failure| f.exit == Exit::Cancelled && open.cancel.output_unread();
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
                && word.contains(|c: char| c.is_whitespace() || "|&;<>()$`\"'*".contains(c)) =>
        {
            failure.hint(format!("no shell is used: rgpu exec -- sh -c {}", shell_word(word)))
        }
        _ => failure,
    }
}

fn report_end(open: &mut session::OpenRemote, outcome: &Result<ExecOutcome>) {
    let exit = match outcome {
        Ok(ExecOutcome { end: None, .. }) => 0,
        Ok(ExecOutcome { end: Some(Ok(end)), .. }) => end.status(),
        Ok(ExecOutcome { end: Some(Err(failure)), .. }) | Err(failure) => {
            status_of_failure(failure)
        }
    };
    open.reporter.say(&RunEvent::Finished { exit });
}

fn finish(
    app: &App,
    folder: &RunFolder,
    mut record: RunRecord,
    outcome: Result<ExecOutcome>,
    started_at: Instant,
    args: &ExecArgs,
) -> Result<Status> {
    record.lasted(started_at.elapsed().as_secs_f64());
    record.at_least(folder.job_time());
    let open_job = record.jobs.iter().any(|job| job.outcome.is_none());
    let has_ended = matches!(&outcome, Ok(ExecOutcome { end: Some(_), .. }));
    let (outcome, pulled, mut copies) = match outcome {
        Ok(ExecOutcome { end, pulled, copies }) => (end.transpose(), pulled, copies),
        Err(failure) => (Err(failure), Vec::new(), FileCopies::default()),
    };
    record.state = match &outcome {
        Ok(None) => RunState::Detached,
        Ok(Some(_)) => RunState::Done,
        // The link was lost or the user stopped waiting: the job may go on and can be resumed.
        Err(f) if matches!(f.exit, Exit::Cancelled | Exit::Host) && open_job => RunState::Running,
        Err(f) if f.exit == Exit::Cancelled => RunState::Cancelled,
        Err(_) => RunState::Failed,
    };
    let outcome = outcome.map_err(|failure| with_shell_hint(failure, args));
    record.exit = Some(match &outcome {
        Ok(end) => end.map_or(0, ProgramExit::status),
        Err(failure) => status_of_failure(failure),
    });
    let error_document = outcome.as_ref().err();
    let error_document =
        error_document.map(|f| ErrorDocument::new(f.clone(), status_of_failure(f)));
    if let Ok(Some(end)) = &outcome {
        record.program_exit = Some(i32::from(end.status()));
    }
    folder.end(&record, error_document.as_ref())?;
    let placement = pull::place(app, args, (folder, &record), &pulled, &mut copies);
    // A program that did not start has no files to pull.
    let may_have_output = |f: &Failure| matches!(f.exit, Exit::Cancelled | Exit::Host);
    if has_ended
        && outcome.as_ref().err().is_none_or(may_have_output)
        && pulled.is_empty()
        && !args.pull.is_empty()
    {
        app.say(&format!(
            "warning: nothing was pulled: no new or changed file fits `{}`",
            args.pull.join("` or `")
        ));
    }
    let end = match outcome {
        Ok(end) => end,
        Err(failure) => {
            if let Err(unwritten) = placement {
                app.say(&unwritten.to_string());
            }
            return Err(failure);
        }
    };
    let PulledFiles { names: pulled, unplaced } = placement?;
    let Some(end) = end else {
        app.say(&format!(
            "`{}` goes on by itself; `rgpu runs attach {}` brings the results",
            record.id, record.id
        ));
        if app.global.json {
            app.print_json(&record)?;
        }
        return Ok(0);
    };
    if app.global.json {
        app.print_json(&ExecResult {
            schema: "rgpu.exec/1".to_owned(),
            run: record.id.clone(),
            folder: folder.path().display().to_string(),
            exit: if let ProgramExit::Exit(n) = end { Some(n) } else { None },
            signal: if let ProgramExit::Signal(n) = end { Some(n) } else { None },
            timed_out: end == ProgramExit::TimedOut,
            seconds: record.seconds,
            pulled,
            unplaced,
        })?;
    }
    let name = record.title.strip_prefix("exec ").unwrap_or_default();
    match end {
        ProgramExit::TimedOut => app.say(&format!(
            "error: `{name}` was stopped after {} s\n  help: give it longer with `--timeout`",
            args.run.timeout.unwrap_or(TIMEOUT).as_secs()
        )),
        // Whoever closed the pipe or pressed Ctrl-C needs no message.
        ProgramExit::Signal(n) if ![SIGPIPE, SIGINT].contains(&n) => {
            app.say(&format!("error: `{name}` was ended by {}", signal(n)));
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
