//! One conversation with a laptop, over standard input and output.
//!
//! This thread reads requests and never waits for the laptop to read; threads of their own follow
//! jobs, fetch artifacts, store blobs and answer probes, and share the outbox. When standard input
//! ends, so does the process, with what its probes run: jobs live elsewhere.

pub mod fetch;
pub mod follow;
pub(crate) mod launch;
pub(crate) mod listing;
mod storer;

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rgpu_protocol::frame::{Kind, MAGIC};
use rgpu_protocol::{BLOB_BYTES, Digest, FromAgent, Hello, PROTOCOL, Plan, ToAgent};

use crate::blob::Packed;
use crate::control::{self, Control};
use crate::job::{JobFolder, SOCKET};
use crate::root::Candidate;
use crate::service::{Refusal, Service, Submitted};
use crate::setup::Setup;
use crate::wire::{FrameReader, Outbox, WireError, write_frame, write_message};

use fetch::{Fetcher, Part};
use follow::{Position, Seen};
use storer::{Arrived, Storer};

/// What this agent can do beyond the first generation.
pub const FEATURES: [&str; 5] = ["zstd", "stdin", "gpu_queue", "inline_artifacts", "setup"];

/// A lease is renewed by a client's traffic, but not by every frame of it.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// The way to the client.
pub type Out = Arc<Outbox<File>>;

/// Holds a conversation until its client goes away.
///
/// # Errors
/// When the streams fail or the peer speaks something else.
pub fn serve(candidates: &[Candidate]) -> Result<(), WireError> {
    let own = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3).map(File::from);
    let input = own(rustix::stdio::stdin()).map_err(std::io::Error::from)?;
    let output = own(rustix::stdio::stdout()).map_err(std::io::Error::from)?;
    let out = Arc::new(Outbox::new(output));
    out.raw(MAGIC)?;
    out.send(&Hello {
        rgpu: PROTOCOL,
        features: FEATURES.map(String::from).to_vec(),
        required: Vec::new(),
        version: env!("CARGO_PKG_VERSION").into(),
    })?;
    let service = Arc::new(Service::open(candidates));
    let mut reader = FrameReader::new(input);
    let Some(theirs) = read_hello(&mut reader)? else { return Ok(()) };
    if let Some(text) = cannot_talk(&theirs) {
        out.send(&refused("hello", "unknown_feature", text))?;
        return Ok(());
    }
    let fetcher = Fetcher::start(out.clone());
    let storer = Storer::start(service.clone(), out.clone());
    let mut front = Front {
        service,
        out,
        links: HashMap::new(),
        followers: HashMap::new(),
        renewed: Instant::now(),
        setup: Setup::default(),
        fetcher,
        storer,
        probing: Vec::new(),
        gone: Arc::default(),
    };
    let ended = front.converse(&mut reader);
    front.end_probes();
    ended
}

fn read_hello(reader: &mut FrameReader<File>) -> Result<Option<Hello>, WireError> {
    match reader.next_frame()? {
        Some((Kind::Message, body)) => {
            let hello = serde_json::from_slice(body).map_err(std::io::Error::from)?;
            Ok(Some(hello))
        }
        Some(_) => Err(std::io::Error::other("the first frame is no message").into()),
        None => Ok(None),
    }
}

/// Why this agent cannot serve the client, if so.
fn cannot_talk(theirs: &Hello) -> Option<String> {
    if theirs.rgpu != PROTOCOL {
        let version = theirs.rgpu;
        return Some(format!("this agent speaks protocol {PROTOCOL}, the client {version}"));
    }
    let unknown = theirs.required.iter().find(|f| !FEATURES.contains(&f.as_str()))?;
    Some(format!("the client requires `{unknown}`, which this agent does not know"))
}

fn refused(request: &'static str, code: &'static str, text: impl Into<String>) -> FromAgent {
    Refusal::new(request, code, text).into()
}

/// A conversation.
struct Front {
    out: Out,
    service: Arc<Service>,
    /// Ways to the supervisors of this client's jobs.
    links: HashMap<String, UnixStream>,
    /// Flags that tell the followers of jobs to stop.
    followers: HashMap<String, Arc<AtomicBool>>,
    renewed: Instant,
    /// The user's settings for this host.
    setup: Setup,
    fetcher: Fetcher,
    storer: Storer,
    /// Threads that answer probes.
    probing: Vec<JoinHandle<()>>,
    /// Set when the client has gone: what probes run is ended.
    gone: Arc<AtomicBool>,
}

impl Front {
    fn converse(&mut self, reader: &mut FrameReader<File>) -> Result<(), WireError> {
        loop {
            let message = match reader.next_frame()? {
                None => return Ok(()),
                Some((Kind::Message, body)) => serde_json::from_slice(body),
                // Bytes that belong to a message of a newer client.
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
            ToAgent::Setup { path, env } => self.setup = Setup::new(&path, env),
            ToAgent::Facts { probes } => {
                let (service, out) = (self.service.clone(), self.out.clone());
                let (setup, gone) = (self.setup.clone(), self.gone.clone());
                self.probing.push(std::thread::spawn(move || {
                    let answer = match service.facts(&probes, &setup, &gone) {
                        Ok(facts) => FromAgent::Facts { facts: Box::new(facts) },
                        Err(refusal) => refusal.into(),
                    };
                    if !gone.load(Ordering::Relaxed) {
                        // A failed outbox ends the conversation elsewhere.
                        let _ = out.send(&answer);
                    }
                }));
            }
            ToAgent::Submit { plan, secrets, inline_bytes } => {
                self.storer.settle();
                self.submit(&plan, &secrets, inline_bytes)?;
            }
            ToAgent::Blob { digest, size, stored, zstd } => {
                let packed = if zstd { Packed::Zstd } else { Packed::Plain };
                return self.take_blob(&digest, size, stored, packed, reader);
            }
            ToAgent::Attach { job, from_seq, had, inline_bytes } => {
                if let Some(folder) = self.find("attach", &job)? {
                    let had = Seen::Given(had);
                    self.follow(folder, Position { from_seq, had, inline_bytes, beat: None })?;
                }
            }
            ToAgent::Stdin { job, len, eof } => self.pass_stdin(&job, len, eof, reader)?,
            ToAgent::Renew { job } => self.tell("renew", &job, &Control::Renew)?,
            ToAgent::Detach { job } => self.tell("detach", &job, &Control::Detach)?,
            ToAgent::Cancel { job } => self.tell("cancel", &job, &Control::Cancel)?,
            ToAgent::Fetch { job, path, offset, len } => {
                if let Some(folder) = self.find("fetch", &job)? {
                    let len = len.min(BLOB_BYTES);
                    self.fetcher.ask(Part { folder, path, offset, len });
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

    /// Ends what probes still run: nobody waits for their answers.
    fn end_probes(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
        for thread in self.probing.drain(..) {
            let _ = thread.join();
        }
    }

    /// The job's folder, or a refusal.
    fn find(&self, request: &'static str, job: &str) -> Result<Option<JobFolder>, WireError> {
        match self.service.find(request, job) {
            Ok(folder) => Ok(Some(folder)),
            Err(refusal) => {
                self.out.send(&FromAgent::from(refusal))?;
                Ok(None)
            }
        }
    }

    fn submit(
        &mut self,
        plan: &Plan,
        secrets: &BTreeMap<String, String>,
        inline_bytes: u64,
    ) -> Result<(), WireError> {
        let had = Seen::Given(Vec::new());
        let position = Position { from_seq: 1, had, inline_bytes, beat: None };
        match self.service.submit(plan, secrets, &self.setup) {
            Ok(Submitted::Begun { folder, link }) => {
                self.links.insert(plan.job.clone(), link);
                self.follow(folder, position)
            }
            Ok(Submitted::There(folder)) => self.follow(folder, position),
            Ok(Submitted::Missing(digests)) => {
                let job = plan.job.clone();
                Ok(self.out.send(&FromAgent::Missing { job, digests })?)
            }
            Err(refusal) => Ok(self.out.send(&FromAgent::from(refusal))?),
        }
    }

    /// Follows a job in a thread of its own, in the place of an earlier one on this connection.
    fn follow(&mut self, folder: JobFolder, position: Position) -> Result<(), WireError> {
        let job = folder.id().to_owned();
        self.out.send(&FromAgent::Following { job: job.clone() })?;
        if let Some(link) = self.link(&job) {
            // One that fails is gone, which the follower notices.
            let _ = write_message(link, &Control::Renew);
        }
        let stop = Arc::new(AtomicBool::new(false));
        if let Some(earlier) = self.followers.insert(job, stop.clone()) {
            earlier.store(true, Ordering::Relaxed);
        }
        let out = self.out.clone();
        std::thread::spawn(move || follow::follow(folder, position, &out, &stop));
        Ok(())
    }

    /// Passes a word to a job's supervisor. One that has ended needs none.
    fn tell(&mut self, request: &'static str, job: &str, word: &Control) -> Result<(), WireError> {
        if self.find(request, job)?.is_none() {
            return Ok(());
        }
        if let Some(link) = self.link(job)
            && write_message(link, word).is_err()
        {
            self.links.remove(job);
        }
        // A cancellation is confirmed by the job's terminal event.
        if *word != Control::Cancel {
            self.out.send(&FromAgent::Done { request: request.into() })?;
        }
        Ok(())
    }

    fn link(&mut self, job: &str) -> Option<&mut UnixStream> {
        if !self.links.contains_key(job) {
            let folder = self.service.find("link", job).ok()?;
            let link = control::connect(folder.path(), SOCKET).ok()?;
            self.links.insert(job.to_owned(), link);
        }
        self.links.get_mut(job)
    }

    fn pass_stdin(
        &mut self,
        job: &str,
        len: u64,
        eof: bool,
        reader: &mut FrameReader<File>,
    ) -> Result<(), WireError> {
        let mut body = Vec::new();
        if len > 0 {
            match reader.next_frame()? {
                Some((Kind::Output, bytes)) if bytes.len() as u64 == len => {
                    body = bytes.to_vec();
                }
                Some(_) => {
                    let text = format!("{len} bytes in one output frame were announced");
                    return Ok(self.out.send(&refused("stdin", "bad_frame", text))?);
                }
                None => return Ok(()),
            }
        }
        if self.find("stdin", job)?.is_none() {
            return Ok(());
        }
        let Some(link) = self.link(job) else { return Ok(()) };
        let sent = write_message(link, &Control::Stdin { len, eof }).and_then(|()| {
            if body.is_empty() { Ok(()) } else { write_frame(link, Kind::Output, &body) }
        });
        if sent.and_then(|()| link.flush()).is_err() {
            self.links.remove(job);
        }
        Ok(())
    }

    /// Takes a blob's frames; each blob is answered by `stored` or refused.
    fn take_blob(
        &mut self,
        digest: &Digest,
        size: u64,
        stored: u64,
        packed: Packed,
        reader: &mut FrameReader<File>,
    ) -> Result<(), WireError> {
        // What zstd may add to bytes that do not shrink.
        let keep = size <= BLOB_BYTES && stored <= BLOB_BYTES + (64 << 10);
        let mut wire = Vec::with_capacity(if keep { stored as usize } else { 0 });
        let mut got = 0;
        while got < stored {
            let (kind, body) = match reader.next_frame()? {
                Some(frame) => frame,
                None => return Ok(()),
            };
            got += body.len() as u64;
            if kind != Kind::Blob || got > stored {
                let text = format!("blob {digest:?}: {stored} bytes in blob frames were announced");
                return Err(std::io::Error::other(text).into());
            }
            if keep {
                wire.extend_from_slice(body);
            }
        }
        if !keep {
            let text = format!("blob {digest:?} is over {BLOB_BYTES} bytes");
            return Ok(self.out.send(&refused("blob", "bad_blob", text))?);
        }
        self.storer.put(Arrived { digest: digest.clone(), size, wire, packed });
        Ok(())
    }

    /// A client that says anything is there: its jobs live on.
    fn renew_all(&mut self) {
        if self.renewed.elapsed() < RENEW_EVERY {
            return;
        }
        self.renewed = Instant::now();
        self.links.retain(|_, link| write_message(link, &Control::Renew).is_ok());
    }
}
