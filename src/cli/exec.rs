//! `rgpu exec`: a command on a GPU host, with its own output and its own status.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tokio::sync::mpsc;

use super::app::{App, Status};
use super::profile::{bytes, duration};
use super::progress::Live;
use super::session::{self, Voice};
use crate::error::{Exit, Failure, Result};
use crate::run::{Desk, ExecRequest, ProgramEnd, Reporter, Said, exec, exec_again};
use crate::store::{RunFolder, RunRecord, RunState, Runs};

/// What `rgpu exec` itself ends with when it, not the program, fails.
const OWN_FAILURE: u8 = 125;

/// Run a command on the GPU host
///
/// Ends with the command's own status; 124 when its time limit ran out, 125 when rgpu itself
/// failed, 128+n when signal n ended it.
#[derive(Args, Clone, Debug)]
pub(super) struct ExecArgs {
    /// A remote of `rgpu remote list`, an alias of ~/.ssh/config, or ssh://user@host:port
    #[arg(long, short, value_name = "REMOTE")]
    pub remote: Option<String>,

    /// Time it may take, e.g. 90s, 10m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub timeout: Duration,

    /// Set a variable for it
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub env: Vec<(String, String)>,

    /// Accept the key of a host never seen before
    #[arg(long)]
    pub accept_new: bool,

    /// The run's name; refused when taken
    #[arg(long, value_name = "NAME")]
    pub run_id: Option<String>,

    /// This run's own folder, absent or empty
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,

    /// Write everything the run says as JSON lines
    #[arg(long, value_name = "FILE|-")]
    pub events: Option<String>,

    /// Output kept of each stream, e.g. 100MB
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub log_limit: Option<u64>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", num_args = 1..)]
    pub command: Vec<String>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !name.contains('\0') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// What `--json` prints in the end.
#[derive(Serialize)]
struct ExecResult<'a> {
    schema: &'static str,
    run: &'a str,
    folder: String,
    exit: Option<i32>,
    signal: Option<i32>,
    timed_out: bool,
    seconds: f64,
}

/// Runs the command.
pub(super) fn run(app: &App, args: &ExecArgs) -> Result<Status> {
    execute(app, args).or_else(|failure| own_failure(failure, app.global.json))
}

/// Ends a command that failed on rgpu's side, with a status that says so.
pub(super) fn own_failure(failure: Failure, json: bool) -> Result<Status> {
    if matches!(failure.exit, Exit::Cancelled | Exit::Usage) {
        return Err(failure);
    }
    super::app::show_failure(&failure, OWN_FAILURE, json);
    Ok(OWN_FAILURE)
}

fn execute(app: &App, args: &ExecArgs) -> Result<Status> {
    let begun = Instant::now();
    let spec = session::spec(app, args.remote.as_deref())?;
    let program = args.command.first().map_or("", |c| c.rsplit('/').next().unwrap_or(c));
    let now = jiff::Timestamp::now();
    let id = args.run_id.clone().unwrap_or_else(|| Runs::fresh_id(&format!("exec-{program}"), now));
    let folder = RunFolder::create(&app.config.runs_dir.value, &id, args.out.as_deref())?;
    let mut record = RunRecord {
        schema: "rgpu.run/1".to_owned(),
        id: id.clone(),
        started: now.to_string(),
        title: format!("exec {program}"),
        command: "exec".to_owned(),
        argv: app.argv.clone(),
        mode: String::new(),
        kernel: String::new(),
        remote: spec.name.clone(),
        address: spec.url.clone(),
        labels: BTreeMap::new(),
        jobs: Vec::new(),
        state: RunState::Running,
        exit: None,
        program_exit: None,
        seconds: 0.0,
    };
    folder.save(&record)?;
    folder.write("config.toml", app.config.record(&spec).as_bytes())?;
    let request = ExecRequest {
        argv: args.command.clone(),
        env: args.env.iter().cloned().collect(),
        timeout: args.timeout,
        stdin: true,
        log_bytes: args.log_limit,
    };
    let live = match (app.global.json, args.events.as_deref()) {
        (true, _) => Live::Hidden,
        // The events have stdout: the command's own output goes beside them.
        (false, Some("-")) => Live::Beside,
        (false, _) => Live::Through,
    };
    let voice =
        Voice { live, events: args.events.as_deref(), accept_new: args.accept_new, run: &id };
    let ended = app.block_on(async {
        let mut open = session::open(app, spec, voice).await?;
        let mut desk = Desk {
            folder: &folder,
            record: &mut record,
            reporter: &mut open.reporter,
            cancel: open.cancel.clone(),
            input: Some(standard_input()),
        };
        let ended = exec(&mut open.follow, &request, &mut desk).await;
        let ended = as_by_sigpipe(&open, ended);
        say_end(&mut open, &ended);
        open.follow.close().await;
        ended
    });
    finish(app, &folder, record, ended, begun, args)
}

/// Takes up a command whose rgpu went away.
pub(super) fn attach(
    app: &App,
    args: &ExecArgs,
    folder: &RunFolder,
    mut record: RunRecord,
    events: Option<&str>,
) -> Result<Status> {
    let begun = Instant::now();
    let spec = session::spec(app, Some(&record.remote))?;
    let id = record.id.clone();
    let live = if app.global.json { Live::Hidden } else { Live::Through };
    let voice = Voice { live, events, accept_new: false, run: &id };
    let ended = app.block_on(async {
        let mut open = session::open(app, spec, voice).await?;
        let mut desk = Desk {
            folder,
            record: &mut record,
            reporter: &mut open.reporter,
            cancel: open.cancel.clone(),
            input: None,
        };
        let ended = exec_again(&mut open.follow, &mut desk).await;
        let ended = as_by_sigpipe(&open, ended);
        say_end(&mut open, &ended);
        open.follow.close().await;
        ended
    });
    finish(app, folder, record, ended, begun, args)
}

/// A program whose output nobody reads any more was stopped as a closed pipe stops one.
fn as_by_sigpipe(open: &session::Open, ended: Result<ProgramEnd>) -> Result<ProgramEnd> {
    const SIGPIPE: i32 = 13;
    match ended {
        Err(f) if f.exit == Exit::Cancelled && open.cancel.output_unread() => {
            Ok(ProgramEnd::Signal(SIGPIPE))
        }
        ended => ended,
    }
}

fn say_end(open: &mut session::Open, ended: &Result<ProgramEnd>) {
    let exit = ended.as_ref().map_or_else(|f| f.exit as u8, |end| end.status());
    open.reporter.say(&Said::Finished { exit });
}

fn finish(
    app: &App,
    folder: &RunFolder,
    mut record: RunRecord,
    ended: Result<ProgramEnd>,
    begun: Instant,
    args: &ExecArgs,
) -> Result<Status> {
    record.seconds += begun.elapsed().as_secs_f64();
    record.state = match &ended {
        Ok(_) => RunState::Done,
        Err(f) if f.exit == Exit::Cancelled => RunState::Cancelled,
        Err(_) => RunState::Failed,
    };
    record.exit = Some(ended.as_ref().map_or_else(|f| f.exit as u8, |end| end.status()));
    if let Ok(end) = &ended {
        record.program_exit = Some(i32::from(end.status()));
    }
    folder.save(&record)?;
    let end = ended?;
    if app.global.json {
        app.print_json(&ExecResult {
            schema: "rgpu.exec/1",
            run: &record.id,
            folder: folder.path().display().to_string(),
            exit: if let ProgramEnd::Exit(n) = end { Some(n) } else { None },
            signal: if let ProgramEnd::Signal(n) = end { Some(n) } else { None },
            timed_out: end == ProgramEnd::TimedOut,
            seconds: record.seconds,
        })?;
    }
    if end == ProgramEnd::TimedOut {
        let program = args.command.first().map_or("", String::as_str);
        app.say(&format!(
            "error: `{program}` was stopped after {} s\n  help: give it longer with `--timeout`",
            args.timeout.as_secs()
        ));
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
