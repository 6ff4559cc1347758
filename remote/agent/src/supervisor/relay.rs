//! A job that another agent carries out, where this host only takes it and keeps what comes back: a
//! host without a GPU before one that a platform starts for each job.
//!
//! The folder, its lock and its socket are those of any job, and clients see no difference. The
//! other agent is spoken to over a socket that whatever started the server listens on
//! ([`open`]); how the bytes travel from there is its own affair. All is said at the start, and all
//! comes back unasked: so a conversation can be played again from its beginning, and one that was
//! cut is taken up by dropping what is here already.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rgpu_protocol::frame::{self, Kind, MAGIC, MAX_BODY};
use rgpu_protocol::plan::valid_relative_path;
use rgpu_protocol::{
    EventBody, FromAgent, Hello, Outcome, PROTOCOL, Plan, Probe, ToAgent, probe::AgentFacts,
};
use rustix::event::PollFlags;

use super::clients::Hub;
use super::{inherited_files, trace};
use crate::blob::Blobs;
use crate::connection::FEATURES;
use crate::host_fault::{DoingContext, HostFault};
use crate::job::{JobFolder, remove_tree};
use crate::journal::Journal;
use crate::quota;
use crate::setup::Setup;
use crate::wire::{write_frame, write_message};

/// How long a host may take to confirm a cancellation before it is ended from outside.
const CANCEL_CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);

/// The same while nothing was heard of it: it may not even have started.
const SILENT_CANCEL_CONFIRM_TIMEOUT: Duration = Duration::from_secs(8);

/// How long the way to the other agent may be gone, and the pause between two looks.
const RECONNECT_LIMIT: Duration = Duration::from_secs(600);
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Input that was handed on so long before a cut has arrived.
const STDIN_SETTLE_TIME: Duration = Duration::from_secs(10);

/// How long facts may take: a container has to be started for them.
const FACTS_WAIT: Duration = Duration::from_secs(840);

/// How often it is looked whether anybody still waits.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Bytes before the magic line that are passed over.
const MAX_PREAMBLE_BYTES: usize = 64 << 10;

/// Opens the way to another agent: `what` is `facts`, or `job` and its name.
fn open(way: &Path, what: &str) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(way)?;
    writeln!(stream, "{what}")?;
    let hello = Hello {
        rgpu: PROTOCOL,
        features: FEATURES.map(String::from).to_vec(),
        required: Vec::new(),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    write_message(&mut stream, &hello)?;
    Ok(stream)
}

/// What is known of the host that jobs are carried out on. Nobody waits for it any more once `stop`
/// is set.
///
/// # Errors
/// It cannot be asked, in words.
pub(crate) fn facts(
    way: &Path,
    probes: &[Probe],
    setup: &Setup,
    stop: &AtomicBool,
) -> Result<AgentFacts, String> {
    let asked = || -> io::Result<UnixStream> {
        let mut stream = open(way, "facts")?;
        let settings = ToAgent::Setup { path: Vec::new(), env: setup.env().clone() };
        write_message(&mut stream, &settings)?;
        write_message(&mut stream, &ToAgent::Facts { probes: probes.to_vec() })?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        Ok(stream)
    };
    let mut stream = asked().map_err(|e| e.to_string())?;
    let begun = Instant::now();
    let (mut bytes, mut spoken, mut chunk) = (Vec::new(), false, vec![0; 64 << 10]);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Err("it ended without an answer".to_owned()),
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(e) if quiet(&e) && stop.load(Ordering::Relaxed) => {
                return Err("nobody waits for it any more".to_owned());
            }
            Err(e) if quiet(&e) && begun.elapsed() < FACTS_WAIT => continue,
            Err(e) => return Err(e.to_string()),
        }
        if !spoken {
            let Some(used) = after_magic(&bytes)? else { continue };
            bytes.drain(..used);
            spoken = true;
        }
        while let Some((frame, len)) = frame::parse(&bytes).map_err(|e| e.to_string())? {
            match serde_json::from_slice(frame.body) {
                Ok(FromAgent::Facts { facts }) if frame.kind == Kind::Message => return Ok(*facts),
                Ok(FromAgent::Refused { text, .. }) => return Err(text),
                _ => {}
            }
            bytes.drain(..len);
        }
    }
}

/// Where frames begin, once the magic line has come.
fn after_magic(bytes: &[u8]) -> Result<Option<usize>, String> {
    match bytes.windows(MAGIC.len()).position(|part| part == MAGIC) {
        Some(at) => Ok(Some(at + MAGIC.len())),
        None if bytes.len() > MAX_PREAMBLE_BYTES => {
            Err("what answers there is no agent".to_owned())
        }
        None => Ok(None),
    }
}

/// Whether nothing came for now.
fn quiet(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Has the job in `folder` carried out by the agent behind the socket `way`. Called in a process
/// that was started for it, as a supervisor is.
///
/// # Errors
/// When not even the event log can be written.
pub fn relay(folder: &Path, way: &Path) -> Result<(), HostFault> {
    trace::kept(folder, || hand_over(folder.to_owned(), way))
}

fn hand_over(folder: PathBuf, way: &Path) -> Result<(), HostFault> {
    let _ = rustix::thread::set_name(c"rgpu-agent");
    let _ = rustix::process::setsid();
    let (listener, lock) = inherited_files(&folder)?;
    let folder = JobFolder::at(folder);
    let (journal, last) = Journal::open(&folder.events_path())?;
    let plan = folder.plan()?;
    let lease = Duration::from_secs(plan.limits.lease_s);
    let hub = Hub::new(listener.into(), folder.path().join("stdin"), lease);
    let hub = hub.doing("listen in", folder.path())?;
    let mut relay = Relay {
        had: last.map_or(0, |event| event.seq),
        folder,
        journal,
        hub,
        buffer: Vec::new(),
        begun: false,
        greeted: false,
        input: None,
        due: DueBytes::Nothing,
    };
    let outcome = match relay.carry(&plan, way) {
        Ok(outcome) => outcome,
        Err(fault) => fault.outcome(),
    };
    let _ = remove_tree(&relay.folder.tmp());
    let _ = fs::remove_file(relay.folder.path().join("stdin"));
    let own = relay.folder.path().to_owned();
    relay.journal.append(EventBody::Ended { outcome })?;
    relay.hub.wake();
    relay.journal.close();
    drop(lock);
    if let Some(root) = own.ancestors().nth(2) {
        quota::job_ended(root, &own);
    }
    Ok(())
}

/// Bytes that a message announced.
enum DueBytes {
    Nothing,
    /// For a log, from this offset on.
    Output {
        path: PathBuf,
        offset: u64,
        len: u64,
    },
    /// For a file: `stored` bytes are to come.
    Data {
        path: String,
        offset: u64,
        stored: u64,
        packed: bool,
        bytes: Vec<u8>,
    },
}

struct Relay {
    folder: JobFolder,
    journal: Journal,
    hub: Hub,
    /// The last event that is here. The first is ours: the other agent's are one behind.
    had: u64,
    buffer: Vec<u8>,
    /// Whether the other agent has spoken.
    begun: bool,
    /// Whether it has greeted: its first frame.
    greeted: bool,
    /// When input was handed on last.
    input: Option<Instant>,
    due: DueBytes,
}

/// A word for the other agent.
type RelayCommand = (ToAgent, Vec<u8>);

impl Relay {
    fn carry(&mut self, plan: &Plan, way: &Path) -> Result<Outcome, HostFault> {
        if self.had == 0 {
            let holder = "the platform, which starts a container for it".to_owned();
            self.journal.append(EventBody::Queued { place: 1, holder })?;
            self.had = 1;
            self.hub.wake();
        }
        let mut heard = Instant::now();
        loop {
            match open(way, &format!("job {}", plan.job)) {
                Ok(stream) => {
                    if let Some(outcome) = self.converse(plan, way, &stream)? {
                        return Ok(outcome);
                    }
                    heard = Instant::now();
                }
                Err(e) if heard.elapsed() > self.patience() => {
                    let text = format!("the way to its container is gone: {e}");
                    return Ok(lost("no_way", &text));
                }
                Err(_) => {}
            }
            if self.input.is_some_and(|at| at.elapsed() < STDIN_SETTLE_TIME) {
                let text = "the way to its container was cut while input was sent: how much arrived \
                            is not known";
                return Ok(lost("input_lost", text));
            }
            // It was cut, which says nothing of the job there: all of it is told anew.
            self.buffer.clear();
            (self.begun, self.greeted, self.due) = (false, false, DueBytes::Nothing);
            // Told again: an end has no place of its own.
            self.hub.stdin().untell();
            self.hub.wait(&[], RECONNECT_PAUSE)?;
        }
    }

    /// How long the way may be gone.
    fn patience(&self) -> Duration {
        if self.hub.stop().is_some() { CANCEL_CONFIRM_TIMEOUT } else { RECONNECT_LIMIT }
    }

    /// One conversation; `None`: it was cut.
    fn converse(
        &mut self,
        plan: &Plan,
        way: &Path,
        stream: &UnixStream,
    ) -> Result<Option<Outcome>, HostFault> {
        let mut reading = stream.try_clone().doing("connect to", way)?;
        let writing = stream.try_clone().doing("connect to", way)?;
        let root = self.folder.path().ancestors().nth(2).unwrap_or(Path::new("/")).to_owned();
        let (words, queue) = channel();
        let submitted = plan.clone();
        // A stream that takes nothing for now must not keep us from hearing.
        std::thread::spawn(move || {
            // One that is gone is noticed where it is read.
            let _ = say(writing, submitted, &root, &queue);
        });
        let outcome = self.listen(plan, &mut reading, &words);
        let _ = stream.shutdown(Shutdown::Both);
        outcome
    }

    /// Takes what comes until the job has ended.
    fn listen(
        &mut self,
        plan: &Plan,
        stream: &mut UnixStream,
        words: &Sender<RelayCommand>,
    ) -> Result<Option<Outcome>, HostFault> {
        let job = || plan.job.clone();
        let mut cancelled: Option<Instant> = None;
        let mut chunk = vec![0; 256 << 10];
        loop {
            let fds = [(stream.as_fd(), PollFlags::IN)];
            let ready = self.hub.wait(&fds, Duration::from_secs(1))?;
            self.pass_input(plan, words)?;
            self.hub.lapsed();
            match cancelled {
                None if self.hub.stop().is_some() => {
                    let _ = words.send((ToAgent::Cancel { job: job() }, Vec::new()));
                    cancelled = Some(Instant::now());
                }
                Some(since) => {
                    let limit = if self.had > 1 {
                        CANCEL_CONFIRM_TIMEOUT
                    } else {
                        SILENT_CANCEL_CONFIRM_TIMEOUT
                    };
                    if since.elapsed() > limit {
                        return Ok(Some(Outcome::Cancelled));
                    }
                }
                None => {}
            }
            if !ready.first().is_some_and(|ready| *ready) {
                continue;
            }
            // It has something: this waits for nothing. (Both ends share one file, so that it must not
            // be set to wait for nothing where the other thread writes.)
            let n = match stream.read(&mut chunk) {
                Ok(n) => n,
                Err(e) if quiet(&e) => continue,
                Err(_) => 0,
            };
            if n == 0 {
                return Ok(None);
            }
            self.buffer.extend_from_slice(&chunk[..n]);
            if let Some(outcome) = self.take()? {
                return Ok(Some(match (outcome, cancelled) {
                    // What had it was ended by the platform.
                    (Outcome::HostError { .. }, Some(_)) => Outcome::Cancelled,
                    (outcome, _) => outcome,
                }));
            }
        }
    }

    /// Hands standard input on.
    fn pass_input(&mut self, plan: &Plan, words: &Sender<RelayCommand>) -> Result<(), HostFault> {
        let stdin = self.hub.stdin();
        if stdin.is_told() {
            return Ok(());
        }
        let mut bytes = vec![0; MAX_BODY / 2];
        while stdin.has_bytes() {
            let n = stdin.peek(&mut bytes)?;
            stdin.took(n);
            self.input = Some(Instant::now());
            let message =
                ToAgent::Stdin { job: plan.job.clone(), len: n as u64, eof: false, offset: None };
            let _ = words.send((message, bytes[..n].to_vec()));
        }
        if stdin.is_over() {
            stdin.tell();
            let message = ToAgent::Stdin { job: plan.job.clone(), len: 0, eof: true, offset: None };
            let _ = words.send((message, Vec::new()));
        }
        Ok(())
    }

    /// Takes whole frames; the outcome, once it is among them.
    fn take(&mut self) -> Result<Option<Outcome>, HostFault> {
        let bytes = std::mem::take(&mut self.buffer);
        let mut used = 0;
        if !self.begun {
            match after_magic(&bytes) {
                Ok(Some(begin)) => (used, self.begun) = (begin, true),
                Ok(None) => {
                    self.buffer = bytes;
                    return Ok(None);
                }
                Err(text) => return Ok(Some(lost("no_agent", &text))),
            }
        }
        let mut outcome = None;
        while outcome.is_none() {
            match frame::parse(&bytes[used..]) {
                Ok(Some((frame, len))) => {
                    outcome = match frame.kind {
                        Kind::Message if !self.greeted => {
                            self.greeted = true;
                            self.greet(frame.body)
                        }
                        Kind::Message => self.hear(frame.body)?,
                        _ => self.keep(frame.body)?,
                    };
                    used += len;
                }
                Ok(None) => break,
                Err(e) => outcome = Some(lost("damaged", &format!("its stream is damaged: {e}"))),
            }
        }
        self.buffer.extend_from_slice(&bytes[used..]);
        Ok(outcome)
    }

    /// Takes the other agent's greeting, or what is said in its place.
    fn greet(&self, body: &[u8]) -> Option<Outcome> {
        match (serde_json::from_slice::<Hello>(body), serde_json::from_slice(body)) {
            (Ok(hello), _) if hello.rgpu == PROTOCOL => None,
            (Ok(hello), _) => {
                let text = format!("the agent there speaks protocol {}", hello.rgpu);
                Some(lost("no_agent", &text))
            }
            (Err(_), Ok(FromAgent::Refused { code, text, .. })) => Some(lost(&code, &text)),
            (Err(_), _) => Some(lost("no_agent", "what answers there is no agent")),
        }
    }

    fn hear(&mut self, body: &[u8]) -> Result<Option<Outcome>, HostFault> {
        let message: FromAgent = match serde_json::from_slice(body) {
            Ok(message) => message,
            Err(e) => return Ok(Some(lost("damaged", &format!("its stream is damaged: {e}")))),
        };
        match message {
            FromAgent::Event { event, .. } => {
                if let EventBody::Ended { outcome } = event.body {
                    return Ok(Some(outcome));
                }
                // Ours was the first.
                if event.seq + 1 > self.had {
                    self.journal.append(event.body)?;
                    self.had += 1;
                    self.hub.wake();
                }
            }
            FromAgent::Output { step, stream, offset, len, .. } => {
                if !valid_relative_path(&step) || step.contains('/') {
                    return Ok(Some(lost("damaged", "it names a step that is none")));
                }
                let path = self.folder.log_path(&step, stream);
                self.due = DueBytes::Output { path, offset, len };
            }
            FromAgent::Data { path, offset, stored, zstd, .. } => {
                if !valid_relative_path(&path) {
                    return Ok(Some(lost("damaged", "it names a file outside of the job")));
                }
                let bytes = Vec::new();
                self.due = DueBytes::Data { path, offset, stored, packed: zstd, bytes };
                if stored == 0 {
                    return self.keep(&[]);
                }
            }
            FromAgent::Refused { request, code, text } => match request.as_str() {
                "stdin" | "renew" | "cancel" | "detach" => {}
                _ => return Ok(Some(lost(&code, &text))),
            },
            FromAgent::Missing { .. } => {
                return Ok(Some(lost("no_blobs", "files of the job were removed here")));
            }
            _ => {}
        }
        Ok(None)
    }

    /// Keeps bytes where they belong.
    fn keep(&mut self, body: &[u8]) -> Result<Option<Outcome>, HostFault> {
        match std::mem::replace(&mut self.due, DueBytes::Nothing) {
            DueBytes::Nothing => {
                return Ok(Some(lost("damaged", "bytes came that nothing announced")));
            }
            DueBytes::Output { path, offset, len } => {
                write_at(&path, offset, body)?;
                let n = body.len() as u64;
                if n < len {
                    self.due = DueBytes::Output { path, offset: offset + n, len: len - n };
                }
            }
            DueBytes::Data { path, offset, stored, packed, mut bytes } => {
                bytes.extend_from_slice(body);
                if (bytes.len() as u64) < stored {
                    self.due = DueBytes::Data { path, offset, stored, packed, bytes };
                    return Ok(None);
                }
                let file = self.folder.work().join(path);
                match packed {
                    false => write_at(&file, offset, &bytes)?,
                    true => match zstd::bulk::decompress(&bytes, 8 << 20) {
                        Ok(plain) => write_at(&file, offset, &plain)?,
                        Err(_) => return Ok(Some(lost("damaged", "a file came damaged"))),
                    },
                }
            }
        }
        Ok(None)
    }
}

fn lost(code: &str, text: &str) -> Outcome {
    Outcome::HostError { code: code.to_owned(), text: text.to_owned() }
}

/// Writes a part of a file that only we write. One that is played again changes nothing.
fn write_at(path: &Path, offset: u64, bytes: &[u8]) -> Result<(), HostFault> {
    if let Some(folder) = path.parent() {
        let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(folder);
        made.doing("make", folder)?;
    }
    let mut open = OpenOptions::new();
    let file = open.write(true).create(true).truncate(false).mode(0o600).open(path);
    file.doing("open", path)?.write_all_at(bytes, offset).doing("write", path)
}

/// Says all that the other agent needs, and then what clients say.
fn say(
    mut stream: UnixStream,
    mut plan: Plan,
    root: &Path,
    words: &Receiver<RelayCommand>,
) -> io::Result<()> {
    let handed_over = Setup::handed_over();
    let env: BTreeMap<String, String> =
        std::env::vars().filter(|(name, _)| handed_over(name)).collect();
    write_message(&mut stream, &ToAgent::Setup { path: Vec::new(), env })?;
    let blobs = Blobs::new(root);
    for file in &plan.files {
        for piece in file.pieces() {
            // A job that is taken up again was said already: what is gone is not needed.
            let Ok(bytes) = fs::read(blobs.path(piece.digest)) else { continue };
            let (digest, size, stored) = (piece.digest.clone(), piece.len, bytes.len() as u64);
            let message = ToAgent::Blob { digest, size, stored, zstd: false };
            write_message(&mut stream, &message)?;
            for piece in bytes.chunks(MAX_BODY) {
                write_frame(&mut stream, Kind::Blob, piece)?;
            }
        }
    }
    // Every container is another host, and which one it will be nobody knew.
    plan.facts = None;
    let job = plan.job.clone();
    let submit = ToAgent::Submit {
        plan: Box::new(plan),
        secrets: BTreeMap::new(),
        inline_bytes: u64::MAX,
        ahead_bytes: 0,
        await_blobs: false,
    };
    write_message(&mut stream, &submit)?;
    // Whether clients follow is known here.
    write_message(&mut stream, &ToAgent::Detach { job })?;
    while let Ok((message, bytes)) = words.recv() {
        write_message(&mut stream, &message)?;
        if !bytes.is_empty() {
            write_frame(&mut stream, Kind::Output, &bytes)?;
        }
    }
    Ok(())
}
