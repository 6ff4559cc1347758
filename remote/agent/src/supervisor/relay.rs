//! Relays a job to another agent: this host accepts it and stores its results. A host without a GPU
//! uses this with agents that a platform starts for each job.
//!
//! The job's folder, lock and socket are those of any job, so clients see no difference. The relay
//! reaches the other agent over a socket ([`open`]) on which the server's launcher listens and
//! forwards the bytes. It sends everything at the start, and everything comes back without a
//! request. So a connection can be replayed from its beginning, and after a cut the relay drops
//! what it has already.

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

use rgpu_protocol::frame::{self, FrameKind, MAGIC, MAX_BODY};
use rgpu_protocol::plan::valid_relative_path;
use rgpu_protocol::{
    EventBody, FromAgent, Hello, Outcome, PROTOCOL, Plan, Probe, ToAgent, probe::AgentFacts,
};
use rustix::event::PollFlags;

use super::clients::ClientSet;
use super::{inherited_files, supervisor_log};
use crate::blob::Blobs;
use crate::connection::FEATURES;
use crate::host_fault::{HostFault, IoContext};
use crate::job::{JobFolder, remove_tree};
use crate::journal::Journal;
use crate::quota;
use crate::setup::ConnectionSettings;
use crate::wire::{write_frame, write_message};

/// How long a host may take to confirm a cancellation before the relay gives up on it.
const CANCEL_CONFIRM_TIMEOUT: Duration = Duration::from_secs(30);

/// The same while nothing has come from the host, which may not even have started.
const SILENT_CANCEL_CONFIRM_TIMEOUT: Duration = Duration::from_secs(8);

/// How long the socket may be unreachable, and the pause between two attempts.
const RECONNECT_LIMIT: Duration = Duration::from_secs(600);
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Input sent longer than this before a cut counts as delivered.
const STDIN_SETTLE_TIME: Duration = Duration::from_secs(10);

/// How long facts may take: a container has to start for them.
const FACTS_WAIT: Duration = Duration::from_secs(840);

/// How often to check whether the client still waits.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Most bytes before the magic line.
const MAX_PREAMBLE_BYTES: usize = 64 << 10;

/// Connects to another agent. `request` is `facts`, or `job` and the job's name.
fn open(socket: &Path, request: &str) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    writeln!(stream, "{request}")?;
    let hello = Hello {
        rgpu: PROTOCOL,
        features: FEATURES.map(String::from).to_vec(),
        required: Vec::new(),
        version: env!("CARGO_PKG_VERSION").into(),
    };
    write_message(&mut stream, &hello)?;
    Ok(stream)
}

/// Returns facts about the host that jobs run on. Setting `stop` gives up.
pub(crate) fn facts(
    socket: &Path,
    probes: &[Probe],
    setup: &ConnectionSettings,
    stop: &AtomicBool,
) -> Result<AgentFacts, String> {
    let connect = || -> io::Result<UnixStream> {
        let mut stream = open(socket, "facts")?;
        let settings = ToAgent::Setup { path: Vec::new(), env: setup.env().clone() };
        write_message(&mut stream, &settings)?;
        write_message(&mut stream, &ToAgent::Facts { probes: probes.to_vec() })?;
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        Ok(stream)
    };
    let mut stream = connect().map_err(|e| e.to_string())?;
    let started = Instant::now();
    let (mut bytes, mut has_magic, mut chunk) = (Vec::new(), false, vec![0; 64 << 10]);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Err("it ended without an answer".to_owned()),
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(e) if is_pending(&e) && stop.load(Ordering::Relaxed) => {
                return Err("no client waits for it any more".to_owned());
            }
            Err(e) if is_pending(&e) && started.elapsed() < FACTS_WAIT => continue,
            Err(e) => return Err(e.to_string()),
        }
        if !has_magic {
            let Some(used) = after_magic(&bytes)? else { continue };
            bytes.drain(..used);
            has_magic = true;
        }
        while let Some((frame, len)) = frame::parse(&bytes).map_err(|e| e.to_string())? {
            match serde_json::from_slice(frame.body) {
                Ok(FromAgent::Facts { facts }) if frame.kind == FrameKind::Message => {
                    return Ok(*facts);
                }
                Ok(FromAgent::Refused { text, .. }) => return Err(text),
                _ => {}
            }
            bytes.drain(..len);
        }
    }
}

/// Returns where frames begin, or `None` before the magic line has come.
fn after_magic(bytes: &[u8]) -> Result<Option<usize>, String> {
    match bytes.windows(MAGIC.len()).position(|part| part == MAGIC) {
        Some(at) => Ok(Some(at + MAGIC.len())),
        None if bytes.len() > MAX_PREAMBLE_BYTES => {
            Err("the answer does not come from an agent".to_owned())
        }
        None => Ok(None),
    }
}

/// Returns whether the error only means that nothing has come yet.
fn is_pending(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Has the agent behind `socket` carry out the job in `folder`. Runs in a process that was started
/// for it, as a supervisor does.
pub fn relay(folder: &Path, socket: &Path) -> Result<(), HostFault> {
    supervisor_log::run_logged(folder, || hand_over(folder.to_owned(), socket))
}

fn hand_over(folder: PathBuf, socket: &Path) -> Result<(), HostFault> {
    let _ = rustix::thread::set_name(c"rgpu-agent");
    let _ = rustix::process::setsid();
    let (listener, lock) = inherited_files(&folder)?;
    let folder = JobFolder::at(folder);
    let (journal, last) = Journal::open(&folder.events_path())?;
    let plan = folder.plan()?;
    let lease = Duration::from_secs(plan.limits.lease_s);
    let clients = ClientSet::new(listener.into(), folder.path().join("stdin"), lease);
    let clients = clients.context("listen in", folder.path())?;
    let mut relay = Relay {
        last_seq: last.map_or(0, |event| event.seq),
        folder,
        journal,
        clients,
        buffer: Vec::new(),
        has_magic: false,
        greeted: false,
        last_input: None,
        pending_bytes: DueBytes::Nothing,
    };
    let outcome = match relay.run(&plan, socket) {
        Ok(outcome) => outcome,
        Err(fault) => fault.outcome(),
    };
    let _ = remove_tree(&relay.folder.tmp());
    let _ = fs::remove_file(relay.folder.path().join("stdin"));
    let folder_path = relay.folder.path().to_owned();
    relay.journal.append(EventBody::Ended { outcome })?;
    relay.clients.wake();
    relay.journal.close();
    drop(lock);
    if let Some(root) = folder_path.ancestors().nth(2) {
        quota::job_ended(root, &folder_path);
    }
    Ok(())
}

/// Where announced bytes belong.
enum DueBytes {
    Nothing,
    /// In a log, from this offset on.
    Output {
        path: PathBuf,
        offset: u64,
        len: u64,
    },
    /// In a file. `stored` is the number of bytes on the wire.
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
    clients: ClientSet,
    /// Number of the last event here. Event 1 is ours, so the other agent's numbers are one lower.
    last_seq: u64,
    buffer: Vec<u8>,
    /// Whether the other agent's magic line has come.
    has_magic: bool,
    /// Whether the other agent's hello, its first frame, has come.
    greeted: bool,
    /// When standard input was last forwarded.
    last_input: Option<Instant>,
    pending_bytes: DueBytes,
}

/// A message for the other agent, and the bytes that follow it.
type RelayCommand = (ToAgent, Vec<u8>);

impl Relay {
    fn run(&mut self, plan: &Plan, socket: &Path) -> Result<Outcome, HostFault> {
        if self.last_seq == 0 {
            let holder = "the platform, which starts a container for it".to_owned();
            self.journal.append(EventBody::Queued { position: 1, holder })?;
            self.last_seq = 1;
            self.clients.wake();
        }
        let mut last_connected = Instant::now();
        loop {
            match open(socket, &format!("job {}", plan.job)) {
                Ok(stream) => {
                    if let Some(outcome) = self.run_connection(plan, socket, &stream)? {
                        return Ok(outcome);
                    }
                    last_connected = Instant::now();
                }
                Err(e) if last_connected.elapsed() > self.reconnect_limit() => {
                    let text = format!("the connection to its container is lost: {e}");
                    return Ok(lost("no_way", &text));
                }
                Err(_) => {}
            }
            if self.last_input.is_some_and(|at| at.elapsed() < STDIN_SETTLE_TIME) {
                let text = "the connection to its container was lost while input was sent; how \
                            much arrived is unknown";
                return Ok(lost("input_lost", text));
            }
            // The cut does not tell whether the job continues, so everything is sent again.
            self.buffer.clear();
            (self.has_magic, self.greeted, self.pending_bytes) = (false, false, DueBytes::Nothing);
            // The end of input has no offset, so it is sent again.
            self.clients.stdin().deliver_end_again();
            self.clients.wait(&[], RECONNECT_PAUSE)?;
        }
    }

    /// Returns how long the socket may be unreachable.
    fn reconnect_limit(&self) -> Duration {
        if self.clients.stop().is_some() { CANCEL_CONFIRM_TIMEOUT } else { RECONNECT_LIMIT }
    }

    /// Runs one connection. Returns `None` if it was cut.
    fn run_connection(
        &mut self,
        plan: &Plan,
        socket: &Path,
        stream: &UnixStream,
    ) -> Result<Option<Outcome>, HostFault> {
        let mut reader = stream.try_clone().context("connect to", socket)?;
        let writer = stream.try_clone().context("connect to", socket)?;
        let root = self.folder.root().to_owned();
        let (commands, queue) = channel();
        let submitted = plan.clone();
        // A blocked write must not keep us from reading.
        std::thread::spawn(move || {
            // The reader notices a lost connection.
            let _ = send_all(writer, submitted, &root, &queue);
        });
        let outcome = self.receive(plan, &mut reader, &commands);
        let _ = stream.shutdown(Shutdown::Both);
        outcome
    }

    /// Handles incoming bytes until the job has ended.
    fn receive(
        &mut self,
        plan: &Plan,
        stream: &mut UnixStream,
        commands: &Sender<RelayCommand>,
    ) -> Result<Option<Outcome>, HostFault> {
        let job = || plan.job.clone();
        let mut cancelled: Option<Instant> = None;
        let mut chunk = vec![0; 256 << 10];
        loop {
            let fds = [(stream.as_fd(), PollFlags::IN)];
            let ready = self.clients.wait(&fds, Duration::from_secs(1))?;
            self.pass_input(plan, commands)?;
            self.clients.detach_if_lease_expired();
            match cancelled {
                None if self.clients.stop().is_some() => {
                    let _ = commands.send((ToAgent::Cancel { job: job() }, Vec::new()));
                    cancelled = Some(Instant::now());
                }
                Some(since) => {
                    let limit = if self.last_seq > 1 {
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
            // The socket is ready, so this does not block. (It cannot be made nonblocking: both
            // ends of the clone share the flag, and the other thread writes.)
            let n = match stream.read(&mut chunk) {
                Ok(n) => n,
                Err(e) if is_pending(&e) => continue,
                Err(_) => 0,
            };
            if n == 0 {
                return Ok(None);
            }
            self.buffer.extend_from_slice(&chunk[..n]);
            if let Some(outcome) = self.handle_frames()? {
                return Ok(Some(match (outcome, cancelled) {
                    // The platform has ended the host that ran it.
                    (Outcome::HostError { .. }, Some(_)) => Outcome::Cancelled,
                    (outcome, _) => outcome,
                }));
            }
        }
    }

    /// Forwards standard input to the agent in the container.
    fn pass_input(
        &mut self,
        plan: &Plan,
        commands: &Sender<RelayCommand>,
    ) -> Result<(), HostFault> {
        let stdin = self.clients.stdin();
        if stdin.is_end_delivered() {
            return Ok(());
        }
        let mut bytes = vec![0; MAX_BODY / 2];
        while stdin.has_bytes() {
            let n = stdin.peek(&mut bytes)?;
            stdin.took(n);
            self.last_input = Some(Instant::now());
            let message =
                ToAgent::Stdin { job: plan.job.clone(), len: n as u64, eof: false, offset: None };
            let _ = commands.send((message, bytes[..n].to_vec()));
        }
        if stdin.is_over() {
            stdin.record_end_delivered();
            let message = ToAgent::Stdin { job: plan.job.clone(), len: 0, eof: true, offset: None };
            let _ = commands.send((message, Vec::new()));
        }
        Ok(())
    }

    /// Handles complete frames. Returns the outcome once it is among them.
    fn handle_frames(&mut self) -> Result<Option<Outcome>, HostFault> {
        let bytes = std::mem::take(&mut self.buffer);
        let mut used = 0;
        if !self.has_magic {
            match after_magic(&bytes) {
                Ok(Some(begin)) => (used, self.has_magic) = (begin, true),
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
                        FrameKind::Message if !self.greeted => {
                            self.greeted = true;
                            self.greet(frame.body)
                        }
                        FrameKind::Message => self.handle_message(frame.body)?,
                        _ => self.store_bytes(frame.body)?,
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

    /// Checks the other agent's hello, or the refusal in its place.
    fn greet(&self, body: &[u8]) -> Option<Outcome> {
        match (serde_json::from_slice::<Hello>(body), serde_json::from_slice(body)) {
            (Ok(hello), _) if hello.rgpu == PROTOCOL => None,
            (Ok(hello), _) => {
                let text = format!("the agent there speaks protocol {}", hello.rgpu);
                Some(lost("no_agent", &text))
            }
            (Err(_), Ok(FromAgent::Refused { code, text, .. })) => Some(lost(&code, &text)),
            (Err(_), _) => Some(lost("no_agent", "the answer does not come from an agent")),
        }
    }

    fn handle_message(&mut self, body: &[u8]) -> Result<Option<Outcome>, HostFault> {
        let message: FromAgent = match serde_json::from_slice(body) {
            Ok(message) => message,
            Err(e) => return Ok(Some(lost("damaged", &format!("its stream is damaged: {e}")))),
        };
        match message {
            FromAgent::Event { event, .. } => {
                if let EventBody::Ended { outcome } = event.body {
                    return Ok(Some(outcome));
                }
                // Skip events we have: the other agent's numbers are one lower than ours.
                if event.seq + 1 > self.last_seq {
                    self.journal.append(event.body)?;
                    self.last_seq += 1;
                    self.clients.wake();
                }
            }
            FromAgent::Output { step, stream, offset, len, .. } => {
                if !valid_relative_path(&step) || step.contains('/') {
                    return Ok(Some(lost("damaged", "it names an unknown step")));
                }
                let path = self.folder.log_path(&step, stream);
                self.pending_bytes = DueBytes::Output { path, offset, len };
            }
            FromAgent::Data { path, offset, stored, zstd, .. } => {
                if !valid_relative_path(&path) {
                    return Ok(Some(lost("damaged", "it names a file outside of the job")));
                }
                let bytes = Vec::new();
                self.pending_bytes = DueBytes::Data { path, offset, stored, packed: zstd, bytes };
                if stored == 0 {
                    return self.store_bytes(&[]);
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

    /// Writes announced bytes to their log or file.
    fn store_bytes(&mut self, body: &[u8]) -> Result<Option<Outcome>, HostFault> {
        match std::mem::replace(&mut self.pending_bytes, DueBytes::Nothing) {
            DueBytes::Nothing => {
                return Ok(Some(lost("damaged", "it sent bytes that were not announced")));
            }
            DueBytes::Output { path, offset, len } => {
                write_at(&path, offset, body)?;
                let n = body.len() as u64;
                if n < len {
                    self.pending_bytes =
                        DueBytes::Output { path, offset: offset + n, len: len - n };
                }
            }
            DueBytes::Data { path, offset, stored, packed, mut bytes } => {
                bytes.extend_from_slice(body);
                if (bytes.len() as u64) < stored {
                    self.pending_bytes = DueBytes::Data { path, offset, stored, packed, bytes };
                    return Ok(None);
                }
                let file = self.folder.work().join(path);
                if packed {
                    match zstd::bulk::decompress(&bytes, 8 << 20) {
                        Ok(plain) => write_at(&file, offset, &plain)?,
                        Err(_) => return Ok(Some(lost("damaged", "a file arrived damaged"))),
                    }
                } else {
                    write_at(&file, offset, &bytes)?
                }
            }
        }
        Ok(None)
    }
}

fn lost(code: &str, text: &str) -> Outcome {
    Outcome::HostError { code: code.to_owned(), text: text.to_owned() }
}

/// Writes a part of a file that only the relay writes. Repeating it changes nothing.
fn write_at(path: &Path, offset: u64, bytes: &[u8]) -> Result<(), HostFault> {
    if let Some(folder) = path.parent() {
        let made = fs::DirBuilder::new().mode(0o700).recursive(true).create(folder);
        made.context("make", folder)?;
    }
    let mut open = OpenOptions::new();
    let file = open.write(true).create(true).truncate(false).mode(0o600).open(path);
    file.context("open", path)?.write_all_at(bytes, offset).context("write", path)
}

/// Sends everything the other agent needs at the start, then the messages of clients.
fn send_all(
    mut stream: UnixStream,
    mut plan: Plan,
    root: &Path,
    commands: &Receiver<RelayCommand>,
) -> io::Result<()> {
    let is_setting = ConnectionSettings::is_setting();
    let env: BTreeMap<String, String> =
        std::env::vars().filter(|(name, _)| is_setting(name)).collect();
    write_message(&mut stream, &ToAgent::Setup { path: Vec::new(), env })?;
    let blobs = Blobs::new(root);
    for file in &plan.files {
        for piece in file.pieces() {
            // If the job has been sent before, a blob that is gone is not needed.
            let Ok(bytes) = fs::read(blobs.path(piece.digest)) else { continue };
            let (digest, size, stored) = (piece.digest.clone(), piece.len, bytes.len() as u64);
            let message = ToAgent::Blob { digest, size, stored, zstd: false };
            write_message(&mut stream, &message)?;
            for piece in bytes.chunks(MAX_BODY) {
                write_frame(&mut stream, FrameKind::Blob, piece)?;
            }
        }
    }
    // Each container is a new host, whose facts the client could not know.
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
    // The relay itself knows whether clients follow.
    write_message(&mut stream, &ToAgent::Detach { job })?;
    while let Ok((message, bytes)) = commands.recv() {
        write_message(&mut stream, &message)?;
        if !bytes.is_empty() {
            write_frame(&mut stream, FrameKind::Output, &bytes)?;
        }
    }
    Ok(())
}
