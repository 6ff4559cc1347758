//! Frames on an asynchronous byte stream.
//!
//! Reading is cancel-safe: received bytes stay in the reader's buffer, so a `select!` that drops a
//! read loses nothing. A separate task writes: an agent that is busy sending output does not read,
//! and must not make the laptop stop reading too. Messages without bytes never wait. A sender whose
//! bytes wait must keep reading, or both ends wait for each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rgpu_protocol::frame::{self, FrameError, FrameKind};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::RemoteError;

/// Bytes requested from the transport per read.
const READ_BYTES: usize = 256 << 10;

/// Bytes given to the transport per write.
const WRITE_BYTES: usize = 256 << 10;

/// Groups of frames that may wait for the writing task; each is at most one blob long.
const MAX_QUEUED_FRAME_GROUPS: usize = 2;

/// The reading side of a transport.
pub type BoxRead = Box<dyn AsyncRead + Send + Unpin>;

/// The writing side of a transport.
pub type BoxWrite = Box<dyn AsyncWrite + Send + Unpin>;

/// A byte stream to a program on a host (or here).
pub struct AgentStream {
    /// Frames that the program prints.
    pub reader: FrameReader,
    /// The program's standard input.
    pub writer: BoxWrite,
    /// How the program or the connection ended, once it has.
    pub ending: StreamEnd,
}

/// The status and standard error of the program at the other end. The transport fills it in as it
/// learns them.
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

    /// Appends to the program's standard error and keeps the end of it.
    pub fn record_stderr(&self, bytes: &[u8]) {
        let mut parts = self.parts();
        parts.stderr.extend_from_slice(bytes);
        let over = parts.stderr.len().saturating_sub(STDERR_KEPT);
        parts.stderr.drain(..over);
    }

    /// Records the program's exit status.
    pub fn record_exit(&self, status: i32) {
        let mut parts = self.parts();
        parts.exit = Some(status);
        parts.how = Some(format!("it exited with status {status}"));
    }

    /// Records another end of the program or the connection; only the first one counts.
    pub fn record_end(&self, how: impl Into<String>) {
        self.parts().how.get_or_insert(how.into());
    }

    /// Records that the connection ended and the program's state is unknown.
    pub fn record_lost_connection(&self) {
        self.record_end("the connection was lost");
        self.parts().lost = true;
    }

    /// Whether the connection ended and no exit status is known.
    pub fn is_lost(&self) -> bool {
        let parts = self.parts();
        parts.lost && parts.exit.is_none()
    }

    /// The program's exit status, once known.
    pub fn exit(&self) -> Option<i32> {
        self.parts().exit
    }

    /// Waits up to half a second for the status, which arrives shortly after the end of the output.
    pub async fn settle(&self) {
        for _ in 0..50 {
            if self.parts().how.is_some() {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// How the stream ended, as text for users.
    pub fn description(&self) -> String {
        self.parts().how.clone().unwrap_or_else(|| "the stream ended".to_owned())
    }

    /// The last `n` bytes of standard error, as text.
    pub fn stderr_tail(&self, n: usize) -> String {
        let parts = self.parts();
        let from = parts.stderr.len().saturating_sub(n);
        String::from_utf8_lossy(&parts.stderr[from..]).trim().to_owned()
    }
}

/// A frame that owns its body.
#[derive(Debug)]
pub struct OwnedFrame {
    /// The kind of the body.
    pub kind: FrameKind,
    /// The bytes of the body, not decoded.
    pub body: Vec<u8>,
}

/// The source of a reader's bytes.
enum FrameSource {
    /// A byte stream, of which frames are decoded here.
    Stream(BoxRead),
    /// Bytes of frames from a task of ours; an empty group is the end.
    Groups(mpsc::Receiver<Vec<u8>>),
}

/// Cuts a byte stream into frames.
pub struct FrameReader {
    from: FrameSource,
    buffer: Vec<u8>,
    /// Bytes of `buffer` already returned.
    used: usize,
}

impl FrameReader {
    /// A reader over a byte stream.
    pub fn new(from: BoxRead) -> Self {
        Self { from: FrameSource::Stream(from), buffer: Vec::new(), used: 0 }
    }

    /// A reader over bytes of frames from a task of ours. Frames that fill a group are not copied.
    /// An empty group or a dropped sender is the end.
    pub fn from_groups(groups: mpsc::Receiver<Vec<u8>>) -> Self {
        Self { from: FrameSource::Groups(groups), buffer: Vec::new(), used: 0 }
    }

    /// Bytes that have arrived and were not returned yet.
    pub fn pending(&self) -> &[u8] {
        &self.buffer[self.used..]
    }

    /// Removes the first `n` pending bytes.
    pub fn consume(&mut self, n: usize) {
        self.used = (self.used + n).min(self.buffer.len());
    }

    /// Waits for more bytes and returns their number; 0: the stream has ended.
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
        if self.buffer.is_empty() {
            self.buffer = group
        } else {
            self.buffer.append(&mut group)
        }
        Ok(len)
    }

    /// The next frame; `None`: the stream ended between two frames.
    ///
    /// # Errors
    /// [`RemoteError::LinkCut`] when the stream ends within a frame, [`RemoteError::Frames`] when
    /// the bytes are not a frame.
    pub async fn frame(&mut self) -> Result<Option<OwnedFrame>, RemoteError> {
        let mut body = Vec::new();
        Ok(self.next_into(&mut body).await?.map(|kind| OwnedFrame { kind, body }))
    }

    /// Appends the next frame's body to `body` and returns its kind; `None`: the stream ended
    /// between two frames.
    pub async fn next_into(
        &mut self,
        body: &mut Vec<u8>,
    ) -> Result<Option<FrameKind>, RemoteError> {
        loop {
            if let Some((frame, used)) = frame::parse(self.pending())? {
                let (kind, len) = (frame.kind, frame.body.len());
                let last = used == self.buffer.len() - self.used;
                if last && body.is_empty() && len > self.buffer.capacity() / 2 {
                    // The body fills most of the buffer: hand over the buffer instead of a copy.
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

/// Sends frames through a task. Clones share the task; it ends and closes the stream when the last
/// clone is dropped.
#[derive(Clone)]
pub struct FrameWriter {
    /// Messages with bytes, in order; the sender waits while it is full.
    queue: mpsc::Sender<Vec<u8>>,
    /// Messages without bytes. They are few and small and go first: a cancel must not wait behind
    /// input that nobody reads.
    without_bytes: mpsc::UnboundedSender<Vec<u8>>,
    shared: Arc<WriterQueue>,
}

#[derive(Default)]
struct WriterQueue {
    /// Bytes given to the writing task, and how many of them the transport has taken.
    queued: AtomicU64,
    written: AtomicU64,
    /// Notified when the transport has taken bytes or failed.
    moved: Notify,
    /// Messages sent so far, while they may have to be sent again.
    early: Mutex<Option<Vec<u8>>>,
    failed: Mutex<Option<String>>,
}

impl FrameWriter {
    /// A writer to `to`. Must be called within a tokio runtime. The handle completes once
    /// everything is written and the stream is closed.
    pub fn spawn(mut to: BoxWrite) -> (Self, JoinHandle<()>) {
        let (queue, mut groups) = mpsc::channel::<Vec<u8>>(MAX_QUEUED_FRAME_GROUPS);
        let (without_bytes, mut first) = mpsc::unbounded_channel::<Vec<u8>>();
        let shared = Arc::new(WriterQueue::default());
        let task_shared = shared.clone();
        let task = tokio::spawn(async move {
            let result: std::io::Result<()> = async {
                loop {
                    let group = tokio::select! {
                        biased;
                        Some(message) = first.recv() => message,
                        Some(group) = groups.recv() => group,
                        else => break,
                    };
                    for piece in group.chunks(WRITE_BYTES) {
                        to.write_all(piece).await?;
                        task_shared.written.fetch_add(piece.len() as u64, Ordering::Relaxed);
                        task_shared.moved.notify_one();
                    }
                    // Flush once nothing more waits.
                    if groups.is_empty() && first.is_empty() {
                        to.flush().await?;
                    }
                }
                to.shutdown().await
            }
            .await;
            if let Err(error) = result {
                *task_shared.failed.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(error.to_string());
                task_shared.moved.notify_one();
            }
        });
        (Self { queue, without_bytes, shared }, task)
    }

    /// Bytes handed to the transport so far; shows whether a slow upload moves at all.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Waits until at most `max_left` bytes are unsent, or the stream is gone. Cancel-safe; for one
    /// waiter at a time.
    pub async fn drained(&self, max_left: u64) {
        while !self.is_closed() {
            let left = self.shared.queued.load(Ordering::Relaxed).saturating_sub(self.written());
            if left <= max_left {
                return;
            }
            self.shared.moved.notified().await;
        }
    }

    /// Whether the stream is gone.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Sends one message ahead of all waiting bytes. Never blocks.
    pub fn message<M: Serialize>(&self, message: &M) -> Result<(), RemoteError> {
        let encoded = group(message, FrameKind::Blob, &[])?;
        if let Some(early) = &mut *self.early() {
            early.extend_from_slice(&encoded);
        }
        self.send_encoded(encoded)
    }

    /// Sends bytes that are not a frame ahead of all waiting bytes. Never blocks.
    pub(super) fn raw(&self, bytes: &[u8]) -> Result<(), RemoteError> {
        self.send_encoded(bytes.to_vec())
    }

    /// Starts to keep a copy of each message, because no agent may be reading yet.
    pub(super) fn keep(&self) {
        *self.early() = Some(Vec::new());
    }

    /// Drops the copies, because the agent has read the messages.
    pub(super) fn forget(&self) {
        *self.early() = None;
    }

    /// Sends the copies again, because no agent read the messages.
    pub(super) fn repeat(&self) -> Result<(), RemoteError> {
        let early = self.early().take().unwrap_or_default();
        self.send_encoded(early)
    }

    fn early(&self) -> std::sync::MutexGuard<'_, Option<Vec<u8>>> {
        self.shared.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send_encoded(&self, encoded: Vec<u8>) -> Result<(), RemoteError> {
        self.shared.queued.fetch_add(encoded.len() as u64, Ordering::Relaxed);
        self.without_bytes.send(encoded).map_err(|_| self.gone())
    }

    /// Sends a message and the bytes it announces, after those sent earlier. No other message comes
    /// between them, and a dropped future has sent all of it or nothing. Waits while earlier bytes
    /// wait: read from the stream meanwhile.
    pub async fn send_with_bytes<M: Serialize>(
        &self,
        message: &M,
        kind: FrameKind,
        bytes: &[u8],
    ) -> Result<(), RemoteError> {
        let slot = self.queue.reserve().await.map_err(|_| self.gone())?;
        let group = group(message, kind, bytes)?;
        self.shared.queued.fetch_add(group.len() as u64, Ordering::Relaxed);
        slot.send(group);
        Ok(())
    }

    fn gone(&self) -> RemoteError {
        let failed = self.shared.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let why = failed.clone().unwrap_or_else(|| "the stream is closed".to_owned());
        RemoteError::LinkCut { doing: "sending to the agent", why }
    }
}

/// Encodes a message and the bytes it announces as frames.
fn group<M: Serialize>(message: &M, kind: FrameKind, bytes: &[u8]) -> Result<Vec<u8>, RemoteError> {
    let body = serde_json::to_vec(message)
        .map_err(|error| RemoteError::ProtocolViolation { what: error.to_string() })?;
    if body.len() > frame::MAX_BODY {
        return Err(FrameError::TooLong(body.len()).into());
    }
    let mut group = Vec::with_capacity(body.len() + bytes.len() + 64);
    group.extend_from_slice(&frame::header(FrameKind::Message, body.len()));
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
        let mut reader = FrameReader::from_groups(groups);
        let large = vec![7; 100_000];
        out.send(group(&"first", FrameKind::Output, &large).unwrap()).await.unwrap();
        out.send(group(&"second", FrameKind::Blob, b"small").unwrap()).await.unwrap();
        drop(out);
        let mut frames = Vec::new();
        while let Some(frame) = reader.frame().await.unwrap() {
            frames.push((frame.kind, frame.body));
        }
        let message = |text: &str| (FrameKind::Message, format!("\"{text}\"").into_bytes());
        let bytes = [(FrameKind::Output, large), (FrameKind::Blob, b"small".to_vec())];
        let [first, second] = bytes;
        assert_eq!(frames, [message("first"), first, message("second"), second]);
    }
}
