//! Messages of the followed job that arrived while an answer was awaited, and artifacts that the
//! host sent without a request. Since the host decides what it sends, everything is bounded;
//! messages of other jobs are dropped at once.

use std::collections::{HashMap, VecDeque};

use super::RemoteError;
use super::client::{IncomingMessage, JobMessage};

/// Bytes of messages that may wait. An agent on a long link sends 32 MiB of artifacts ahead.
const MAX_WAITING_BYTES: usize = 40 << 20;

/// Messages that may wait.
const MAX_WAITING_MESSAGES: usize = 16_384;

/// The estimated ratio of an event's memory to its JSON.
const EVENT_MEMORY_FACTOR: usize = 8;

/// Bytes of small artifacts kept until they are requested. Others are fetched later.
const MAX_INLINE_BYTES: usize = 24 << 20;

/// The number of small artifacts kept.
const MAX_INLINE_FILES: usize = 16_384;

/// Artifacts that may be announced ahead: each has more than 256 KiB, and together they have 32
/// MiB.
const MAX_AHEAD_FILES: usize = 1024;

/// The longest path of such an artifact, in bytes.
const MAX_AHEAD_PATH_BYTES: usize = 4096;

/// The waiting messages and artifacts of one followed job.
#[derive(Debug, Default)]
pub(super) struct PendingMessages {
    job: Option<String>,
    waiting: VecDeque<IncomingMessage>,
    waiting_bytes: usize,
    inline: HashMap<String, Vec<u8>>,
    inline_bytes: usize,
    /// Bytes of each artifact that come without a request, by path.
    prefetched: HashMap<String, u64>,
}

impl PendingMessages {
    /// Starts to follow `job` and drops everything of another.
    pub(super) fn follow(&mut self, job: String) {
        *self = Self { job: Some(job), ..Self::default() };
    }

    /// The job that is, or was last, followed.
    pub(super) fn job(&self) -> Option<&str> {
        self.job.as_deref()
    }

    /// Stops following and returns the job.
    pub(super) fn stop_following(&mut self) -> Option<String> {
        std::mem::take(self).job
    }

    /// Whether a message concerns the followed job or no job.
    pub(super) fn belongs_to_job(&self, incoming: &IncomingMessage) -> bool {
        match incoming {
            IncomingMessage::Job { job, .. }
            | IncomingMessage::Piece { job, .. }
            | IncomingMessage::Ahead { job, .. } => self.job.as_deref() == Some(job),
            IncomingMessage::Answer(_) => true,
        }
    }

    /// Keeps a message for later.
    ///
    /// # Errors
    /// [`RemoteError::ProtocolViolation`]: more than an agent sends without a request.
    pub(super) fn put(&mut self, incoming: IncomingMessage) -> Result<(), RemoteError> {
        if !self.belongs_to_job(&incoming) {
            return Ok(());
        }
        if let IncomingMessage::Ahead { path, len, .. } = incoming {
            return self.announce(path, len);
        }
        self.waiting_bytes += memory_bytes(&incoming);
        if self.waiting_bytes > MAX_WAITING_BYTES || self.waiting.len() >= MAX_WAITING_MESSAGES {
            let what = format!(
                "more than {MAX_WAITING_BYTES} bytes or {MAX_WAITING_MESSAGES} unrequested \
                 messages instead of an answer"
            );
            return Err(RemoteError::ProtocolViolation { what });
        }
        self.waiting.push_back(incoming);
        Ok(())
    }

    /// Removes the oldest message.
    pub(super) fn pop(&mut self) -> Option<IncomingMessage> {
        self.remove(0)
    }

    fn remove(&mut self, at: usize) -> Option<IncomingMessage> {
        let incoming = self.waiting.remove(at)?;
        self.waiting_bytes -= memory_bytes(&incoming);
        Some(incoming)
    }

    /// Records that the first `len` bytes of an artifact come without a request.
    ///
    /// # Errors
    /// [`RemoteError::ProtocolViolation`]: more artifacts than an agent announces.
    pub(super) fn announce(&mut self, path: String, len: u64) -> Result<(), RemoteError> {
        if self.prefetched.len() >= MAX_AHEAD_FILES || path.len() > MAX_AHEAD_PATH_BYTES {
            let what = format!(
                "more than {MAX_AHEAD_FILES} unrequested artifacts announced, or one whose path is \
                 longer than {MAX_AHEAD_PATH_BYTES} bytes"
            );
            return Err(RemoteError::ProtocolViolation { what });
        }
        self.prefetched.insert(path, len);
        Ok(())
    }

    /// The announced bytes of an artifact, 0 if none. Forgets the announcement.
    pub(super) fn take_announced_size(&mut self, path: &str) -> u64 {
        self.prefetched.remove(path).unwrap_or(0)
    }

    /// Keeps a small artifact until it is requested, if there is room.
    pub(super) fn keep_inline(&mut self, path: String, bytes: Vec<u8>) {
        let added_bytes = path.len() + bytes.len();
        if self.inline_bytes + added_bytes <= MAX_INLINE_BYTES
            && self.inline.len() < MAX_INLINE_FILES
        {
            self.inline_bytes += added_bytes;
            if let Some(before) = self.inline.insert(path.clone(), bytes) {
                self.inline_bytes -= path.len() + before.len();
            }
        }
    }

    /// Removes a waiting piece of `path` that contains the byte at `at`.
    pub(super) fn take_piece(&mut self, path: &str, at: u64) -> Option<IncomingMessage> {
        let holds = |incoming: &IncomingMessage| {
            matches!(incoming, IncomingMessage::Piece { path: of, offset, bytes, .. }
                if of == path && (*offset..offset + bytes.len() as u64).contains(&at))
        };
        let position = self.waiting.iter().position(holds)?;
        self.remove(position)
    }

    /// Removes a small artifact that was sent without a request.
    pub(super) fn take_inline(&mut self, path: &str) -> Option<Vec<u8>> {
        // Its piece may still be in the queue, if answers were awaited since.
        let is_first_piece = |incoming: &IncomingMessage| matches!(incoming, IncomingMessage::Piece { path: of, offset: 0, .. } if of == path);
        if let Some(position) = self.waiting.iter().position(is_first_piece)
            && let Some(IncomingMessage::Piece { bytes, .. }) = self.remove(position)
        {
            return Some(bytes);
        }
        let bytes = self.inline.remove(path)?;
        self.inline_bytes -= path.len() + bytes.len();
        Some(bytes)
    }
}

/// The approximate memory of a message in bytes.
fn memory_bytes(incoming: &IncomingMessage) -> usize {
    match incoming {
        IncomingMessage::Job { message: JobMessage::Event(event), .. } => {
            serde_json::to_vec(event).map_or(0, |json| json.len() * EVENT_MEMORY_FACTOR)
        }
        IncomingMessage::Job { message: JobMessage::Output { step, bytes, .. }, .. } => {
            step.len() + bytes.len()
        }
        IncomingMessage::Piece { path, bytes, .. } => path.len() + bytes.len(),
        IncomingMessage::Ahead { path, .. } => path.len(),
        IncomingMessage::Answer(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use rgpu_protocol::{Event, EventBody, Stream};

    use super::*;

    fn following() -> PendingMessages {
        let mut backlog = PendingMessages::default();
        backlog.follow("run.1".to_owned());
        backlog
    }

    fn output(job: &str, bytes: usize) -> IncomingMessage {
        let (step, stream) = ("run".to_owned(), Stream::Stdout);
        let message = JobMessage::Output { step, stream, offset: 0, bytes: vec![0; bytes] };
        IncomingMessage::Job { job: job.to_owned(), message }
    }

    fn warning(text: &str) -> IncomingMessage {
        let body = EventBody::Warning { code: String::new(), text: text.to_owned() };
        let message = JobMessage::Event(Event { seq: 1, at_ms: 0, body });
        IncomingMessage::Job { job: "run.1".to_owned(), message }
    }

    /// Puts messages until one is refused; returns their number and bytes.
    fn flood(
        backlog: &mut PendingMessages,
        message: impl Fn() -> IncomingMessage,
    ) -> (usize, usize) {
        for messages in 0..=MAX_WAITING_MESSAGES {
            if let Err(error) = backlog.put(message()) {
                assert!(matches!(error, RemoteError::ProtocolViolation { .. }), "{error:?}");
                return (messages, messages * memory_bytes(&message()));
            }
        }
        panic!("no end");
    }

    #[test]
    fn what_waits_is_bounded_in_bytes_and_in_messages() {
        let (messages, bytes) = flood(&mut following(), || output("run.1", 1 << 20));
        assert!(messages >= 32 && bytes <= MAX_WAITING_BYTES, "{messages}, {bytes}");
        assert_eq!(flood(&mut following(), || output("run.1", 0)).0, MAX_WAITING_MESSAGES);
        let (messages, bytes) = flood(&mut following(), || warning(&"x".repeat(10_000)));
        assert!(messages >= 100 && bytes <= MAX_WAITING_BYTES, "{messages}, {bytes}");
        // Removed messages make room.
        let mut backlog = following();
        for _ in 0..3 * MAX_WAITING_MESSAGES {
            backlog.put(output("run.1", 100)).unwrap();
            assert!(backlog.pop().is_some());
        }
        assert_eq!(backlog.waiting_bytes, 0);
    }

    #[test]
    fn messages_of_other_jobs_are_dropped() {
        let mut backlog = following();
        for _ in 0..MAX_WAITING_MESSAGES + 10 {
            backlog.put(output("other.1", 1 << 10)).unwrap();
        }
        assert!(backlog.pop().is_none());
        // Before any job is followed, every job is another one.
        let mut backlog = PendingMessages::default();
        backlog.put(output("run.1", 1)).unwrap();
        assert!(backlog.pop().is_none());
    }

    #[test]
    fn announced_and_small_artifacts_are_bounded() {
        let ahead = |i: usize| IncomingMessage::Ahead {
            job: "run.1".to_owned(),
            path: format!("raw/{i}"),
            len: 1,
        };
        let mut backlog = following();
        let put = (0..).map_while(|i| backlog.put(ahead(i)).ok()).count();
        assert_eq!((put, backlog.prefetched.len()), (MAX_AHEAD_FILES, MAX_AHEAD_FILES));
        assert!(following().announce("x".repeat(MAX_AHEAD_PATH_BYTES + 1), 1).is_err());

        let mut backlog = following();
        for i in 0..300 {
            backlog.keep_inline(format!("raw/{i}"), vec![0; 256 << 10]);
        }
        assert!((90..=96).contains(&backlog.inline.len()), "{}", backlog.inline.len());
        for _ in 0..1000 {
            backlog.keep_inline("raw/1".to_owned(), vec![0; 1000]);
        }
        assert!(backlog.inline_bytes <= MAX_INLINE_BYTES);
        assert_eq!(backlog.take_inline("raw/1").map(|bytes| bytes.len()), Some(1000));
        let mut backlog = following();
        (0..2 * MAX_INLINE_FILES).for_each(|i| backlog.keep_inline(i.to_string(), Vec::new()));
        assert_eq!(backlog.inline.len(), MAX_INLINE_FILES);
    }
}
