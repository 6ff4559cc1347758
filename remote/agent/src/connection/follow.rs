//! Following a job: its event log read aloud, each output event preceded by its bytes.
//!
//! Everything comes from files; the supervisor's socket only wakes. So any number of clients may
//! follow, from anywhere in the stream, and a client that reads slowly slows nobody else.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rgpu_protocol::frame::{Kind, MAX_BODY};
use rgpu_protocol::message::ReceivedOutput;
use rgpu_protocol::{BLOB_BYTES, Digest, Event, EventBody, FromAgent, Stream};

use super::fetch::{ArtifactPart, Fetcher};
use super::{ClientWriter, fetch, refused};
use crate::control;
use crate::job::{JobFolder, SOCKET};
use crate::job_state::settle;
use crate::journal::JournalReader;

/// How long a wait for the supervisor may take before the flag is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// From where a job is followed.
#[derive(Debug)]
pub struct Position {
    /// The first event wanted; 1: all.
    pub from_seq: u64,
    /// Output that the client has.
    pub had: ClientOutput,
    /// Artifacts up to this size are sent before the terminal event.
    pub inline_bytes: u64,
    /// Says [`FromAgent::Pong`] as soon as there is nothing more to say for now, and again after
    /// each such time of silence: a dead link is noticed by what does not come.
    pub beat: Option<Duration>,
}

/// How much of a job's output a client has.
#[derive(Debug)]
pub enum ClientOutput {
    /// So much of these streams, and nothing of the others.
    Given(Vec<ReceivedOutput>),
    /// What the events before the first wanted one name.
    WithEvents,
}

/// What of the larger artifacts is sent before anybody asks for it.
pub(super) struct Prefetch {
    /// So many bytes of all of them together.
    pub(super) bytes: u64,
    /// Sends them, and what is asked for behind them.
    pub(super) fetcher: Fetcher,
}

/// Follows the job until its terminal event, the outbox fails, or `stop`.
pub fn follow(folder: JobFolder, position: Position, out: &ClientWriter, stop: &AtomicBool) {
    run(Follower::new(folder, position, out.clone()), out, stop);
}

/// The same, and begins to send the larger artifacts with the terminal event.
pub(super) fn follow_ahead(
    folder: JobFolder,
    position: Position,
    ahead: Prefetch,
    out: &ClientWriter,
    stop: &AtomicBool,
) {
    let ahead = (ahead.bytes > 0).then_some(ahead);
    run(Follower { ahead, ..Follower::new(folder, position, out.clone()) }, out, stop);
}

fn run(mut follower: Follower, out: &ClientWriter, stop: &AtomicBool) {
    let result = catch_unwind(AssertUnwindSafe(|| follower.run(stop)));
    let text = match result {
        Ok(Ok(())) => return,
        Ok(Err(e)) => e.to_string(),
        Err(_) => "a defect of the agent".into(),
    };
    // When the outbox itself failed, the conversation is over anyway.
    let _ = out.send(&refused("follow", "follow_failed", text));
}

struct Follower {
    folder: JobFolder,
    job: String,
    from_seq: u64,
    /// Where in each log the client is.
    had: HashMap<(String, Stream), u64>,
    /// Whether it has the output of the events that it does not want.
    had_with_events: bool,
    beat: Option<Duration>,
    /// When something was said last; `None`: not since it began.
    said: Option<Instant>,
    inline_bytes: u64,
    /// Artifacts small enough to be sent unasked, with their latest sizes.
    inline: BTreeMap<String, u64>,
    ahead: Option<Prefetch>,
    /// The others, the latest last.
    larger: Vec<LargeArtifact>,
    out: ClientWriter,
}

/// An artifact that is not sent whole before it is asked for.
struct LargeArtifact {
    path: String,
    size: u64,
    digest: Digest,
}

impl Follower {
    fn new(folder: JobFolder, position: Position, out: ClientWriter) -> Self {
        let Position { from_seq, had, inline_bytes, beat } = position;
        let (given, had_with_events) = match had {
            ClientOutput::Given(given) => (given, false),
            ClientOutput::WithEvents => (Vec::new(), true),
        };
        let had = given.into_iter().map(|h| ((h.step, h.stream), h.bytes)).collect();
        Self {
            job: folder.id().to_owned(),
            folder,
            from_seq,
            had,
            had_with_events,
            beat,
            said: None,
            inline_bytes,
            inline: BTreeMap::new(),
            ahead: None,
            larger: Vec::new(),
            out,
        }
    }

    fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut reader = JournalReader::open(&self.folder.events_path())?;
        let mut link = self.connect();
        loop {
            for event in reader.read_new()? {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if self.pass(event)? {
                    return self.out.flush();
                }
                link = link.or_else(|| self.connect());
            }
            // More may have come while these were sent.
            let more = reader.read_new()?;
            if !more.is_empty() {
                for event in more {
                    if self.pass(event)? {
                        return self.out.flush();
                    }
                }
                continue;
            }
            self.out.flush()?;
            self.beat()?;
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            link = match link.take() {
                Some(open) => wait(open),
                None => {
                    settle(&self.folder).map_err(io::Error::other)?;
                    self.connect().or_else(|| {
                        std::thread::sleep(Duration::from_millis(5));
                        None
                    })
                }
            };
        }
    }

    /// Nothing more is to be said for now.
    fn beat(&mut self) -> io::Result<()> {
        if let Some(beat) = self.beat
            && self.said.is_none_or(|said| said.elapsed() >= beat)
        {
            self.said = Some(Instant::now());
            self.out.send(&FromAgent::Pong {})?;
        }
        Ok(())
    }

    fn connect(&self) -> Option<UnixStream> {
        let link = control::connect(self.folder.path(), SOCKET).ok()?;
        link.set_read_timeout(Some(LOOK_EVERY)).ok()?;
        Some(link)
    }

    /// Passes an event on; true for the terminal one.
    fn pass(&mut self, event: Event) -> io::Result<bool> {
        let ended = matches!(event.body, EventBody::Ended { .. });
        let wanted = event.seq >= self.from_seq;
        match &event.body {
            EventBody::Output { step, stream, offset, len } if self.had_with_events && !wanted => {
                self.had.insert((step.clone(), *stream), offset + len);
            }
            EventBody::Output { step, stream, offset, len } => {
                self.pass_output(step, *stream, *offset, *len)?;
            }
            EventBody::Artifact { path, size, digest, .. } => {
                self.inline.remove(path);
                self.larger.retain(|larger| larger.path != *path);
                if *size <= self.inline_bytes {
                    self.inline.insert(path.clone(), *size);
                } else {
                    let (path, size, digest) = (path.clone(), *size, digest.clone());
                    self.larger.push(LargeArtifact { path, size, digest });
                }
            }
            EventBody::Ended { .. } if wanted && self.inline_bytes > 0 => self.send_inline()?,
            _ => {}
        }
        let ahead = if ended && wanted { self.announce_ahead()? } else { Vec::new() };
        if wanted {
            self.said = self.said.map(|_| Instant::now());
            self.out.queue(&FromAgent::Event { job: self.job.clone(), event })?;
        }
        // Behind the terminal event, which lies in the outbox, and before anything that its reader
        // can ask for.
        if let Some(Prefetch { fetcher, .. }) = &self.ahead {
            ahead.into_iter().for_each(|part| fetcher.ask(part));
        }
        Ok(ended)
    }

    /// Says what of the larger artifacts comes unasked: the parts, in order. Whatever the client
    /// has sent itself is left out.
    fn announce_ahead(&self) -> io::Result<Vec<ArtifactPart>> {
        let mut parts = Vec::new();
        let Some(Prefetch { bytes, .. }) = &self.ahead else { return Ok(parts) };
        let mut left = *bytes;
        let sent = self.folder.plan().map(|plan| plan.files).unwrap_or_default();
        for LargeArtifact { path, size, digest } in &self.larger {
            if sent.iter().any(|file| file.path == *path && file.digest == *digest) {
                continue;
            }
            let whole_pieces = left / BLOB_BYTES * BLOB_BYTES;
            let len = if *size <= left { *size } else { whole_pieces };
            if len == 0 {
                break;
            }
            left -= len;
            let (job, path) = (self.job.clone(), path.clone());
            self.out.queue(&FromAgent::Ahead { job, path: path.clone(), len })?;
            for offset in (0..len).step_by(BLOB_BYTES as usize) {
                let (folder, path) = (self.folder.clone(), path.clone());
                parts.push(ArtifactPart {
                    folder,
                    path,
                    offset,
                    len: BLOB_BYTES.min(len - offset),
                });
            }
        }
        Ok(parts)
    }

    /// Sends those of `len` bytes at `offset` that the client has not had.
    fn pass_output(&mut self, step: &str, stream: Stream, offset: u64, len: u64) -> io::Result<()> {
        let key = (step.to_owned(), stream);
        let mut at = self.had.get(&key).copied().unwrap_or(0).max(offset);
        let end = offset + len;
        if at >= end {
            return Ok(());
        }
        let file = std::fs::File::open(self.folder.log_path(step, stream))?;
        while at < end {
            let mut bytes = vec![0; (end - at).min(MAX_BODY as u64) as usize];
            file.read_exact_at(&mut bytes, at)?;
            let message = FromAgent::Output {
                job: self.job.clone(),
                step: step.to_owned(),
                stream,
                offset: at,
                len: bytes.len() as u64,
            };
            self.out.queue_with(&message, Kind::Output, &bytes)?;
            at += bytes.len() as u64;
        }
        self.had.insert(key, end);
        Ok(())
    }

    fn send_inline(&self) -> io::Result<()> {
        for (path, size) in &self.inline {
            let mut offset = 0;
            loop {
                let len = (size - offset).min(BLOB_BYTES);
                fetch::send_part(&self.out, &self.folder, path, offset, len)?;
                offset += len;
                if offset >= *size {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Waits for a wake-up; `None` when the supervisor is gone.
fn wait(mut link: UnixStream) -> Option<UnixStream> {
    let mut wakes = [0; 4096];
    match link.read(&mut wakes) {
        Ok(0) => None,
        Ok(_) => Some(link),
        Err(e) => {
            let quiet = matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
            );
            quiet.then_some(link)
        }
    }
}
