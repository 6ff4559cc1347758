//! One connection with a laptop, over standard input and output.
//!
//! This thread reads requests and never waits for the laptop to read. Other threads follow jobs,
//! fetch artifacts, store blobs and answer probes, and share the writer. When standard input ends,
//! the process and the programs of its probes end; jobs are separate processes.

pub(crate) mod fetch;
mod follow;
mod jobs;
pub(crate) mod launch;
pub(crate) mod listing;
mod storer;
mod waiting;

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rgpu_protocol::frame::{FrameKind, MAGIC};
use rgpu_protocol::{BLOB_BYTES, Digest, FromAgent, Hello, PROTOCOL, ToAgent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::blob::BlobEncoding;
use crate::control::Control;
use crate::root::RootCandidate;
use crate::service::{Refusal, Service};
use crate::setup::ConnectionSettings;
use crate::wire::{FrameReader, MessageWriter, WireError, write_frame, write_message};

use fetch::ArtifactPart;
use follow::Position;
use jobs::{Jobs, SubmittedPlan};
use storer::{BlobStorer, ReceivedBlob};
use waiting::WaitingPlan;

/// Features of this agent beyond those of the first protocol generation.
pub(crate) const FEATURES: [&str; 7] =
    ["zstd", "stdin", "stdin_offset", "gpu_queue", "inline_artifacts", "setup", "pieces"];

/// Shortest time between two renewals of the leases by a client's messages.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// The shared writer to the client.
pub(crate) type ClientWriter = Arc<MessageWriter<File>>;

/// Serves the client on standard input and output until it disconnects.
pub fn serve(candidates: &[RootCandidate]) -> Result<(), WireError> {
    let duplicate = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3).map(File::from);
    let input = duplicate(rustix::stdio::stdin()).map_err(std::io::Error::from)?;
    let output = duplicate(rustix::stdio::stdout()).map_err(std::io::Error::from)?;
    serve_over(Service::open(candidates), input, output)
}

/// Serves the client at the other end of `input` and `output` until it disconnects.
pub fn serve_over(service: Service, input: File, output: File) -> Result<(), WireError> {
    let client = Arc::new(OwnedFd::from(input.try_clone()?));
    let out = Arc::new(MessageWriter::new(output));
    out.raw(MAGIC)?;
    out.send(&hello())?;
    let service = Arc::new(service);
    let mut reader = FrameReader::new(input);
    let Some(client_hello) = read_hello(&mut reader)? else { return Ok(()) };
    if let Some(text) = incompatibility(&client_hello) {
        out.send(&refused("hello", "unknown_feature", text))?;
        return Ok(());
    }
    let storer = BlobStorer::start(service.clone(), out.clone());
    let jobs = Arc::new(Jobs::new(service.clone(), out.clone()));
    let mut connection = Connection {
        service,
        out,
        jobs,
        waiting: None,
        last_renewal: Instant::now(),
        setup: ConnectionSettings::default(),
        storer,
        probe_threads: Vec::new(),
        client_gone: Arc::default(),
        client,
    };
    let result = connection.serve_requests(&mut reader);
    connection.waiting = None;
    connection.end_probes();
    result
}

/// Returns this agent's hello.
pub fn hello() -> Hello {
    Hello {
        rgpu: PROTOCOL,
        features: FEATURES.map(String::from).to_vec(),
        required: Vec::new(),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

fn read_hello(reader: &mut FrameReader<File>) -> Result<Option<Hello>, WireError> {
    match reader.next_frame()? {
        Some((FrameKind::Message, body)) => {
            let hello = serde_json::from_slice(body).map_err(std::io::Error::from)?;
            Ok(Some(hello))
        }
        Some(_) => Err(std::io::Error::other("the first frame is not a message").into()),
        None => Ok(None),
    }
}

/// Returns why this agent cannot serve the client, or `None` if it can.
fn incompatibility(client_hello: &Hello) -> Option<String> {
    if client_hello.rgpu != PROTOCOL {
        let version = client_hello.rgpu;
        return Some(format!("this agent speaks protocol {PROTOCOL}, the client {version}"));
    }
    let unknown = client_hello.required.iter().find(|f| !FEATURES.contains(&f.as_str()))?;
    Some(format!("the client requires `{unknown}`, which this agent does not know"))
}

/// Returns whether the client has closed its end of `input`. Nothing should be started then.
fn client_left(input: &OwnedFd) -> bool {
    let mut ends = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut ends, Some(&now)).is_ok()
        && ends[0].revents().intersects(PollFlags::HUP | PollFlags::RDHUP)
}

fn refused(request: &'static str, code: &'static str, text: impl Into<String>) -> FromAgent {
    Refusal::new(request, code, text).into()
}

struct Connection {
    out: ClientWriter,
    service: Arc<Service>,
    jobs: Arc<Jobs>,
    /// A plan whose blobs have not all arrived.
    waiting: Option<WaitingPlan>,
    last_renewal: Instant,
    /// The user's settings for this host, from the client.
    setup: ConnectionSettings,
    storer: BlobStorer,
    /// Threads that answer probes.
    probe_threads: Vec<JoinHandle<()>>,
    /// Set when the client has disconnected, to end the programs of probes.
    client_gone: Arc<AtomicBool>,
    /// The stream that the client writes to.
    client: Arc<OwnedFd>,
}

impl Connection {
    fn serve_requests(&mut self, reader: &mut FrameReader<File>) -> Result<(), WireError> {
        loop {
            let message = match reader.next_frame()? {
                None => return Ok(()),
                Some((FrameKind::Message, body)) => serde_json::from_slice(body),
                // Bytes of a message from a newer client.
                Some(_) => continue,
            };
            match message {
                Ok(message) => self.answer(message, reader)?,
                Err(e) => self.out.send(&refused("message", "bad_message", e.to_string()))?,
            }
            self.renew_all();
        }
    }

    fn answer(
        &mut self,
        message: ToAgent,
        reader: &mut FrameReader<File>,
    ) -> Result<(), WireError> {
        match message {
            ToAgent::Setup { path, env } => self.setup = ConnectionSettings::new(&path, env),
            ToAgent::Facts { probes } => {
                let (service, out) = (self.service.clone(), self.out.clone());
                let (setup, client_gone) = (self.setup.clone(), self.client_gone.clone());
                self.probe_threads.push(std::thread::spawn(move || {
                    let answer = match service.facts(&probes, &setup, &client_gone) {
                        Ok(facts) => FromAgent::Facts { facts: Box::new(facts) },
                        Err(refusal) => refusal.into(),
                    };
                    if !client_gone.load(Ordering::Relaxed) {
                        // The reading thread notices a failed writer.
                        let _ = out.send(&answer);
                    }
                }));
            }
            ToAgent::Submit { plan, secrets, inline_bytes, ahead_bytes, await_blobs } => {
                self.waiting = None;
                self.storer.settle();
                let setup = self.setup.clone();
                let order = SubmittedPlan { plan, secrets, inline_bytes, ahead_bytes, setup };
                self.submit(order, await_blobs)?;
            }
            ToAgent::Blob { digest, size, stored, zstd } => {
                let packed = if zstd { BlobEncoding::Zstd } else { BlobEncoding::Plain };
                return self.take_blob(&digest, size, stored, packed, reader);
            }
            ToAgent::Attach { job, from_seq, had, inline_bytes } => {
                if let Some(folder) = self.jobs.find("attach", &job)? {
                    let position = Position { from_seq, received: had, inline_bytes };
                    self.jobs.follow(folder, position, 0)?;
                }
            }
            ToAgent::Stdin { job, len, eof, offset } => {
                self.pass_stdin(&job, len, &Control::Stdin { len, eof, offset }, reader)?;
            }
            ToAgent::Renew { job } => self.send_control("renew", &job, &Control::Renew)?,
            ToAgent::Detach { job } => self.send_control("detach", &job, &Control::Detach)?,
            ToAgent::Cancel { job } => {
                self.waiting.take_if(|waiting| waiting.is(&job));
                self.send_control("cancel", &job, &Control::Cancel)?;
            }
            ToAgent::Fetch { job, path, offset, len } => {
                if let Some(folder) = self.jobs.find("fetch", &job)? {
                    let len = len.min(BLOB_BYTES);
                    self.jobs.fetcher.ask(ArtifactPart { folder, path, offset, len });
                }
            }
            ToAgent::Jobs {} => {
                let answer = self.service.listing();
                self.out.send(&answer)?;
            }
            ToAgent::Plan { job } => {
                let answer = match self.service.plan(&job) {
                    Ok(plan) => FromAgent::Plan { plan: Box::new(plan) },
                    Err(refusal) => refusal.into(),
                };
                self.out.send(&answer)?;
            }
            ToAgent::Forget { job } => {
                let answer = match self.service.forget(&job) {
                    Ok(()) => FromAgent::Done { request: "forget".into() },
                    Err(refusal) => refusal.into(),
                };
                self.out.send(&answer)?;
            }
            ToAgent::Ping {} => self.out.send(&FromAgent::Pong {})?,
            ToAgent::Unknown => {
                let text = "a request that this agent does not know";
                self.out.send(&refused("unknown", "unknown_request", text))?;
            }
        }
        Ok(())
    }

    /// Ends the programs of probes and waits for their threads.
    fn end_probes(&mut self) {
        self.client_gone.store(true, Ordering::Relaxed);
        for thread in self.probe_threads.drain(..) {
            let _ = thread.join();
        }
    }

    fn submit(&mut self, order: SubmittedPlan, await_blobs: bool) -> Result<(), WireError> {
        // Such a client sends everything at once and may have left before this program started.
        if await_blobs && client_left(&self.client) {
            return Ok(());
        }
        let digests = self.jobs.submit(&order, None)?;
        if digests.is_empty() {
            return Ok(());
        }
        let (job, awaited) = (order.plan.job.clone(), await_blobs);
        self.out.send(&FromAgent::Missing { job, digests: digests.clone(), awaited })?;
        if await_blobs {
            let (jobs, out) = (self.jobs.clone(), self.out.clone());
            let client = self.client.clone();
            self.waiting = Some(WaitingPlan::begin(jobs, out, client, order, &digests));
        }
        Ok(())
    }

    /// Sends a control message to a job's supervisor. Does nothing if the job has ended.
    fn send_control(
        &mut self,
        request: &'static str,
        job: &str,
        control: &Control,
    ) -> Result<(), WireError> {
        if self.jobs.find(request, job)?.is_none() {
            return Ok(());
        }
        self.jobs.send_to_supervisor(job, |link| write_message(link, control));
        // The job's terminal event confirms a cancellation.
        if *control != Control::Cancel {
            self.out.send(&FromAgent::Done { request: request.into() })?;
        }
        Ok(())
    }

    fn pass_stdin(
        &mut self,
        job: &str,
        len: u64,
        control: &Control,
        reader: &mut FrameReader<File>,
    ) -> Result<(), WireError> {
        let mut body = Vec::new();
        if len > 0 {
            match reader.next_frame()? {
                Some((FrameKind::Output, bytes)) if bytes.len() as u64 == len => {
                    body = bytes.to_vec();
                }
                Some(_) => {
                    let text = format!("{len} bytes in one output frame were announced");
                    return Ok(self.out.send(&refused("stdin", "bad_frame", text))?);
                }
                None => return Ok(()),
            }
        }
        if self.jobs.find("stdin", job)?.is_none() {
            return Ok(());
        }
        self.jobs.send_to_supervisor(job, |link| {
            write_message(link, control)?;
            if !body.is_empty() {
                write_frame(link, FrameKind::Output, &body)?;
            }
            link.flush()
        });
        Ok(())
    }

    /// Reads a blob's frames. Each blob is answered with `stored` or `refused`.
    fn take_blob(
        &mut self,
        digest: &Digest,
        size: u64,
        stored: u64,
        packed: BlobEncoding,
        reader: &mut FrameReader<File>,
    ) -> Result<(), WireError> {
        // The margin is for zstd's overhead on incompressible bytes.
        let fits = size <= BLOB_BYTES && stored <= BLOB_BYTES + (64 << 10);
        let mut wire = Vec::with_capacity(if fits { stored as usize } else { 0 });
        let mut received = 0;
        while received < stored {
            let (kind, body) = match reader.next_frame()? {
                Some(frame) => frame,
                None => return Ok(()),
            };
            received += body.len() as u64;
            if kind != FrameKind::Blob || received > stored {
                let text = format!("blob {digest:?}: {stored} bytes in blob frames were announced");
                return Err(std::io::Error::other(text).into());
            }
            if fits {
                wire.extend_from_slice(body);
            }
        }
        if !fits {
            let text = format!("blob {digest:?} is over {BLOB_BYTES} bytes");
            return Ok(self.out.send(&refused("blob", "bad_blob", text))?);
        }
        self.storer.put(ReceivedBlob { digest: digest.clone(), size, wire, packed });
        Ok(())
    }

    /// Renews the leases of the client's jobs, as any message shows that the client is there.
    fn renew_all(&mut self) {
        if self.last_renewal.elapsed() < RENEW_EVERY {
            return;
        }
        self.last_renewal = Instant::now();
        self.jobs.renew();
    }
}
