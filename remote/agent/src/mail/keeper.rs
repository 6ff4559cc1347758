//! What keeps a conversation between two commands.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rgpu_protocol::mail::{MOST, MailHead};

use super::{INPUT, LONGEST, MailRequest, SOCKET, head};
use crate::control;
use crate::host_fault::{DoingContext, HostFault};

/// Bytes of the agent's that wait to be fetched; it waits when there are more.
const MAX_UNFETCHED_BYTES: usize = 4 << 20;

/// A client that is silent for so long is gone.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(300);

/// How long the last bytes may wait to be fetched once the conversation has ended.
const AFTER: Duration = Duration::from_secs(30);

/// How long bytes may take that belong before those that came.
const ORDER: Duration = Duration::from_secs(30);

/// Keeps the conversation of a folder until its client goes away.
///
/// # Errors
/// It cannot be begun.
pub fn keep(folder: PathBuf) -> Result<(), HostFault> {
    // Not what the command's own end would end.
    let _ = rustix::process::setsid();
    let program = PathBuf::from("/proc/self/exe");
    let mut command = Command::new(&program);
    command.arg0("rgpu-agent").arg("stdio").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut agent = command.stderr(Stdio::null()).spawn().doing("start", &program)?;
    let missing = || HostFault::new("talk to the agent", io::Error::other("it has no pipes"));
    let input = agent.stdin.take().ok_or_else(missing)?;
    let output = agent.stdout.take().ok_or_else(missing)?;
    let keeper = Arc::new(Keeper::new(input));
    std::thread::spawn({
        let keeper = keeper.clone();
        move || keeper.gather(output)
    });
    let listener = control::listen(&folder, SOCKET).doing("listen in", &folder)?;
    std::thread::spawn({
        let keeper = keeper.clone();
        move || {
            for link in listener.incoming().flatten() {
                let keeper = keeper.clone();
                // A client that went away asks again.
                std::thread::spawn(move || drop(keeper.answer(link)));
            }
        }
    });
    while !keeper.is_over() {
        std::thread::sleep(Duration::from_millis(200));
    }
    let _ = std::fs::remove_dir_all(&folder);
    // It ends with its input; what it waits for is over.
    let _ = agent.kill();
    let _ = agent.wait();
    Ok(())
}

/// Both directions of a conversation.
struct Keeper {
    input: Mutex<Option<ChildStdin>>,
    /// Bytes that the agent has had.
    taken: AtomicU64,
    output: Mutex<Output>,
    changed: Condvar,
    heard: Mutex<Instant>,
}

/// What the agent said and nobody has confirmed.
struct Output {
    /// Where `bytes` begin among all that it said.
    base: u64,
    bytes: VecDeque<u8>,
    ended: Option<Instant>,
    /// All of it was fetched after it had ended.
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
            heard: Mutex::new(Instant::now()),
        }
    }

    fn output(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self) -> MutexGuard<'_, Instant> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        let output = self.output();
        let ended = output.ended.is_some_and(|at| output.fetched || at.elapsed() > AFTER);
        drop(output);
        ended || self.heard().elapsed() > CLIENT_TIMEOUT
    }

    /// Gathers what the agent says.
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

    /// Answers one command.
    fn answer(&self, link: UnixStream) -> io::Result<()> {
        *self.heard() = Instant::now();
        link.set_read_timeout(Some(LONGEST))?;
        let mut link = BufReader::new(link);
        let mut line = String::new();
        link.by_ref().take(4096).read_line(&mut line)?;
        let asked: MailRequest = serde_json::from_str(&line)?;
        if asked.len > INPUT {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = vec![0; asked.len as usize];
        link.read_exact(&mut bytes)?;
        self.take(asked.take, &bytes, asked.eof);
        let wait = Duration::from_millis(asked.wait_ms).min(LONGEST);
        let (head, bytes) = self.give(asked.from, wait);
        *self.heard() = Instant::now();
        let mut answer = serde_json::to_vec(&head)?;
        answer.push(b'\n');
        answer.extend_from_slice(&bytes);
        link.get_mut().write_all(&answer)?;
        self.output().fetched |= head.ended;
        Ok(())
    }

    /// Hands the client's bytes to the agent, each once and in their order.
    fn take(&self, at: u64, bytes: &[u8], eof: bool) {
        if bytes.is_empty() && !eof {
            return;
        }
        let since = Instant::now();
        while self.taken.load(Ordering::Acquire) < at {
            if since.elapsed() > ORDER {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        let had = self.taken.load(Ordering::Acquire).saturating_sub(at);
        let new = bytes.get(had as usize..).unwrap_or_default();
        if let Some(pipe) = &mut *input {
            for piece in new.chunks(32 << 10) {
                // An agent that has ended reads nothing more, and its end is told.
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

    /// The agent's bytes from `from` on, once there are some. What was confirmed before is never
    /// shown again: a command that asks for it is an old one, and gets nothing.
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
        let most = output.bytes.len().min(MOST);
        let bytes: Vec<u8> = output.bytes.iter().take(most).copied().collect();
        let ended = output.ended.is_some() && most == output.bytes.len();
        (head(taken(), output.base, &bytes, ended), bytes)
    }
}
