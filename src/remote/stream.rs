//! Frames on an asynchronous byte stream.
//!
//! Reading is cancel-safe: what has arrived lies in the reader's buffer, so a `select!` that drops
//! a read loses nothing. Writing is done by a task of its own: an agent that is busy sending
//! output, and so not reading, must never make the laptop stop reading too. Messages without bytes
//! never wait; whoever sends bytes that do wait must go on reading meanwhile, or both ends wait for
//! each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rgpu_protocol::frame::{self, FrameError, Kind};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::RemoteError;

/// Bytes asked of the transport at once.
const READ_BYTES: usize = 256 << 10;

/// Bytes given to the transport at once.
const WRITE_BYTES: usize = 256 << 10;

/// Groups of frames that may wait for the writing task, each a blob long at most.
const MAX_QUEUED_FRAME_GROUPS: usize = 2;

/// The reading side of a transport.
pub type BoxRead = Box<dyn AsyncRead + Send + Unpin>;

/// The writing side of a transport.
pub type BoxWrite = Box<dyn AsyncWrite + Send + Unpin>;

/// A byte stream to a program on a host (or here).
pub struct AgentStream {
    /// What it prints.
    pub reader: FrameReader,
    /// What it reads.
    pub writer: BoxWrite,
    /// How it ended, once it has.
    pub ending: StreamEnd,
}

/// What is known of a program at the other end beyond its standard output. Filled in by the
/// transport as it learns it.
#[derive(Clone, Debug, Default)]
pub struct StreamEnd(Arc<Mutex<StreamEndParts>>);

#[derive(Debug, Default)]
struct StreamEndParts {
    how: Option<String>,
    exit: Option<i32>,
    lost: bool,
    stderr: Vec<u8>,
}

/// Bytes of standard error that are kept.
const STDERR_KEPT: usize = 4 << 10;

impl StreamEnd {
    fn parts(&self) -> std::sync::MutexGuard<'_, StreamEndParts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// More of the program's standard error.
    pub fn stderr(&self, bytes: &[u8]) {
        let mut parts = self.parts();
        parts.stderr.extend_from_slice(bytes);
        let over = parts.stderr.len().saturating_sub(STDERR_KEPT);
        parts.stderr.drain(..over);
    }

    /// It exited with this status.
    pub fn exited(&self, status: i32) {
        let mut parts = self.parts();
        parts.exit = Some(status);
        parts.how = Some(format!("it exited with status {status}"));
    }

    /// It, or the connection, ended in another way.
    pub fn ended(&self, how: impl Into<String>) {
        self.parts().how.get_or_insert(how.into());
    }

    /// The connection ended; what became of the program is not known.
    pub fn lost(&self) {
        self.ended("the connection was lost");
        self.parts().lost = true;
    }

    /// Whether the connection ended before the program, as far as is known.
    pub fn is_lost(&self) -> bool {
        let parts = self.parts();
        parts.lost && parts.exit.is_none()
    }

    /// Its exit status, once known.
    pub fn exit(&self) -> Option<i32> {
        self.parts().exit
    }

    /// Waits, for half a second at most, until it is known how it ended: that comes a moment after
    /// the end of its output.
    pub async fn settle(&self) {
        for _ in 0..50 {
            if self.parts().how.is_some() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// How it ended, in words.
    pub fn words(&self) -> String {
        self.parts().how.clone().unwrap_or_else(|| "the stream ended".to_owned())
    }

    /// The last `n` bytes of its standard error, as text.
    pub fn last_words(&self, n: usize) -> String {
        let parts = self.parts();
        let from = parts.stderr.len().saturating_sub(n);
        String::from_utf8_lossy(&parts.stderr[from..]).trim().to_owned()
    }
}

/// A frame with its own body.
#[derive(Debug)]
pub struct OwnedFrame {
    /// What the body is.
    pub kind: Kind,
    /// The body.
    pub body: Vec<u8>,
}

/// Where frames come from.
enum FrameSource {
    /// Out of a stream of bytes.
    Stream(BoxRead),
    /// From a task of ours, whole; an empty group is the end.
    Groups(mpsc::Receiver<Vec<u8>>),
}

/// Cuts a byte stream into frames.
pub struct FrameReader {
    from: FrameSource,
    buffer: Vec<u8>,
    /// Bytes of `buffer` already given out.
    used: usize,
}

impl FrameReader {
    /// Over `from`.
    pub fn new(from: BoxRead) -> Self {
        Self { from: FrameSource::Stream(from), buffer: Vec::new(), used: 0 }
    }

    /// Over frames that a task of ours hands on: they are not copied on their way. The end is an
    /// empty group, or that nobody is left to send one.
    pub fn of_groups(groups: mpsc::Receiver<Vec<u8>>) -> Self {
        Self { from: FrameSource::Groups(groups), buffer: Vec::new(), used: 0 }
    }

    /// What has arrived and is not yet given out.
    pub fn pending(&self) -> &[u8] {
        &self.buffer[self.used..]
    }

    /// Takes `n` pending bytes away.
    pub fn consume(&mut self, n: usize) {
        self.used = (self.used + n).min(self.buffer.len());
    }

    /// Waits for more bytes; 0: the stream has ended.
    ///
    /// # Errors
    /// The transport's own.
    pub async fn fill(&mut self) -> std::io::Result<usize> {
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        let groups = match &mut self.from {
            FrameSource::Stream(stream) => {
                self.buffer.reserve(READ_BYTES);
                return stream.read_buf(&mut self.buffer).await;
            }
            FrameSource::Groups(groups) => groups,
        };
        let Some(mut group) = groups.recv().await else { return Ok(0) };
        let len = group.len();
        match self.buffer.is_empty() {
            true => self.buffer = group,
            false => self.buffer.append(&mut group),
        }
        Ok(len)
    }

    /// The next frame; `None`: the stream ended between two frames.
    ///
    /// # Errors
    /// [`RemoteError::LinkCut`] when it ended within one, [`RemoteError::Frames`] when it is not
    /// ours.
    pub async fn frame(&mut self) -> Result<Option<OwnedFrame>, RemoteError> {
        let mut body = Vec::new();
        Ok(self.next_into(&mut body).await?.map(|kind| OwnedFrame { kind, body }))
    }

    /// The kind of the next frame, whose body is added to `body`; `None`: the stream ended between
    /// two frames.
    ///
    /// # Errors
    /// As [`Self::frame`].
    pub async fn next_into(&mut self, body: &mut Vec<u8>) -> Result<Option<Kind>, RemoteError> {
        loop {
            if let Some((frame, used)) = frame::parse(self.pending())? {
                let (kind, len) = (frame.kind, frame.body.len());
                let last = used == self.buffer.len() - self.used;
                if last && body.is_empty() && len > self.buffer.capacity() / 2 {
                    // Most of what has come: its own memory goes on, in place of a copy of it.
                    *body = std::mem::take(&mut self.buffer);
                    body.drain(..body.len() - len);
                    self.used = 0;
                } else {
                    body.extend_from_slice(frame.body);
                    self.consume(used);
                }
                return Ok(Some(kind));
            }
            let why = match self.fill().await {
                Ok(0) if self.pending().is_empty() => return Ok(None),
                Ok(0) => "the stream ended within a frame".to_owned(),
                Ok(_) => continue,
                Err(error) => error.to_string(),
            };
            return Err(RemoteError::LinkCut { doing: "reading from the agent", why });
        }
    }
}

/// Sends frames through a task of its own. Clones share the task; it ends, and closes the stream,
/// when the last one is dropped.
#[derive(Clone)]
pub struct FrameWriter {
    /// Messages with their bytes.
    queue: mpsc::Sender<Vec<u8>>,
    /// Messages alone; they are few and small, and go first: a cancellation must not stand behind
    /// input that nobody takes.
    words: mpsc::UnboundedSender<Vec<u8>>,
    shared: Arc<WriterQueue>,
}

#[derive(Default)]
struct WriterQueue {
    /// Bytes given to the writing task, and those of them that the transport has taken.
    queued: AtomicU64,
    written: AtomicU64,
    /// Told whenever the transport has taken some, or failed.
    moved: Notify,
    /// What was said so far, while it may have to be said again.
    early: Mutex<Option<Vec<u8>>>,
    failed: Mutex<Option<String>>,
}

impl FrameWriter {
    /// Over `to`; must be called within a tokio runtime. The handle ends when all is written and
    /// closed.
    pub fn spawn(mut to: BoxWrite) -> (Self, JoinHandle<()>) {
        let (queue, mut groups) = mpsc::channel::<Vec<u8>>(MAX_QUEUED_FRAME_GROUPS);
        let (words, mut first) = mpsc::unbounded_channel::<Vec<u8>>();
        let shared = Arc::new(WriterQueue::default());
        let seen = shared.clone();
        let task = tokio::spawn(async move {
            let result: std::io::Result<()> = async {
                loop {
                    let group = tokio::select! {
                        biased;
                        Some(word) = first.recv() => word,
                        Some(group) = groups.recv() => group,
                        else => break,
                    };
                    for piece in group.chunks(WRITE_BYTES) {
                        to.write_all(piece).await?;
                        seen.written.fetch_add(piece.len() as u64, Ordering::Relaxed);
                        seen.moved.notify_one();
                    }
                    // Flushed once nothing more is waiting.
                    if groups.is_empty() && first.is_empty() {
                        to.flush().await?;
                    }
                }
                to.shutdown().await
            }
            .await;
            if let Err(error) = result {
                *seen.failed.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(error.to_string());
                seen.moved.notify_one();
            }
        });
        (Self { queue, words, shared }, task)
    }

    /// Bytes handed to the transport so far: whether a slow upload moves at all.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Waits until the transport has taken all but `most` of the bytes, or is gone. Cancel-safe;
    /// for one waiter at a time.
    pub async fn drained(&self, most: u64) {
        while !self.is_closed() {
            let left = self.shared.queued.load(Ordering::Relaxed).saturating_sub(self.written());
            if left <= most {
                return;
            }
            self.shared.moved.notified().await;
        }
    }

    /// Whether the stream is gone.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Sends one message, before all bytes that still wait. Never waits itself.
    ///
    /// # Errors
    /// [`RemoteError::LinkCut`] when the stream is gone.
    pub fn message<M: Serialize>(&self, message: &M) -> Result<(), RemoteError> {
        let word = group(message, Kind::Blob, &[])?;
        if let Some(early) = &mut *self.early() {
            early.extend_from_slice(&word);
        }
        self.word(word)
    }

    /// Sends bytes that are no frame, before all announced ones that still wait. Never waits itself.
    ///
    /// # Errors
    /// As [`FrameWriter::message`].
    pub(super) fn raw(&self, bytes: &[u8]) -> Result<(), RemoteError> {
        self.word(bytes.to_vec())
    }

    /// From now on messages are kept, since nobody may be there who reads them.
    pub(super) fn keep(&self) {
        *self.early() = Some(Vec::new());
    }

    /// They were read, and need not be kept any more.
    pub(super) fn forget(&self) {
        *self.early() = None;
    }

    /// Sends those that were kept once more; nobody has read them.
    ///
    /// # Errors
    /// As [`FrameWriter::message`].
    pub(super) fn repeat(&self) -> Result<(), RemoteError> {
        let early = self.early().take().unwrap_or_default();
        self.word(early)
    }

    fn early(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        self.shared.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self, word: Vec<u8>) -> Result<(), RemoteError> {
        self.shared.queued.fetch_add(word.len() as u64, Ordering::Relaxed);
        self.words.send(word).map_err(|_| self.gone())
    }

    /// Sends a message and the bytes that it announces, behind those sent earlier. They go as one:
    /// no other message gets between them, and a dropped future has sent all of it or nothing.
    /// Waits while earlier bytes wait: read from the stream meanwhile.
    ///
    /// # Errors
    /// [`RemoteError::LinkCut`] when the stream is gone.
    pub async fn announced<M: Serialize>(
        &self,
        message: &M,
        kind: Kind,
        bytes: &[u8],
    ) -> Result<(), RemoteError> {
        let place = self.queue.reserve().await.map_err(|_| self.gone())?;
        let group = group(message, kind, bytes)?;
        self.shared.queued.fetch_add(group.len() as u64, Ordering::Relaxed);
        place.send(group);
        Ok(())
    }

    fn gone(&self) -> RemoteError {
        let failed = self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let why = failed.clone().unwrap_or_else(|| "the stream is closed".to_owned());
        RemoteError::LinkCut { doing: "sending to the agent", why }
    }
}

/// A message and the bytes that it announces, as frames.
fn group<M: Serialize>(message: &M, kind: Kind, bytes: &[u8]) -> Result<Vec<u8>, RemoteError> {
    let body = serde_json::to_vec(message)
        .map_err(|error| RemoteError::Nonsense { what: error.to_string() })?;
    if body.len() > frame::MAX_BODY {
        return Err(FrameError::TooLong(body.len()).into());
    }
    let mut group = Vec::with_capacity(body.len() + bytes.len() + 64);
    group.extend_from_slice(&frame::header(Kind::Message, body.len()));
    group.extend_from_slice(&body);
    for piece in bytes.chunks(frame::MAX_BODY) {
        group.extend_from_slice(&frame::header(kind, piece.len()));
        group.extend_from_slice(piece);
    }
    Ok(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_of_groups_come_in_their_order_whoever_has_their_memory() {
        let (out, groups) = mpsc::channel(4);
        let mut reader = FrameReader::of_groups(groups);
        let large = vec![7; 100_000];
        out.send(group(&"first", Kind::Output, &large).unwrap()).await.unwrap();
        out.send(group(&"second", Kind::Blob, b"small").unwrap()).await.unwrap();
        drop(out);
        let mut came = Vec::new();
        while let Some(frame) = reader.frame().await.unwrap() {
            came.push((frame.kind, frame.body));
        }
        let words = |text: &str| (Kind::Message, format!("\"{text}\"").into_bytes());
        let bytes = [(Kind::Output, large), (Kind::Blob, b"small".to_vec())];
        let [first, second] = bytes;
        assert_eq!(came, [words("first"), first, words("second"), second]);
    }
}
