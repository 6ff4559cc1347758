//! The keeper: has the bytes of an agent's connection between the requests of its client.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rgpu_protocol::mail::{MAX_PRINTED_BYTES, MailHead, MailRequest, PrintedHead};

use super::{BroughtMail, MAX_INPUT_BYTES, MAX_WAIT, SOCKET};
use crate::control;
use crate::host_fault::{HostFault, IoContext};

/// Bytes from the agent that may wait to be fetched. The agent blocks beyond that.
const MAX_UNFETCHED_BYTES: usize = 4 << 20;

/// A client whose commands come no more for this long is gone.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(300);

/// How long the last bytes wait to be fetched after the agent has ended.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// How long bytes wait for missing ones before them.
const MISSING_BYTES_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes read from the agent, or written to it, at once.
const PIECE_BYTES: usize = 64 << 10;

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
    let keeper = Arc::new(Keeper::new(input, MAX_PRINTED_BYTES));
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
                // A disconnected client sends its command again. Without a thread the command
                // fails, and its client connects once more.
                let answer = move || drop(answer_command(&keeper, link));
                let _ = std::thread::Builder::new().spawn(answer);
            }
        }
    });
    while !keeper.is_over(CLIENT_TIMEOUT) {
        std::thread::sleep(Duration::from_millis(200));
    }
    let _ = std::fs::remove_dir_all(&folder);
    // The agent ends with its input. Nobody waits for its last answer.
    let _ = agent.kill();
    let _ = agent.wait();
    Ok(())
}

/// Answers one command of the client.
fn answer_command(keeper: &Keeper, link: UnixStream) -> io::Result<()> {
    link.set_read_timeout(Some(MAX_WAIT))?;
    let mut link = BufReader::new(link);
    let mut line = String::new();
    link.by_ref().take(4096).read_line(&mut line)?;
    let BroughtMail { request, len } = serde_json::from_str(&line)?;
    if len > MAX_INPUT_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len as usize];
    link.read_exact(&mut bytes)?;
    let (head, bytes) = keeper.exchange(request, &bytes);
    let mut answer = serde_json::to_vec(&PrintedHead::new(head, &bytes))?;
    answer.push(b'\n');
    answer.extend_from_slice(&bytes);
    link.get_mut().write_all(&answer)
}

/// Both directions of a connection.
pub struct Keeper {
    /// The agent's input, until it is closed.
    input: Mutex<Option<Box<dyn Write + Send>>>,
    /// Notified when the agent has received bytes.
    received: Condvar,
    /// Bytes that the agent has received.
    taken: AtomicU64,
    output: Mutex<Output>,
    /// Notified when the output changes.
    changed: Condvar,
    /// When a client last asked or was answered.
    last_heard: Mutex<Instant>,
    max_answer_bytes: usize,
}

/// The agent's output that is not confirmed yet.
#[derive(Default)]
struct Output {
    /// Offset of `bytes` in the agent's stream.
    base: u64,
    bytes: VecDeque<u8>,
    ended: Option<Instant>,
    /// Whether all of it was fetched after the agent had ended.
    fetched: bool,
    /// Whether nobody fetches any more.
    closed: bool,
}

impl Keeper {
    /// A keeper of the agent that reads `input`. Its client's answers have at most
    /// `max_answer_bytes` bytes.
    pub fn new(input: impl Write + Send + 'static, max_answer_bytes: usize) -> Self {
        Self {
            input: Mutex::new(Some(Box::new(input))),
            received: Condvar::new(),
            taken: AtomicU64::new(0),
            output: Mutex::default(),
            changed: Condvar::new(),
            last_heard: Mutex::new(Instant::now()),
            max_answer_bytes,
        }
    }

    /// Returns whether the connection has ended, or its client has not been heard for so long.
    pub fn is_over(&self, client_timeout: Duration) -> bool {
        let output = lock(&self.output);
        let ended = output.ended.is_some_and(|at| output.fetched || at.elapsed() > END_TIMEOUT);
        drop(output);
        ended || lock(&self.last_heard).elapsed() > client_timeout
    }

    /// Collects the agent's output until its end.
    pub fn gather(&self, mut from: impl Read) {
        let mut buffer = vec![0; PIECE_BYTES];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            let mut output = lock(&self.output);
            while output.bytes.len() >= MAX_UNFETCHED_BYTES && !output.closed {
                output = self.changed.wait(output).unwrap_or_else(PoisonError::into_inner);
            }
            if output.closed {
                break;
            }
            output.bytes.extend(&buffer[..n]);
            self.changed.notify_all();
        }
        lock(&self.output).ended = Some(Instant::now());
        self.changed.notify_all();
    }

    /// Ends the agent's input, and [`Self::gather`] although its bytes are not fetched. Blocks
    /// while bytes are written to the agent.
    pub fn close(&self) {
        lock(&self.output).closed = true;
        self.changed.notify_all();
        *lock(&self.input) = None;
    }

    /// Answers a request of the client, whose bytes are `bytes`. Blocks.
    pub fn exchange(&self, request: MailRequest, bytes: &[u8]) -> (MailHead, Vec<u8>) {
        *lock(&self.last_heard) = Instant::now();
        self.write_to_agent(request.take, bytes, request.eof);
        let wait = Duration::from_millis(request.wait_ms).min(MAX_WAIT);
        let answer = self.give(request.from, wait);
        *lock(&self.last_heard) = Instant::now();
        answer
    }

    /// Writes the client's bytes to the agent, each once and in order.
    fn write_to_agent(&self, at: u64, bytes: &[u8], eof: bool) {
        if bytes.is_empty() && !eof {
            return;
        }
        let start = Instant::now();
        let mut input = lock(&self.input);
        while self.taken.load(Ordering::Acquire) < at {
            let left = MISSING_BYTES_TIMEOUT.saturating_sub(start.elapsed());
            if left.is_zero() {
                return;
            }
            let waited = self.received.wait_timeout(input, left);
            input = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let skip = self.taken.load(Ordering::Acquire).saturating_sub(at);
        let new = bytes.get(skip as usize..).unwrap_or_default();
        if let Some(pipe) = &mut *input {
            for piece in new.chunks(PIECE_BYTES) {
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
        drop(input);
        self.received.notify_all();
    }

    /// Returns the agent's bytes from `from` on, once there are some. Confirmed bytes are never
    /// sent again: a request for them is outdated and gets nothing.
    fn give(&self, from: u64, wait: Duration) -> (MailHead, Vec<u8>) {
        let until = Instant::now() + wait;
        let mut output = lock(&self.output);
        let head = |from, ended| {
            let taken = self.taken.load(Ordering::Acquire);
            MailHead { taken, from, ended }
        };
        if from < output.base {
            return (head(from, false), Vec::new());
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
        let len = output.bytes.len().min(self.max_answer_bytes);
        let (first, second) = output.bytes.as_slices();
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&first[..len.min(first.len())]);
        bytes.extend_from_slice(&second[..len - bytes.len()]);
        let ended = output.ended.is_some() && len == output.bytes.len();
        output.fetched |= ended;
        (head(output.base, ended), bytes)
    }
}

/// A thread that panics while it holds one of these locks leaves the data valid.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
