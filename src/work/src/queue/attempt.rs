//! One attempt of an entry: the process that watches the command from start to end.
//!
//! The runner starts this process, which then depends on nobody: it outlives the runner, records
//! the end itself, and is the subreaper of all that the command starts, even of daemons. So the
//! whole tree ends with the attempt, by the agent's own code. Output goes into the log file, up to
//! a limit.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rgpu_protocol::Digest;
use rustix::process::{Signal, WaitStatus};

use super::entry::{AttemptEnd, EntrySettings, EntryState, SnapshotMode};
use super::error::io_error;
use super::{Queue, QueueError, environment, snapshot};
use crate::own_command::{is_agent_command, is_started_by_agent};
use rgpu_model::fault_point;
use rgpu_run::child_tree::{ChildAction, LimitedOutput, MAX_LOG_BYTES, TreeWatch, WaitResult};
use rgpu_run::process_tree;
use rgpu_run::store::state::{StateError, sql_error};

/// The variable by which the processes of an attempt are found after their watcher was killed.
const MARKER: &str = "RGPU_QUEUE_ATTEMPT";

/// How long to try to record the end, for example on a full disk.
const RECORD_TIMEOUT: Duration = Duration::from_secs(600);

/// The time between two tries.
pub(super) const RECORD_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The command line of the process that watches an attempt.
#[derive(Clone, Debug)]
pub struct AttemptCall {
    /// The folder of the project whose queue it is.
    pub project: PathBuf,
    /// The file with the ids of the user's state databases.
    pub own_ids: PathBuf,
    /// The number of the entry to run.
    pub entry: i64,
    /// Which attempt of the entry it is, from 1.
    pub attempt: u32,
    /// The event of the runner's start.
    pub runner: i64,
}

impl AttemptCall {
    /// The command line after the program's name.
    pub fn argv(&self) -> Vec<OsString> {
        let numbers = [self.entry.to_string(), self.attempt.to_string(), self.runner.to_string()];
        let words = ["queue", "__attempt", "--"].into_iter().map(OsString::from);
        words
            .chain([self.project.clone().into(), self.own_ids.clone().into()])
            .chain(numbers.into_iter().map(OsString::from))
            .collect()
    }
}

/// Carries out an attempt in this process, which was started for it: makes the entry running, runs
/// the command to its end, and records the end. Does nothing if it is not the entry's turn any
/// more.
///
/// # Errors
/// The database cannot be read or written. What fails in the attempt itself is its recorded end.
pub fn watch_attempt(call: &AttemptCall) -> Result<(), QueueError> {
    process_tree::set_name(c"rgpu-queue");
    // A session of its own: Ctrl-C at the runner's terminal is not for the command.
    let _ = rustix::process::setsid();
    // Before the entry is running, because from then on it can be cancelled.
    let mut watch = TreeWatch::listen(false).map_err(io_error("watch", Path::new("/proc/self")))?;
    let mut queue = Queue::open_existing(&call.project, &call.own_ids)?;
    if !queue.start_attempt(call.entry, call.attempt, call.runner)? {
        return Ok(());
    }
    let end = run(&queue, call, &mut watch);
    record(&mut queue, call, &end)?;
    // The runner tries it again, and tells if that fails too.
    let _ = queue.update_log_file();
    Ok(())
}

/// Records the end. A full disk may have room again soon.
fn record(queue: &mut Queue, call: &AttemptCall, end: &AttemptEnd) -> Result<(), QueueError> {
    let start = Instant::now();
    loop {
        match queue.end_attempt(call.entry, call.attempt, end) {
            Err(QueueError::State(StateError::Sql { .. })) if start.elapsed() < RECORD_TIMEOUT => {
                std::thread::sleep(RECORD_RETRY_DELAY);
            }
            other => return other.map(drop),
        }
    }
}

/// Kills what is left of an attempt whose watching process was killed.
pub(super) fn kill_leftovers(queue: &Queue, entry: i64, attempt: u32) -> BTreeSet<i32> {
    process_tree::kill_marked(&format!("{MARKER}={}", marker(queue, entry, attempt)))
}

fn marker(queue: &Queue, entry: i64, attempt: u32) -> String {
    format!("{}/{entry}/{attempt}", queue.db.id())
}

/// The number of the entry that started this process, if one did.
pub fn own_entry() -> Option<i64> {
    entry_of(&std::env::var(MARKER).ok()?)
}

/// As [`own_entry`], if it is of the queue in the database with this id.
pub(super) fn own_entry_of(database: &str) -> Option<i64> {
    let marker = std::env::var(MARKER).ok()?;
    entry_of(&marker).filter(|_| marker.split('/').next() == Some(database))
}

fn entry_of(marker: &str) -> Option<i64> {
    marker.split('/').nth(1)?.parse().ok().filter(|entry| *entry > 0)
}

/// The command of an entry, as the database has it.
struct EntryCommand {
    argv: Vec<OsString>,
    env: Vec<OsString>,
    cwd: PathBuf,
    script_sha256: Option<String>,
    timeout: Option<Duration>,
    settings: EntrySettings,
}

/// Runs the command to its end.
fn run(queue: &Queue, call: &AttemptCall, watch: &mut TreeWatch) -> AttemptEnd {
    let folder = queue.entry_folder(call.entry);
    let opened = make_folder(queue, &folder)
        .and_then(|()| open_log(queue, &queue.log_path(call.entry, call.attempt)));
    let mut log = match opened {
        Ok(log) => log,
        Err(error) => return AttemptEnd::without_status(EntryState::Failed, error.with_causes()),
    };
    let started = prepare(queue, call, &folder).and_then(|(mut command, timeout)| {
        let log_path = queue.log_path(call.entry, call.attempt);
        let (out, output) = (log.try_clone())
            .and_then(|log| LimitedOutput::start(log, MAX_LOG_BYTES))
            .map_err(io_error("open", &log_path))?;
        command.stdout(out.try_clone().map_err(io_error("open", &log_path))?).stderr(out);
        let program = PathBuf::from(command.get_program());
        let child = command.spawn().map_err(io_error("start", &program))?;
        Ok((child.id().cast_signed(), timeout, output))
    });
    match started {
        Ok((pid, timeout, output)) => {
            fault_point::kill_if_named("spawned");
            let end = follow(queue, call, watch, pid, timeout);
            output.finish();
            end
        }
        Err(error) => {
            let words = error.with_causes();
            // The reason is recorded too; here it is for those who look at the log.
            let _ = log.write_all(format!("rgpu queue: {words}\n").as_bytes());
            AttemptEnd::without_status(EntryState::Failed, words)
        }
    }
}

/// Waits until the command ends, or ends it.
fn follow(
    queue: &Queue,
    call: &AttemptCall,
    watch: &mut TreeWatch,
    pid: i32,
    timeout: Option<Duration>,
) -> AttemptEnd {
    let mut early_end: Option<(EntryState, Option<String>)> = None;
    let end = watch.follow(pid, |wake, elapsed| {
        let left = timeout.map(|limit| limit.saturating_sub(elapsed));
        if left == Some(Duration::ZERO) {
            let limit = timeout.unwrap_or_default().as_secs_f64();
            early_end = Some((EntryState::Timeout, Some(format!("its time limit of {limit} s"))));
            return ChildAction::End(&[Signal::TERM]);
        }
        if wake != Some(WaitResult::Terminate) {
            return ChildAction::Wait(left);
        }
        // Without a request the machine shuts down, or somebody ended this process.
        if queue.is_cancel_asked(call.entry, call.attempt).unwrap_or(false) {
            early_end = Some((EntryState::Cancelled, None));
            // After a user's request, a program expects SIGINT first.
            return ChildAction::End(&[Signal::INT, Signal::TERM]);
        }
        let reason = "the process that watched it got SIGTERM".to_owned();
        early_end = Some((EntryState::Lost, Some(reason)));
        ChildAction::End(&[Signal::TERM])
    });
    fault_point::kill_if_named("tree ended");
    let rc = end.status.and_then(WaitStatus::exit_status);
    let signal = end.status.and_then(WaitStatus::terminating_signal);
    let (state, mut reason) = match (early_end, rc, signal) {
        (Some(early_end), ..) => early_end,
        (None, Some(0), _) => (EntryState::Ok, None),
        (None, Some(rc), _) => (EntryState::Failed, Some(format!("exit status {rc}"))),
        (None, None, Some(signal)) => (EntryState::Failed, Some(format!("signal {signal}"))),
        (None, None, None) => (EntryState::Lost, Some("its status is unknown".to_owned())),
    };
    if !end.unkilled.is_empty() {
        let pids: Vec<String> = end.unkilled.iter().map(i32::to_string).collect();
        let words = format!("processes {} could not be killed", pids.join(", "));
        reason = Some(reason.map_or(words.clone(), |reason| format!("{reason}; {words}")));
    }
    let rc = rc.or_else(|| signal.map(|signal| 128 + signal));
    AttemptEnd { state, rc, signal, seconds: Some(end.duration.as_secs_f64()), reason }
}

/// Makes the command: files, folder, environment.
fn prepare(
    queue: &Queue,
    call: &AttemptCall,
    folder: &Path,
) -> Result<(Command, Option<Duration>), QueueError> {
    let mut work = queue.work(call.entry)?;
    let is_of_agent = is_started_by_agent();
    if is_of_agent && !work.is_agent_command() {
        let refused = io::Error::other("an agent's runner starts rgpu's own commands only");
        return Err(io_error("start", Path::new("the command"))(refused));
    }
    if let Some(sha256) = &work.script_sha256 {
        let path = folder.join("script");
        let bytes = queue.script(call.entry)?.unwrap_or_default();
        if Digest::sha256(&bytes).as_str() != sha256 {
            let damaged = io::Error::other("its bytes are not those that were added");
            return Err(io_error("use", &path)(damaged));
        }
        let written = queue.db.files().write_with_mode(&path, &bytes, 0o700);
        written.map_err(io_error("write", &path))?;
        work.argv.push(path.into());
    }
    let cwd = match work.settings.snapshot {
        SnapshotMode::None => work.cwd,
        mode => {
            let tree = folder.join(format!("{}.tree", call.attempt));
            let base = work.settings.base.as_ref();
            if let Some((top, _)) = base
                && is_of_agent
            {
                snapshot::check_repository(top, &queue.project)?;
            }
            snapshot::lay_out(mode, (queue.db.files(), folder), base, &tree)?;
            tree.join(&work.settings.inner)
        }
    };
    let Some((program, arguments)) = work.argv.split_first() else {
        return Err(io_error("start", Path::new(""))(io::ErrorKind::InvalidInput.into()));
    };
    if is_of_agent && !is_inside(&queue.project, &cwd) {
        let refused = io::Error::other("an agent's runner works in the project only");
        return Err(io_error("enter", &cwd)(refused));
    }
    if !cwd.is_dir() {
        return Err(io_error("enter", &cwd)(io::ErrorKind::NotFound.into()));
    }
    let mut command = Command::new(program);
    command.args(arguments).env_clear().current_dir(&cwd).stdin(Stdio::null()).process_group(0);
    let named = work.settings.env_from_runner.iter().map(String::as_str);
    let named = named.filter(|_| !is_of_agent);
    for name in environment::FROM_RUNNER.iter().copied().chain(named.clone()) {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    if let Some(name) = named.clone().find(|name| std::env::var_os(name).is_none()) {
        let missing = io::Error::other("it is not set where the runner was started");
        return Err(io_error("pass on the variable", Path::new(name))(missing));
    }
    if is_of_agent {
        // The database is in the project, where an agent can write.
        command.envs(environment::recorded(std::env::vars_os()));
    } else {
        let recorded = work.env.iter().filter_map(|word| environment::split_assignment(word));
        command.envs(recorded);
    }
    if work.settings.snapshot != SnapshotMode::None {
        // A snapshot without a commit is no part of the user's repository either.
        command.env("GIT_CEILING_DIRECTORIES", folder);
    }
    command.env(MARKER, marker(queue, call.entry, call.attempt));
    Ok((command, work.timeout))
}

impl EntryCommand {
    /// Whether an agent's runner may start it: it is a command of this program that an agent may
    /// give.
    fn is_agent_command(&self) -> bool {
        self.script_sha256.is_none() && is_command_for_agents(&self.argv)
    }
}

/// Whether a command is one of this program that an agent may give.
fn is_command_for_agents(argv: &[OsString]) -> bool {
    std::env::current_exe().is_ok_and(|own| is_agent_command(argv, &own))
}

/// Whether a folder is in the project, links resolved.
fn is_inside(project: &Path, folder: &Path) -> bool {
    match (project.canonicalize(), folder.canonicalize()) {
        (Ok(project), Ok(folder)) => folder.starts_with(project),
        _ => false,
    }
}

impl Queue {
    /// Whether a runner that an agent started may start an entry.
    pub(super) fn is_for_agents(&self, entry: i64) -> Result<bool, QueueError> {
        Ok(self.work(entry)?.is_agent_command())
    }

    /// What an entry runs.
    fn work(&self, entry: i64) -> Result<EntryCommand, QueueError> {
        let query = "SELECT argv, env, cwd, script_sha256, timeout_ms, settings \
                     FROM queue_entry WHERE id = ?1";
        let work = self.db.connection().query_row(query, [entry], |row| {
            let timeout: Option<i64> = row.get(4)?;
            Ok(EntryCommand {
                argv: environment::from_bytes(row.get_ref(0)?.as_blob()?),
                env: environment::from_bytes(row.get_ref(1)?.as_blob()?),
                cwd: PathBuf::from(OsStr::from_bytes(row.get_ref(2)?.as_blob()?)),
                script_sha256: row.get(3)?,
                timeout: timeout.map(|ms| Duration::from_millis(ms.unsigned_abs())),
                settings: serde_json::from_str(row.get_ref(5)?.as_str()?).unwrap_or_default(),
            })
        });
        Ok(work.map_err(sql_error("read"))?)
    }
}

fn make_folder(queue: &Queue, folder: &Path) -> Result<(), QueueError> {
    let made = queue.db.files().make_private_folder(folder);
    made.map(drop).map_err(io_error("create", folder))
}

fn open_log(queue: &Queue, path: &Path) -> Result<File, QueueError> {
    queue.db.files().append(path, 0o600).map_err(io_error("create", path))
}

#[cfg(test)]
mod tests {
    #[test]
    fn reads_the_entry_of_a_marker() {
        assert_eq!(super::entry_of("0f3a/17/2"), Some(17));
        for marker in ["", "0f3a", "0f3a/x/1", "0f3a/0/1", "0f3a/-4/1"] {
            assert_eq!(super::entry_of(marker), None, "{marker}");
        }
    }
}
