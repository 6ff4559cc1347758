//! `rgpu exec`: a file, a piece of code or a command on a GPU host, with its own output and its own
//! status.

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
    ExecOutcome, ExecRequest, FileCopies, InputsRecord, ProgramExit, Reporter, RunContext,
    RunEvent, close, exec, exec_again, exec_draft, signal,
};
use crate::store::{RunFolder, RunRecord, RunState, Runs};
use crate::tool;
pub(super) use args::ExecArgs;
use pull::PulledFiles;
use pull_folder::SkippedFile;
use source::ExecSource;

/// What `rgpu exec` itself ends with when it, not the program, fails.
const OWN_FAILURE: u8 = 125;

/// How long a program may run, unless told otherwise.
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

/// Runs the command.
pub(super) fn run(app: &App, args: &ExecArgs) -> Result<Status> {
    execute(app, args)
        .and_then(|status| written().map(|()| status))
        .or_else(|failure| own_failure(failure, app.global.json))
}

/// Ends a command that failed on rgpu's side, with a status that says so.
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
    let begun = Instant::now();
    let source = ExecSource::read(app, args)?;
    if args.tty && !source.stdin {
        return Err(Failure::new(
            Exit::Usage,
            "usage",
            "`--tty` needs standard input, which the code came through",
        ));
    }
    if args.mode.is_some() {
        return profiled(app, args, &source, None);
    }
    if source.is_library() && !asks_for_a_program(args) {
        return compiled(app, args, &source);
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
    let first = InitialFiles {
        folder: folder.clone(),
        latest: args.run.out.is_none(),
        record: record.clone(),
        config: app.config.record(&spec),
        snippet: source.snippet.as_ref().map(|s| (format!("source/{}", s.name), s.text.clone())),
    };
    let live = match (app.global.json, args.run.events.as_deref()) {
        (true, _) => LiveOutput::Hidden,
        (false, _) if args.tty => LiveOutput::Raw,
        // The events have stdout: the command's own output goes beside them.
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
    let writing = std::thread::spawn(move || first.write());
    let ended = app.block_on(async {
        // The compiler works, and large files are hashed, while the connection is made.
        let opened = session::open_beside(app, spec, output_options, |mut reporter| {
            let (source, folder) = (&source, &folder);
            let large = source.mounts.large();
            let hashed =
                tokio::task::spawn_blocking(move || Packer::ahead(DEFAULT_MAX_BYTES, &large));
            async move {
                let package = source.package.as_ref();
                let built = compile::compile(app, package, folder, &mut reporter).await?;
                Ok((built, hashed.await.unwrap_or_default()))
            }
        })
        .await;
        // Before the record changes or a job is sent, whatever became of the connection.
        first_written(writing)?;
        let (mut open, made) = opened?;
        let ended = carry(app, args, &source, &folder, &mut record, &mut open, made).await;
        let drained = open.drain().await;
        let ended = as_by_sigpipe(&open, ended.and_then(|ended| drained.map(|()| ended)));
        say_end(&mut open, &ended);
        close(open.link, &mut record).await;
        ended
    });
    finish(app, &folder, record, ended, begun, args)
}

/// What a run folder has from the start. A disk that is busy with what was just written to it can
/// take its time over these few bytes: the connection need not wait for them.
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

fn first_written(writing: std::thread::JoinHandle<Result<()>>) -> Result<()> {
    let died =
        |_| Failure::new(Exit::Bug, "panic", "the run folder's first files were not written");
    writing.join().map_err(died)?
}

/// Whether a flag means something only where a program runs.
fn asks_for_a_program(args: &ExecArgs) -> bool {
    let kept = !args.pull.is_empty() || !args.mount.is_empty();
    let set = !args.env.is_empty() || !args.env_file.is_empty() || args.gpus.is_some();
    kept || set || args.tty || args.run.dry_run || !args.command.is_empty()
}

/// Kernels without a program: compiled there, and what came of it shown.
fn compiled(app: &App, args: &ExecArgs, source: &ExecSource) -> Result<Status> {
    let Some(snippet) = &source.snippet else { return Ok(0) };
    let scratch = tempfile::tempdir().map_err(|e| {
        Failure::new(Exit::Disk, "disk", "no temporary folder can be made").cause(e)
    })?;
    let file = match &args.file {
        Some(file) if file != "-" => file.clone(),
        // nvcc goes by the name.
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
        let here = format!("`rgpu build {}{remote} --yes` fetches", snippet.typed());
        for hint in &mut failure.hints {
            *hint = hint.replace("`--yes` fetches", &here);
        }
        failure
    })
}

/// Prints the commands that would run on the host. Nothing is compiled or touched.
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

/// Makes the program for this host, and runs it there.
async fn carry(
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
    // Put back when this function ends, however it does.
    let terminal = if args.tty { Some(RawTerminal::take()?) } else { None };
    // Kept facts may be of before the host's last boot: then it says so, and is asked again.
    for fresh in [false, true] {
        let terminal = terminal.as_ref();
        let facts = match (source.asks(args), cache.load(now_s).filter(|_| !fresh)) {
            (false, _) => None,
            (true, Some(facts)) => Some(facts),
            (true, None) => Some(open.ask(&cache, now_s).await?),
        };
        // What is known of a host that was not asked now does no harm.
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
            ended => return ended,
        }
    }
    Err(Failure::new(Exit::Host, "facts_changed", "the host changes all the time"))
}

/// The program under a profiler: begun, or taken up.
fn profiled(
    app: &App,
    args: &ExecArgs,
    source: &ExecSource,
    again: Option<(RunFolder, RunRecord)>,
) -> Result<Status> {
    let profile_args = args.profile();
    let spec = session::spec(app, args.place.remote.as_deref())?;
    let mode = args.mode.map_or(crate::kernel::Mode::Ncu, profile::Mode::way);
    let scratch = tempfile::tempdir().map_err(|e| {
        Failure::new(Exit::Disk, "disk", "no temporary folder can be made").cause(e)
    })?;
    let words = RunFolder::create(scratch.path(), "build", None)?;
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
            let words = &words;
            async move { compile::compile(app, source.package.as_ref(), words, &mut reporter).await }
        };
        if let Some(facts) = cache.load(now_s) {
            return Ok((facts, session::beside(app, output_options, compile).await?));
        }
        let (mut open, built) = session::open_beside(app, spec.clone(), output_options, compile).await?;
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
    let asked = profile::of_program(app, &profile_args, mode, program, inputs)?;
    match again {
        None => profile::run_asked(app, &profile_args, asked, "exec"),
        Some((folder, record)) => profile::attach_asked(app, &profile_args, asked, folder, record),
    }
}

/// What a profile has no place for.
fn refuse_with_a_mode(args: &ExecArgs) -> Result<()> {
    let given = [
        ("--env-file", !args.env_file.is_empty()),
        ("--pull", !args.pull.is_empty()),
        ("--gpus", args.gpus.is_some_and(|n| n != 1)),
        ("--tty", args.tty),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Failure::new(
            Exit::Usage,
            "usage",
            format!("`{flag}` cannot be used with `--mode`"),
        )),
        None => Ok(()),
    }
}

/// Takes up a command whose rgpu went away.
pub(super) fn attach(
    app: &App,
    args: &ExecArgs,
    folder: &RunFolder,
    mut record: RunRecord,
) -> Result<Status> {
    let begun = Instant::now();
    if args.mode.is_some() {
        let source = ExecSource::read(app, args)?;
        return profiled(app, args, &source, Some((folder.clone(), record)));
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
    let ended = app.block_on(async {
        let mut open = session::open(app, spec, output_options).await?;
        let mut context = RunContext {
            folder,
            record: &mut record,
            reporter: &mut open.reporter,
            cancel: open.cancel.clone(),
            input: None,
        };
        let copies = pull::copies(app, args);
        let ended = exec_again(&mut open.link, &args.pull, &mut context, copies).await;
        let drained = open.drain().await;
        let ended = as_by_sigpipe(&open, ended.and_then(|ended| drained.map(|()| ended)));
        say_end(&mut open, &ended);
        close(open.link, &mut record).await;
        ended
    });
    finish(app, folder, record, ended, begun, args)
}

const SIGINT: i32 = 2;
const SIGPIPE: i32 = 13;

/// A program whose output nobody reads any more was stopped as a closed pipe stops one; output that
/// could not be written is our failure.
fn as_by_sigpipe(open: &session::OpenRemote, ended: Result<ExecOutcome>) -> Result<ExecOutcome> {
    written()?;
    let unread = |f: &Failure| f.exit == Exit::Cancelled && open.cancel.output_unread();
    let end = Some(Ok(ProgramExit::Signal(SIGPIPE)));
    match ended {
        Err(f) if unread(&f) => {
            Ok(ExecOutcome { end, pulled: Vec::new(), copies: FileCopies::default() })
        }
        Ok(ExecOutcome { end: Some(Err(f)), pulled, copies }) if unread(&f) => {
            Ok(ExecOutcome { end, pulled, copies })
        }
        ended => ended,
    }
}

/// With a word on shells, where one word was given that only a shell would take apart.
fn no_shell(failure: Failure, args: &ExecArgs) -> Failure {
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

fn say_end(open: &mut session::OpenRemote, ended: &Result<ExecOutcome>) {
    let exit = match ended {
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
    ended: Result<ExecOutcome>,
    begun: Instant,
    args: &ExecArgs,
) -> Result<Status> {
    record.lasted(begun.elapsed().as_secs_f64());
    record.at_least(folder.job_time());
    let open_job = record.jobs.iter().any(|job| job.outcome.is_none());
    let over = matches!(&ended, Ok(ExecOutcome { end: Some(_), .. }));
    let (ended, pulled, mut copies) = match ended {
        Ok(ExecOutcome { end, pulled, copies }) => (end.transpose(), pulled, copies),
        Err(failure) => (Err(failure), Vec::new(), FileCopies::default()),
    };
    record.state = match &ended {
        Ok(None) => RunState::Detached,
        Ok(Some(_)) => RunState::Done,
        // The link stayed cut, or waiting stopped: the job may go on, and can be taken up.
        Err(f) if matches!(f.exit, Exit::Cancelled | Exit::Host) && open_job => RunState::Running,
        Err(f) if f.exit == Exit::Cancelled => RunState::Cancelled,
        Err(_) => RunState::Failed,
    };
    let ended = ended.map_err(|failure| no_shell(failure, args));
    record.exit = Some(match &ended {
        Ok(end) => end.map_or(0, ProgramExit::status),
        Err(failure) => status_of_failure(failure),
    });
    let failed = ended.as_ref().err();
    let failed = failed.map(|f| ErrorDocument::new(f.clone(), status_of_failure(f)));
    if let Ok(Some(end)) = &ended {
        record.program_exit = Some(i32::from(end.status()));
    }
    folder.end(&record, failed.as_ref())?;
    let placed = pull::place(app, args, (folder, &record), &pulled, &mut copies);
    // One that did not start has nothing to bring.
    let ran = |f: &Failure| matches!(f.exit, Exit::Cancelled | Exit::Host);
    if over && ended.as_ref().err().is_none_or(ran) && pulled.is_empty() && !args.pull.is_empty() {
        app.say(&format!(
            "warning: nothing was pulled: no new or changed file fits `{}`",
            args.pull.join("` or `")
        ));
    }
    let end = match ended {
        Ok(end) => end,
        Err(failure) => {
            if let Err(unwritten) = placed {
                app.say(&unwritten.to_string());
            }
            return Err(failure);
        }
    };
    let PulledFiles { names: pulled, unplaced } = placed?;
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
        // A closed pipe and a key are no news to whoever closed or pressed it.
        ProgramExit::Signal(n) if ![SIGPIPE, SIGINT].contains(&n) => {
            app.say(&format!("error: `{name}` was ended by {}", signal(n)));
        }
        ProgramExit::Signal(_) | ProgramExit::Exit(_) => {}
    }
    Ok(end.status())
}

/// This process's standard input, read by a thread of its own: a blocked read must not keep the
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
