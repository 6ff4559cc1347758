//! Follows a job: sends its event log, with the bytes of each output event before the event.
//!
//! Everything comes from files; the supervisor's socket only wakes the follower. So any number of
//! clients may follow from any position, and a slow client does not delay the others.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rgpu_protocol::frame::{FrameKind, MAX_BODY};
use rgpu_protocol::message::ReceivedOutput;
use rgpu_protocol::{BLOB_BYTES, Digest, Event, EventBody, FromAgent, Stream};

use super::fetch::{ArtifactPart, Fetcher};
use super::{ClientWriter, fetch, refused};
use crate::control;
use crate::host_fault::HostFault;
use crate::job::{JobFolder, SOCKET};
use crate::job_state::{JobState, settle};
use crate::journal::JournalReader;

/// Longest wait for the supervisor before `stop` is checked again.
const STOP_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The position from which a job is followed.
#[derive(Debug)]
pub(super) struct Position {
    /// Number of the first event to send; 1 for all.
    pub(super) from_seq: u64,
    /// Output that the client already has.
    pub(super) received: Vec<ReceivedOutput>,
    /// Artifacts up to this size are sent before the terminal event.
    pub(super) inline_bytes: u64,
}

/// Larger artifacts to send without a request.
pub(super) struct Prefetch {
    /// Most bytes to send, all artifacts together.
    pub(super) bytes: u64,
    /// Sends these parts first and requested parts after them.
    pub(super) fetcher: Fetcher,
}

/// Follows the job until its terminal event, a failure of the writer, or `stop`. Sends larger
/// artifacts after the terminal event.
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
    // If the writer itself failed, the connection is ending anyway.
    let _ = out.send(&refused("follow", "follow_failed", text));
}

struct Follower {
    folder: JobFolder,
    job: String,
    from_seq: u64,
    /// Bytes that the client has of each log.
    received: HashMap<(String, Stream), u64>,
    inline_bytes: u64,
    /// Artifacts to send before the terminal event, with their latest sizes.
    inline: BTreeMap<String, u64>,
    ahead: Option<Prefetch>,
    /// The other artifacts, the latest last.
    larger: Vec<LargeArtifact>,
    out: ClientWriter,
}

/// An artifact over the limit for inline sending.
struct LargeArtifact {
    path: String,
    size: u64,
    digest: Digest,
}

impl Follower {
    fn new(folder: JobFolder, position: Position, out: ClientWriter) -> Self {
        let Position { from_seq, received, inline_bytes } = position;
        let received = received.into_iter().map(|h| ((h.step, h.stream), h.bytes)).collect();
        Self {
            job: folder.id().to_owned(),
            folder,
            from_seq,
            received,
            inline_bytes,
            inline: BTreeMap::new(),
            ahead: None,
            larger: Vec::new(),
            out,
        }
    }

    fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        self.run_with(stop, settle)
    }

    /// As [`Self::run`]. `settle` is called when the job has no supervisor.
    fn run_with(
        &mut self,
        stop: &AtomicBool,
        mut settle: impl FnMut(&JobFolder) -> Result<JobState, HostFault>,
    ) -> io::Result<()> {
        let mut reader = JournalReader::open(&self.folder.events_path())?;
        let mut link = self.connect();
        loop {
            for event in reader.read_new()? {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                if self.forward(event)? {
                    return self.out.flush();
                }
                link = link.or_else(|| self.connect());
            }
            // Check again before flushing: more events may have been written meanwhile.
            let more = reader.read_new()?;
            if !more.is_empty() {
                if self.forward_all(more)? {
                    return self.out.flush();
                }
                continue;
            }
            self.out.flush()?;
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            link = match link.take() {
                Some(open) => wait(open),
                None => {
                    if let Err(fault) = settle(&self.folder) {
                        // Another client may have removed the job after its end. The open log
                        // still holds that end.
                        let last = reader.read_new()?;
                        if last.is_empty() {
                            return Err(io::Error::other(fault));
                        }
                        if self.forward_all(last)? {
                            return self.out.flush();
                        }
                    }
                    self.connect().or_else(|| {
                        std::thread::sleep(Duration::from_millis(5));
                        None
                    })
                }
            };
        }
    }

    fn connect(&self) -> Option<UnixStream> {
        let link = control::connect(self.folder.path(), SOCKET).ok()?;
        link.set_read_timeout(Some(STOP_CHECK_INTERVAL)).ok()?;
        Some(link)
    }

    /// Forwards events. Returns whether the terminal one was among them.
    fn forward_all(&mut self, events: Vec<Event>) -> io::Result<bool> {
        for event in events {
            if self.forward(event)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Forwards an event. Returns whether it was the terminal one.
    fn forward(&mut self, event: Event) -> io::Result<bool> {
        let ended = matches!(event.body, EventBody::Ended { .. });
        let is_requested = event.seq >= self.from_seq;
        match &event.body {
            EventBody::Output { step, stream, offset, len } => {
                self.send_output(step, *stream, *offset, *len)?;
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
            EventBody::Ended { .. } if is_requested && self.inline_bytes > 0 => {
                self.send_inline()?
            }
            _ => {}
        }
        let ahead = if ended && is_requested { self.announce_ahead()? } else { Vec::new() };
        if is_requested {
            self.out.queue(&FromAgent::Event { job: self.job.clone(), event })?;
        }
        // These parts follow the terminal event, which is queued already, and come before anything
        // its reader can request.
        if let Some(Prefetch { fetcher, .. }) = &self.ahead {
            ahead.into_iter().for_each(|part| fetcher.ask(part));
        }
        Ok(ended)
    }

    /// Announces the larger artifacts to send without a request and returns their parts, in order.
    /// Files that the client itself sent are left out.
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

    /// Sends the bytes of this range that the client does not have.
    fn send_output(&mut self, step: &str, stream: Stream, offset: u64, len: u64) -> io::Result<()> {
        let key = (step.to_owned(), stream);
        let mut at = self.received.get(&key).copied().unwrap_or(0).max(offset);
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
            self.out.queue_with(&message, FrameKind::Output, &bytes)?;
            at += bytes.len() as u64;
        }
        self.received.insert(key, end);
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

/// Waits for a wake-up; `None` if the supervisor has exited.
fn wait(mut link: UnixStream) -> Option<UnixStream> {
    let mut wakes = [0; 4096];
    match link.read(&mut wakes) {
        Ok(0) => None,
        Ok(_) => Some(link),
        Err(e) => {
            let timed_out = matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
            );
            timed_out.then_some(link)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;
    use std::sync::Arc;

    use rgpu_protocol::Outcome;

    use super::*;
    use crate::journal::Journal;
    use crate::wire::{FrameReader, MessageWriter};

    #[test]
    fn the_end_of_a_job_that_another_client_removes_meanwhile_is_still_sent() {
        let dir = tempfile::tempdir().unwrap();
        let folder = JobFolder::at(dir.path().join("jobs/run.1"));
        std::fs::create_dir_all(folder.path()).unwrap();
        let (mut journal, _) = Journal::open(&folder.events_path()).unwrap();
        journal.append(EventBody::GpuReleased {}).unwrap();
        // After the follower has read the log, and before it looks at the job's state.
        let end_and_remove = |folder: &JobFolder| {
            journal.append(EventBody::Ended { outcome: Outcome::Done }).unwrap();
            folder.remove().unwrap();
            settle(folder)
        };
        let mut sent = tempfile::tempfile().unwrap();
        let out = Arc::new(MessageWriter::new(sent.try_clone().unwrap()));
        let position = Position { from_seq: 1, received: Vec::new(), inline_bytes: 1 << 10 };
        let mut follower = Follower::new(folder, position, out);
        follower.run_with(&AtomicBool::new(false), end_and_remove).unwrap();
        sent.rewind().unwrap();
        let mut reader = FrameReader::new(sent);
        let mut seqs = Vec::new();
        while let Some((_, body)) = reader.next_frame().unwrap() {
            if let FromAgent::Event { event, .. } = serde_json::from_slice(body).unwrap() {
                seqs.push(event.seq);
            }
        }
        assert_eq!(seqs, [1, 2]);
    }
}
