//! Runs commands of rgpu as processes of their own.
//!
//! A command belongs to a process group of its own and writes its document and its messages to
//! files, so it continues when the server that started it ends. Only its own end, or a client that
//! cancels, ends it.

#![expect(clippy::disallowed_methods, reason = "a temporary folder of its own")]

mod agent;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::{mpsc, watch};

use rgpu_model::beneath::Folder;
use rgpu_model::error::{ErrorDocument, Exit, Failure, Result, shell_word};

pub use agent::{
    AGENT_VARIABLE, QUEUED_COMMANDS, check_agent_words, is_agent_command, is_started_by_agent,
};

const ERROR_SCHEMA: &str = "rgpu.error/1";

/// The most commands that run at once for one server.
const MAX_RUNNING: usize = 64;

/// The longest word of a command line. The system takes no longer ones.
const MAX_WORD_BYTES: usize = 100_000;

/// The largest document that a command may print.
const MAX_DOCUMENT_BYTES: u64 = 256 << 20;

/// The largest part of the messages that is kept, from their end.
const MAX_MESSAGE_BYTES: u64 = 4000;

/// The most bytes of messages on the disk. What is older than the last of them is freed.
const MAX_MESSAGE_FILE_BYTES: u64 = 16 << 20;

/// How often the files of a running command are looked at.
const FILE_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// How long a command that nobody waits for any more may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// The program of this process, and the folder in which its commands run.
#[derive(Clone, Debug)]
pub struct OwnProgram {
    /// The path of the program.
    pub path: PathBuf,
    /// The folder in which the commands run.
    pub folder: PathBuf,
    /// `folder` as it was when the server of an agent began. Commands of an agent start no other
    /// program on this machine. `None` if no agent starts them.
    pub agent_folder: Option<Folder>,
}

impl OwnProgram {
    /// Refuses a folder that another one has replaced: the agent could lead its commands elsewhere.
    ///
    /// # Errors
    /// It is another folder, or none.
    pub fn check_folder(&self) -> Result<()> {
        let Some(began_with) = &self.agent_folder else { return Ok(()) };
        let is_same = |now: Folder| Ok(now.identity()? == began_with.identity()?);
        let cause = match Folder::open(&self.folder).and_then(is_same) {
            Ok(true) => return Ok(()),
            Ok(false) => "another folder is in its place".to_owned(),
            Err(error) => error.to_string(),
        };
        let what = "the project's folder is not the one that this server began with";
        Err(Failure::new(Exit::Config, "project_moved", what)
            .file(self.folder.display())
            .cause(cause)
            .hint("move it back, or ask your user to start `rgpu mcp` again"))
    }
}

/// Checks a value that is an argument of its own: a flag in its place would change the command.
pub fn check_argument(name: &str, text: &str) -> Result<()> {
    if text.is_empty() || text.starts_with('-') || text.contains(char::is_control) {
        let what = format!(
            "`{name}` cannot be `{text}`: it must not be empty, begin with `-` or have control \
                 characters"
        );
        Err(Failure::new(Exit::Usage, "wrong_argument", what))
    } else {
        Ok(())
    }
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct CommandResult {
    /// The exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    /// The document on stdout; `None` if there is none.
    pub document: Option<Arc<Value>>,
    /// The last messages on stderr.
    pub messages: String,
    /// The words of the command, without the program.
    pub argv: Arc<[String]>,
}

impl CommandResult {
    /// The failure that the command printed.
    pub fn failure(&self) -> Option<Failure> {
        let document = self.document.as_deref()?;
        if document["schema"] != ERROR_SCHEMA {
            return None;
        }
        serde_json::from_value(document.clone()).ok().map(|error: ErrorDocument| error.error)
    }

    /// The document of a command that did its work.
    pub fn into_document(self) -> Result<Value> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        match self.document {
            Some(document) => Ok(Arc::unwrap_or_clone(document)),
            None => Err(no_document(self.status, self.messages)),
        }
    }
}

/// The failure of a command that printed no document.
pub fn no_document(status: Option<i32>, messages: String) -> Failure {
    let Some(status) = status else {
        let what = "the command was stopped before it told anything";
        return Failure::new(Exit::Cancelled, "cancelled", what).cause(messages);
    };
    let what = format!("the command ended with exit status {status} and printed no document");
    Failure::new(Exit::Bug, "no_document", what).cause(messages)
}

/// A command of rgpu, as the process that was started for it. It may have ended.
#[derive(Clone, Debug)]
pub struct RunningCommand {
    /// Only the task that waits for the process sends signals: once it is reaped, another process
    /// may get its id.
    signals: mpsc::UnboundedSender<Signal>,
    end: watch::Receiver<Option<CommandResult>>,
}

impl RunningCommand {
    /// Waits until the command has ended, at most for `limit`.
    pub async fn wait(&mut self, limit: Duration) -> Option<CommandResult> {
        let ended = self.end.wait_for(Option::is_some);
        match tokio::time::timeout(limit, ended).await {
            Ok(Ok(ended)) => ended.clone(),
            _ => None,
        }
    }

    /// How it ended; `None` if it runs.
    pub fn end(&self) -> Option<CommandResult> {
        self.end.borrow().clone()
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// Asks the command to stop, as Ctrl-C does. It stops its work on the host, too.
    pub fn interrupt(&self) {
        let _ = self.signals.send(Signal::INT);
    }
}

/// Stops a command that nobody waits for any more, and keeps its permit until it has ended.
struct StopOnDrop<T: Send + 'static> {
    started: RunningCommand,
    permit: Option<T>,
}

impl<T: Send + 'static> Drop for StopOnDrop<T> {
    fn drop(&mut self) {
        if self.started.has_ended() {
            return;
        }
        self.started.interrupt();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (mut started, permit) = (self.started.clone(), self.permit.take());
        runtime.spawn(async move {
            if started.wait(STOP_LIMIT).await.is_none() {
                let _ = started.signals.send(Signal::KILL);
                let _ = started.end.wait_for(Option::is_some).await;
            }
            drop(permit);
        });
    }
}

/// The commands that this server has started, by the ids of their runs, or by their command lines
/// if they make no run.
#[derive(Debug, Default)]
pub struct CommandRegistry {
    by_name: Mutex<HashMap<String, RunningCommand>>,
}

impl CommandRegistry {
    /// The command of a run, if this server started it.
    pub fn get(&self, name: &str) -> Option<RunningCommand> {
        self.lock().get(name).cloned()
    }

    /// The commands whose names begin like this, and that run.
    pub fn running(&self, beginning: &str) -> Vec<RunningCommand> {
        let commands = self.lock();
        let named = commands.iter().filter(|(name, _)| name.starts_with(beginning));
        let running = named.map(|(_, started)| started).filter(|started| !started.has_ended());
        running.cloned().collect()
    }

    /// Remembers a command under another name.
    pub fn rename(&self, name: &str, new: String) {
        let mut commands = self.lock();
        if let Some(started) = commands.remove(name) {
            commands.insert(new, started);
        }
    }

    /// Forgets a command, since its end was told.
    pub fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Starts a command and remembers it.
    pub fn start(&self, name: &str, line: CommandLine, own: &OwnProgram) -> Result<RunningCommand> {
        let mut commands = self.lock();
        if commands.len() >= MAX_RUNNING {
            commands.retain(|_, started| !started.has_ended());
        }
        if commands.len() >= MAX_RUNNING {
            let what = format!("{MAX_RUNNING} commands of this server run already");
            return Err(Failure::new(Exit::Usage, "too_many", what)
                .hint("wait for one: `rgpu runs list` shows them"));
        }
        let started = line.start(own)?;
        commands.insert(name.to_owned(), started.clone());
        Ok(started)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, RunningCommand>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A command line of rgpu, without the program.
#[derive(Debug)]
pub struct CommandLine {
    /// The arguments in order, the command first.
    pub argv: Vec<OsString>,
    /// The standard input; `None`: nothing.
    pub stdin: Option<Vec<u8>>,
    /// A folder with files that the command reads; removed when it has ended.
    pub files: Option<TempDir>,
    /// Whether its result is in a run folder, so that only a failure is read from its output.
    pub makes_run: bool,
    /// Whether it prints its document: `--json`.
    pub json: bool,
}

impl CommandLine {
    /// The arguments `argv`, without input and files.
    pub fn new(argv: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            stdin: None,
            files: None,
            makes_run: false,
            json: true,
        }
    }

    /// The command line as a user would type it.
    pub fn display(&self) -> String {
        let words = self.argv.iter().map(|word| shell_word(word.to_string_lossy()));
        std::iter::once("rgpu".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// The arguments as text.
    pub fn args(&self) -> Vec<String> {
        self.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }

    /// Appends one word.
    pub fn arg(&mut self, word: impl Into<OsString>) {
        self.argv.push(word.into());
    }

    /// Adds `--name=VALUE`, if there is a value.
    pub fn flag(&mut self, name: &str, value: Option<impl AsRef<OsStr>>) {
        if let Some(value) = value {
            let mut word = OsString::from(format!("--{name}="));
            word.push(value);
            self.argv.push(word);
        }
    }

    /// Adds `--name=VALUE` for each of the values.
    pub fn flags(
        &mut self,
        name: &str,
        values: Option<impl IntoIterator<Item = impl AsRef<OsStr>>>,
    ) {
        values.into_iter().flatten().for_each(|value| self.flag(name, Some(value)));
    }

    /// Adds arguments after `--`, if there are any.
    pub fn trailing_args(&mut self, words: &[String]) {
        if !words.is_empty() {
            self.arg("--");
            self.argv.extend(words.iter().map(OsString::from));
        }
    }

    /// Starts the command. An argument that is too long or has a NUL is refused.
    fn start(self, own: &OwnProgram) -> Result<RunningCommand> {
        for word in &self.argv {
            if word.len() > MAX_WORD_BYTES || word.as_encoded_bytes().contains(&0) {
                let what =
                    format!("a value of {} bytes is too long for a command line", word.len());
                return Err(Failure::new(Exit::Usage, "wrong_argument", what)
                    .hint("put long texts into files"));
            }
        }
        own.check_folder()?;
        let failed = |e: std::io::Error| {
            Failure::new(Exit::Disk, "no_command", "a command of rgpu cannot be started").cause(e)
        };
        let mut out = tempfile::tempfile().map_err(failed)?;
        let mut messages = tempfile::tempfile().map_err(failed)?;
        let mut command = Command::new(&own.path);
        command.arg0("rgpu").args(self.json.then_some("--json")).args(&self.argv);
        command.current_dir(&own.folder).process_group(0);
        if own.agent_folder.is_some() {
            command.env(AGENT_VARIABLE, &own.folder);
        }
        command.stdin(match &self.stdin {
            None => Stdio::null(),
            Some(bytes) => {
                let mut file = tempfile::tempfile().map_err(failed)?;
                file.write_all(bytes).and_then(|()| file.rewind()).map_err(failed)?;
                file.into()
            }
        });
        command.stdout(out.try_clone().map_err(failed)?);
        command.stderr(messages.try_clone().map_err(failed)?);
        let mut child = command.spawn().map_err(failed)?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let group = group.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
        let (sender, end) = watch::channel(None);
        let (signals, mut wanted) = mpsc::unbounded_channel();
        let argv: Arc<[String]> = self.args().into();
        let files = self.files.map(TempDir::keep);
        let makes_run = self.makes_run;
        tokio::spawn(async move {
            let mut file_check = tokio::time::interval(FILE_CHECK_INTERVAL);
            let mut freed = 0;
            let status = loop {
                tokio::select! {
                    status = child.wait() => break status,
                    Some(signal) = wanted.recv() => drop(kill_process_group(group, signal)),
                    _ = file_check.tick() => {
                        free_old_messages(&messages, &mut freed);
                        if out.metadata().is_ok_and(|file| file.len() > MAX_DOCUMENT_BYTES) {
                            let _ = kill_process_group(group, Signal::KILL);
                        }
                    }
                }
            };
            let status = status.ok().and_then(|status| status.code());
            let read = tokio::task::spawn_blocking(move || {
                let document = read_document(&mut out)
                    .filter(|document| !makes_run || document["schema"] == ERROR_SCHEMA);
                CommandResult { status, document, messages: read_end(&mut messages), argv }
            });
            let ended = read.await.ok();
            if let Some(folder) = files {
                let _ = tokio::fs::remove_dir_all(folder).await;
            }
            let _ = sender.send(ended);
        });
        Ok(RunningCommand { signals, end })
    }

    /// Runs the command to its end, at most for `limit`. It is stopped after that, or if the future
    /// is dropped.
    pub async fn run(self, own: &OwnProgram, limit: Duration) -> Result<CommandResult> {
        self.run_with_permit(own, limit, ()).await
    }

    /// The same; `permit` is dropped once the command has ended, also if it had to be stopped.
    pub async fn run_with_permit(
        self,
        own: &OwnProgram,
        limit: Duration,
        permit: impl Send + 'static,
    ) -> Result<CommandResult> {
        let mut waited = StopOnDrop { started: self.start(own)?, permit: Some(permit) };
        waited.started.wait(limit).await.ok_or_else(|| {
            let what = format!("the command did not end in {} s and was stopped", limit.as_secs());
            Failure::new(Exit::Tool, "too_slow", what)
        })
    }
}

fn read_document(file: &mut File) -> Option<Arc<Value>> {
    file.rewind().ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_DOCUMENT_BYTES).read_to_end(&mut bytes).ok()?;
    rgpu_run::saved_json::any_from_slice(&bytes).ok().map(Arc::new)
}

/// Frees the beginning of a file of messages that has become too long. The command writes on at its
/// end, also if this process ends first. `freed` are the bytes that were freed before.
fn free_old_messages(messages: &File, freed: &mut u64) {
    let len = messages.metadata().map_or(0, |metadata| metadata.len());
    if len.saturating_sub(*freed) <= MAX_MESSAGE_FILE_BYTES {
        return;
    }
    let kept_from = len - MAX_MESSAGE_BYTES;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // A file system without holes keeps the messages.
        let _ = fallocate(messages, hole, *freed, kept_from - *freed);
    }
    *freed = kept_from;
}

/// The end of a text file.
fn read_end(file: &mut File) -> String {
    let length = file.metadata().map_or(0, |metadata| metadata.len());
    let mut bytes = Vec::new();
    let start = std::io::SeekFrom::Start(length.saturating_sub(MAX_MESSAGE_BYTES));
    let read = file.seek(start).and_then(|_| file.read_to_end(&mut bytes));
    match read {
        Ok(_) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn old_messages_of_a_command_take_no_disk_and_the_last_ones_are_read() {
        let mut file = tempfile::tempfile().unwrap();
        let mut freed = 0;
        for _ in 0..6 {
            file.write_all(&vec![b'x'; 10 << 20]).unwrap();
            free_old_messages(&file, &mut freed);
        }
        file.write_all(b"last words").unwrap();
        let disk_bytes = file.metadata().unwrap().blocks() * 512;
        assert!(freed > 0);
        if cfg!(target_os = "linux") {
            assert!(disk_bytes <= MAX_MESSAGE_FILE_BYTES + (11 << 20), "{disk_bytes}");
        }
        let end = read_end(&mut file);
        assert!(end.ends_with("xlast words") && end.len() as u64 == MAX_MESSAGE_BYTES);
    }
}
