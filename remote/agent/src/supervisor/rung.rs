//! Runs one rung's program: pipes, standard input, time limit, and the end of all its processes.
//!
//! A rung ends when its program ends. Remaining processes (a tool's daemons, a shell's background
//! jobs) get SIGTERM, and SIGKILL two seconds later, so that none runs into the next rung. After a
//! user's Ctrl-C they get SIGINT first. A program that a plan stops gets SIGINT, too, but its tool
//! goes on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rgpu_protocol::plan::{HangDetection, Stop};
use rgpu_protocol::{EventBody, Step, Stream, plan};
use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitStatus, pidfd_open};

use super::capture::{Excerpt, Masker, StreamLog};
use super::environment::Environment;
use super::watchdog::WatchdogProcess;
use super::{EarlyEnd, StopReason, Supervisor, unkillable};
use crate::process::{self, Children};
use crate::terminal;

/// How long a program that a plan stops has to exit after each signal before the next. A server may
/// finish its requests first.
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Most bytes of output per read.
const MAX_READ_BYTES: usize = 256 << 10;

/// Size of pipes, where the host allows it.
const PIPE_BYTES: usize = 1 << 20;

/// Small reads happen at most this often, so that a program that writes byte by byte makes few
/// events. The first bytes after a pause are read at once.
const SMALL_READ_INTERVAL: Duration = Duration::from_millis(2);

/// Reads below this size count as small.
const SMALL_READ_BYTES: usize = 32 << 10;

pub(crate) struct ProgramLaunch<'a> {
    pub(crate) program: &'a Path,
    pub(crate) args: &'a [String],
    pub(crate) env: &'a Environment,
    pub(crate) folder: &'a Path,
    pub(crate) stop: Option<&'a Stop>,
    pub(crate) hang: Option<&'a HangDetection>,
}

#[derive(Debug, Default)]
pub(crate) struct ProgramResult {
    pub(crate) exit: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) timed_out: bool,
    /// Whether the plan's [`Stop`] or [`HangDetection`] ended the program.
    pub(crate) stopped: bool,
    /// The program's activity when it had printed nothing for too long; `None` if it printed in
    /// time.
    pub(crate) hang: Option<String>,
    /// The number of dropped bytes if it printed more than the step may; `None` if it did not.
    pub(crate) dropped_beyond_limit: Option<u64>,
    pub(crate) seconds: f64,
    pub(crate) stdout: Excerpt,
    pub(crate) stderr: Excerpt,
}

struct Pipe {
    stream: Stream,
    file: Option<File>,
    masker: Masker,
    excerpt: Excerpt,
    /// Whether more was printed than the step may ([`Step::max_output_bytes`]).
    is_over_limit: bool,
}

/// A program that is to be stopped, while its tool continues.
struct StopSequence<'a> {
    spare: &'a [String],
    /// When the next signal is sent.
    due: Instant,
    signals: std::slice::Iter<'static, Signal>,
    started: bool,
}

struct RunningProgram {
    pid: i32,
    /// `None` on kernels without pidfds; waits are then short, to poll the child.
    pidfd: Option<OwnedFd>,
    status: Option<WaitStatus>,
    children: Children,
    stdin: Option<File>,
    /// Whether standard input is a terminal.
    is_terminal: bool,
    pipes: [Pipe; 2],
    /// When the program printed last, or started.
    last_output: Instant,
    /// When the last small read happened.
    last_small_read: Option<Instant>,
    /// Process id of the watchdog, a child of ours that is not part of the job.
    watchdog: Option<i32>,
}

impl Supervisor {
    /// Runs a program of `step` to its end. The inner error means that it did not start.
    pub(crate) fn run_program(
        &mut self,
        step: &Step,
        launch: &ProgramLaunch<'_>,
        secrets: &BTreeMap<String, String>,
    ) -> Result<io::Result<ProgramResult>, EarlyEnd> {
        let start = Instant::now();
        let limit = Duration::from_secs(step.timeout_s);
        let masker = Masker::new(secrets.values().map(String::as_str));
        let mut running = match start_program(step, launch, masker) {
            Ok(running) => running,
            Err(e) => return Ok(Err(e)),
        };
        running.watchdog = self.watchdog.as_ref().map(WatchdogProcess::pid);
        let mut timed_out = false;
        let mut stopping = launch.stop.map(|stop| StopSequence::new(stop, start));
        let mut hang = None;
        while running.status.is_none() {
            if let Err(early_end) = self.check_stop() {
                // After a user's Ctrl-C, a program expects SIGINT first.
                let cancelled = matches!(early_end, EarlyEnd::Stop(StopReason::Cancelled));
                let signals: &[Signal] =
                    if cancelled { &[Signal::INT, Signal::TERM] } else { &[Signal::TERM] };
                self.end_tree(step, &mut running, signals)?;
                // Read its last output.
                self.drain(step, &mut running)?;
                self.finish_streams(step, &mut running)?;
                return Err(early_end);
            }
            if running.is_over_limit() {
                self.end_tree(step, &mut running, &[Signal::TERM])?;
                break;
            }
            let left = limit.saturating_sub(start.elapsed());
            if left.is_zero() {
                timed_out = true;
                self.end_tree(step, &mut running, &[Signal::TERM])?;
                break;
            }
            let until_watchdog = self.start_watchdog_when_due();
            running.watchdog = self.watchdog.as_ref().map(WatchdogProcess::pid);
            let mut until_hung = left;
            if let (Some(limits), None) = (launch.hang, &hang) {
                let quiet = Duration::from_secs(limits.quiet_s);
                until_hung = quiet.saturating_sub(running.last_output.elapsed());
                if until_hung.is_zero() {
                    let text = self.describe_hang(limits, running.watchdog, launch.env)?;
                    hang = Some(text);
                    stopping = Some(StopSequence::now(&limits.spare));
                }
            }
            let until_signal =
                stopping.as_mut().map_or(left, |s| s.signal_if_due(running.watchdog));
            let limit = left.min(until_watchdog).min(until_signal).min(until_hung);
            self.pump(step, &mut running, limit)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        self.drain(step, &mut running)?;
        if running.children == Children::Some {
            self.end_tree(step, &mut running, &[Signal::TERM])?;
            self.drain(step, &mut running)?;
        }
        self.finish_streams(step, &mut running)?;
        let dropped_beyond_limit = running.is_over_limit().then(|| {
            let log = |pipe: &Pipe| self.logs.get(&(step.id.clone(), pipe.stream));
            running.pipes.iter().filter_map(log).map(StreamLog::dropped).sum::<u64>()
        });
        let [stdout, stderr] = running.pipes.map(|p| p.excerpt);
        let status = running.status;
        Ok(Ok(ProgramResult {
            exit: status.and_then(WaitStatus::exit_status),
            signal: status.and_then(WaitStatus::terminating_signal),
            timed_out,
            stopped: stopping.is_some_and(|stopping| stopping.started),
            hang,
            dropped_beyond_limit,
            seconds,
            stdout,
            stderr,
        }))
    }

    /// Waits once: moves output and input, and reaps ended children.
    fn pump(
        &mut self,
        step: &Step,
        running: &mut RunningProgram,
        limit: Duration,
    ) -> Result<(), EarlyEnd> {
        let has_input = running.stdin.is_some() && self.clients.stdin().has_bytes();
        if running.stdin.is_some()
            && self.clients.stdin().is_over()
            && let Some(mut stdin) = running.stdin.take().filter(|_| running.is_terminal)
        {
            // A terminal has no end of file. Programs that read lines take this character as the
            // end.
            let _ = stdin.write(&[terminal::END]);
        }
        let since = running.last_small_read.map_or(SMALL_READ_INTERVAL, |at| at.elapsed());
        let pause = SMALL_READ_INTERVAL.saturating_sub(since);
        let limit = if pause.is_zero() { limit } else { limit.min(pause) };
        let mut fds = Vec::with_capacity(4);
        if pause.is_zero() {
            for pipe in &running.pipes {
                fds.extend(pipe.file.as_ref().map(|f| (f.as_fd(), PollFlags::IN)));
            }
        }
        let pipes = fds.len();
        fds.extend(running.pidfd.as_ref().map(|f| (f.as_fd(), PollFlags::IN)));
        if has_input {
            fds.extend(running.stdin.as_ref().map(|f| (f.as_fd(), PollFlags::OUT)));
        }
        let no_pidfd = running.pidfd.is_none();
        let limit = if no_pidfd { limit.min(Duration::from_millis(5)) } else { limit };
        let ready = self.clients.wait(&fds, limit)?;
        drop(fds);
        let mut readable = ready[..pipes].iter();
        for at in 0..running.pipes.len() {
            if running.pipes[at].file.is_some() && readable.next() == Some(&true) {
                let n = self.read_once(step, &mut running.pipes[at])?;
                if n > 0 {
                    running.last_output = Instant::now();
                }
                if (1..SMALL_READ_BYTES).contains(&n) {
                    running.last_small_read = Some(Instant::now());
                }
            }
        }
        if has_input && ready.last() == Some(&true) {
            self.feed(running)?;
        }
        reap(running);
        Ok(())
    }

    /// Reads what the pipes hold now, but not endless output of a daemon.
    fn drain(&mut self, step: &Step, running: &mut RunningProgram) -> Result<(), EarlyEnd> {
        for pipe in &mut running.pipes {
            let mut taken = 0;
            while taken <= PIPE_BYTES {
                match self.read_once(step, pipe)? {
                    0 => break,
                    n => taken += n,
                }
            }
        }
        Ok(())
    }

    /// Reads one piece of output. Returns its length, or 0 if there is none now.
    fn read_once(&mut self, step: &Step, pipe: &mut Pipe) -> Result<usize, EarlyEnd> {
        let Some(file) = &mut pipe.file else { return Ok(0) };
        let mut piece = vec![0; MAX_READ_BYTES];
        let read = loop {
            match file.read(&mut piece) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match read {
            Ok(0) => {
                pipe.file = None;
                Ok(0)
            }
            Ok(n) => {
                let bytes = pipe.masker.mask(&piece[..n]);
                self.record_output(step, pipe, &bytes)?;
                Ok(n)
            }
            // No program has the terminal open any more.
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                pipe.file = None;
                Ok(0)
            }
            // Nothing to read, or the pipe is broken. The program's exit decides.
            Err(_) => Ok(0),
        }
    }

    /// Appends output to the step's log and emits its event.
    fn record_output(
        &mut self,
        step: &Step,
        pipe: &mut Pipe,
        bytes: &[u8],
    ) -> Result<(), EarlyEnd> {
        if bytes.is_empty() {
            return Ok(());
        }
        let stream = pipe.stream;
        pipe.excerpt.add(bytes);
        let log = self.log(step, stream)?;
        let kept = log.append(bytes)?;
        let printed = log.printed();
        pipe.is_over_limit |= step.max_output_bytes.is_some_and(|limit| printed > limit);
        if kept.len > 0 {
            let (step, offset, len) = (step.id.clone(), kept.offset, kept.len);
            self.emit(EventBody::Output { step, stream, offset, len })?;
        }
        if kept.overflowed {
            self.report_dropped(step, stream)?;
        }
        Ok(())
    }

    fn report_dropped(&mut self, step: &Step, stream: Stream) -> Result<(), EarlyEnd> {
        let log = self.logs.get(&(step.id.clone(), stream));
        let bytes = log.map_or(0, StreamLog::dropped);
        if bytes > 0 {
            self.emit(EventBody::OutputDropped { step: step.id.clone(), stream, bytes })?;
        }
        Ok(())
    }

    fn log(&mut self, step: &Step, stream: Stream) -> Result<&mut StreamLog, EarlyEnd> {
        use std::collections::hash_map::Entry;
        match self.logs.entry((step.id.clone(), stream)) {
            Entry::Occupied(log) => Ok(log.into_mut()),
            Entry::Vacant(entry) => {
                let path = self.folder.log_path(&step.id, stream);
                let limit = self.plan.limits.log_bytes;
                let limit = step.max_output_bytes.map_or(limit, |bytes| bytes.min(limit));
                Ok(entry.insert(StreamLog::create(&path, limit)?))
            }
        }
    }

    /// Flushes the maskers, and reports how much output was dropped.
    fn finish_streams(
        &mut self,
        step: &Step,
        running: &mut RunningProgram,
    ) -> Result<(), EarlyEnd> {
        for pipe in &mut running.pipes {
            let rest = pipe.masker.finish();
            self.record_output(step, pipe, &rest)?;
            self.report_dropped(step, pipe.stream)?;
        }
        Ok(())
    }

    /// Writes a piece of standard input to the program.
    fn feed(&mut self, running: &mut RunningProgram) -> Result<(), EarlyEnd> {
        let mut piece = [0; 64 << 10];
        let n = self.clients.stdin().peek(&mut piece)?;
        let Some(stdin) = &mut running.stdin else { return Ok(()) };
        match stdin.write(&piece[..n]) {
            Ok(taken) => self.clients.stdin().took(taken),
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // The program has closed its standard input, which is allowed.
            Err(_) => running.stdin = None,
        }
        Ok(())
    }

    /// Ends all processes of the program with these signals and then SIGKILL. Keeps reading output
    /// meanwhile.
    fn end_tree(
        &mut self,
        step: &Step,
        running: &mut RunningProgram,
        signals: &[Signal],
    ) -> Result<(), EarlyEnd> {
        let left = process::end_descendants(running.watchdog, signals, |limit| {
            match limit {
                Some(limit) => {
                    self.pump(step, running, limit)?;
                    if running.status.is_some() {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                }
                None => reap(running),
            }
            Ok::<_, EarlyEnd>(running.children)
        })?;
        if !left.is_empty() {
            self.warn("unkillable", unkillable(&left))?;
        }
        Ok(())
    }
}

impl RunningProgram {
    fn is_over_limit(&self) -> bool {
        self.pipes.iter().any(|pipe| pipe.is_over_limit)
    }
}

impl<'a> StopSequence<'a> {
    fn new(stop: &'a Stop, start: Instant) -> Self {
        let due = start + Duration::from_secs(stop.after_s);
        let signals = [Signal::INT, Signal::TERM, Signal::KILL].iter();
        Self { spare: &stop.spare, due, signals, started: false }
    }

    /// Stops the program now.
    fn now(spare: &'a [String]) -> Self {
        let signals = [Signal::INT, Signal::TERM, Signal::KILL].iter();
        Self { spare, due: Instant::now(), signals, started: false }
    }

    /// Sends the next signal to the program if it is time. Returns the time until the one after it.
    fn signal_if_due(&mut self, watchdog: Option<i32>) -> Duration {
        let left = self.due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return left;
        }
        let Some(signal) = self.signals.next() else { return STOP_GRACE };
        self.started = true;
        self.due = Instant::now() + STOP_GRACE;
        let mut program = process::own_descendants(watchdog);
        program.spare(self.spare);
        process::signal_all(&program, *signal);
        STOP_GRACE
    }
}

fn reap(running: &mut RunningProgram) {
    let (pid, status) = (running.pid, &mut running.status);
    running.children = process::reap(|(ended, how)| {
        if ended == pid {
            *status = Some(how);
        }
    });
    if running.status.is_some() {
        let is_watched = running.watchdog.is_some() && running.children == Children::Some;
        if is_watched && process::own_descendants(running.watchdog).pids.is_empty() {
            running.children = Children::None;
        }
        // A pidfd of an ended process is always ready.
        running.pidfd = None;
        running.stdin = None;
    }
}

fn start_program(
    step: &Step,
    launch: &ProgramLaunch<'_>,
    masker: Masker,
) -> io::Result<RunningProgram> {
    let (mut command, terminal) = match step.stdin {
        plan::Stdin::Terminal { rows, cols } => {
            let (command, terminal) = terminal::command(launch.program, rows, cols)?;
            (command, Some(terminal))
        }
        stdin => {
            let mut command = Command::new(launch.program);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
            command.stdin(match stdin {
                plan::Stdin::Client => Stdio::piped(),
                _ => Stdio::null(),
            });
            (command, None)
        }
    };
    command.args(launch.args).env_clear().envs(launch.env).current_dir(launch.folder);
    let mut child = spawn(&mut command)?;
    // The command holds the program's side of the terminal, which the program alone must hold.
    drop(command);
    let pid = child.id() as i32;
    let pidfd = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let pipe = |stream, file: Option<OwnedFd>| {
        let file = file.map(nonblocking).transpose()?;
        if let Some(file) = &file {
            // Fewer context switches for programs with much output. Fails where pipe memory is
            // limited.
            let _ = rustix::pipe::fcntl_setpipe_size(file, PIPE_BYTES);
        }
        Ok::<_, io::Error>(Pipe {
            stream,
            file,
            masker: masker.clone(),
            excerpt: Excerpt::default(),
            is_over_limit: false,
        })
    };
    let is_terminal = terminal.is_some();
    let terminal_input = terminal.as_ref().map(OwnedFd::try_clone).transpose()?;
    let pipes = [
        pipe(Stream::Stdout, terminal.or_else(|| child.stdout.take().map(Into::into)))?,
        pipe(Stream::Stderr, child.stderr.take().map(Into::into))?,
    ];
    let stdin = terminal_input
        .or_else(|| child.stdin.take().map(Into::into))
        .map(nonblocking)
        .transpose()?;
    // From here on, `reap` collects the child together with all other descendants.
    drop(child);
    Ok(RunningProgram {
        pid,
        pidfd,
        status: None,
        children: Children::Some,
        stdin,
        is_terminal,
        pipes,
        last_output: Instant::now(),
        last_small_read: None,
        watchdog: None,
    })
}

/// Starts a program. A file that was just written may still be open for writing in another process
/// between fork and exec, so this retries for a while.
fn spawn(command: &mut Command) -> io::Result<std::process::Child> {
    let mut tries = 0;
    loop {
        match command.spawn() {
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy && tries < 50 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

fn nonblocking(fd: OwnedFd) -> io::Result<File> {
    let flags = rustix::fs::fcntl_getfl(&fd)?;
    rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
    Ok(fd.into())
}
