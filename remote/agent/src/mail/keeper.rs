//! The keeper: keeps the agent of a client's connection running between the client's short commands.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rgpu_protocol::mail::{MAX_ANSWER_BYTES, MailHead};

use super::{MAX_INPUT_BYTES, MAX_WAIT, MailRequest, SOCKET, head};
use crate::control;
use crate::host_fault::{HostFault, IoContext};

/// Bytes from the agent that may wait to be fetched. The agent blocks beyond that.
const MAX_UNFETCHED_BYTES: usize = 4 << 20;

/// A client that sends no command for this long is gone.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(300);

/// How long the last bytes wait to be fetched after the agent has ended.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// How long bytes wait for missing ones before them.
const MISSING_BYTES_TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps the connection of a folder until its client is gone.
pub fn keep(folder: PathBuf) -> Result<(), HostFault> {
    // A session of its own, so that the end of the command does not end the keeper.
    let _ = rustix::process::setsid();
    let program = PathBuf::from("/proc/self/exe");
    let mut command = Command::new(&program);
    command.arg0("rgpu-agent").arg("stdio").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut agent = command.stderr(Stdio::null()).spawn().context("start", &program)?;
    let no_pipes = || HostFault::new("talk to the agent", io::Error::other("it has no pipes"));
    let input = agent.stdin.take().ok_or_else(no_pipes)?;
    let output = agent.stdout.take().ok_or_else(no_pipes)?;
    let keeper = Arc::new(Keeper::new(input));
    std::thread::spawn({
        let keeper = keeper.clone();
        move || keeper.gather(output)
    });
    let listener = control::listen(&folder, SOCKET).context("listen in", &folder)?;
    std::thread::spawn({
        let keeper = keeper.clone();
        move || {
            for link in listener.incoming().flatten() {
                let keeper = keeper.clone();
                // A disconnected client sends its command again. Without a thread the command fails,
                // and its client connects once more.
                let answer = move || drop(keeper.answer(link));
                let _ = std::thread::Builder::new().spawn(answer);
            }
        }
    });
    while !keeper.is_over() {
        std::thread::sleep(Duration::from_millis(200));
    }
    let _ = std::fs::remove_dir_all(&folder);
    // The agent ends with its input. Nobody waits for its last answer.
    let _ = agent.kill();
    let _ = agent.wait();
    Ok(())
}

/// Both directions of a connection.
struct Keeper {
    input: Mutex<Option<ChildStdin>>,
    /// Bytes that the agent has received.
    taken: AtomicU64,
    output: Mutex<Output>,
    changed: Condvar,
    last_command: Mutex<Instant>,
}

/// The agent's output that is not confirmed yet.
struct Output {
    /// Offset of `bytes` in the agent's stream.
    base: u64,
    bytes: VecDeque<u8>,
    ended: Option<Instant>,
    /// Whether all of it was fetched after the agent had ended.
    fetched: bool,
}

impl Keeper {
    fn new(input: ChildStdin) -> Self {
        let output = Output { base: 0, bytes: VecDeque::new(), ended: None, fetched: false };
        Self {
            input: Mutex::new(Some(input)),
            taken: AtomicU64::new(0),
            output: Mutex::new(output),
            changed: Condvar::new(),
            last_command: Mutex::new(Instant::now()),
        }
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last_command(&self) -> MutexGuard<'_, Instant> {
        self.last_command.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        let output = self.output();
        let ended = output.ended.is_some_and(|at| output.fetched || at.elapsed() > END_TIMEOUT);
        drop(output);
        ended || self.last_command().elapsed() > CLIENT_TIMEOUT
    }

    /// Collects the agent's output.
    fn gather(&self, mut from: ChildStdout) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            let mut output = self.output();
            while output.bytes.len() >= MAX_UNFETCHED_BYTES {
                output = self.changed.wait(output).unwrap_or_else(PoisonError::into_inner);
            }
            output.bytes.extend(&buffer[..n]);
            self.changed.notify_all();
        }
        self.output().ended = Some(Instant::now());
        self.changed.notify_all();
    }

    /// Answers one command of the client.
    fn answer(&self, link: UnixStream) -> io::Result<()> {
        *self.last_command() = Instant::now();
        link.set_read_timeout(Some(MAX_WAIT))?;
        let mut link = BufReader::new(link);
        let mut line = String::new();
        link.by_ref().take(4096).read_line(&mut line)?;
        let request: MailRequest = serde_json::from_str(&line)?;
        if request.len > MAX_INPUT_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; request.len as usize];
        link.read_exact(&mut bytes)?;
        self.write_to_agent(request.take, &bytes, request.eof);
        let wait = Duration::from_millis(request.wait_ms).min(MAX_WAIT);
        let (head, bytes) = self.give(request.from, wait);
        *self.last_command() = Instant::now();
        let mut answer = serde_json::to_vec(&head)?;
        answer.push(b'\n');
        answer.extend_from_slice(&bytes);
        link.get_mut().write_all(&answer)?;
        self.output().fetched |= head.ended;
        Ok(())
    }

    /// Writes the client's bytes to the agent, each once and in order.
    fn write_to_agent(&self, at: u64, bytes: &[u8], eof: bool) {
        if bytes.is_empty() && !eof {
            return;
        }
        let start = Instant::now();
        while self.taken.load(Ordering::Acquire) < at {
            if start.elapsed() > MISSING_BYTES_TIMEOUT {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let skip = self.taken.load(Ordering::Acquire).saturating_sub(at);
        let new = bytes.get(skip as usize..).unwrap_or_default();
        if let Some(pipe) = &mut *input {
            for piece in new.chunks(32 << 10) {
                // If the agent has ended, the client learns that from its output.
                if pipe.write_all(piece).is_err() {
                    break;
                }
                self.taken.fetch_add(piece.len() as u64, Ordering::AcqRel);
            }
        }
        if eof {
            *input = None;
        }
    }

    /// Returns the agent's bytes from `from` on, once there are some. Confirmed bytes are never
    /// sent again: a command that asks for them is outdated and gets nothing.
    fn give(&self, from: u64, wait: Duration) -> (MailHead, Vec<u8>) {
        let until = Instant::now() + wait;
        let mut output = self.output();
        let taken = || self.taken.load(Ordering::Acquire);
        if from < output.base {
            return (head(taken(), from, &[], false), Vec::new());
        }
        let confirmed = (from - output.base).min(output.bytes.len() as u64);
        output.bytes.drain(..confirmed as usize);
        output.base += confirmed;
        self.changed.notify_all();
        while output.bytes.is_empty() && output.ended.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(output, left);
            output = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let len = output.bytes.len().min(MAX_ANSWER_BYTES);
        let bytes: Vec<u8> = output.bytes.iter().take(len).copied().collect();
        let ended = output.ended.is_some() && len == output.bytes.len();
        (head(taken(), output.base, &bytes, ended), bytes)
    }
}
