//! Reads the answers of programs that this machine runs: git, cargo, pip, `ssh -G`, nvdisasm.
//!
//! A program may print without end. Its stdout is data and is needed whole: more than a limit is an
//! error, and the program is killed. Its stderr is for people: of a longer one, the beginning and
//! the end stay, with a line between them that says how many bytes were dropped. A program whose
//! stderr does not end is killed too.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The most bytes of an answer of a few lines: a version, a path, settings.
pub const MAX_PROBE_BYTES: u64 = 1 << 20;

/// The most bytes of an answer that lists things: files of a repository, changes.
pub const MAX_LIST_BYTES: u64 = 64 << 20;

/// How long git may work on all files of a large tree. It waits for ever for a pipe in place of a
/// file that it reads.
pub const TREE_TIME: Duration = Duration::from_secs(600);

/// The beginning and the end of stderr that are kept.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
const MAX_MESSAGE_END_BYTES: usize = 64 << 10;

/// The most bytes of stderr that are read.
const MAX_ALL_MESSAGES_BYTES: u64 = 256 << 20;

/// Most bytes per read.
const READ_BYTES: usize = 64 << 10;

/// Runs the command without input and reads at most `max_bytes` of its stdout.
pub fn read_answer(command: &mut Command, max_bytes: u64) -> io::Result<Output> {
    wait_for_answer(start(command)?, max_bytes)
}

/// Runs the command like [`read_answer`], but for no longer than `time`.
///
/// # Errors
/// Those of [`wait_for_answer`]; it ran for longer (`TimedOut`), and was killed.
pub fn read_answer_within(
    command: &mut Command,
    max_bytes: u64,
    time: Duration,
) -> io::Result<Output> {
    wait_within(start(command)?, max_bytes, Some(time))
}

fn start(command: &mut Command) -> io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Reads what a program prints into its pipes until it ends.
///
/// # Errors
/// It printed more than `max_bytes` to stdout, or more than 256 MiB to stderr (`FileTooLarge`), and
/// was killed; or its pipes cannot be read.
pub fn wait_for_answer(child: Child, max_bytes: u64) -> io::Result<Output> {
    wait_within(child, max_bytes, None)
}

/// Reads like [`wait_for_answer`], but for no longer than `time`.
///
/// # Errors
/// Those of [`wait_for_answer`]; it ran for longer (`TimedOut`), and was killed.
pub fn wait_for_answer_within(child: Child, max_bytes: u64, time: Duration) -> io::Result<Output> {
    wait_within(child, max_bytes, Some(time))
}

fn wait_within(mut child: Child, max_bytes: u64, time: Option<Duration>) -> io::Result<Output> {
    let running = Arc::new(RunningChild::from_child(&child));
    let timer = time.and_then(|time| Timer::start(running.clone(), time));
    let messages = child.stderr.take().map(|mut pipe| {
        let reader = std::thread::Builder::new().name("messages".to_owned());
        let running = running.clone();
        reader.spawn(move || {
            let (mut messages, mut bytes) = (Messages::default(), vec![0; READ_BYTES]);
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                if let Err(too_long) = messages.add(&bytes[..count]) {
                    running.kill();
                    return Err(too_long);
                }
            }
            Ok(messages.into_bytes())
        })
    });
    let mut stdout = Vec::new();
    let mut read = Ok(0);
    if let Some(pipe) = child.stdout.take() {
        read = pipe.take(max_bytes.saturating_add(1)).read_to_end(&mut stdout);
    }
    let is_too_long = stdout.len() as u64 > max_bytes;
    if is_too_long || read.is_err() {
        // It may have ended meanwhile.
        let _ = child.kill();
    }
    running.wait();
    let status = child.wait()?;
    let is_too_late = timer.is_some_and(Timer::end) && !status.success();
    if is_too_long {
        return Err(too_long(max_bytes));
    }
    if is_too_late {
        let seconds = time.unwrap_or_default().as_secs();
        let what = format!("it did not end within {seconds} s and was stopped");
        return Err(io::Error::new(io::ErrorKind::TimedOut, what));
    }
    read?;
    let stderr = messages.transpose()?.and_then(|reader| reader.join().ok());
    let stderr = stderr.transpose()?.unwrap_or_default();
    Ok(Output { status, stdout, stderr })
}

/// The process of a program, while its id is surely its own.
struct RunningChild(Mutex<Option<Pid>>);

impl RunningChild {
    fn from_child(child: &Child) -> Self {
        Self(Mutex::new(i32::try_from(child.id()).ok().and_then(Pid::from_raw)))
    }

    /// Waits until the program has ended. Its status stays to be read, and so does its id until
    /// then.
    fn wait(&self) {
        let id = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = id {
            let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(id), ended), Err(Errno::INTR)) {}
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn kill(&self) {
        if let Some(id) = *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // It may have ended meanwhile.
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

/// Kills a program that runs for too long.
struct Timer {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<bool>,
}

impl Timer {
    /// `None` if no thread can be started; the program then has no limit.
    fn start(running: Arc<RunningChild>, time: Duration) -> Option<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("time limit".to_owned()).spawn(move || {
            let is_over = stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            if is_over {
                running.kill();
            }
            is_over
        });
        Some(Self { stop, thread: thread.ok()? })
    }

    /// Ends the timer, and returns whether the time was over before.
    fn end(self) -> bool {
        drop(self.stop);
        self.thread.join().unwrap_or(false)
    }
}

/// Reads what a program prints into its pipes until it ends. It is killed if the future is dropped
/// and the command said so (`kill_on_drop`).
pub async fn answer_of(mut child: tokio::process::Child, max_bytes: u64) -> io::Result<Output> {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let data = async {
        let mut stdout = Vec::new();
        if let Some(pipe) = out {
            pipe.take(max_bytes.saturating_add(1)).read_to_end(&mut stdout).await?;
        }
        if stdout.len() as u64 > max_bytes { Err(too_long(max_bytes)) } else { Ok(stdout) }
    };
    let messages = async {
        match err {
            Some(pipe) => read_messages(pipe).await,
            None => Ok(Vec::new()),
        }
    };
    let read = tokio::try_join!(data, messages);
    if read.is_err() {
        // It may have ended meanwhile.
        let _ = child.start_kill();
    }
    let status = child.wait().await?;
    let (stdout, stderr) = read?;
    Ok(Output { status, stdout, stderr })
}

async fn read_messages(mut pipe: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let (mut messages, mut bytes) = (Messages::default(), vec![0; READ_BYTES]);
    while let Ok(count @ 1..) = pipe.read(&mut bytes).await {
        messages.add(&bytes[..count])?;
    }
    Ok(messages.into_bytes())
}

fn too_long(max_bytes: u64) -> io::Error {
    let what = format!("it printed more than {} MiB and was stopped", max_bytes >> 20);
    io::Error::new(io::ErrorKind::FileTooLarge, what)
}

/// The beginning and the end of a stderr.
#[derive(Default)]
struct Messages {
    beginning: Vec<u8>,
    end: VecDeque<u8>,
    dropped: u64,
    total: u64,
}

impl Messages {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.total += bytes.len() as u64;
        if self.total > MAX_ALL_MESSAGES_BYTES {
            let mib = MAX_ALL_MESSAGES_BYTES >> 20;
            let what = format!("it printed more than {mib} MiB of messages and was stopped");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        let room = MAX_MESSAGE_BYTES - self.beginning.len();
        let (first, later) = bytes.split_at(bytes.len().min(room));
        self.beginning.extend(first);
        self.end.extend(later);
        let excess = self.end.len().saturating_sub(MAX_MESSAGE_END_BYTES);
        self.end.drain(..excess);
        self.dropped += excess as u64;
        Ok(())
    }

    fn into_bytes(mut self) -> Vec<u8> {
        if self.dropped > 0 {
            let line = format!("\nrgpu: {} bytes of output were dropped\n", self.dropped);
            self.beginning.extend(line.bytes());
        }
        self.beginning.extend(self.end.make_contiguous() as &[u8]);
        self.beginning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const FLOOD: &str = "yes | head -c 8000000 >&2; echo last >&2; echo data";
    const WHAT: &str = "it printed more than 256 MiB of messages and was stopped";

    fn check_flooded(output: &Output) {
        assert_eq!(output.stdout, b"data\n");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.starts_with("y\ny\n") && told.ends_with("last\n"));
        let kept = MAX_MESSAGE_BYTES + MAX_MESSAGE_END_BYTES;
        assert!((kept..kept + 100).contains(&told.len()), "{}", told.len());
        let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("rgpu: ")).collect();
        assert!(matches!(lines[..], [line] if line.ends_with("bytes of output were dropped")));
    }

    #[test]
    fn data_without_end_is_an_error_and_messages_without_end_keep_their_ends() {
        let error = read_answer(&mut shell("yes"), MAX_PROBE_BYTES).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(error.to_string(), "it printed more than 1 MiB and was stopped");
        check_flooded(&read_answer(&mut shell(FLOOD), 5).unwrap());
        for endless in ["exec yes >&2", "yes >&2"] {
            let error = read_answer(&mut shell(endless), 5).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
            assert_eq!(error.to_string(), WHAT, "{endless}");
        }
        let short = read_answer(&mut shell("cat; echo a; echo b >&2; exit 3"), 2).unwrap();
        assert_eq!((&*short.stdout, &*short.stderr), (&b"a\n"[..], &b"b\n"[..]));
        assert_eq!(short.status.code(), Some(3));
    }

    #[test]
    fn a_program_that_does_not_end_in_time_is_stopped() {
        let mut endless = Command::new("sleep");
        let error = read_answer_within(endless.arg("600"), 5, Duration::from_millis(100));
        let error = error.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "it did not end within 0 s and was stopped");
        let fast = read_answer_within(&mut shell("echo a"), 5, Duration::from_secs(600)).unwrap();
        assert_eq!(fast.stdout, b"a\n");
    }

    #[tokio::test]
    async fn answers_are_awaited_within_the_same_limits() {
        let start = |script| {
            let mut command = tokio::process::Command::from(shell(script));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
            command.spawn().unwrap()
        };
        let error = answer_of(start("yes"), MAX_PROBE_BYTES).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        check_flooded(&answer_of(start(FLOOD), 5).await.unwrap());
        let error = answer_of(start("exec yes >&2"), 5).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::FileTooLarge, WHAT.into()));
    }
}
